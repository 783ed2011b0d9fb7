"""iosonde on a machine with no programs but coreutils and Python, or without `/proc` or `/sys`: no traceback.

The directories of programs are hidden in a mount namespace, because iosonde also looks where PATH does not lead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CHECKOUT
from engines import real_engine
from namespaces import private_mounts

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "unshare", "loop devices")]

STUDY = ("run", "master2010-iops", "--profile", "quick", "--repeats", "1", "--set", "span=1MiB", "--set", "jobs=1")
SHORT = ("--set", "duration=100ms", "--set", "queue_depth=1")

COREUTILS = ("sh", "cat", "cp", "env", "ls", "rm", "stat", "true", "uname")
HIDE_PROGRAMS = """
for directory in /usr/local/bin /usr/local/sbin /usr/sbin /sbin; do
  [ ! -d "$directory" ] || mount --bind "$1/empty" "$directory"
done
mount --bind "$1/bin" /usr/bin
[ /bin -ef /usr/bin ] || mount --bind "$1/bin" /bin
shift
exec "$@"
"""

Bare = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    """Runs iosonde where coreutils are the only programs; a traceback fails the test."""
    place = tmp_path / "machine"
    (place / "bin").mkdir(parents=True)
    (place / "empty").mkdir()
    for name in COREUTILS:
        shutil.copy(str(shutil.which(name)), place / "bin" / name)
    python = Path(sys.executable).resolve()
    assert not python.is_relative_to("/usr/bin") or shutil.copy(python, place / "bin" / python.name)
    environment = {
        **{"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "COLUMNS": "200"},
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "python"), *filter(None, sys.path)]),
        "IOSONDE_ENGINE": str(real_engine()),
    }

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = private_mounts(HIDE_PROGRAMS, place, str(python), "-m", "iosonde", *map(str, arguments))
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done

    return run


def test_a_directory_is_measured_and_reported_without_any_program(bare: Bare, tmp_path: Path) -> None:
    target, output = tmp_path / "target", tmp_path / "set"
    target.mkdir()
    options = ("--target", target, "--output", output, *SHORT)
    assert "complete" in bare(*STUDY, *options).stderr
    assert (output / "report.html").stat().st_size > 10_000
    assert bare("sql", output, "SELECT count(*) > 0 AS n FROM runs").stdout == "n\ntrue\n"
    shutil.copytree(output, tmp_path / "again")
    assert bare("compare", output, tmp_path / "again").returncode == 0


def test_what_is_missing_is_named_with_its_package(bare: Bare, tmp_path: Path) -> None:
    checks = {each["name"]: each for each in json.loads(bare("doctor", "--json").stdout)}
    for name in ("fio", "mkfs.ext4", "losetup", "wipefs"):
        assert checks[name]["state"] == "note" and "not found" in checks[name]["found"], name
        assert "install" in checks[name]["advice"] or "package" in checks[name]["advice"], name
    options = ("--target", tmp_path / "target", "--output", tmp_path / "set", "--set", "file_system=ext4", *SHORT)
    (tmp_path / "target").mkdir()
    refused = bare(*STUDY, *options, code=1)
    assert "was not found" in refused.stderr or "is not installed" in refused.stderr
    assert "install" in refused.stderr
    assert list((tmp_path / "target").iterdir()) == []


HIDE_DIRECTORY = 'hidden=$1; shift; mount -t tmpfs none "$hidden" && exec "$@"'
IO = ("io", "--span", "4MiB", "--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms", "--target")
NO_PROCFS = "iosonde requires procfs: `/proc/self/mountinfo` does not exist"


def without(hidden: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line with an empty file system over `/proc` or `/sys`."""
    own = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine()), "COLUMNS": "250"}
    command = private_mounts(HIDE_DIRECTORY, hidden, sys.executable, "-m", "iosonde", *arguments)
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, env=os.environ | own, check=False
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("hidden", "arguments", "code", "problem"),
    [
        ("/sys", ("devices",), 1, "listing block devices requires sysfs: `/sys/block` does not exist"),
        ("/sys", (*IO, "DATA"), 0, "warning: no block device is visible under"),
        ("/proc", ("devices",), 1, NO_PROCFS),
        ("/proc", (*IO, "DATA"), 1, NO_PROCFS),
    ],
)
def test_files_are_measured_without_sysfs_and_nothing_without_procfs(
    hidden: str, arguments: tuple[str, ...], code: int, problem: str, tmp_path: Path
) -> None:
    done = without(hidden, *(tmp_path if each == "DATA" else each for each in arguments))
    assert done.returncode == code and problem in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_what_it_cannot_read() -> None:
    shown = without("/sys", "doctor").stdout
    assert "`/sys/block` does not exist" in shown and "the CPU's counter is not stable" not in shown
    for name in ("clocksource", "mitigations", "governor"):
        assert re.search(rf"^\S+ +{name} .*unknown", shown, re.MULTILINE), name
    assert "`/proc/self/mountinfo` does not exist" in without("/proc", "doctor").stdout
