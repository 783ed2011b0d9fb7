"""Settings of block queues: set for a run, restored after it and after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from loop_stacks import Loops
from mounted import LoopFileSystem

from iosonde.errors import StudyError, TargetError
from iosonde.execution import execute
from iosonde.planning import Against, expand, parse
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.setups import queue_settings

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
from iosonde.storage.setups import queue_settings
devices = [block_stack.describe(number_of(sys.argv[1]))]
queue_settings.apply(devices, {"read_ahead": 64 << 10}, own="iosonde-0badcafe")
print("applied", flush=True)
sys.stdin.read()
"""


@pytest.mark.system
def test_one_session_at_a_time_changes_a_setting_whatever_its_journal(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
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
            queue_settings.apply(devices, settings, own="iosonde-0123abcd")
        assert file.read_text() == "64\n"
        holder.kill()
    saved = queue_settings.apply(devices, settings, own="iosonde-0123abcd")
    assert file.read_text() == "32\n"
    queue_settings.restore(saved)
    assert file.read_text() == before
    assert cleanup() == []


@pytest.mark.system
def test_two_schedulers_are_compared_in_one_session_and_the_former_one_restored(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
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


@pytest.mark.system
def test_a_value_that_the_kernel_rounds_is_refused(loop_file_system: Callable[..., LoopFileSystem]) -> None:
    """Read-ahead is kept in pages."""
    mounted = loop_file_system()
    file = queue_of(mounted) / "read_ahead_kb"
    before = file.read_text()
    devices = [block_stack.describe(number_of(mounted.device))]
    with pytest.raises(TargetError, match="read_ahead_kb` is 64 after 65 was written"):
        queue_settings.apply(devices, {"read_ahead": 65 << 10}, own="iosonde-0123abcd")
    assert file.read_text() == before


@pytest.mark.system
def test_a_setting_that_a_killed_session_left_is_restored_by_cleanup(
    loop_file_system: Callable[..., LoopFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = loop_file_system()
    queue = queue_of(mounted)
    before = chosen(queue), (queue / "nr_requests").read_text()
    devices = [block_stack.describe(number_of(Path(mounted.device)))]
    queue_settings.apply(devices, {"io_scheduler": "mq-deadline", "nr_requests": 64}, own="iosonde-12345678")
    assert (chosen(queue), (queue / "nr_requests").read_text()) == ("mq-deadline", "64\n")
    monkeypatch.setattr("iosonde.storage.safety.journal_entry.Entry.in_use", False)
    assert not [each for each in cleanup() if each.failed]
    assert (chosen(queue), (queue / "nr_requests").read_text()) == before


@pytest.mark.system
def test_what_a_killed_session_left_is_restored_before_another_one_changes_it(
    loop_file_system: Callable[..., LoopFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = loop_file_system()
    queue = queue_of(mounted)
    before = chosen(queue), (queue / "nr_requests").read_text()
    devices = [block_stack.describe(number_of(Path(mounted.device)))]
    queue_settings.apply(devices, {"io_scheduler": "mq-deadline", "nr_requests": 64}, own="iosonde-12345678")
    with monkeypatch.context() as patch:
        patch.setattr("iosonde.storage.safety.journal_entry.Entry.is_mine", False)
        with pytest.raises(TargetError, match="in use by another iosonde"):
            queue_settings.apply(devices, {"read_ahead": 65536}, own="iosonde-87654321")
        patch.setattr("iosonde.storage.safety.journal_entry.Entry.in_use", False)
        saved = queue_settings.apply(devices, {"io_scheduler": "mq-deadline"}, own="iosonde-87654321")
    assert {each.before for each in saved if each.setting == "io_scheduler"} == {before[0]}
    queue_settings.restore(saved)
    assert (chosen(queue), (queue / "nr_requests").read_text()) == before
    assert cleanup() == []


@pytest.mark.system
@pytest.mark.needs("loop devices")
def test_another_device_that_got_the_name_keeps_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = Loops(tmp_path)
    device = loops.attach(loops.image())
    queue = Path("/sys/block", device.name, "queue")
    before = chosen(queue)
    devices = [block_stack.describe(number_of(device))]
    queue_settings.apply(devices, {"io_scheduler": "mq-deadline"}, own="iosonde-12345678")
    loops.replace(device, loops.image("another"))
    (queue / "scheduler").write_text("mq-deadline")
    monkeypatch.setattr("iosonde.storage.safety.journal_entry.Entry.in_use", False)
    assert not [each for each in cleanup() if each.failed]
    assert chosen(queue) == "mq-deadline" != before
    (queue / "scheduler").write_text(before)
    loops.close()


@pytest.mark.system
def test_a_scheduler_that_the_kernel_does_not_have_changes_nothing(
    loop_file_system: Callable[..., LoopFileSystem],
) -> None:
    mounted = loop_file_system()
    devices = [block_stack.describe(number_of(Path(mounted.device)))]
    before = chosen(queue_of(mounted))
    with pytest.raises(TargetError, match="cannot set"):
        queue_settings.apply(devices, {"io_scheduler": "nosuch"}, own="iosonde-12345678")
    assert chosen(queue_of(mounted)) == before
    assert cleanup() == []


def test_a_target_without_block_devices_has_no_such_setting() -> None:
    with pytest.raises(TargetError, match="no device of the target has the setting `io_scheduler`"):
        queue_settings.apply([], {"io_scheduler": "none"}, own="")


def test_values_are_checked_when_the_study_is_planned(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="read_ahead"):
        expand(parse(STUDY), open_target(str(tmp_path)), settings={"read_ahead": "100B"})
