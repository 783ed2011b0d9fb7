"""A machine without `/proc` or `/sys`: a reason and a hint, never a traceback or a claim about what was not read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT
from engines import real_engine
from namespaces import private_mounts

pytestmark = [pytest.mark.system, pytest.mark.needs("root")]

HIDE = 'hidden=$1; shift; mount -t tmpfs none "$hidden" && exec "$@"'
SHORT = ("--span", "4MiB", "--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


def without(hidden: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line with an empty file system over `/proc` or `/sys`."""
    done = subprocess.run(
        private_mounts(HIDE, hidden, sys.executable, "-m", "iosonde", *arguments),
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": str(CHECKOUT / "python"),
            "COLUMNS": "250",
            "IOSONDE_ENGINE": str(real_engine()),
        },
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def test_devices_cannot_be_listed_without_sysfs() -> None:
    done = without("/sys", "devices")
    assert done.returncode == 1
    assert "listing block devices requires sysfs: `/sys/block` does not exist" in done.stderr


def test_files_are_measured_without_sysfs(tmp_path: Path) -> None:
    done = without("/sys", "io", "--target", tmp_path, *SHORT)
    assert done.returncode == 0, done.stderr
    assert "warning: no block device is visible under" in done.stderr


@pytest.mark.parametrize("arguments", [("devices",), ("io", *SHORT, "--target")])
def test_nothing_is_measured_without_procfs(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = without("/proc", *arguments, *([tmp_path] if "--target" in arguments else []))
    assert done.returncode == 1
    assert "iosonde requires procfs: `/proc/self/mountinfo` does not exist" in done.stderr
    assert "mount -t proc" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_what_it_cannot_read() -> None:
    shown = without("/sys", "doctor").stdout
    assert "`/sys/block` does not exist" in shown
    assert "the CPU's counter is not stable" not in shown
    for name in ("clocksource", "mitigations", "governor"):
        [line] = [line for line in shown.splitlines() if line.split()[1:2] == [name]]
        assert "unknown" in line
    assert "`/proc/self/mountinfo` does not exist" in without("/proc", "doctor").stdout
