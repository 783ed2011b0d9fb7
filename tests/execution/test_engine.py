"""Runs of an engine that the fake one plays: every way to fail, wrong events, and what stops a run or a session."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engine.test_engine_protocol import MISSING, paths, replaced
from engines import FAKE, real_engine
from inline_snapshot import snapshot
from plans import MIB, null_spec

from iosonde.engine.protocol import VERSION, Event
from iosonde.errors import EngineError
from iosonde.execution.conversation import Conversation, EngineRun, Timeouts
from iosonde.execution.engine import drive, find_engine
from iosonde.execution.progress import Rates
from iosonde.execution.stop import Start, Stop, stop_on_signals
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE, Failure


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.close()


def run(
    monkeypatch: pytest.MonkeyPatch, how: str, *, stop: Stop, timeouts: Timeouts | None = None, **workload: Any
) -> tuple[EngineRun, list[dict[str, Any]]]:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": how}))
    events: list[dict[str, Any]] = []
    spec = null_spec("c0001-r1", **workload)
    done = drive(spec, on_event=events.append, stop=stop, engine=FAKE, timeouts=timeouts)
    assert not Path(f"/proc/{done.hello.get('pid', 'none')}").exists()
    return done, events


def test_a_successful_run_has_a_result_tables_and_resource_usage(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    done, events = run(monkeypatch, "well", stop=stop, duration_ns=200_000_000)
    assert done.failure is None
    assert done.result is not None
    assert done.result["outcome"] == "complete"
    assert [event["event"] for event in events] == ["hello", "phase", "interval", "interval", "phase", "result"]
    assert [(phase["phase"], phase["edge"]) for phase in done.phases] == [("measure", "begin"), ("measure", "end")]
    assert (done.intervals.schema, done.histograms.schema, done.usage.schema) == (INTERVALS, HISTOGRAMS, USAGE)
    assert done.intervals.select("run_id", "interval", "count", "completion_latency_ns_max").rows() == [
        ("c0001-r1", 0, 2, 2000),
        ("c0001-r1", 1, 2, 2000),
    ]
    assert done.histograms.select("interval", "latency", "bucket", "count").rows() == [
        (0, "completion", 900, 1),
        (0, "completion", 901, 1),
        (1, "completion", 900, 1),
        (1, "completion", 901, 1),
    ]
    assert done.usage["device"].to_list() == ["process", "8:0"] * 2
    assert done.child["exit_status"] == 0
    assert 0 < done.child["user_ns"] + done.child["system_ns"] < done.child["wall_ns"] * os.cpu_count()  # type: ignore[operator]
    assert done.child["wall_ns"] > 200_000_000


@pytest.mark.parametrize(
    ("how", "code", "message", "context"),
    [
        ("exit before hello", "not_started", "exited before its first event (exit status 127)", "shared libraries"),
        ("silent", "not_started", "no output from the engine for 1.5 s after its start", ""),
        ("crash", "crashed", "the engine crashed (SIGSEGV)", "thread 'main' panicked"),
        ("killed", "killed", "the engine was killed (SIGKILL)", ""),
        ("exit", "crashed", "the engine crashed (exit status 3)", "cannot continue"),
        ("hang", "silent", "no event from the engine for 2.1 s; it was killed", "phase `measure`"),
        ("no result", "protocol", "the engine exited without a result", ""),
        ("no space", "no_space", "cannot write to `/data/file`: no space left on device", "phase `layout`"),
    ],
)
def test_every_way_to_fail_has_its_code(
    monkeypatch: pytest.MonkeyPatch, stop: Stop, how: str, code: str, message: str, context: str
) -> None:
    # Short only where it is what ends the run: a machine with other work may delay any other engine for seconds.
    timeouts = {"silent": Timeouts(hello_s=1.5), "hang": Timeouts(silence_s=2)}
    done, _ = run(monkeypatch, how, stop=stop, timeouts=timeouts.get(how))
    assert done.failure is not None
    assert done.failure.code == code and done.failure.hint
    assert message in done.failure.message and context in done.failure.context
    assert done.result is None


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("garbage", "expected value at line 1 column 1"),
        ("unknown event", "surprise"),
        ("malformed interval", "`begin_ns` is missing"),
        ("wrong protocol", f"its protocol is 99, that of iosonde is {VERSION}"),
        ("no hello", ""),
        ("after the result", ""),
    ],
)
def test_nonsense_ends_the_run_at_once_and_is_shown(
    monkeypatch: pytest.MonkeyPatch, stop: Stop, how: str, message: str
) -> None:
    done, _ = run(monkeypatch, how, stop=stop)
    assert done.failure is not None
    assert done.failure.code == "protocol" and message in done.failure.message
    assert done.result is None


def test_an_engine_that_starts_slowly_or_does_not_end_after_its_result_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    assert run(monkeypatch, "slow start", stop=stop)[0].failure is None
    done, _ = run(monkeypatch, "closed output", stop=stop, timeouts=Timeouts(exit_s=0.2))
    assert done.failure is None
    assert done.child["exit_status"] == -9
    assert done.child["max_rss_bytes"] is None, (
        "a child starts with the peak of this Python, which is far above its own"
    )


def test_seconds_without_completions_and_thousands_of_buckets_arrive_whole(
    monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    done, _ = run(monkeypatch, "stalled", stop=stop)
    columns = done.intervals.select("interval", "operation", "count", "completion_latency_ns_max", "backlog_max")
    assert columns.rows() == [(0, "read", 2, 2000, 0), (1, "read", 0, None, 7)]
    done, _ = run(monkeypatch, "many buckets", stop=stop, duration_ns=300_000_000)
    assert done.histograms.height == 3 * 5000
    assert done.histograms["count"].sum() == done.intervals["count"].sum()


def stop_at(event: str, stop: Stop) -> Callable[[dict[str, Any]], None]:
    return lambda each: stop.set() if each["event"] == event else None


def test_stop_ends_a_run_with_what_it_has(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "well"}))
    spec = null_spec("c0001-r1", duration_ns=3600 * 10**9)
    patient = Timeouts(stop_s=60)  # A busy machine may delay the result beyond what Ctrl-C waits for.
    done = drive(spec, on_event=stop_at("interval", stop), stop=stop, engine=FAKE, timeouts=patient)
    assert done.result is not None
    assert done.result["outcome"] == "stopped"


def test_an_engine_that_ignores_stop_and_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "hang"}))
    done = drive(null_spec("c0001-r1"), on_event=stop_at("phase", stop), stop=stop, engine=FAKE)
    assert done.result is None
    assert done.child["exit_status"] == -9


def test_an_engine_does_not_outlive_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    seen: list[dict[str, Any]] = []

    def explode(event: dict[str, Any]) -> None:
        seen.append(event)
        raise ZeroDivisionError

    monkeypatch.setenv("FAKE_ENGINE", '{"*": "hang"}')
    with pytest.raises(ZeroDivisionError):
        drive(null_spec("c0001-r1"), on_event=explode, stop=stop, engine=FAKE)
    assert not Path(f"/proc/{seen[0]['pid']}").exists()


def test_the_engine_is_found_through_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    assert find_engine() == FAKE
    (tmp_path / "engine").write_text("not a program")
    monkeypatch.setenv("IOSONDE_ENGINE", str(tmp_path / "engine"))
    with pytest.raises(EngineError) as error:
        find_engine()
    assert str(error.value).replace(str(tmp_path), "BIN") == snapshot("""\
`BIN/engine` is not an executable program
  named by the environment variable `IOSONDE_ENGINE`

hint: correct the variable, or remove it to use the installed engine\
""")


WRONG: tuple[Any, ...] = (
    *(None, "x", "", True, [], {}, [1], {"x": 1}, -1, 0, 1.5, 1e300, 1 << 31, 1 << 63, 1 << 64, 10**40),
    *(float("nan"), float("inf")),
)
"""Values in place of right ones; some have the right type and an unlikely size."""

STREAMS = 60


@pytest.fixture(scope="module")
def stream() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    stop = Stop()
    spec = null_spec("c0001-r1", duration_ns=100_000_000)
    done = drive(spec, on_event=lambda event: events.append(dict(event)), stop=stop, engine=real_engine())
    stop.close()
    assert done.failure is None
    return events


def mutated(stream: list[dict[str, Any]], seed: int) -> bytes:
    """The lines of a stream with one value replaced or one field removed; of buckets only the first."""
    choose = random.Random(seed)
    wrong = choose.randrange(len(stream))
    places = [
        each for each in paths(stream[wrong]) if each and not any(isinstance(key, int) and key > 1 for key in each)
    ]
    value = MISSING if choose.random() < 0.2 else choose.choice(WRONG)
    return lines([*stream[:wrong], replaced(stream[wrong], choose.choice(places), value), *stream[wrong + 1 :]])


def lines(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def outcome(content: bytes) -> Failure | None:
    """Failure that a conversation makes of a stream, with the progress display that receives every event."""

    def show(event: Event) -> None:
        if event["event"] == "interval":
            rates = Rates()
            rates.add(event)
            assert rates.text()

    conversation = Conversation(null_spec("c0001-r1"), show, Timeouts(), None)
    conversation.receive(content)
    run = conversation.over({"exit_status": 0}, "")
    assert run.failure or run.result
    return run.failure


def test_mutated_events_are_a_protocol_violation_or_harmless(stream: list[dict[str, Any]]) -> None:
    found = [outcome(mutated(stream, seed)) for seed in range(STREAMS)]
    failures = [each for each in found if each]
    assert {each.code for each in failures} == {"protocol"}
    assert all("\n" not in each.message for each in failures)
    assert len(failures) > STREAMS // 4


LIMIT_S = 60.0


def test_a_signal_that_interrupts_no_system_call_of_the_main_thread_wakes_it() -> None:
    """As one does that arrives just before the call: here another thread receives it."""
    with stop_on_signals() as stop:
        waiting = threading.Event()

        def receive() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            waiting.wait()

        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        receiver = threading.Thread(target=receive)
        receiver.start()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        try:
            ready, _, _ = select.select([stop], [], [], LIMIT_S)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            waiting.set()
            receiver.join()
        assert ready and stop.woken()


HOUR_NS = 3600 * 10**9
PATIENT = Timeouts(stop_s=60)
"""Where an engine must end with its result: a busy machine may delay that beyond what Ctrl-C waits for."""


def started(
    spec: dict[str, Any], at_ready: Callable[[Start], None], *, stop: Stop, **options: Any
) -> tuple[EngineRun, list[str]]:
    """A run and the order of its events; `at_ready` is called when it is ready."""
    events: list[str] = []
    start = Start(lambda: at_ready(start))
    with closing(start):
        done = drive(spec, on_event=lambda event: events.append(event["event"]), stop=stop, start=start, **options)
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


def test_an_engine_that_waits_for_its_start_is_not_taken_for_a_hanging_one(stream: list[dict[str, Any]]) -> None:
    """It has no deadline before it has the instant, and then one beyond that."""
    with closing(Start(lambda: None)) as start:
        conversation = Conversation(null_spec("c0001-r1"), lambda event: None, Timeouts(silence_s=1), None, start)
        conversation.receive(lines([stream[0], {"event": "ready", "at_ns": 1}]))
        assert conversation.run.failure is None and conversation.seconds_left() is None
        conversation.starts_at(time.time_ns() + HOUR_NS)
        left_s = conversation.seconds_left()
    assert left_s is not None and 3000 < left_s < 3700


def test_an_engine_that_hangs_after_its_start_is_found(stop: Stop) -> None:
    pids: list[int] = []

    def freeze(start: Start) -> None:
        os.kill(pids[0], signal.SIGSTOP)
        start.at(time.time_ns())

    done, _ = started(null_spec("c0001-r1"), freeze, stop=stop, on_start=pids.append, timeouts=Timeouts(silence_s=0.1))
    assert done.failure
    assert done.failure.code == "silent"
