from __future__ import annotations

import pytest

from iosonde.findings.disturbance import Disturbance, Recovery, recovered_after
from iosonde.findings.sentences.disturbance import tell

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
        ((1, 1), None),  # Too short to tell whether it stays.
        ((2, 2, 2, 2), None),
    ],
)
def test_recovered_is_what_is_nearly_as_before_and_stays_there(
    means: tuple[float | None, ...], recovered_s: float | None
) -> None:
    found = recovered_after(series(*means), 1 * MS)
    assert found == (None if recovered_s is None else recovered_s * S)


def title(*runs: Recovery) -> str:
    disturbance = Disturbance(
        case_id="stress",
        part="stress",
        levels={},
        disturbing=["writes"],
        disturbed="reads",
        latency="response_latency",
        interval_ns=S,
        rest_ns=30 * S,
        runs=runs,
    )
    [finding] = tell([disturbance])
    return finding.sentence


def test_what_most_runs_do_is_said_of_all() -> None:
    quick = Recovery(before_ns=1 * MS, during_ns=20 * MS, recovered_after_ns=0.5 * S)
    slow = Recovery(before_ns=1 * MS, during_ns=40 * MS, recovered_after_ns=12.5 * S)
    never = Recovery(before_ns=1 * MS, during_ns=30 * MS, recovered_after_ns=None)
    beginning = (
        "While `writes` loads the target, p99 response latency of `reads` is 30 ms instead of 1 ms, 30 times as long; "
    )
    assert title(quick, slow, never) == beginning + "when that stops it has recovered after 12.5 s"
    assert title(quick, never, never).endswith("when that stops it does not recover within 30 s")
    assert title(quick, quick, never).endswith("when that stops it recovers within 1 s")


def test_what_cannot_be_said_is_not() -> None:
    unknown = Recovery(before_ns=None, during_ns=20 * MS, recovered_after_ns=None)
    assert "p99 response latency of `reads` is 20 ms; when" in title(unknown)
    stalled = Recovery(before_ns=1 * MS, during_ns=None, recovered_after_ns=None)
    assert "of `reads` cannot be said, for too little completed" in title(stalled)
