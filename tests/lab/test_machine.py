"""The lab's virtual machine: it runs what this machine has, brings out what it should, and leaves nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.errors import LabError
from iosonde.lab import Limits
from iosonde.lab.machine import Settings, archive
from iosonde.lab.qemu import Drives, Image, image

HANDOVER = "from iosonde.features.nvme_driver import handover as h; print(h.refusals(h.controllers()[0])[0])"
GUEST = """
echo "drives $IOSONDE_LAB_DEVICES"
for drive in /dev/lab/*; do echo "$drive $(cat /sys/class/nvme/$(basename $(readlink $drive) n1)/serial)"; done
"$IOSONDE_ENGINE" --probe >probe.json
sha256sum <"$IOSONDE_ENGINE"
touch "$(dirname "$IOSONDE_ENGINE")/written-by-the-guest" && echo touched
test -t 1 || echo "no terminal"
"$0" -B -c "$1"
sleep 1000 &
echo trouble >&2
exit 7
"""


@pytest.fixture
def environment(machine_image: Image) -> dict[str, str]:
    """The command line as a user has it, with the image that the user's cache holds."""
    return {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT / "python"),
        "IOSONDE_ENGINE": str(real_engine()),
        "XDG_CACHE_HOME": str(machine_image.directory.parents[2]),
    }


def lab_run(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "iosonde", "lab", "run", *arguments]


def test_a_command_runs_in_the_machine_and_only_results_are_returned(
    environment: dict[str, str], tmp_path: Path
) -> None:
    options = ("--drives", "3", "--size", "1MiB", "--memory", "512MiB", "--results")
    done = subprocess.run(
        [*lab_run(*options, str(tmp_path)), "--", "sh", "-c", GUEST, sys.executable, HANDOVER],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
    )
    digest = hashlib.sha256(real_engine().read_bytes()).hexdigest()
    assert (done.returncode, done.stdout.splitlines()) == (
        7,
        [
            "drives /dev/lab/0,/dev/lab/1,/dev/lab/2",
            *(f"/dev/lab/{number} {f'IOSONDE-LAB-{number}':<20}" for number in range(3)),
            f"{digest}  -",
            "touched",
            "no terminal",
            "no IOMMU limits which memory the device may access",  # The user-level driver is refused then.
        ],
    ), done.stderr
    assert "trouble" in done.stderr.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["probe.json"]
    assert not (real_engine().parent / "written-by-the-guest").exists()


def test_nothing_of_a_machine_remains_when_its_owner_is_killed(environment: dict[str, str], tmp_path: Path) -> None:
    command = [*lab_run("--size", "1MiB", "--results", str(tmp_path)), "--", "true"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stderr is not None
        try:
            assert owner.stderr.readline().startswith("starting a virtual machine")
            started = psutil.Process(owner.pid).children(recursive=True)
            assert len(started) >= 3
        finally:
            owner.kill()
    deadline = time.monotonic() + 300
    while running := [each for each in started if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline, running
        time.sleep(0.05)
    assert "iosonde-lab" not in Path("/proc/self/mounts").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.needs("apt-get", "cpio", "depmod", "dpkg-deb")
def test_an_image_built_before_does_when_no_archive_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, users_image: Image
) -> None:
    for tool in ("apt-cache", "apt-get"):
        (tmp_path / tool).write_text("#!/bin/sh\nexit 100\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabError, match="is not to be had here") as raised:
        image(tmp_path / "cache")
    assert raised.value.hint
    assert image(users_image.directory.parent) == users_image
    assert any(package.startswith("linux-image-") for package in users_image.packages)


@pytest.mark.parametrize(
    ("drives", "message"),
    [
        ({"count": 17}, "must be 0 to 16; got 17"),
        ({"size_bytes": 100}, "at least 1 MiB .* got 100 bytes"),
        ({"size_bytes": 1 << 60}, "no room for the lab's machine"),
    ],
)
def test_a_machine_that_cannot_be_started_is_an_error(drives: dict[str, int], message: str) -> None:
    with pytest.raises(LabError, match=message):
        Settings(drives=Drives(limits=Limits(), **drives)).check_room()


@pytest.mark.system
def test_the_job_is_an_archive_that_cpio_reads(tmp_path: Path) -> None:
    packed = archive("job", {"settings": "A=1\n", "command": "exec true\n"})
    done = subprocess.run(["cpio", "--extract", "--quiet"], input=packed, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "job/settings").read_text() == "A=1\n"
    assert (tmp_path / "job/command").read_text() == "exec true\n"
