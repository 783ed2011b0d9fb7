"""What a reader is told, word for word, and when it is not told."""

# sentences stand here word for word

from __future__ import annotations

import polars as pl
from hand_made import controls, results, study
from inline_snapshot import snapshot

from iosonde.findings.finding import Finding
from iosonde.findings.findings import findings

LOAD = {"access": "random", "io_mode": "direct", "read_fraction": 1.0, "trim_fraction": 0.0, "jobs": 1}
DEPTHS = [1, 2, 4, 8, 16, 32, 64]


def around(value: float, spread: float = 0.01) -> list[float]:
    return [value * (1 - spread), value, value * (1 + spread), value * (1 - spread / 2), value * (1 + spread / 2)]


def told(found: list[Finding], kind: str) -> list[tuple[str, str, str]]:
    return [(finding.sentence, finding.evidence, finding.strength) for finding in found if finding.kind == kind]


def drive(spread: float = 0.01, repeats: int = 5) -> list[Finding]:
    """A drive whose 16 servers need 88 µs for each 4 KiB read."""
    iops = {(depth,): around(min(depth, 16) / 88e-6, spread)[:repeats] for depth in DEPTHS}
    p99 = {(depth,): around(1.1e6 * max(depth / 16, 0.5), spread)[:repeats] for depth in DEPTHS}
    p50 = {(depth,): around(88e3 * max(depth / 16, 1), spread)[:repeats] for depth in DEPTHS}
    metrics = {"iops": iops, "completion_latency_ns_p99": p99, "completion_latency_ns_p50": p50}
    metrics["concurrency"] = {(depth,): [depth] * repeats for depth in DEPTHS}
    questions = [
        {"kind": "saturation", "over": "queue_depth", "metric": "iops"},
        {"kind": "gain_per_doubling", "over": "queue_depth", "metric": "iops"},
        {"kind": "tail_growth", "over": "queue_depth", "metric": "completion_latency_ns_p99"},
    ]
    cases, runs = results(["queue_depth"], metrics, block_size=4096, **LOAD)
    return findings(study({"queue_depth": DEPTHS}, questions), cases, runs)


def test_a_drive_in_sentences() -> None:
    assert [(finding.kind, finding.sentence) for finding in drive()] == snapshot(
        [
            ("headline", "Reads reach 182 k IOPS: 4 KiB random, queue depth 16"),
            ("headline", "A single 4 KiB random read takes 88 µs (median, p99 550 µs)"),
            (
                "saturation",
                "4 KiB random reads saturate at queue depth 16 (95 % of 182 k IOPS); beyond it only latency grows: p99 1.1 ms at 16, 4.4 ms at 64",
            ),
            (
                "doubling",
                "4 KiB random reads nearly double in IOPS with each doubling of queue depth from 1 to 16 (2.00 times), then gain 1.00 times",
            ),
            (
                "tail",
                "p99 completion latency of 4 KiB random reads grows from 550 µs at queue depth 1 to 4.4 ms at 64: 8.0 times for 64 times the load in flight",
            ),
        ]
    )


def test_the_evidence_of_a_saturation_names_interval_and_runs() -> None:
    assert told(drive(), "saturation") == snapshot(
        [
            (
                "4 KiB random reads saturate at queue depth 16 (95 % of 182 k IOPS); beyond it only latency grows: p99 1.1 ms at 16, 4.4 ms at 64",
                "182 k IOPS at queue depth 16, peak 182 k IOPS at 16; 95 % interval of the level 16..16, from 5 runs each",
                "strong",
            )
        ]
    )


def test_a_single_run_is_told_without_an_interval_and_weakly() -> None:
    single = drive(repeats=1)
    assert told(single, "saturation") == snapshot(
        [
            (
                "4 KiB random reads saturate at queue depth 16 (95 % of 180 k IOPS); beyond it only latency grows: p99 1.09 ms at 16, 4.36 ms at 64",
                "180 k IOPS at queue depth 16, peak 180 k IOPS at 16; no interval from 1 run",
                "weak",
            )
        ]
    )
    assert told(single, "doubling") == []
    assert told(single, "trust") == snapshot(
        [
            (
                "7 of 7 cases have fewer than 3 repeats and so no interval",
                "run with `--repeats 3` or more to learn how sure their figures are",
                "strong",
            )
        ]
    )


def test_a_step_without_gain_is_told_for_the_block_sizes_it_holds_for() -> None:
    """Up to 64 KiB the second I/O in flight brings nothing; above it doubles the bandwidth."""
    sizes = [4096 << shift for shift in range(8)]
    bandwidth = {}
    for size in sizes:
        base = 1e4 * size**0.5
        second = 0.98 if size <= 65536 else 2.0
        for depth, factor in ((1, 1.0), (2, second), (4, 2 * second)):
            bandwidth[(size, depth)] = around(base * factor, 0.02)
    cases, runs = results(["block_size", "queue_depth"], {"bandwidth": bandwidth}, **LOAD)
    questions = [{"kind": "gain_per_doubling", "over": "queue_depth", "by": ["block_size"]}]
    found = findings(study({"block_size": sizes, "queue_depth": [1, 2, 4]}, questions), cases, runs)
    assert told(found, "doubling") == snapshot(
        [
            (
                "Queue depth 2 is no faster than 1 for random reads with blocks up to 64 KiB: ratio 0.98, 95 % interval 0.97..0.99",
                "0.98..0.98 in 5 cells (5 runs each)",
                "strong",
            ),
            (
                "Random reads nearly double in bandwidth with each doubling of queue depth from 2 to 4 (2.00 times)",
                "gain per doubling 2.00, 95 % interval 1.99..2.01",
                "strong",
            ),
        ]
    )


def test_a_saturation_that_depends_on_block_size_is_told_in_two_stretches() -> None:
    sizes = [4096 << shift for shift in range(6)]
    servers = {size: 32 if size <= 16384 else 4 for size in sizes}
    bandwidth = {(size, depth): around(1e6 * min(depth, servers[size])) for size in sizes for depth in DEPTHS}
    cases, runs = results(["block_size", "queue_depth"], {"bandwidth": bandwidth}, **LOAD)
    questions = [{"kind": "saturation", "over": "queue_depth", "by": ["block_size"]}]
    found = findings(study({"block_size": sizes, "queue_depth": DEPTHS}, questions), cases, runs)
    assert told(found, "saturation") == snapshot(
        [
            (
                "Random reads gain less than 5 % beyond queue depth 32 with blocks up to 16 KiB, and beyond queue depth 4 with blocks from 32 KiB",
                "smallest queue depth with 95 % of the peak: 4 KiB..16 KiB: 32, 32 KiB..128 KiB: 4 (5 runs each)",
                "strong",
            )
        ]
    )


def comparing(ratio: float, spread: float) -> list[Finding]:
    bandwidth = {("buffered", 4096): around(1e9 * ratio, spread), ("direct", 4096): around(1e9, spread)}
    bandwidth |= {("buffered", 8192): around(2e9 * ratio, spread), ("direct", 8192): around(2e9, spread)}
    cases, runs = results(["io_mode", "block_size"], {"bandwidth": bandwidth}, **{**LOAD, "io_mode": "direct"})
    questions = [{"kind": "asymmetry", "over": "io_mode", "by": ["block_size"]}]
    return findings(study({"io_mode": ["buffered", "direct"], "block_size": [4096, 8192]}, questions), cases, runs)


def test_levels_are_compared_and_equal_or_unclear_if_the_interval_says_so() -> None:
    assert told(comparing(0.55, 0.02), "asymmetry") == snapshot(
        [
            (
                "Direct I/O reaches 1.82 times the bandwidth of buffered I/O for random reads",
                "buffered I/O to direct I/O, bandwidth: ratio 0.55, 95 % interval 0.54..0.56 (0.55..0.55 in 2 cells), 5 runs each",
                "strong",
            )
        ]
    )
    assert told(comparing(1.01, 0.01), "asymmetry") == snapshot(
        [
            (
                "Buffered I/O and direct I/O are equal within 5 % for random reads",
                "buffered I/O to direct I/O, bandwidth: ratio 1.01, 95 % interval 1.00..1.02 (1.01..1.01 in 2 cells), 5 runs each",
                "strong",
            )
        ]
    )
    assert told(comparing(1.04, 0.15), "unclear") == snapshot(
        [
            (
                "Whether buffered I/O and direct I/O differ is unclear for random reads",
                "buffered I/O to direct I/O, bandwidth: ratio 1.04, 95 % interval 0.93..1.16 (1.04..1.04 in 2 cells), 5 runs each; about 27 repeats would decide it",
                "weak",
            )
        ]
    )


def test_flatness_and_peak() -> None:
    jobs = [1, 2, 4, 8]
    bandwidth = {(count,): around(1e9 * (1.02 if count == 4 else 1.0), 0.002) for count in jobs}
    cases, runs = results(["jobs"], {"bandwidth": bandwidth}, block_size=1 << 20, **{**LOAD, "access": "sequential"})
    questions = [{"kind": "flatness", "over": "jobs"}, {"kind": "peak", "over": "jobs"}]
    found = findings(study({"jobs": jobs}, questions), cases, runs)
    assert told(found, "flatness") == snapshot(
        [
            (
                "Bandwidth of 1 MiB sequential reads hardly depends on jobs: within 10 %",
                "1.02 GB/s at 4 jobs, 1 GB/s at 1 job; ratio 1.02, 95 % interval 1.02..1.02",
                "strong",
            )
        ]
    )
    assert told(found, "peak") == snapshot(
        [
            (
                "1 MiB sequential reads peak at 1.02 GB/s, and reach 95 % of it with 1 job",
                "largest at 4 jobs: 1.02 GB/s, 95 % interval 1.02 GB/s..1.02 GB/s (5 runs); 1 GB/s at 1 job",
                "strong",
            )
        ]
    )


def test_a_percentile_without_samples_is_unclear_and_says_what_would_settle_it() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [10, 10, 10], (2,): [20, 20, 20]}}, **LOAD)
    questions = [{"kind": "tail_growth", "over": "queue_depth", "metric": "completion_latency_ns_p99_999"}]
    assert told(findings(study({"queue_depth": [1, 2]}, questions), cases, runs), "unclear") == snapshot(
        [
            (
                "p99.999 completion latency cannot be said for any case of part `main`",
                "fewer than ten samples lie beyond it in every run; longer runs would settle it",
                "weak",
            )
        ]
    )


def test_a_part_without_any_run_is_not_spoken_of() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [10.0]}}, **LOAD)
    questions = [{"kind": "saturation", "over": "queue_depth"}]
    assert told(findings(study({"queue_depth": [1]}, questions), cases, runs.clear()), "saturation") == []


def test_trust_is_told_last_with_holes_errors_and_a_tool_that_limits() -> None:
    metrics = {
        "iops": {(1,): [10, 10, 10], (2,): [20, 20, 20]},
        "errors": {(1,): [0, 0, 3]},
        "littles_law_ratio": {(1,): [1.0, 1.0, 1.0], (2,): [0.7, 0.71, 0.99]},
        "completion_latency_ns_mean": {(1,): [1e5] * 3, (2,): [1e5] * 3},
        "seconds": {(1,): [1.0] * 3, (2,): [1.0] * 3},
        "mean_in_flight": {(1,): [1.0] * 3, (2,): [1.4, 1.42, 1.98]},
        "core_utilisation": {(2,): [0.99, 0.98, 0.5]},
    }
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    drifting = pl.concat([runs, controls("iops", [100, 97, 94, 92, 90])], how="vertical_relaxed")
    outcomes = pl.DataFrame(
        {
            "run_id": ["a", "b", "c"],
            "case_id": ["x", "x", "y"],
            "outcome": ["complete", "failed", "failed"],
            "failure": [None, "no_space", "no_space"],
            "failure_message": [None, "no space left", "no space left"],
            "verdict": [None] * 3,
        },
        schema_overrides={"verdict": pl.String},
    )
    warned = pl.DataFrame(
        {"run_id": ["a", "b"], "code": ["one_queue"] * 2, "message": ["the device has one queue"] * 2, "hint": [""] * 2}
    )
    found = findings(study({"queue_depth": [1, 2]}, []), cases, drifting, runs=outcomes, warnings=warned)
    assert told(found, "trust") == snapshot(
        [
            ("2 of 3 runs failed; 1 case has no value", "no space left (2)", "strong"),
            (
                "3 I/Os failed in 1 run that went on",
                "failed and short I/Os are counted apart and are in no rate or latency",
                "strong",
            ),
            (
                "In 2 of 6 runs fewer I/Os were in flight than asked for: the figure may be the tool's and not the disk's",
                "Little's law: mean in flight over concurrency 0.70..0.71",
                "strong",
            ),
            (
                "In 2 of 3 runs a thread kept its core busy: more jobs may give more",
                "a job's thread used at least 95 % of a core",
                "moderate",
            ),
            ("The device has one queue (2 runs)", "warning `one_queue`", "moderate"),
        ]
    )
    assert told(found, "drift") == snapshot(
        [
            (
                "The machine drifted: the control case lost 11 % over the study",
                "IOPS of the control case, 5 runs: 95 % interval -13 %..-8.5 %; spread 11 %",
                "strong",
            )
        ]
    )
    assert [finding.kind for finding in found][-1] == "trust"


def test_runs_that_are_too_short_to_tell_are_named_and_not_counted_as_good() -> None:
    metrics = {
        "littles_law_ratio": {(1,): [0.5, 1.0, 1.0]},
        "completion_latency_ns_mean": {(1,): [3e8, 1e5, 1e5]},
        "seconds": {(1,): [1.0] * 3},
        "mean_in_flight": {(1,): [0.5, 1.0, 1.0]},
        "concurrency": {(1,): [1.0] * 3},
    }
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    assert [finding.sentence for finding in findings(study({"queue_depth": [1]}, []), cases, runs)] == snapshot(
        [
            "1 of 3 runs lasted less than 5 times their mean latency: begin and end weigh too much in their figures",
            "Little's law holds in all 2 runs that can tell: rates and latencies agree with each other",
        ]
    )


def test_verdicts_are_summed_up_with_the_warnings_that_decided() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [1.0, 2.0], (2,): [3.0, 4.0]}}, **LOAD)
    outcomes = pl.DataFrame(
        {
            "run_id": ["a", "b", "c", "d"],
            "case_id": ["x", "x", "y", "y"],
            "outcome": ["complete"] * 4,
            "failure": pl.Series([None] * 4, dtype=pl.String),
            "failure_message": pl.Series([None] * 4, dtype=pl.String),
            "verdict": ["device-limited", "harness-limited", "harness-limited", "undetermined"],
        }
    )
    warned = pl.DataFrame(
        {
            "run_id": ["b", "c", "c", "d"],
            "code": ["turnaround", "turnaround", "cpu_governor", "other_io"],
            "message": ["26 % of the time", "20 % of the time", "it is `powersave`", "others moved 5 MiB"],
            "hint": ["do this", "do this", "do that", "end it"],
        }
    )
    found = findings(study({"queue_depth": [1, 2]}, []), cases, runs, runs=outcomes, warnings=warned)
    assert [(finding.sentence, finding.evidence) for finding in found if finding.kind == "trust"] == snapshot(
        [
            (
                "1 of 4 runs were device-limited, 2 harness-limited, 1 undetermined",
                "`turnaround` (2 runs), `other_io` (1 run)",
            ),
            (
                "2 of 2 cases have fewer than 3 repeats and so no interval",
                "run with `--repeats 3` or more to learn how sure their figures are",
            ),
            (
                "The tool kept places in the queue free while it made the next I/O ready (2 runs)",
                "warning `turnaround`: for example 26 % of the time; do this",
            ),
            (
                "Others used the device at the same time (1 run)",
                "warning `other_io`: for example others moved 5 MiB; end it",
            ),
            (
                "The processor's speed varies with load (1 run)",
                "warning `cpu_governor`: for example it is `powersave`; do that",
            ),
        ]
    )


def test_a_verdict_explains_why_fewer_were_in_flight_so_the_law_does_not_alarm() -> None:
    metrics = {
        "littles_law_ratio": {(1,): [0.7, 1.0, 1.0]},
        "completion_latency_ns_mean": {(1,): [1e5] * 3},
        "seconds": {(1,): [1.0] * 3},
        "mean_in_flight": {(1,): [0.7, 1.0, 1.0]},
        "concurrency": {(1,): [1.0] * 3},
    }
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    outcomes = pl.DataFrame(
        {
            "run_id": runs["run_id"].unique(maintain_order=True),
            "case_id": ["main/queue_depth=1"] * 3,
            "outcome": ["complete"] * 3,
            "failure": pl.Series([None] * 3, dtype=pl.String),
            "failure_message": pl.Series([None] * 3, dtype=pl.String),
            "verdict": ["harness-limited", "device-limited", "device-limited"],
        }
    )
    judged = findings(study({"queue_depth": [1]}, []), cases, runs, runs=outcomes)
    assert [
        finding.sentence for finding in judged if "Little" in finding.sentence or "fewer" in finding.sentence
    ] == snapshot(["Little's law holds in all 2 runs that can tell: rates and latencies agree with each other"])
    without = findings(study({"queue_depth": [1]}, []), cases, runs)
    assert [
        finding.sentence for finding in without if "Little" in finding.sentence or "fewer" in finding.sentence
    ] == snapshot(
        ["In 1 of 3 runs fewer I/Os were in flight than asked for: the figure may be the tool's and not the disk's"]
    )


def test_an_io_in_flight_at_the_begin_counts_in_full_and_is_no_alarm() -> None:
    metrics = {
        "littles_law_ratio": {(1,): [1.07] * 3},
        "completion_latency_ns_mean": {(1,): [1e5] * 3},
        "completion_latency_ns_max": {(1,): [4e7] * 3},
        "seconds": {(1,): [1.0] * 3},
        "mean_in_flight": {(1,): [1.07] * 3},
        "concurrency": {(1,): [1.0] * 3},
    }
    cases, runs = results(["queue_depth"], metrics, **LOAD)
    found = findings(study({"queue_depth": [1]}, []), cases, runs)
    assert not [finding for finding in found if "more I/Os were in flight" in finding.sentence]
