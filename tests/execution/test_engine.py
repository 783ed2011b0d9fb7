from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from plans import null_spec

from iosonde.errors import EngineError
from iosonde.execution.engine import EngineRun, drive, find_engine
from iosonde.execution.stop import Stop
from iosonde.execution.timeouts import Timeouts
from iosonde.protocol import VERSION
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE

FAKE = Path(__file__).parents[1] / "fake_engine.py"
SLEEPS_S = 60
"""Sleep of the fake engine where it hangs, in seconds: shorter runs were terminated."""


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
        (
            "exit before hello",
            "not_started",
            "the engine exited before its first event (exit status 127)",
            "error while loading shared libraries",
        ),
        ("silent", "not_started", "no output from the engine for 1.5 s after its start", ""),
        ("crash", "crashed", "the engine crashed (SIGSEGV)", "thread 'main' panicked"),
        ("killed", "killed", "the engine was killed (SIGKILL)", ""),
        ("exit", "crashed", "the engine crashed (exit status 3)", "cannot continue"),
        ("hang", "silent", "no event from the engine for 10.1 s; it was killed", "phase `measure`"),
        ("no result", "protocol", "the engine exited without a result", ""),
        (
            "no space",
            "no_space",
            "cannot write to `/data/file`: no space left on device",
            "phase `layout`",
        ),
    ],
)
def test_every_way_to_fail_has_its_code(
    monkeypatch: pytest.MonkeyPatch, stop: Stop, how: str, code: str, message: str, context: str
) -> None:
    # Short only where it is what ends the run: a machine with other work may delay any other engine for seconds.
    timeouts = {"silent": Timeouts(hello_s=1.5), "hang": Timeouts(silence_s=10)}
    done, _ = run(monkeypatch, how, stop=stop, timeouts=timeouts.get(how))
    assert done.failure is not None
    assert (done.failure.code, done.failure.message, done.failure.context) == (code, message, context)
    assert done.failure.hint
    assert done.result is None


@pytest.mark.parametrize(
    "how", ["garbage", "unknown event", "malformed interval", "wrong protocol", "no hello", "after the result"]
)
def test_nonsense_ends_the_run_at_once(monkeypatch: pytest.MonkeyPatch, stop: Stop, how: str) -> None:
    begin = time.monotonic()
    done, _ = run(monkeypatch, how, stop=stop)
    assert time.monotonic() - begin < SLEEPS_S
    assert done.failure is not None
    assert done.failure.code == "protocol"
    assert done.result is None


def test_nonsense_is_shown(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    failures = {}
    for how in ("garbage", "malformed interval", "wrong protocol"):
        failure = run(monkeypatch, how, stop=stop)[0].failure
        assert failure is not None
        failures[how] = failure.message.removeprefix("invalid output from the engine: ")
    assert failures == snapshot(
        {
            "garbage": "expected value at line 1 column 1",
            "malformed interval": "`begin_ns` is missing",
            "wrong protocol": f"its protocol is 99, that of iosonde is {VERSION}",
        }
    )


def test_an_engine_may_start_slowly(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    done, _ = run(monkeypatch, "slow start", stop=stop)
    assert done.failure is None


def test_an_engine_that_does_not_end_after_its_result_is_ended(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    done, _ = run(monkeypatch, "closed output", stop=stop, timeouts=Timeouts(exit_s=0.2))
    assert done.failure is None
    assert done.child["exit_status"] == -9


def test_a_second_in_which_nothing_completed_is_a_row_of_zeros(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    done, _ = run(monkeypatch, "stalled", stop=stop)
    columns = done.intervals.select("interval", "operation", "count", "completion_latency_ns_max", "backlog_max")
    assert columns.rows() == [(0, "read", 2, 2000, 0), (1, "read", 0, None, 7)]


def test_intervals_of_thousands_of_buckets_arrive_whole(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    done, _ = run(monkeypatch, "many buckets", stop=stop, duration_ns=300_000_000)
    assert done.histograms.height == 3 * 5000
    assert done.histograms["count"].sum() == done.intervals["count"].sum()


def stop_at(event: str, stop: Stop) -> Callable[[dict[str, Any]], None]:
    """Ask to stop when the engine reports this."""
    return lambda each: stop.set() if each["event"] == event else None


def test_stop_ends_a_run_with_what_it_has(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "well"}))
    begin = time.monotonic()
    spec = null_spec("c0001-r1", duration_ns=2 * 10**9 * SLEEPS_S)
    patient = Timeouts(stop_s=SLEEPS_S)  # A busy machine may delay the result beyond what Ctrl-C waits for.
    done = drive(spec, on_event=stop_at("interval", stop), stop=stop, engine=FAKE, timeouts=patient)
    assert time.monotonic() - begin < SLEEPS_S
    assert done.result is not None
    assert done.result["outcome"] == "stopped"


def test_an_engine_that_ignores_stop_and_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch, stop: Stop) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "hang"}))
    begin = time.monotonic()
    done = drive(null_spec("c0001-r1"), on_event=stop_at("phase", stop), stop=stop, engine=FAKE)
    assert time.monotonic() - begin < SLEEPS_S
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


def test_peak_memory_inherited_from_python_is_not_reported_as_the_engines(
    monkeypatch: pytest.MonkeyPatch, stop: Stop
) -> None:
    # This Python has loaded Polars and is far larger than the script.
    done, _ = run(monkeypatch, "well", stop=stop)
    assert done.child["max_rss_bytes"] is None


def test_the_engine_is_found_through_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    assert find_engine() == FAKE


def test_a_variable_that_names_no_program_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("not a program")
    monkeypatch.setenv("IOSONDE_ENGINE", str(tmp_path / "engine"))
    with pytest.raises(EngineError) as error:
        find_engine()
    assert str(error.value).replace(str(tmp_path), "BIN") == snapshot("""\
`BIN/engine` is not an executable program
  named by the environment variable `IOSONDE_ENGINE`

hint: correct the variable, or remove it to use the installed engine\
""")


def test_an_engine_that_is_nowhere_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IOSONDE_ENGINE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    with pytest.raises(EngineError) as error:
        find_engine()
    assert str(error.value).replace(str(tmp_path), "BIN") == snapshot("""\
the program `iosonde-engine` was not found
  looked in `BIN` and on PATH

hint: install iosonde with pip, which includes it, or name a build of it in the environment variable `IOSONDE_ENGINE`\
""")
