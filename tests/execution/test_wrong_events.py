"""An engine whose events are not those of the protocol fails its run, and the session continues."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE, real_engine
from plans import hand_plan, null_spec

from iosonde.execution import execute
from iosonde.execution.conversation import Conversation
from iosonde.execution.engine import drive
from iosonde.execution.progress import Rates
from iosonde.execution.stop import Stop
from iosonde.execution.timeouts import Timeouts
from iosonde.protocol.event import Event
from iosonde.results import ResultSet
from iosonde.results.schema import Failure

WRONG: tuple[Any, ...] = (
    *(None, "x", "", True, [], {}, [1], {"x": 1}, -1, 0, 1.5, 1e300, 1 << 31, 1 << 63, 1 << 64, 10**40),
    *(float("nan"), float("inf")),
)
"""Values in place of right ones; some have the right type and an unlikely size."""

STREAMS = 400


@pytest.fixture(scope="module")
def stream() -> list[dict[str, Any]]:
    """The events of a run of the real engine."""
    events: list[dict[str, Any]] = []
    stop = Stop()
    spec = null_spec("c0001-r1", duration_ns=300_000_000)
    done = drive(spec, on_event=lambda event: events.append(dict(event)), stop=stop, engine=real_engine())
    stop.close()
    assert done.failure is None
    return events


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a value with a key in it; of buckets only the first."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield value, key
            yield from places(each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value[:2]):
            if isinstance(value, list):
                yield value, number
            yield from places(each)


def mutated(stream: list[dict[str, Any]], seed: int) -> bytes:
    """The lines of a stream with one value replaced or one field removed."""
    choose = random.Random(seed)
    wrong = choose.randrange(len(stream))
    event = json.loads(json.dumps(stream[wrong]))
    container, key = choose.choice(list(places(event)))
    if choose.random() < 0.2:
        del container[key]
    else:
        container[key] = choose.choice(WRONG)
    return lines([*stream[:wrong], event, *stream[wrong + 1 :]])


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
    conversation.tables()
    assert conversation.failure or conversation.result
    return conversation.failure


@pytest.mark.engine
def test_mutated_events_are_a_protocol_violation_or_harmless(stream: list[dict[str, Any]]) -> None:
    found = [outcome(mutated(stream, seed)) for seed in range(STREAMS)]
    failures = [each for each in found if each]
    assert {each.code for each in failures} == {"protocol"}
    assert all("\n" not in each.message for each in failures)
    assert len(failures) > STREAMS // 2
    assert [outcome(mutated(stream, seed)) for seed in range(50)] == found[:50]


@pytest.mark.engine
def test_a_session_with_wrong_events_continues_and_its_set_is_readable(
    stream: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    plan = hand_plan(name="null:1MiB", repeats=6)
    for number, run in enumerate(plan.runs):
        content = mutated(stream, seed=number) if number else lines(stream)
        (tmp_path / f"{run.run_id}.jsonl").write_bytes(content)
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": f"replay {tmp_path}"}))
    execute(plan, tmp_path / "set")
    result_set = ResultSet.open(tmp_path / "set")
    assert result_set.problems == []
    records = {record.run_id: record for record in result_set.records()}
    assert len(records) == len(plan.runs)
    assert records[plan.runs[0].run_id].outcome == "complete"
    codes = [record.failure.code for record in records.values() if record.failure]
    assert set(codes) == {"protocol"}
    assert len(codes) > len(records) // 3


@pytest.mark.engine
def test_unknown_fields_are_kept(stream: list[dict[str, Any]]) -> None:
    conversation = Conversation(null_spec("c0001-r1"), lambda event: None, Timeouts(), None)
    conversation.receive(lines([{**event, "added": 1} for event in stream]))
    assert conversation.failure is None
    assert conversation.hello["added"] == 1
