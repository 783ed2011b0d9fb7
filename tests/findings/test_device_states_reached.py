"""The device state of a run: planned, then corrected by what was written and by whether the rate settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from iosonde.findings.device_state import DeviceStates, FreshDevice, convergences, device_states, of_windows
from iosonde.findings.findings import findings
from iosonde.plan import PREPARATION
from iosonde.study.model import Study

GIB = 1 << 30
SETTLED = [100.0, 40.0, 40.0, 40.0, 40.0, 40.0]
DECLINING = [100.0, 98.2, 96.3, 94.0, 92.1, 90.0]
"""Meets SNIA's criterion, and falls by 8 % across its window."""
NOISY = [100.0, 98.0, 101.0, 99.0, 102.0, 100.0]
"""Meets SNIA's criterion, and a fall of 0.5 % per round would look the same."""
FALLING = [100.0, 80.0, 60.0, 50.0, 40.0, 30.0]
STUDY = Study.model_validate(
    {
        "name": "by-hand",
        "title": "By hand",
        "question": "?",
        "device_state": "steady",
        "parts": [{"name": "main", "factors": {"queue_depth": [1]}, "rounds": {"max_rounds": 6, "min_written": 0}}],
        "profiles": {"quick": {}},
    }
)


def frames(
    rounds: Sequence[float] = SETTLED,
    *,
    planned: str = "steady",
    capacity: int | None = 4 * GIB,
    before: int = 0,
    prepared: int = 8 * GIB,
    purge: str = "format",
    stage: bool = False,
    bursting: bool = False,
    **parameters: Any,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Cases, run metrics and runs of a pass: a purge between writes of so many bytes, rounds with these rates, perhaps a stage."""
    cases, runs, outcomes = [], [], []
    steps = [("earlier", float(before)), ("purge", 0.0), ("precondition", float(prepared))]
    steps += [(f"round{number}", rate) for number, rate in enumerate(rounds, 1)]
    for order, (name, rate) in enumerate([*steps, *([("stage", 1.0)] if stage else [])]):
        part = PREPARATION if name in ("earlier", "purge", "precondition") else "main"
        case_id = f"{part}/{name}"
        levels = {
            "round": int(name[5:]) if name.startswith("round") else None,
            "stage": "s" if name == "stage" else None,
        }
        if part == "main":
            row = {"case_id": case_id, "part": part, "control": False, "device_state": planned, "queue_depth": 1}
            cases.append(row | {"span": 4 * GIB, "purge": purge, "precondition": 4096, **parameters, **levels})
        known = {"run_id": name, "case_id": case_id, "part": part, "repeat": 1, "order": order, "control": False}
        runs += [
            {**known, "stream": stream, "operation": operation, "metric": metric, "value": value}
            for stream in ("main", "all")
            for operation, metric, value in (
                ("write", "bandwidth", rate),
                ("all", "bandwidth", rate),
                ("all", "iops", rate),
                ("all", "seconds", 1.0),
            )
        ]
        step = name if part == PREPARATION else None
        outcomes.append({**known, "step": step, "target_bytes": capacity, "rate_is_transient": bursting})
    made = (pl.DataFrame(each, infer_schema_length=None) for each in (cases, runs, outcomes))
    return next(made), next(made), next(made)


def reached(*arguments: Any, **options: Any) -> tuple[DeviceStates, list[FreshDevice], list[str]]:
    """States of a pass, and what is stated of it."""
    cases, runs, outcomes = frames(*arguments, **options)
    states = device_states(STUDY, cases, runs, outcomes)
    found = findings(STUDY, cases, runs, runs=None, states=states)
    sentences = [each.sentence for each in found if each.kind == "steady rounds"]
    return states, list(states.findings), sentences


def state(*arguments: Any, **options: Any) -> tuple[str, ...]:
    return reached(*arguments, **options)[0].of_case("main/round6")


def test_a_pass_that_settled_is_steady_and_one_that_did_not_is_preconditioned() -> None:
    assert state() == ("steady",)
    assert state(FALLING) == ("preconditioned",)
    assert reached()[2] == ["Queue depth 1: steady state, SNIA's criterion met in rounds 2 to 6"]
    assert reached(FALLING)[2] == ["Queue depth 1: did not become steady in 6 rounds"]
    states, _, sentences = reached(DECLINING)
    assert states.of_case("main/round6") == ("preconditioned",)
    assert sentences == ["Queue depth 1: no steady state, IOPS still falling; SNIA's criterion met in rounds 1 to 5"]
    states, _, [sentence] = reached(NOISY)
    assert states.of_case("main/round6") == ("preconditioned",)
    assert sentence == (
        "Queue depth 1: no steady state shown, too few rounds to rule out a drift of 0.5 % per round (bound 1.0 %); SNIA's "
        "criterion met in rounds 1 to 5"
    )
    assert reached(stage=True)[0].of_case("main/stage") == ("steady",), "the state that the rounds left"
    assert reached(FALLING, stage=True)[0].of_case("main/stage") == ("preconditioned",)


def test_a_rate_is_that_of_the_last_window_and_never_of_the_best_round() -> None:
    for rounds, window in ((SETTLED, [2, 3, 4, 5, 6]), (FALLING, [2, 3, 4, 5, 6])):
        cases, runs, _ = frames(rounds)
        kept = of_windows(STUDY.parts, cases, runs).filter(part="main")["case_id"].unique().sort()
        assert kept.to_list() == [f"main/round{number}" for number in window]


def test_a_closing_check_withdraws_a_steady_state_that_does_not_last() -> None:
    """Five equal rounds, then a lower level: without the check the first level would be called steady."""
    cases, runs, _ = frames([300, 300, 300, 300, 300, 150, 100, 100, 100, 100, 100, 100])
    [part] = STUDY.parts
    assert part.rounds
    for hold, expected in ((0, (1, 5, 12, None, 300)), (1, (7, 11, 12, 5, 100))):
        checked = part.model_copy(update={"rounds": part.rounds.model_copy(update={"hold": hold})})
        [found] = convergences(checked, cases, runs)
        [tracked] = found.tracked
        assert tracked.window
        assert (found.first, found.last, found.rounds, found.withdrawn, tracked.window.mean) == expected


def test_the_standard_profiles_of_snia_address_enough_of_a_drive() -> None:
    assert state(span=int(0.8 * 4 * GIB)) == ("steady",)
    assert state(span=int(0.7 * 4 * GIB)) == ("fresh",)
    assert state(fill=30, span=int(0.3 * 4 * GIB)) == ("steady",), "the share that is filled counts as the capacity"
    assert state(fill=90, span=int(0.9 * GIB)) == ("fresh",)
    assert state(before=100 * GIB) == ("steady",)
    assert state(before=100 * GIB, prepared=GIB) == ("fresh",), "bytes before the purge do not count"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"span": GIB}, "the load addressed 1 GiB of 4 GiB"),
        ({"prepared": GIB}, "1 GiB were written to a device of 4 GiB"),
        (
            {"prepared": 5 * GIB, "precondition": None},
            "5 GiB were written to a device of 4 GiB, less than 2 times the active range of 4 GiB",
        ),
    ],
)
def test_too_little_leaves_a_purged_device_fresh_in_every_sentence(options: dict[str, Any], sentence: str) -> None:
    states, [found], [steady] = reached(**options)
    assert states.of_case("main/round6") == ("fresh",)
    assert found.sentence == f"Results of part `main` describe a fresh drive, not steady state: {sentence}"
    assert steady == "Queue depth 1: stable on a fresh drive, SNIA's criterion met in rounds 2 to 6"


def test_a_device_that_was_not_purged_is_in_an_unknown_state_then() -> None:
    states, [found], [steady] = reached(prepared=GIB, purge="none")
    assert states.of_case("main/round6") == ("unknown",)
    assert "a drive in an unknown state" in found.sentence
    assert steady == "Queue depth 1: stable, SNIA's criterion met in rounds 2 to 6; device state unknown"


def test_states_that_are_not_to_be_steady_stay_as_planned() -> None:
    for planned in ("fresh", "unknown", "not_applicable"):
        assert state(planned=planned) == (planned,)
    assert state(planned="preconditioned") == ("steady",)


def test_a_burst_rate_is_not_steady_state() -> None:
    states, _, (sentence,) = reached(planned="steady", bursting=True)
    assert states.of_case("main/round6") == ("unknown",)
    assert sentence == "Queue depth 1: stable, SNIA's criterion met in rounds 2 to 6; device state unknown"
