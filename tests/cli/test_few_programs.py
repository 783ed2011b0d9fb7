"""iosonde on a machine that has coreutils and Python and nothing else: clear messages, no traceback.

The directories of programs are hidden in a mount namespace, because iosonde also looks where PATH does not lead.
"""

from __future__ import annotations

import json
import os
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

COREUTILS = ("sh", "cat", "cp", "env", "ls", "rm", "stat", "true", "uname")
STUDY = """
name = "small"
title = "Small"
question = "Does it work?"
repeats = 1
[measurement]
span = "1MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
factors.queue_depth = [1, 4]
[profiles.quick]
"""
HIDE = """
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
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "python"), *filter(None, sys.path)]),
        "IOSONDE_ENGINE": str(real_engine()),
        "COLUMNS": "200",
    }

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "iosonde", *map(str, arguments)]
        done = subprocess.run(
            private_mounts(HIDE, place, *command),
            capture_output=True, text=True, check=False, env={**environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done

    return run


def test_a_study_on_a_directory_needs_no_program(bare: Bare, tmp_path: Path) -> None:
    study, target = tmp_path / "small.toml", tmp_path / "target"
    study.write_text(STUDY)
    target.mkdir()
    for name in ("one", "two"):
        done = bare("run", study, "--target", target, "--profile", "quick", "--output", tmp_path / name)
        assert "2 of 2 runs complete" in done.stderr
    assert (tmp_path / "one/report.html").stat().st_size > 10_000
    assert bare("report", tmp_path / "one", "--output", tmp_path / "again.html").stdout.strip().endswith("again.html")
    assert "queue depth 4" in bare("compare", tmp_path / "one", tmp_path / "two").stdout
    assert bare("sql", tmp_path / "one", "SELECT count(*) AS n FROM runs").stdout == "n\n2\n"


def test_what_is_missing_is_named_with_its_package(bare: Bare, tmp_path: Path) -> None:
    checks = {each["name"]: each for each in json.loads(bare("doctor", "--json").stdout)}
    for name in ("fio", "mkfs.ext4", "losetup", "wipefs"):
        assert checks[name]["state"] == "note" and "not found" in checks[name]["found"], name
        assert "install" in checks[name]["advice"] or "package" in checks[name]["advice"], name
    study, target = tmp_path / "small.toml", tmp_path / "target"
    study.write_text(STUDY)
    target.mkdir()
    options = ("--profile", "quick", "--output", tmp_path / "set", "--set", "file_system=ext4")
    refused = bare("run", study, "--target", target, *options, code=1)
    assert "was not found" in refused.stderr or "is not installed" in refused.stderr
    assert "install" in refused.stderr
    assert list(target.iterdir()) == []
