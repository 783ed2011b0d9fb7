"""Settings of block queues: set for a run, restored after it and after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from loop_stacks import Loops
from mounted import LoopFileSystem

from iosonde.errors import TargetError
from iosonde.execution.session import execute
from iosonde.planning import Against, expand, parse
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety import journal
from iosonde.storage.setups import machine_settings

Mounts = Callable[..., LoopFileSystem]

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]

STUDY = """
name = "queue"
title = "Random reads"
question = "Does the I/O scheduler matter?"
repeats = 1
[measurement]
access = "random"
block_size = "4KiB"
span = "4MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
[profiles.standard]
"""


def queue_of(file_system: LoopFileSystem) -> Path:
    return Path("/sys/block", Path(file_system.device).name, "queue")


def chosen(queue: Path) -> str:
    return (queue / "scheduler").read_text().partition("[")[2].partition("]")[0]


HOLDER = """
import sys
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.setups import machine_settings
devices = [block_stack.describe(number_of(sys.argv[1]))]
machine_settings.apply(devices, {"read_ahead": 64 << 10}, own="iosonde-0badcafe")
print("applied", flush=True)
sys.stdin.read()
"""


def test_one_session_at_a_time_changes_a_setting_whatever_its_journal(loop_file_system: Mounts, tmp_path: Path) -> None:
    """The value before the change of a killed session is restored by the next one, which does not have its journal."""
    mounted = loop_file_system()
    file = queue_of(mounted) / "read_ahead_kb"
    before = file.read_text()
    devices = [block_stack.describe(number_of(mounted.device))]
    settings = {"read_ahead": 32 << 10}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, mounted.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "other")},
    ) as holder:  # fmt: skip
        assert holder.stdout and holder.stdout.readline() == "applied\n"
        with pytest.raises(TargetError, match="read_ahead_kb` is in use by another iosonde"):
            machine_settings.apply(devices, settings, own="iosonde-0123abcd")
        assert file.read_text() == "64\n"
        holder.kill()
    saved = machine_settings.apply(devices, settings, own="iosonde-0123abcd")
    assert file.read_text() == "32\n"
    machine_settings.restore(saved)
    assert file.read_text() == before
    assert cleanup() == []


def test_two_schedulers_are_compared_in_one_session_and_the_former_one_restored(
    loop_file_system: Mounts, tmp_path: Path
) -> None:
    mounted = loop_file_system()
    queue = queue_of(mounted)
    before = {name: (queue / name).read_text() for name in ("scheduler", "nr_requests", "read_ahead_kb")}
    plan = expand(
        parse(STUDY),
        open_target(str(mounted.directory)),
        settings={"io_scheduler": "none"},
        against=Against(settings={"io_scheduler": "mq-deadline", "read_ahead": "64KiB"}),
    )
    results = execute(plan, tmp_path / "results")
    set_for = {
        record.arm: {each["setting"]: each["value"] for each in record.queue_settings} for record in results.records()
    }
    assert set_for == {"a": {"io_scheduler": "none"}, "b": {"io_scheduler": "mq-deadline", "read_ahead": "64"}}
    assert {name: (queue / name).read_text() for name in before} == before


def abandoned() -> None:
    """As if the process of the entries had exited."""
    for entry in journal.entries():
        journal._write(replace(entry, owner=""))


@pytest.mark.parametrize("by", ["cleanup", "another session"])
def test_what_a_killed_session_left_is_restored(loop_file_system: Mounts, by: str) -> None:
    mounted = loop_file_system()
    queue = queue_of(mounted)
    before = chosen(queue), (queue / "nr_requests").read_text()
    devices = [block_stack.describe(number_of(Path(mounted.device)))]
    machine_settings.apply(devices, {"io_scheduler": "mq-deadline", "nr_requests": 64}, own="iosonde-12345678")
    assert (chosen(queue), (queue / "nr_requests").read_text()) == ("mq-deadline", "64\n")
    abandoned()
    if by == "cleanup":
        assert not [each for each in cleanup() if each.failed]
    else:
        saved = machine_settings.apply(devices, {"io_scheduler": "mq-deadline"}, own="iosonde-87654321")
        assert {each.before for each in saved if each.setting == "io_scheduler"} == {before[0]}
        machine_settings.restore(saved)
    assert (chosen(queue), (queue / "nr_requests").read_text()) == before
    assert cleanup() == []


def test_another_device_that_got_the_name_keeps_its_setting(tmp_path: Path) -> None:
    loops = Loops(tmp_path)
    device = loops.attach(loops.image())
    queue = Path("/sys/block", device.name, "queue")
    before = chosen(queue)
    devices = [block_stack.describe(number_of(device))]
    machine_settings.apply(devices, {"io_scheduler": "mq-deadline"}, own="iosonde-12345678")
    loops.replace(device, loops.image("another"))
    (queue / "scheduler").write_text("mq-deadline")
    abandoned()
    assert not [each for each in cleanup() if each.failed]
    assert chosen(queue) == "mq-deadline" != before
    (queue / "scheduler").write_text(before)
    loops.close()


def test_a_value_that_the_kernel_refuses_or_rounds_changes_nothing(loop_file_system: Mounts) -> None:
    mounted = loop_file_system()
    devices = [block_stack.describe(number_of(Path(mounted.device)))]
    queue = queue_of(mounted)
    before = chosen(queue), (queue / "read_ahead_kb").read_text()
    for settings, message in (
        ({"io_scheduler": "nosuch"}, "cannot set"),
        ({"read_ahead": 65 << 10}, "read_ahead_kb` is 64 after 65 was written"),
    ):
        with pytest.raises(TargetError, match=message):
            machine_settings.apply(devices, settings, own="iosonde-12345678")
        assert (chosen(queue), (queue / "read_ahead_kb").read_text()) == before
    assert cleanup() == []
