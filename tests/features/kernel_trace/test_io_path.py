"""Stages of I/Os from traces: recorded ones of blocking reads and of Linux AIO, and written ones of polled I/O."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.features.kernel_trace.ring_buffer import Event
from iosonde.features.kernel_trace.stages import MOST, STAGES, Stages, relate

pytestmark = pytest.mark.unit

TRACES = Path(__file__).parent / "traces"
JOB, HELPER = 1000, 1001
ENTER, EXIT = "syscalls/sys_enter_io_uring_enter", "syscalls/sys_exit_io_uring_enter"


def event(
    time_ns: int,
    name: str,
    fields: dict[str, int] | None = None,
    *,
    pid: int = JOB,
    cpu: int = 0,
    irq: bool = False,
    **values: int,
) -> Event:
    return Event(time_ns=time_ns, cpu=cpu, pid=pid, in_interrupt=irq, name=name, values=fields or values)


def recorded(name: str) -> list[Event]:
    found = []
    for line in (TRACES / f"{name}.txt").read_text().splitlines()[1:]:
        time_ns, cpu, pid, context, what, *values = line.split()
        fields = {key: int(value) for key, _, value in (each.partition("=") for each in values)}
        found.append(event(int(time_ns), what, fields, pid=int(pid), cpu=int(cpu), irq=context == "irq"))
    return found


def block(begin: int, *, sector: int = 8, pid: int = JOB, done_by: int = 0, irq: bool = False) -> list[Event]:
    """A request: 10 ns in the block layer, 100 ns on the device."""
    return [
        event(begin, "block/block_bio_queue", pid=pid, sector=sector),
        event(begin + 10, "block/block_rq_issue", pid=pid, sector=sector),
        event(begin + 110, "block/block_rq_complete", pid=done_by, irq=irq, sector=sector),
    ]


@pytest.mark.parametrize("name", ["sync", "libaio"])
def test_every_read_of_a_recorded_trace_is_related(name: str) -> None:
    found = relate(recorded(name), jobs=[JOB])
    assert len(found.ios) == 10
    assert found.incomplete == 0
    assert all(min(each.values()) >= 0 for each in found.ios)
    # Measured on a virtio disk: a read takes tens of microseconds there, and code of the kernel a few.
    assert all(30_000 < each["device"] < 1_000_000 for each in found.ios)
    assert all(0 < each["block_layer"] < 30_000 for each in found.ios)


def test_the_first_read_of_the_recorded_trace_has_the_times_of_its_events() -> None:
    first = relate(recorded("sync"), jobs=[JOB]).ios[0]
    assert (first["submission"], first["block_layer"], first["device"]) == (15_698, 3_645, 61_703)
    assert first["interrupt"] == 83_243 - 81_047


def test_stages_add_up_to_the_time_between_the_system_calls() -> None:
    events = recorded("sync")
    begins = [each.time_ns for each in events if each.name.startswith("syscalls/sys_enter")]
    ends = [each.time_ns for each in events if each.name.startswith("syscalls/sys_exit")]
    totals = [sum(each.values()) for each in relate(events, jobs=[JOB]).ios]
    assert totals == [end - begin for begin, end in zip(begins, ends, strict=True)]


def test_io_of_other_threads_is_left_out() -> None:
    assert relate(recorded("sync"), jobs=[77]).ios == []
    events = [event(0, ENTER), *block(5), *block(6, sector=99, pid=5), event(200, EXIT)]
    assert len(relate(sorted(events, key=lambda each: each.time_ns), jobs=[JOB]).ios) == 1


def test_polled_io_has_no_interrupt_and_no_wake_up() -> None:
    [io] = relate([event(0, ENTER), *block(5, done_by=JOB), event(120, EXIT)], jobs=[JOB]).ios
    assert io == {"submission": 5, "block_layer": 10, "device": 100, "interrupt": 0, "wake_up": 0, "return": 5}


def test_with_submission_polling_the_io_begins_when_the_helper_takes_it() -> None:
    events = [
        event(0, ENTER),
        event(3, "io_uring/io_uring_submit_req", pid=HELPER),
        *block(5, pid=HELPER),
        event(120, EXIT),
    ]
    [io] = relate(events, jobs=[JOB, 1002], helpers=[HELPER]).ios
    assert io["submission"] == 2
    assert io["return"] == 5


def test_a_passthrough_command_has_no_block_layer_and_no_sector_at_its_end() -> None:
    events = [
        event(0, ENTER),
        event(10, "block/block_rq_issue", sector=0),
        event(110, "block/block_rq_complete", sector=2**64 - 1),
        event(112, EXIT),
    ]
    [io] = relate(events, jobs=[JOB]).ios
    assert io == {"submission": 10, "block_layer": 0, "device": 100, "interrupt": 0, "wake_up": 0, "return": 2}


def test_an_interrupt_on_another_cpu_that_passes_the_completion_on_counts() -> None:
    queued, issued, completed = block(5, irq=True)
    events = [
        event(0, ENTER),
        queued,
        issued,
        event(100, "irq/irq_handler_entry", cpu=3, irq=True),
        completed,
        event(117, "sched/sched_waking", {"pid": JOB}, pid=0, irq=True),
        event(120, "sched/sched_switch", {"next_pid": JOB}, pid=0),
        event(125, EXIT),
    ]
    [io] = relate(events, jobs=[JOB]).ios
    assert io == {"submission": 5, "block_layer": 10, "device": 85, "interrupt": 17, "wake_up": 3, "return": 5}


def test_two_requests_in_flight_are_not_related() -> None:
    events = [event(0, ENTER), *block(5)[:2], *block(16, sector=16), event(200, EXIT)]
    found = relate(events, jobs=[JOB])
    assert found.incomplete == 1
    assert len(found.ios) == 1


def test_what_began_before_the_measurement_is_left_out() -> None:
    events = [event(50, ENTER), *block(55), event(200, EXIT)]
    assert len(relate(events, jobs=[JOB], since_ns=50).ios) == 1
    assert relate(events, jobs=[JOB], since_ns=51).ios == []


def test_a_record_has_the_newest_ios_only() -> None:
    ios = [dict.fromkeys(STAGES, number) for number in range(MOST + 5)]
    facts = Stages(ios=ios).facts()
    assert facts["related"] == MOST + 5
    assert facts["stages"]["device"] == list(range(5, MOST + 5))
