"""About ten findings, word for word: what a reader of a report sees. Other tests compare kinds and values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hand_made import controls
from inline_snapshot import snapshot

from iosonde.features.arrays.questions import ArrayEfficiency
from iosonde.findings.answer import Trust
from iosonde.findings.device_state import FreshDevice, Written
from iosonde.findings.drift import drift
from iosonde.findings.observations.open_loop import OfferedRates, Rate
from iosonde.findings.observations.quality import ControlDrift, Verdicts
from iosonde.findings.questions.asymmetry import Comparison
from iosonde.findings.questions.peak import Peak
from iosonde.findings.questions.saturation import Point, Saturation
from iosonde.findings.questions.steady import SteadyRun
from iosonde.findings.questions.tails import TailGrowth
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate
from iosonde.metrics.steady_state import SNIA
from iosonde.plan import DeviceState


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
        "4 KiB random reads: 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS); not saturated"
    )
    assert rate(lower_bound=True, unsaturated=False).sentence == snapshot(
        "4 KiB random reads: at least 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS)"
    )


def test_the_answer_in_the_tutorial() -> None:
    peak = Peak(
        load="1 MiB sequential reads",
        metric="bandwidth",
        value=Estimate(2.0e9, 2.0e9, 2.0e9),
        maximum=Estimate(2.0e9, 1.91e9, 2.1e9),
        candidates=2,
        setting="queue depth 8",
        reached="queue depth 8",
        reached_value=2.0e9,
        repeats=3,
        lower_bound=False,
        verdicts="",
        unsaturated=True,
        strength="strong",
    )
    latency = UnloadedLatency(
        load="4 KiB random reads",
        p50=Estimate(78.4e3, 77.9e3, 79.0e3),
        p99=84.2e3,
        repeats=3,
        verdicts="",
        strength="strong",
    )
    page = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
    sample = " ".join(re.sub(r" +\(\d\)$", "", page, flags=re.MULTILINE).split())
    for finding in (peak, replace(rate(), value=Estimate(435e3, 435e3, 435e3)), latency):
        assert f"● {finding.sentence}." in sample


def test_the_interval_is_that_of_the_case_and_the_effect_of_its_selection_is_evidence() -> None:
    assert rate().evidence == snapshot(
        "highest median of 20 cases; this selection extends the interval by up to 4.4 %; 5 runs"
    )
    narrower = replace(rate(), maximum=Estimate(85_300, 84_000, 93_000))
    assert "selection" not in narrower.evidence


def test_an_interval_without_visible_width_is_written_by_its_half_width() -> None:
    """`95 % CI 2–2 GB/s` has no information."""
    narrow = replace(rate(), value=Estimate(435_000, 433_900, 435_100), unsaturated=False)
    assert narrow.sentence == snapshot("4 KiB random reads: 435 k IOPS at queue depth 64 (95 % CI 434–435 k IOPS)")
    narrower = replace(narrow, value=Estimate(434_780, 434_560, 435_200))
    assert narrower.sentence == snapshot("4 KiB random reads: 435 k IOPS at queue depth 64 (95 % CI ±0.1 %)")
    assert wording.ratio_estimate_text(Estimate(1.404, 1.396, 1.4049)) == snapshot("1.40 times (95 % CI ±0.6 %)")
    assert wording.estimate_text("iops", Estimate(13_200, 5_260, 34_200)) == snapshot(
        "13.2 k IOPS (95 % CI 5,260–34.2 k IOPS)"
    )
    assert wording.estimate_text("operations", Estimate(0, 0, 0)) == snapshot("0.00 (95 % CI 0.00)")


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
        "p99 completion latency of 4 KiB random reads does not change clearly: 100 µs at queue depth 1, 104 µs at 8"
    )


def point(size: int, level: int, *, saturates: bool = True) -> Point:
    return Point(
        axis_level=size,
        level=level,
        low=level,
        high=level,
        agreement=1.0,
        value=95.0,
        peak=100.0,
        peak_level=64,
        saturates=saturates,
    )


def test_saturation_names_the_levels_that_each_clause_is_true_for() -> None:
    finding = Saturation(
        load="random reads",
        over="queue_depth",
        metric="bandwidth",
        axis="block_size",
        points=(point(4096, 32), point(8192, 64, saturates=False), point(16384, 32), point(32768, 4)),
        last_level=64,
        repeats=5,
        strength="strong",
    )
    assert finding.sentence == snapshot(
        "Random reads: saturated at queue depth 32 with blocks of 4 KiB and 16 KiB (95 B/s), at queue depth 4 with 32 KiB blocks (95 B/s); not saturated at queue depth 64 with 8 KiB blocks (95 B/s)"
    )


def test_saturation_over_hosts_names_numbers_of_hosts_reads_and_writes_and_their_values() -> None:
    writes = Point(
        axis_level=0.0, level=4, low=4, high=4, agreement=1.0, value=48e3, peak=48e3, peak_level=4, saturates=False
    )
    reads = replace(writes, axis_level=1.0, level=2, low=2, high=2, value=90e3, peak=91e3, saturates=True)
    finding = Saturation(
        load="4 KiB random I/O",
        over="hosts",
        metric="iops",
        repeats=5,
        axis="read_fraction",
        points=(writes, reads),
        last_level=4,
        strength="strong",
    )
    both = (replace(writes, level=2, saturates=True), reads)
    unclear = replace(reads, low=1, high=4, agreement=0.3)
    assert [
        replace(finding, points=points).sentence for points in (finding.points, both, (reads,), (writes,), (unclear,))
    ] == snapshot(
        [
            "4 KiB random I/O: saturated with 2 hosts for reads (90 k IOPS); not saturated with 4 hosts for writes (48 k IOPS)",
            "4 KiB random I/O: saturated with 2 hosts for reads and writes (48–90 k IOPS)",
            "4 KiB random I/O saturate with 2 hosts (90 k IOPS)",
            "4 KiB random I/O: not saturated with 4 hosts, the highest level measured (48 k IOPS)",
            "4 KiB random I/O: saturation point between 1 and 4 hosts, repeats disagree",
        ]
    )
    assert finding.evidence == snapshot(
        "smallest number of hosts with 95 % of the peak: writes: 4, reads: 2; 5 runs each"
    )


def test_saturation_names_no_level_where_repeats_disagree() -> None:
    unclear = replace(point(4096, 4), low=1, high=64, agreement=0.4)
    finding = Saturation(
        load="random reads",
        over="queue_depth",
        metric="bandwidth",
        axis="block_size",
        points=(unclear, point(8192, 8)),
        last_level=64,
        repeats=5,
        strength="weak",
    )
    assert finding.sentence == snapshot(
        "Random reads: saturated at queue depth 8 with 8 KiB blocks (95 B/s); repeats disagree on the saturation point with 4 KiB blocks"
    )
    assert replace(finding, points=(unclear, replace(unclear, axis_level=8192))).sentence == snapshot(
        "Random reads: repeats disagree on the saturation point at every block size"
    )


def test_comparisons() -> None:
    finding = Comparison(
        metric="bandwidth",
        top="direct I/O",
        bottom="buffered I/O",
        about=" for random reads",
        decision="higher",
        ratio=Estimate(1.82, 1.78, 1.86),
        cells=(("queue depth 1", 0.8), ("queue depth 64", 2.9)),
        repeats=5,
        strength="strong",
    )
    assert finding.sentence == snapshot(
        "Direct I/O reaches on average 1.82 times (95 % CI 1.78–1.86) the bandwidth of buffered I/O for random reads, from 0.80 with queue depth 1 to 2.9 with queue depth 64"
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
        "4 KiB random writes: 88.9 k IOPS (95 % CI 88–89.5 k IOPS) on a fresh device, stable after 24 min, 29 % of the best round"
    )
    assert steady(state="unknown").sentence == snapshot(
        "4 KiB random writes: 88.9 k IOPS (95 % CI 88–89.5 k IOPS), stable after 24 min, 29 % of the best round; device state unknown"
    )
    assert steady(outcome="changed", changed_to=47_600.0).sentence == snapshot(
        "4 KiB random writes: steady state lost, 88.9 k IOPS (95 % CI 88–89.5 k IOPS) after 24 min, 47.6 k IOPS at the end (1 h)"
    )
    assert steady(outcome="changed", changed_to=47_600.0, state="unknown").sentence == snapshot(
        "4 KiB random writes: stable level lost (device state unknown), 88.9 k IOPS (95 % CI 88–89.5 k IOPS) after 24 min, 47.6 k IOPS at the end (1 h)"
    )
    never = steady(outcome="not steady", window=None, level=None, range_share=0.28, slope_share=0.14)
    assert never.sentence == snapshot(
        "4 KiB random writes: no steady state within 1 h: IOPS still changing 14 % per window"
    )
    assert replace(never, range_share=0.6, slope_share=0.0004).sentence == snapshot(
        "4 KiB random writes: no steady state within 1 h: IOPS varying by 60 % within a window"
    )
    assert steady(outcome="stalled", window=None, level=None, range_share=None, slope_share=None).sentence == snapshot(
        "4 KiB random writes: no steady state shown, the engine did not run in some of the last rounds (1 h)"
    )


def test_the_line_on_trust_states_a_drift_only_where_the_finding_does() -> None:
    def line(values: list[float]) -> tuple[str, str]:
        found = drift(controls("iops", values), metric="iops")
        assert found
        trust = Trust(verdicts={}, runs=5, incomplete=0, single=False, drift=found, simulated=True)
        return trust.line, ControlDrift(drift=found, strength="moderate").sentence

    for values, words in (([100, 97, 94, 91, 88], "drifted by"), ([100, 60, 130, 80, 160], "without a trend")):
        trust, finding = line([float(each) for each in values])
        assert words in trust and ("without a trend" in finding) == ("without a trend" in trust), (trust, finding)


def test_a_fresh_device() -> None:
    def finding(state: DeviceState, written: Written, cases: int = 1) -> str:
        found = FreshDevice(
            state=state, written=written, cases=cases, strength="strong", part="saturation", case_ids=("a",)
        )
        return found.sentence

    small = Written(capacity_bytes=4 << 30, range_bytes=1 << 30, written_bytes=20 << 30)
    assert finding("fresh", small) == snapshot(
        "Values of part `saturation` are for a fresh device, not for steady state: the load addressed 1 GiB of 4 GiB"
    )
    little = Written(capacity_bytes=4 << 30, range_bytes=4 << 30, written_bytes=1 << 30)
    assert finding("unknown", little, cases=3) == snapshot(
        "Values of 1 of 3 cases of part `saturation` are for an unknown device state: 1 GiB were written to a device of 4 GiB"
    )


def test_open_loop() -> None:
    kept = Rate(case_id="a", stream="main", achieved=10_000, shares=(1.0,), p99_ns=200_000)
    behind = Rate(case_id="b", stream="main", achieved=10_400, shares=(0.52,), p99_ns=9e9)
    assert OfferedRates(rates=(kept, behind), strength="strong", part="rates").sentence == snapshot(
        "1 of 2 offered rates achieved (part `rates`), p99 response latency 200 µs; overloaded at 20 k/s: 52 % of it achieved"
    )
    partly = Rate(case_id="c", stream="main", achieved=500_000, shares=(1.0, 1.0, 0.6), p99_ns=1e6)
    assert OfferedRates(rates=(kept, partly), strength="strong").sentence == snapshot(
        "1 of 2 offered rates achieved in every run, p99 response latency 200 µs; 500 k/s achieved in 2 of 3 runs, 60 % of it in the worst"
    )
    limited = replace(partly, achieved=300_000, shares=(0.6,) * 3, harness="3 of 3 runs harness-limited")
    assert OfferedRates(rates=(kept, limited), strength="weak").sentence == snapshot(
        "1 of 2 offered rates achieved, p99 response latency 200 µs; 500 k/s not achieved, 60 % of it: 3 of 3 runs harness-limited"
    )


def test_arrays() -> None:
    row = {
        **dict.fromkeys(
            (
                *("member_ios_per_operation", "member_bytes_per_byte", "member_utilisation", "member_imbalance"),
                *("cpu_ns_per_byte", "core_utilisation", "array_cpu_ns_per_byte", "busiest_core_utilisation"),
            )
        ),
        **{"array": "raid5", "array_kind": "md", "array_thread": "md127_raid5", "array_thread_utilisation": 0.98},
        **{"devices": 4, "measured": 620e6, "expected": 1e9, "baseline": 500e6, "multiple": 2.0, "efficiency": 0.62},
        **{"low": 0.6, "high": 0.64, "bound": None, "bound_by": None, "of_bound": None, "repeats": 5},
    }
    finding = ArrayEfficiency(
        array="RAID 5",
        load="writes",
        metric="bandwidth",
        efficiency=(0.62, 0.62),
        devices=(4, 4),
        applies=True,
        reason="CPU-limited: `md127_raid5` used 98 % of one core",
        speedup=1.24,
        fastest_cell="",
        lowest=row,
        lowest_cell="",
        cells=1,
        of_load=1,
        strength="strong",
    )
    assert (finding.sentence, finding.evidence) == snapshot(
        (
            "RAID 5 writes reach 62 % of the expected throughput with 4 devices; CPU-limited: `md127_raid5` used 98 % of one core",
            "RAID 5 of 4: 620 MB/s, 1 GB/s expected (2 times one device's 500 MB/s), efficiency 62 % (95 % CI 60–64 %, Welch's t on logarithms); `md127_raid5` 98 % of a core; 5 runs each",
        )
    )
    some = replace(finding, efficiency=(0.62, 0.9), lowest_cell="4 devices", cells=3, of_load=5, devices=(4, 8))
    assert some.sentence == snapshot(
        "RAID 5 writes reach 62–90 % of the expected throughput with 4 to 8 devices in 3 of 5 cells; lowest with 4 devices: CPU-limited: `md127_raid5` used 98 % of one core"
    )
    mixed = replace(finding, load="random direct I/O with 64 jobs", reason="").sentence
    assert mixed == "RAID 5 random direct I/O with 64 jobs reaches 62 % of the expected throughput with 4 devices"


def test_verdicts_and_the_line_on_trust() -> None:
    verdicts = Verdicts(
        counts=(("device-limited", 34), ("harness-limited", 6), ("undetermined", 3)),
        warnings=(("turnaround", 6),),
        strength="strong",
    )
    assert verdicts.sentence == snapshot("34 of 43 runs were device-limited, 6 harness-limited, 3 undetermined")
    trust = Trust(verdicts={"device-limited": 8, "undetermined": 35}, runs=45, incomplete=2, single=False)
    assert trust.line == snapshot(
        "35 of 43 runs were undetermined: results not attributable to the device; 2 of 45 runs failed or stopped"
    )
    drifting = drift(controls("iops", [100, 97, 94, 92, 90]), metric="iops")
    assert Trust(verdicts={}, runs=1, incomplete=0, single=True, drift=drifting, simulated=True).line == snapshot(
        "Simulated device on a virtual clock: no verdicts apply; the control case drifted by 11 %; no confidence intervals over repeats: fewer than 3"
    )
