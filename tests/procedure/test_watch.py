"""A run that is evaluated while it runs: it stops when it is steady, and continues when it no longer is."""

from __future__ import annotations

from typing import Any

from iosonde.planning.procedure.watch import Watch

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
