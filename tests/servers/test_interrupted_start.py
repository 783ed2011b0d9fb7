"""Ctrl-C while a real Cassandra node or Ceph cluster starts: the study stops at once, and nothing of the server remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from study_texts import study_text

from iosonde.cli.reference import EXIT_INTERRUPTED
from iosonde.results import ResultSet
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.safety import journal

pytestmark = [pytest.mark.system, pytest.mark.needs("engine", "setpriv")]

CASSANDRA = study_text("kv", 'store = "cassandra"\nheap_size = "512MiB"\nrecords = 1000')
CEPH = study_text("objects", 'osds = 2\nreplication = 2\nosd_size = "1GiB"')
OF_CASSANDRA = pytest.mark.needs("java", "cassandra")
OF_CEPH = pytest.mark.needs(
    *("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "librados", "loop devices")
)
ON_LOOP_DEVICES = ("--set", "file_system=bluestore", "--set", "setup_size=1GiB")


def servers(program: str) -> dict[int, Path]:
    """Processes of servers in the journal, once one of them executes the program, with their data directories."""
    found = {
        int(str(each.facts["process"]).split()[1]): Path(each.path)
        for each in journal.entries()
        if each.what == "server"
    }
    running = {each.pid: each.info["cmdline"] for each in psutil.process_iter(["cmdline"])}
    return found if any(Path((running.get(each) or [""])[0]).name == program for each in found) else {}


def control_groups(number: int) -> list[Path]:
    """Directories of iosonde's control groups that a process is in."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{number}/cgroup").read_text().splitlines()]
    groups = {name for _, _, name in lines if "/iosonde-" in name}
    return [path for name in groups for path in Path("/sys/fs/cgroup").glob(f"*{name}")]


@pytest.mark.parametrize(
    ("study", "program", "options"),
    [
        pytest.param(CASSANDRA, "java", (), marks=OF_CASSANDRA, id="cassandra"),
        pytest.param(CEPH, "ceph-osd", ON_LOOP_DEVICES, marks=OF_CEPH, id="ceph-osd-on-loop-devices"),
    ],
)
def test_ctrl_c_during_a_start_leaves_nothing(
    study: str, program: str, options: tuple[str, ...], disk_place: Path, tmp_path: Path
) -> None:
    file, output = tmp_path / "study.toml", tmp_path / "results"
    file.write_text(study)
    command = [
        sys.executable,
        "-m",
        "iosonde",
        "run",
        str(file),
        "--target",
        str(disk_place),
        "-o",
        str(output),
        *options,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        while not (started := servers(program)) and running.poll() is None:
            time.sleep(0.02)
        groups = [group for number in started for group in control_groups(number)]
        loops = block_nodes.attached_to(disk_place)
        if started:
            os.killpg(running.pid, signal.SIGINT)  # As a terminal does.
        _, messages = running.communicate(timeout=600)
    assert started, f"no {program} was started: {messages}"
    assert bool(loops) == bool(options)
    assert bool(groups) == (os.geteuid() == 0)
    assert running.returncode == EXIT_INTERRUPTED, messages
    assert f"Continue with: iosonde resume {output}" in messages
    assert ResultSet.open(output).records() == []
    left = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert [each for each in left for path in (disk_place, *started.values()) if str(path) in each] == []
    assert [data for data in started.values() if data.exists()] == []
    assert [group for group in groups if group.exists()] == []
    assert block_nodes.attached_to(disk_place) == []
    assert journal.entries() == []
