"""Documented ways to install, on systems with nothing installed: a checkout, the wheel, packages of Debian, the container image.

`make fresh` runs them all; downloads and compiling take most of the time.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from debian import Debian, copy_checkout, fresh_debian
from podman import Podman

pytestmark = [pytest.mark.fresh, pytest.mark.needs("root", "debootstrap"), pytest.mark.timeout(3600)]

SELECTION = "tests/install tests/study/test_units.py tests/execution/test_made_file_systems.py tests/cli/test_doctor.py"
"""Tests that cover setup, pure Python, an external program that setup must have installed, and the engine."""

NOT_IN_DEBIAN_12 = {"go", "ferretdb"}
"""Go is too old there to build the server that tests of the store `mongodb` use: they are skipped, with this reason."""

COMPILERS = "command -v cc || command -v gcc || command -v cargo || command -v make || command -v git"

MEASURE = """
time iosonde list
time iosonde run quick --target /data --output /data/quick
time iosonde qualify etcd --target /data --output /data/etcd --quiet || true  # The decision depends on the disk.
"""


# A checkout -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    """Debian 12 with the requirements in README and a copy of this checkout."""
    root = tmp_path_factory.mktemp("fresh") / "debian"
    with fresh_debian(root, release="bookworm", packages="git make python3") as made:
        copy_checkout(root / "root" / "iosonde")
        yield Debian(made.root, "/root/iosonde")


def test_the_demo_works_on_a_fresh_debian(debian: Debian) -> None:
    assert debian.run("command -v cargo || command -v cc || command -v pip").returncode != 0, "the machine is not fresh"
    done = debian.run("make demo")
    assert done.returncode == 0, done.stdout[-4000:]
    [report] = debian.root.joinpath(debian.directory.lstrip("/"), "iosonde-results").glob("quick-*/report.html")
    assert "<html" in report.read_text()


def test_the_setup_of_the_tests_works_and_a_selection_of_them_passes(debian: Debian) -> None:
    """None of the selection is skipped for want of a program: setup installs them all."""
    done = debian.run(f"make setup-dev\n. .venv/bin/activate\npytest -q -p no:cacheprovider {SELECTION}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert not re.search(r"SKIPPED.*install the package", done.stdout)
    assert set(re.findall(r"warning: `(\S+)` is missing", done.stdout)) == NOT_IN_DEBIAN_12


# Wheel and packages ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release for this machine: those in `IOSONDE_RELEASE`, else built from this checkout."""
    if directory := os.environ.get("IOSONDE_RELEASE"):
        return Path(directory)
    built = tmp_path_factory.mktemp("release")
    options = ["--preview", "--architecture", platform.machine(), "--out", str(built)]
    subprocess.run([sys.executable, CHECKOUT / "scripts/release", *options], check=True)
    return built


@pytest.fixture(params=["bookworm", "trixie"])
def codename(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_wheel_works_without_a_compiler(codename: str, release: Path, tmp_path: Path) -> None:
    with fresh_debian(tmp_path / codename, release=codename, packages="python3-venv") as debian:
        assert debian.run(COMPILERS).returncode != 0, "the machine is not fresh"
        [wheel] = release.glob(f"iosonde-*_{platform.machine()}.whl")
        debian.add(wheel)
        install = f"python3 -m venv iosonde\niosonde/bin/pip install ./{wheel.name}"
        install_and_measure(debian, f"{install}\nexport PATH=/root/iosonde/bin:$PATH")


def test_the_package_is_complete_and_removed_without_a_trace(codename: str, release: Path, tmp_path: Path) -> None:
    with fresh_debian(tmp_path / codename, release=codename, packages="bash-completion") as debian:
        version = debian.run(". /etc/os-release; dpkg --print-architecture; echo $VERSION_ID").stdout.split()
        [package] = release.glob("iosonde_*+deb{1}_{0}.deb".format(*version))
        debian.add(package)
        install = f"apt-get install --yes -q --no-install-recommends ./{package.name}"
        install_and_measure(debian, f"apt-get -q update\n{install}")
        assert debian.run("zcat /usr/share/man/man1/iosonde.1.gz | head -1").stdout.startswith(".TH")
        assert completed_by_bash(debian, "iosonde", "qual") == ["qualify"]
        removed = debian.run(
            "rm -rf .cache .local /data *.deb; apt-get remove --yes -q iosonde; find / -xdev -name '*iosonde*'"
        )
        assert removed.returncode == 0
        found = {line for line in removed.stdout.splitlines() if line.startswith("/")}
        assert {each for each in found if not each.startswith(("/proc/", "/sys/"))} == set()


def install_and_measure(debian: Debian, install: str) -> None:
    done = debian.run(f"mkdir /data\n{install}{MEASURE}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^etcd: (pass|fail|undecided)", done.stdout, re.MULTILINE)
    check_measured(debian.root / "data")


def completed_by_bash(debian: Debian, *words: str) -> list[str]:
    """Completions of bash for the last word of a command line."""
    script = f"""
    source /usr/share/bash-completion/bash_completion
    _completion_loader {words[0]} || true
    COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1} COMP_LINE="{" ".join(words)}" COMP_POINT=99
    function=$(complete -p {words[0]} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    set +eu; $function {words[0]} {words[-1]}; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return debian.run(script).stdout.split()


def check_measured(data: Path) -> None:
    """The study has a report, and all runs are complete."""
    assert "<html" in (data / "quick" / "report.html").read_text()
    for name in ("quick", "etcd"):
        assert {each["outcome"] for each in records(data / name)} == {"complete"}


def records(result_set: Path) -> list[dict[str, Any]]:
    """The records of all runs."""
    return [json.loads(each.read_text()) for each in sorted(result_set.glob("records/*/record.json"))]


# The container image --------------------------------------------------------------------------------------------------

IMAGE = "localhost/iosonde"


@pytest.fixture(scope="module")
def podman(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman with the image, built on a minimal Debian 12 in place of the base that is pulled from a registry."""
    engine = Podman(tmp_path_factory.mktemp("podman"))
    try:
        with fresh_debian(tmp_path_factory.mktemp("base") / "root", release="bookworm", packages="") as debian:
            engine.import_directory(debian.root, "localhost/base")
        file = CHECKOUT / "packaging/container/Containerfile"
        build = ["build", "--no-cache", "--isolation=chroot", "--network=host", "--build-arg=BASE=localhost/base"]
        engine(*build, f"--tag={IMAGE}", f"--file={file}", release)
        engine("history", IMAGE)
        yield engine
    finally:
        engine.remove()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A directory in which the image's user, and the group of users that a platform chooses, may write."""
    path = tmp_path / "volume"
    path.mkdir()
    os.chown(path, 10001, 0)
    path.chmod(0o775)
    return path


@pytest.mark.needs("podman", "crun")
@pytest.mark.parametrize(
    ("options", "backend"),
    [((), "sync"), (("--security-opt=seccomp=unconfined",), "uring")],
    ids=["default profile", "unconfined"],
)
def test_the_image_measures_a_volume(podman: Podman, volume: Path, options: tuple[str, ...], backend: str) -> None:
    run = ["run", "--rm", f"--volume={volume}:/data", *options, IMAGE]
    doctor = json.loads(podman(*run, "doctor", "--json"))
    state = {check["name"]: check["state"] for check in doctor}
    assert (state["engine"], state["io_uring"]) == ("ok", "ok" if backend == "uring" else "note")
    podman(*run, "run", "quick", "--target=/data", "--output=/data/quick")
    assert json.loads(
        podman(*run, "qualify", "etcd", "--target=/data", "--output=/data/etcd", "--json", succeeds=False)
    )
    check_measured(volume)
    runs = records(volume / "quick")
    assert {each["result"]["backend"]["kind"] for each in runs} == {backend}
    assert ("uring_unavailable" in {each["code"] for run in runs for each in run["warnings"]}) == (backend == "sync")
    assert {path.stat().st_uid for path in volume.rglob("*")} == {10001}


@pytest.mark.needs("podman", "crun", "disk")
def test_the_devices_of_a_volume_are_visible_in_a_container(podman: Podman, volume: Path) -> None:
    """Podman masks `/sys/dev/block`."""
    podman("run", "--rm", f"--volume={volume}:/data", IMAGE, *SHORT, succeeds=False)
    [run, *_] = records(volume / "short")
    assert run["target"]["devices"]
    assert {each["device"] for each in run["result"]["devices"]} <= {
        each["device"] for each in run["target"]["devices"]
    }
    assert run["result"]["devices"]


SHORT = ("qualify", "etcd", "--target=/data", "--output=/data/short", "--quiet")


@pytest.mark.needs("podman", "crun", "memory limits")
@pytest.mark.parametrize(
    "options",
    [("--read-only",), ("--user=123456:0",), ("--memory=512m", "--cpus=1.5")],
    ids=["read-only image", "any user of group 0", "limits"],
)
def test_the_image_works_restricted(podman: Podman, volume: Path, options: tuple[str, ...]) -> None:
    podman("run", "--rm", f"--volume={volume}:/data", *options, IMAGE, *SHORT, succeeds=False)
    assert {each["outcome"] for each in records(volume / "short")} == {"complete"}
    assert [path.name for path in volume.iterdir()] == ["short"], "files of the runs were removed"
