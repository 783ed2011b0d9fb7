"""A run that is evaluated while it runs: it stops when it is steady, and continues when it no longer is."""

from __future__ import annotations

from typing import Any

from buckets import bucket_of

from iosonde.procedure.watch import Watch, watch_of

SECOND = 10**9


def events(*rounds: float, per_round: int = 4, phase: str = "measure") -> list[dict[str, Any]]:
    """Intervals of a quarter of a second; a round of one second has so many I/Os of 4 KiB."""
    length = SECOND // per_round
    return [
        {
            "event": "interval",
            "phase": phase,
            "begin_ns": 7 * SECOND + index * length,
            "end_ns": 7 * SECOND + (index + 1) * length,
            "streams": [{"operations": [operation(int(rounds[index // per_round] / per_round))]}],
        }
        for index in range(len(rounds) * per_round)
    ]


def operation(count: int) -> dict[str, Any]:
    latency = {"sum_ns": count * 1000}
    return {"operation": "write", "count": count, "bytes": count * 4096, "completion_latency": latency}


def ends_after(given: list[dict[str, Any]], *, hold: int = 0, tracking: str = "iops") -> tuple[int | None, list[str]]:
    """The interval after which the run can stop, counted from 1, and the states until then."""
    notes: list[str] = []
    watch = Watch({"round_ns": SECOND, "tracking": tracking, "hold": hold, "criteria": {}}, note=notes.append)
    return next((number for number, event in enumerate(given, start=1) if watch.is_enough(event)), None), notes


def test_it_is_enough_with_the_last_interval_of_the_first_steady_window() -> None:
    assert ends_after(events(*[1000] * 9)) == (20, ["steady state reached after 5 s; the run ends"])
    assert ends_after(events(9000, 4000, *[1000] * 9))[0] == 28
    assert ends_after(events(*[1000] * 9), hold=3)[0] == 32, "it must stay steady for the requested rounds"


def test_the_criteria_are_those_of_steady_state() -> None:
    """1000, 1260, ... spans 23.6 % of its mean of 1104; by 4 % a round, five span 16 %, and the line rises by as much."""
    assert ends_after(events(1000, 1260, 1000, 1260, 1000))[0] is None
    assert ends_after(events(*(1000 * 1.04**number for number in range(20))))[0] is None
    assert ends_after(events(*[0] * 9))[0] is None, "a load that does nothing is never steady"


def test_leaving_steady_state_is_reported_and_the_run_continues_until_it_is_steady_again() -> None:
    ended, notes = ends_after(events(*[1000] * 6, 400, *[1000] * 9), hold=2)
    assert ended == 4 * (6 + 1 + 5 + 2)
    assert notes[0] == "steady state lost in round 7; the run continues"


def test_the_ramp_and_what_is_no_interval_do_not_count() -> None:
    assert ends_after([*events(*[1000] * 9, phase="ramp"), {"event": "phase", "phase": "measure"}]) == (None, [])


def test_what_is_tracked_decides() -> None:
    falling = events(*(1000 * 0.8**number for number in range(9)))
    assert ends_after(falling)[0] is None
    assert ends_after(falling, tracking="completion_latency_ns_mean")[0] == 20


def test_an_interval_in_which_the_engine_was_stalled_is_left_out_of_its_round() -> None:
    """Nothing completed in a quarter of round 3: of the remaining three quarters the rate is as before."""
    given = events(*[1000] * 5)
    given[9] |= {"stalled_ns": SECOND // 5, "streams": [{"operations": []}]}
    assert ends_after(given)[0] == 20
    given[9] |= {"stalled_ns": 0}
    assert ends_after(given)[0] is None
    given = events(*[1000] * 9)
    for event in given[8:12]:  # All of a round, which is never steady.
        event |= {"stalled_ns": SECOND // 4}
    assert ends_after(given)[0] == 4 * (3 + 5)


def test_a_run_that_has_moved_too_little_of_its_range_continues() -> None:
    """1000 I/Os of 4 KiB a second on 1 GiB: a round moves 0.4 % of it, and 1 % is the minimum."""
    until = {"round_ns": SECOND, "tracking": "iops", "hold": 0, "criteria": {}}
    given = events(*[1000] * 9)
    for criteria, is_enough in (({}, False), ({"rounds.min_written": 0.003}, True)):
        watch = Watch(until | {"range_bytes": 1 << 30, "criteria": criteria})
        assert any(watch.is_enough(event) for event in given) == is_enough


def decided_after(latencies_ms: list[float], conditions: list[str], *, phase: str = "measure") -> float | None:
    """Seconds after which a run ends, whose intervals of 100 ms have 50 flushes of these latencies each."""
    watch = watch_of({"conditions": conditions, "streams": []})
    for index, latency_ms in enumerate(latencies_ms):
        count, ns = 50, int(latency_ms * 1e6)
        histogram = {"count": count, "sum_ns": count * ns, "buckets": [[int(bucket_of(ns)), count]]}
        flush = {"operation": "flush", "count": count, "bytes": 0}
        flush |= {"completion_latency": histogram, "response_latency": None}
        event: Any = {"event": "interval", "phase": phase}
        event |= {"begin_ns": index * SECOND // 10, "end_ns": (index + 1) * SECOND // 10}
        event["streams"] = [{"stream": "main", "operations": [flush, operation(50)]}]
        if watch.is_enough(event):
            return (index + 1) / 10
    return None


FLUSH = "flush.completion_latency_ns_p99 < 10ms"


def test_a_run_ends_once_each_of_its_conditions_is_decided() -> None:
    assert decided_after([1.0] * 600, [FLUSH]) == 10
    assert decided_after([20.0] * 600, [FLUSH]) == 10
    assert decided_after([1.0] * 600, [FLUSH, "write.iops >= 300"]) == 10
    assert decided_after([1.0] * 600, [FLUSH, "write.iops >= 500"]) is None
    assert decided_after([8.0] * 600, [FLUSH]) == 40


def test_a_ramp_or_a_condition_that_intervals_cannot_decide_ends_no_run() -> None:
    assert decided_after([1.0] * 600, [FLUSH], phase="ramp") is None
    assert decided_after([1.0] * 600, [FLUSH, "flush.completion_latency_ns_max < 1s"]) is None
    assert decided_after([1.0] * 600, ["flush.completion_latency over 10ms < 1% in every 1h"]) is None
