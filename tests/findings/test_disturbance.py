from __future__ import annotations

import pytest

from iosonde.findings.interference import Interference, Recovery, is_measured, recovered_after

MS = 10**6
S = 10**9


def series(*means_ms: float | None) -> list[tuple[int, float | None]]:
    """One interval a second, the first half a second after the end."""
    return [(S // 2 + index * S, None if mean is None else mean * MS) for index, mean in enumerate(means_ms)]


@pytest.mark.parametrize(
    ("means", "recovered_s"),
    [
        ((1, 1, 1, 1), 0.5),
        ((9, 9, 1.5, 1, 1), 2.5),
        ((1, 9, 1, 1, 1), 2.5),  # A single good interval is none.
        ((None, 1, 1, 1), 1.5),  # A stall is no recovery.
        ((1, 1), None),  # Too short to decide whether it is permanent.
        ((2, 2, 2, 2), None),
    ],
)
def test_recovered_is_what_is_nearly_as_before_and_stays_there(
    means: tuple[float | None, ...], recovered_s: float | None
) -> None:
    found = recovered_after(series(*means), 1 * MS)
    assert found == (None if recovered_s is None else recovered_s * S)


def interference(*runs: Recovery) -> Interference:
    names = {"part": "stress", "disturbing": ["writes"], "disturbed": "reads", "latency": "response_latency"}
    times = {"interval_ns": S, "rest_ns": 30 * S}
    return Interference(**names, **times, levels={}, runs=runs, strength="strong", case_ids=("stress",))


def test_the_middle_of_all_runs_counts_and_runs_without_recovery_are_the_slowest() -> None:
    quick = Recovery(before_ns=1 * MS, during_ns=20 * MS, recovered_after_ns=0.5 * S)
    slow = Recovery(before_ns=1 * MS, during_ns=40 * MS, recovered_after_ns=12.5 * S)
    never = Recovery(before_ns=1 * MS, during_ns=30 * MS, recovered_after_ns=None)
    found = interference(quick, slow, never)
    assert (found.before_ns, found.during_ns, found.recovered_after_ns) == (1 * MS, 30 * MS, 12.5 * S)
    assert "rises from 1 ms to 30 ms (30 times) under load from `writes`; recovered 12.5 s afterwards" in found.sentence
    assert interference(quick, never, never).recovered_after_ns is None
    assert interference(quick, never, never).sentence.endswith("; no recovery within 30 s afterwards")
    assert interference(quick, quick, never).sentence.endswith("; recovered within 1 s afterwards")


def test_a_recovery_that_could_not_be_measured_is_not_denied() -> None:
    assert is_measured(series(9, 9, 9), 1 * MS)
    assert not is_measured(series(9, 9, 9), None)
    assert not is_measured(series(1, 1), 1 * MS)
    assert not is_measured([], 1 * MS)
    unknown = Recovery(before_ns=1 * MS, during_ns=20 * MS, recovered_after_ns=None, judged=False)
    assert interference(unknown, unknown).sentence.endswith("; recovery not measured")
    quick = Recovery(before_ns=1 * MS, during_ns=20 * MS, recovered_after_ns=0.5 * S)
    assert interference(unknown, unknown, quick).recovered_after_ns == 0.5 * S


def test_a_change_within_the_noise_has_no_direction() -> None:
    runs = [
        Recovery(before_ns=1 * MS, during_ns=during * MS, recovered_after_ns=0.5 * S) for during in (0.5, 1.04, 2.0)
    ]
    found = interference(*runs)
    assert found.change is not None and found.change.is_noise
    assert "under load from `writes`: 1 ms before, 1.04 ms during" in found.sentence
    assert "rises from" in interference(*runs[1:]).sentence  # Two runs have no interval.
