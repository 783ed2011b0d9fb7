"""`scripts/release` with small wheels: what it refuses, and the files it writes. The tier `fresh` builds a whole release."""

from __future__ import annotations

import base64
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from command_line import CHECKOUT

pytestmark = pytest.mark.engine

CHANGELOG = "# Changelog\n\n## 0.1.0 (2027-01-02)\n\nThe first.\n\n- A list.\n\n## 0.0.9 (2026-01-01)\n\nOlder.\n"
COMMIT_TIME = 1_000_000_000


@pytest.fixture(scope="module")
def release() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("release_script", str(CHECKOUT / "scripts" / "release"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(COMMIT_TIME))


def test_the_notes_are_the_section_of_the_version(release: ModuleType) -> None:
    assert release.release_notes(CHANGELOG, "0.1.0", preview=False) == "The first.\n\n- A list.\n"
    unreleased = CHANGELOG.replace("2027-01-02", "unreleased")
    assert release.release_notes(unreleased, "0.1.0", preview=True) == "The first.\n\n- A list.\n"


@pytest.mark.parametrize(
    ("changelog", "version", "heading"),
    [
        (CHANGELOG, "0.2.0", "0.1.0 (2027-01-02)"),
        (CHANGELOG.replace("2027-01-02", "unreleased"), "0.1.0", "0.1.0 (unreleased)"),
    ],
    ids=["another version", "no date"],
)
def test_a_changelog_without_the_version_is_refused(
    release: ModuleType, capsys: pytest.CaptureFixture[str], changelog: str, version: str, heading: str
) -> None:
    with pytest.raises(SystemExit):
        release.release_notes(changelog, version, preview=False)
    expected = (
        f"error: the first section of CHANGELOG.md must be `{version} (YEAR-MONTH-DAY)`, not `{heading}`\n\nhint: "
    )
    assert capsys.readouterr().err.startswith(expected)


def test_a_checkout_with_changes_and_a_directory_in_use_are_refused(tmp_path: Path) -> None:
    """Before anything is installed or built."""
    place = tmp_path / "checkout"
    (place / "scripts").mkdir(parents=True)
    shutil.copy(CHECKOUT / "scripts" / "release", place / "scripts")
    shutil.copy(CHECKOUT / "Cargo.toml", place)
    (place / "CHANGELOG.md").write_text(CHANGELOG)
    out = tmp_path / "out"

    def refusal(*arguments: str) -> str:
        command = [sys.executable, str(place / "scripts" / "release"), "--out", str(out), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr

    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    changes = "error: the checkout has changes:\n?? CHANGELOG.md\n?? Cargo.toml\n?? scripts/\n\nhint: "
    assert refusal().startswith(changes)
    out.mkdir()
    (out / "older.whl").touch()
    assert refusal("--preview").startswith(f"error: `{out}` is not empty\n\nhint: ")


def test_checksums_are_those_that_sha256sum_checks(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "a.deb").write_bytes(b"a")
    for _ in range(2):
        release.write_checksums(tmp_path)
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a.deb: OK\nb.whl: OK\n")
    (tmp_path / "a.deb").write_bytes(b"changed")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


@pytest.mark.needs("cc", "objcopy", "objdump")
def test_programs_are_stripped_and_the_wheel_depends_on_nothing_but_contents(
    release: ModuleType, tmp_path: Path
) -> None:
    first = small_wheel(tmp_path / "first")
    second = small_wheel(tmp_path / "second", reverse=True)
    assert first.read_bytes() != second.read_bytes()
    stripped = tmp_path / first.name
    debug = release.strip_programs(first, stripped, "objcopy")
    again = tmp_path / "again.whl"
    assert release.strip_programs(second, again, "objcopy") == debug
    assert again.read_bytes() == stripped.read_bytes()
    with zipfile.ZipFile(stripped) as archive:
        [data] = [name for name in archive.namelist() if name.endswith("scripts/iosonde-engine")]
        program = Path(archive.extract(data, tmp_path))
        assert archive.read("iosonde-0.1.0.dist-info/sboms/iosonde-engine.cyclonedx.json") == b"file:///iosonde"
        rows = archive.read("iosonde-0.1.0.dist-info/RECORD").decode().splitlines()
        for name, digest, size in (row.split(",") for row in rows[:-1]):
            hashed = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).decode().rstrip("=")
            assert (digest, int(size)) == (f"sha256={hashed}", len(archive.read(name)))
        assert {row.partition(",")[0] for row in rows} == set(archive.namelist())
    program.chmod(0o755)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "measured\n"
    assert b"small_program.c" not in program.read_bytes()
    (program.parent / "iosonde-engine.debug").write_bytes(debug["iosonde-engine.debug"])
    named = subprocess.run(["objdump", "--dwarf=follow-links", "--dwarf=info", program], capture_output=True, text=True)
    assert "small_program.c" in named.stdout


@pytest.mark.needs("cc", "dpkg-deb")
def test_a_package_contains_the_wheel_as_an_environment_of_its_own(release: ModuleType, tmp_path: Path) -> None:
    wheel = small_wheel(tmp_path / "built")
    documents = {"usr/share/man/man1/iosonde.1.gz": b"page", "usr/share/doc/iosonde/copyright": b"text"}
    packages = []
    for name, mask in (("first", 0o022), ("second", 0o077)):
        (tmp_path / name).mkdir()
        before = os.umask(mask)
        try:
            packages.append(release.build_deb(wheel, "12", documents, tmp_path / name))
        finally:
            os.umask(before)
    first, second = packages
    assert first.name == "iosonde_0.1.0+deb12_amd64.deb"
    assert first.read_bytes() == second.read_bytes()
    fields = subprocess.run(["dpkg-deb", "--field", first, "Version", "Depends"], capture_output=True, text=True).stdout
    assert fields.splitlines()[0] == "Version: 0.1.0+deb12"
    assert "python3.11" in fields
    listed = subprocess.run(["dpkg-deb", "--contents", first], capture_output=True, text=True).stdout.splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    modes = {line.split()[5].removeprefix("."): line.split()[0] for line in listed}
    packaged = "/usr/lib/iosonde/lib/python3.11/site-packages/iosonde/__init__.py"
    assert (modes["/usr/lib/iosonde/bin/iosonde"], modes[packaged]) == ("-rwxr-xr-x", "-rw-r--r--")
    assert not [name for name in modes if "tests" in name.split("/")], "tests of other packages"
    subprocess.run(["dpkg-deb", "--extract", first, tmp_path / "root"], check=True)
    started = tmp_path / "root/usr/bin/iosonde"
    assert started.read_text().splitlines() == ["#!/usr/lib/iosonde/bin/python3", "print('started')"]
    assert (started.parent / "../lib/iosonde/bin/python3").readlink() == Path("../../../bin/python3.11")


def test_a_package_has_the_manual_page_and_completions_that_complete(release: ModuleType, tmp_path: Path) -> None:
    documents = release.documents(Path(sys.executable).parent)
    assert documents["usr/share/man/man1/iosonde.1.gz"].startswith(b".TH IOSONDE 1 ")
    assert documents["usr/share/zsh/vendor-completions/_iosonde"].startswith(b"#compdef iosonde\n")
    assert documents["usr/share/fish/vendor_completions.d/iosonde.fish"].startswith(b"complete --command iosonde ")
    (tmp_path / "iosonde").write_bytes(documents["usr/share/bash-completion/completions/iosonde"])
    script = f"""
        source {tmp_path}/iosonde
        COMP_WORDS=(iosonde qua); COMP_CWORD=1
        _iosonde_completion {Path(sys.executable).parent}/iosonde
        echo "${{COMPREPLY[@]}}"
    """
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout == "qualify\n"


@pytest.mark.fresh
@pytest.mark.timeout(4 * 3600)
@pytest.mark.needs("cargo", "cc", "dpkg-deb")
def test_a_release_that_is_built_in_another_directory_and_with_another_umask_has_the_same_bytes(tmp_path: Path) -> None:
    """Compiles the programs twice with the profile of wheels, for this machine only: half an hour and more."""
    sums = []
    for name, mask in (("first", 0o022), ("second", 0o077)):
        place = tmp_path / name
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(place / "checkout")], check=True
        )
        command = [place / "checkout/scripts/release", "--preview", "--architecture", platform.machine()]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(place / "target")}
        del environment["SOURCE_DATE_EPOCH"]
        subprocess.run([*command, "--out", place / "out"], umask=mask, env=environment, check=True)
        sums.append((place / "out" / "SHA256SUMS").read_text().splitlines())
        shutil.rmtree(place / "target")
    first, second = sums
    assert first == second
    kinds = {"".join(Path(line).suffixes[-1:]) for line in first}
    assert kinds == {".whl", ".gz", ".xz", ".deb", ".json", ".txt", ".md"}


def small_wheel(place: Path, *, reverse: bool = False) -> Path:
    """A wheel of a module and programs in C."""
    place.mkdir()
    source = place / "small_program.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("measured"); return 0; }\n')
    compiled = ["cc", "-g", f"-ffile-prefix-map={place}=.", "-o", place / "program", source]
    subprocess.run(compiled, check=True)
    program = (place / "program").read_bytes()
    metadata = "iosonde-0.1.0.dist-info"
    scripts = "iosonde-0.1.0.data/scripts"
    files = {
        "iosonde/__init__.py": b"",
        "numpy/tests/test_numpy.py": b"",
        f"{scripts}/iosonde": b"#!python\nprint('started')\n",
        f"{scripts}/iosonde-engine": program,
        f"{scripts}/iosonde-engine-clients": program,
        f"{metadata}/METADATA": b"Metadata-Version: 2.1\nName: iosonde\nVersion: 0.1.0\n",
        f"{metadata}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_31_x86_64\n",
        f"{metadata}/sboms/iosonde-engine.cyclonedx.json": CHECKOUT.as_uri().encode(),
        f"{metadata}/RECORD": b"",
    }
    wheel = place / "iosonde-0.1.0-py3-none-manylinux_2_31_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sorted(files, reverse=reverse):
            entry = zipfile.ZipInfo(name, (2000 + reverse, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if "scripts" in name else 0o100644) << 16
            archive.writestr(entry, files[name])
    return wheel
