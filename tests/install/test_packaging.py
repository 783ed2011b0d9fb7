"""Things that are shipped: the source distribution, the notices, the container image and its Job, and builds of two checkouts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from command_line import CHECKOUT

from iosonde.cli import COMMANDS
from iosonde.cli.commands import man
from iosonde.data import shipped

pytestmark = pytest.mark.engine

KUBERNETES = CHECKOUT / "packaging" / "container"
OLDEST_KUBERNETES = "1.27"
LONG_AGO = 1_000_000_000
RUN = ("cargo", "run", "--quiet", "--offline")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [str(CHECKOUT / "scripts" / "release"), "sdist", "--out", str(directory)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    [archive] = directory.iterdir()
    return archive


def test_it_contains_what_building_and_redistribution_need(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        [script] = [each for each in archive.getmembers() if each.name.endswith("packaging/wheel/scripts/iosonde")]
    assert script.mode & 0o111, "maturin drops the permission, and `iosonde` could not be started after `pip install`"
    required = {"LICENSE", "THIRD-PARTY-NOTICES.txt", "Cargo.lock", "README.md", "packaging/wheel/scripts/iosonde"}
    data = {
        str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "python/iosonde/data").rglob("*.*") if path.is_file()
    }
    data = {name for name in data if "__pycache__" not in name}
    assert len(data) > 40
    assert (required | data) - names == set()
    assert {name.partition("/")[0] for name in names if "/" in name} == {"crates", "packaging", "python"}


@pytest.mark.fresh
@pytest.mark.timeout(1800)
def test_it_installs_and_only_its_package_can_be_imported(source: Path, tmp_path: Path) -> None:
    """Compiles the engine once more, which takes minutes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    constraints = {"PIP_CONSTRAINT": str(CHECKOUT / "packaging" / "constraints.txt")}
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "IOSONDE_ENGINE")}
    environment["COLUMNS"] = "1000"
    subprocess.run([binaries / "pip", "install", source], check=True, env={**environment, **constraints})

    def asked(*command: str) -> str:
        done = subprocess.run(
            [binaries / command[0], *command[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        return done.stdout + done.stderr

    assert asked("iosonde", "--version").startswith("iosonde ")
    assert "quick" in asked("iosonde", "list")
    assert str(binaries / "iosonde-engine") in asked("iosonde", "doctor", "--all")
    for name in ("models", "studies", "reference", "lab"):
        assert f"No module named '{name}'" in asked("python", "-c", f"import {name}")
    listed = asked("pip", "show", "--files", "iosonde")
    assert "LICENSE" in listed and "THIRD-PARTY-NOTICES.txt" in listed


def test_the_notices_name_every_crate_in_the_engine() -> None:
    """Their texts too: a crate that is added, updated or removed changes the file."""
    command = [sys.executable, "-B", str(CHECKOUT / "scripts" / "notices"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = (CHECKOUT / "THIRD-PARTY-NOTICES.txt").read_text()
    assert "The OpenLDAP Public License" in text
    assert "Howard Chu, Symas Corp." in text


def test_manifests_follow_the_schema_of_kubernetes_which_refuses_a_misspelt_field() -> None:
    documents = [each for path in KUBERNETES.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, OLDEST_KUBERNETES, strict=True)
    _, job = yaml.safe_load_all((KUBERNETES / "qualify-job.yaml").read_text())
    job["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, OLDEST_KUBERNETES, strict=True)


def test_the_job_calls_commands_and_options_that_exist() -> None:
    volume, job = yaml.safe_load_all((KUBERNETES / "qualify-job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    options = {
        entry.name: {name for names, _ in entry.parameters for name in re.findall(r"--[a-z-]+", names)}
        for entry in man.entries()
    }
    called = [shlex.split(line) for line in container["args"][0].splitlines() if line.startswith("iosonde ")]
    assert {words[1] for words in called} <= set(COMMANDS)
    for words in called:
        assert {word for word in words if word.startswith("--")} <= options[words[1]], words
        assert words[1] != "run" or words[2] in shipped()
        assert (
            "--target" not in words or words[words.index("--target") + 1] == container["volumeMounts"][0]["mountPath"]
        )


@pytest.mark.extended
def test_each_checkout_runs_its_own_program_and_compiles_it_once(tmp_path: Path) -> None:
    """Both have the same files of the same age, and the second one's program is older than what the first one built."""
    first, second = (checkout(tmp_path / name, says=name) for name in ("first", "second"))
    shared = tmp_path / "target"
    assert [own_build(each, shared, *RUN) for each in (first, second, first)] == ["first\n", "second\n", "first\n"]
    source = first / "crates/program/src/main.rs"
    os.utime(source, (LONG_AGO, LONG_AGO))
    own_build(first, shared)
    assert source.stat().st_mtime == LONG_AGO, "nothing is compiled again"


def checkout(place: Path, *, says: str) -> Path:
    """A workspace with one program, which is as old as that of any other such checkout."""
    crate = place / "crates" / "program"
    (crate / "src").mkdir(parents=True)
    (place / "scripts").mkdir()
    shutil.copy(CHECKOUT / "scripts" / "own-build", place / "scripts")
    (place / "Cargo.toml").write_text('[workspace]\nmembers = ["crates/program"]\nresolver = "3"\n')
    (crate / "Cargo.toml").write_text('[package]\nname = "program"\nversion = "0.0.0"\nedition = "2024"\n')
    (crate / "src" / "main.rs").write_text(f'fn main() {{ println!("{says}"); }}\n')
    for path in crate.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return place


def own_build(place: Path, shared: Path, *command: str) -> str:
    """Build as make does, then run a command -> its output."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(shared)}
    subprocess.run(["sh", "scripts/own-build"], cwd=place, env=environment, check=True)
    output = {"stdout": subprocess.PIPE, "text": True, "check": True}
    return subprocess.run(command or ["true"], cwd=place, env=environment, **output).stdout  # type: ignore[call-overload, no-any-return]
