"""A load starts at the instant that several hosts agree on, once all of them are ready."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plans import MIB, null_spec

from iosonde.execution.engine import EngineRun, drive
from iosonde.execution.start import Start
from iosonde.execution.stop import Stop
from iosonde.execution.timeouts import Timeouts

HOUR_NS = 3600 * 10**9
PATIENT = Timeouts(stop_s=60)
"""Where an engine must end with its result: a busy machine may delay that beyond what Ctrl-C waits for."""


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.close()


def started(
    spec: dict[str, Any], at_ready: Callable[[Start], None], *, stop: Stop, **options: Any
) -> tuple[EngineRun, list[str]]:
    """A run and the order of its events; `at_ready` is called when it is ready."""
    events: list[str] = []
    start = Start(lambda: at_ready(start))
    try:
        done = drive(spec, on_event=lambda event: events.append(event["event"]), stop=stop, start=start, **options)
    finally:
        start.close()
    return done, events


def test_engines_start_together_once_the_last_of_them_is_ready(stop: Stop) -> None:
    starts: list[Start] = []
    lock, ready = threading.Lock(), threading.Semaphore(0)

    def one(number: int) -> EngineRun:
        def note(start: Start) -> None:
            with lock:
                starts.append(start)
            ready.release()

        return started(null_spec(f"c0001-r{number}"), note, stop=stop)[0]

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(one, number) for number in range(3)]
        for _ in runs:
            ready.acquire()
        unix_ns = time.time_ns() + 200_000_000
        for start in starts:
            start.at(unix_ns)
        results = [run.result().result for run in runs]
    for result in results:
        assert result
        assert result["outcome"] == "complete"
        assert result["start"]["requested_unix_ns"] == unix_ns
        assert result["start"]["started_unix_ns"] >= unix_ns
        assert result["start"]["last_job_ns"] >= result["start"]["started_ns"] == result["begin_ns"]


def test_nothing_is_read_or_written_before_the_start(stop: Stop, tmp_path: Path) -> None:
    """The layout is complete when the engine is ready, and a run that is stopped then leaves it as it was."""
    file = tmp_path / "data"
    spec = null_spec("c0001-r1", target={"kind": "file", "path": str(file), "size_bytes": MIB}, layout="always")
    spec["workload"]["backend"] = {"kind": "sync"}
    stream = spec["workload"]["streams"][0]
    stream |= {"queue_depth": 1, "io_mode": "buffered", "mix": {"read_fraction": 0.0, "trim_fraction": 0.0}}
    laid_out: list[bytes] = []

    def keep_and_stop(start: Start) -> None:
        laid_out.append(file.read_bytes())
        stop.set()

    done, events = started(spec, keep_and_stop, stop=stop, timeouts=PATIENT)
    assert [len(each) for each in laid_out] == [MIB]
    assert file.read_bytes() == laid_out[0]
    assert done.result
    assert (done.result["outcome"], done.result["jobs"][0]["operations"]) == ("stopped", 0)
    assert "start" not in done.result
    assert done.child["exit_status"] == 0
    assert events.index("phase") < events.index("ready") < events.index("interval")


def test_a_stop_ends_the_wait_for_an_instant_in_the_future(stop: Stop) -> None:
    def stop_soon(start: Start) -> None:
        start.at(time.time_ns() + HOUR_NS)
        stop.set()

    done, _ = started(null_spec("c0001-r1"), stop_soon, stop=stop, timeouts=PATIENT)
    assert done.result
    assert done.result["outcome"] == "stopped"
    assert "start" not in done.result


def test_a_start_in_the_past_is_late_and_not_an_error(stop: Stop) -> None:
    unix_ns = time.time_ns() - HOUR_NS
    done, _ = started(null_spec("c0001-r1"), lambda start: start.at(unix_ns), stop=stop)
    assert done.failure is None
    assert done.result
    assert done.result["start"]["started_unix_ns"] - done.result["start"]["requested_unix_ns"] > HOUR_NS


def test_an_engine_that_waits_for_its_start_is_not_taken_for_a_hanging_one(stop: Stop) -> None:
    """It is silent for longer than an engine may be under load, before and after it has the instant."""
    silence_s = 10.0  # More than a pause of the machine takes.
    timers: list[threading.Timer] = []

    def later(start: Start) -> None:
        at = time.time_ns() + round(2.2 * silence_s * 1e9)
        timers.append(threading.Timer(1.1 * silence_s, lambda: start.at(at)))
        timers[-1].start()

    done, _ = started(null_spec("c0001-r1"), later, stop=stop, timeouts=Timeouts(silence_s=silence_s))
    timers[0].join()
    assert done.failure is None
    assert done.result
    assert done.result["outcome"] == "complete"


def test_an_engine_that_hangs_after_its_start_is_found(stop: Stop) -> None:
    pids: list[int] = []

    def freeze(start: Start) -> None:
        os.kill(pids[0], signal.SIGSTOP)
        start.at(time.time_ns())

    done, _ = started(null_spec("c0001-r1"), freeze, stop=stop, on_start=pids.append, timeouts=Timeouts(silence_s=0.1))
    assert done.failure
    assert done.failure.code == "silent"


def test_a_load_on_a_virtual_clock_counts_from_its_start(stop: Stop) -> None:
    backend = {"kind": "simulated", "servers": 1, "read_service_ns": 10**5, "write_service_ns": 10**5}
    spec = null_spec("c0001-r1", duration_ns=HOUR_NS // 60, backend={**backend, "service": "constant"})
    unix_ns = time.time_ns() + 200_000_000
    done, _ = started(spec, lambda start: start.at(unix_ns), stop=stop)
    assert done.result
    start = done.result["start"]
    assert start["started_unix_ns"] >= unix_ns
    assert start["started_ns"] == start["last_job_ns"] == 0
    assert start["end_unix_ns"] - start["started_unix_ns"] == done.result["end_ns"]
