"""About ten findings, word for word: what a reader of a report sees. Other tests compare kinds and values."""

from __future__ import annotations

from dataclasses import replace

from hand_made import controls
from inline_snapshot import snapshot

from iosonde.findings.answer import Trust
from iosonde.findings.finding import drift
from iosonde.findings.quality import Verdicts
from iosonde.findings.questions.scaling import TailGrowth
from iosonde.findings.questions.steady import SteadyRun
from iosonde.findings.throughput import Throughput
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate
from iosonde.metrics.steady_state import SNIA


def rate(*, lower_bound: bool = False, unsaturated: bool = True) -> Throughput:
    return Throughput(
        load="4 KiB random reads",
        setting="at queue depth 64",
        metric="iops",
        value=Estimate(85_300, 83_500, 93_700),
        maximum=Estimate(85_300, 80_000, 95_000),
        candidates=20,
        repeats=5,
        unsaturated=unsaturated,
        lower_bound=lower_bound,
        cache_served=False,
        verdicts="3 of 5 runs undetermined" if lower_bound else "",
        strength="strong",
    )


def test_highest_rates() -> None:
    assert rate().sentence == snapshot(
        "4 KiB random reads: 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS); maximum not shown"
    )
    assert rate(lower_bound=True, unsaturated=False).sentence == snapshot(
        "4 KiB random reads: at least 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS)"
    )


def test_an_interval_without_visible_width_is_written_by_its_half_width() -> None:
    """`95 % CI 2–2 GB/s` has no information."""
    narrow = replace(rate(), value=Estimate(434_780, 434_560, 435_200), unsaturated=False)
    assert narrow.sentence == snapshot("4 KiB random reads: 435 k IOPS at queue depth 64 (95 % CI ±0.1 %)")
    assert wording.ratio_estimate_text(Estimate(1.404, 1.396, 1.4049)) == snapshot("1.40 times (95 % CI ±0.6 %)")
    assert wording.ratio_interval_text(3.87, 3.869, 3.873) == snapshot("±0.1 %")
    assert wording.ratio_interval_text(3.87, 3.81, 3.93) == snapshot("3.81–3.93")


def test_tails() -> None:
    growth = TailGrowth(
        load="4 KiB random reads",
        over="queue_depth",
        metric="completion_latency_ns_p99",
        first_level=1,
        first=82_000,
        last_level=64,
        last=1_980_000,
        ratio=Estimate(24.1, 23.0, 25.2),
        where="",
        cells=1,
        repeats=5,
        strength="strong",
    )
    assert (growth.sentence, growth.evidence) == snapshot(
        (
            "p99 completion latency of 4 KiB random reads rises from 82 µs at queue depth 1 to 1.98 ms at 64",
            "growth 24 times (95 % CI 23–25); 5 runs each",
        )
    )
    noise = replace(growth, last_level=8, first=100_000, last=104_000, ratio=Estimate(1.04, 0.33, 3.32))
    assert noise.ratio.is_noise and not replace(growth, ratio=Estimate(1.04)).ratio.is_noise
    assert noise.sentence == (
        "No statistically clear change in p99 completion latency of 4 KiB random reads: 100 µs at queue depth 1, 104 µs at 8"
    )


def steady(**changes: object) -> SteadyRun:
    values: dict[str, object] = {
        "load": "4 KiB random writes",
        "metric": "iops",
        "outcome": "steady",
        "state": "steady",
        "rounds": 60,
        "round_s": 60.0,
        "window": (20, 24),
        "level": Estimate(88_900, 88_000, 89_500),
        "share_of_peak": 0.29,
        "changed_to": None,
        "left_before": None,
        "drift_below": 0.0131,
        "range_share": 0.05,
        "slope_share": 0.04,
        "criteria": SNIA,
        "strength": "strong",
        **changes,
    }
    return SteadyRun(**values)  # type: ignore[arg-type]


def test_steady_state() -> None:
    assert steady().sentence == snapshot(
        "4 KiB random writes: steady at 88.9 k IOPS (95 % CI 88–89.5 k IOPS) after 24 min and until the end (1 h, drift below 2 % over the second half), 29 % of the best round"
    )
    assert steady(state="fresh").sentence == snapshot(
        "4 KiB random writes: 88.9 k IOPS (95 % CI 88–89.5 k IOPS), stable after 24 min, 29 % of the best round; this describes a fresh drive"
    )
    never = steady(outcome="not steady", window=None, level=None, range_share=0.28, slope_share=0.14)
    assert never.sentence == snapshot(
        "4 KiB random writes: no steady state within 1 h: IOPS still changing 14 % per window"
    )


def test_verdicts_and_the_line_on_trust() -> None:
    verdicts = Verdicts(
        counts=(("device-limited", 34), ("harness-limited", 6), ("undetermined", 3)),
        warnings=(("turnaround", 6),),
        strength="strong",
    )
    assert verdicts.sentence == snapshot("34 of 43 runs were device-limited, 6 harness-limited, 3 undetermined")
    one = replace(verdicts, counts=(("device-limited", 1), ("harness-limited", 5)))
    assert one.sentence == snapshot("1 of 6 runs was device-limited, 5 harness-limited")
    trust = Trust(verdicts={"device-limited": 8, "undetermined": 35}, runs=45, incomplete=2, single=False)
    assert trust.line == snapshot(
        "In 35 of 43 runs it is not known whether the device was the bottleneck; 2 of 45 runs failed or stopped"
    )
    drifting = drift(controls("iops", [100, 97, 94, 92, 90]), metric="iops")
    assert Trust(verdicts={}, runs=1, incomplete=0, single=True, drift=drifting, simulated=True).line == snapshot(
        "Simulated device on a virtual clock: bottleneck analysis does not apply; the control case drifted by 10 %; no confidence intervals over repeats: fewer than 3"
    )


def test_a_margin_is_a_share_of_the_limit_and_a_large_one_a_multiple() -> None:
    assert [wording.margin_text(each) for each in (-0.03, 0.12, 9.9, 312)] == [
        "-3 %",
        "+12 %",
        "+990 %",
        "313 times the limit",
    ]


def test_one_case_is_not_picked_among_others() -> None:
    alone, wider = Estimate(1.0, 0.9, 1.1), Estimate(1.0, 0.5, 2.0)
    assert wording.selection_text(alone, wider, 1) == "median of the only case"
    assert wording.selection_text(alone, wider, 2).endswith("up to 82 % wider")
