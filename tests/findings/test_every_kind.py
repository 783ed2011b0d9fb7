"""Sentences are true of random noise-free results, and their evaluator rejects changed numbers.

`test_every_sentence.py` has the kinds that state relations between many cells of block I/O; here are others that no test
of their own covers. Groups are incomplete, effects are opposite, and devices are simulated in a part of the inputs.
"""

from __future__ import annotations

import functools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
from hand_made import results, study

import iosonde.findings
from iosonde.features.key_value_stores import questions
from iosonde.features.rate_limits import questions as rate_limit_questions
from iosonde.features.rate_limits.known_limits import (
    Change,
    Estimate,
    FirstTouch,
    Identification,
    Parameter,
    Rule,
    TouchedRegion,
    parameter,
)
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.sustained_load import questions as sustained_load
from iosonde.findings.finding import Finding, Support
from iosonde.findings.findings import _answer, findings
from iosonde.findings.question import Question
from iosonde.findings.questions.peak import peaks
from iosonde.plan import Case, Cost
from iosonde.planning import load

SCALES = {
    **{"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "%": 0.01, "": 1.0, "k": 1e3, "M": 1e6},
    **{"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    **{"k/s": 1e3, "M/s": 1e6},
}
NUMBER = re.compile(
    r"(?<![\w.`])(\d[\d,]*(?:\.\d+)?)(?: (ns|µs|ms|s|min|h|%|[kMG]?B/s|[KMG]iB|B|[kM]/s|k|M)(?![\w/]))?"
)
RANGE = re.compile(r"(\d[\d,.]*)–(\d[\d,.]*)( %)")
QUOTED = re.compile(r"`[^`]*`")
INTERVAL = re.compile(r" \(95 % CI [^)]*\)")


@dataclass
class Claim:
    """A finding, all numbers that its sentence may contain, and what must be true of the text."""

    finding: Finding
    numbers: Sequence[float]
    holds: bool = True
    """True if relations that do not depend on the wording of numbers hold."""

    def is_true(self, sentence: str | None = None) -> bool:
        """Return True if the sentence, or one put in its place, is true."""
        text = INTERVAL.sub("", self.finding.sentence if sentence is None else sentence)
        return self.holds and all(known(value, self.numbers) for value in quantities(text))


def quantities(text: str) -> list[tuple[float, float]]:
    """Return every number of a text in base units, with the value of a step of its last digit."""
    found = []
    for number, unit in NUMBER.findall(RANGE.sub(r"\1\3 to \2\3", QUOTED.sub("", text))):
        decimals = len(number.partition(".")[2])
        found.append((float(number.replace(",", "")) * SCALES[unit], 10.0**-decimals * SCALES[unit]))
    return found


def known(quantity: tuple[float, float], numbers: Iterable[float]) -> bool:
    """Return True if a number is one of these, rounded to the digits that are written."""
    value, step = quantity
    return any(abs(value - each) <= 0.51 * step or math.isclose(value, each, rel_tol=0.0051) for each in numbers)


Rng = random.Random
Made = Sequence[Claim]
SEEDS = 6
FACTORS = (0.3, 0.5, 0.8, 0.97, 1.0, 1.03, 1.3, 2.0, 4.0)
SIZES = {4096: "4 KiB blocks", 65536: "64 KiB blocks", 1 << 20: "1 MiB blocks"}
JOBS = {1: "1 job", 4: "4 jobs", 16: "16 jobs"}
LOAD = {"access": "random", "io_mode": "direct", "read_fraction": 1.0}


def of_kind(found: Sequence[Finding], kind: str) -> list[Finding]:
    return [each for each in found if each.kind == kind]


def repeated(values: Mapping[tuple[Any, ...], float], repeats: int = 3) -> dict[tuple[Any, ...], list[float]]:
    return {levels: [value] * repeats for levels, value in values.items()}


def fastest_and_no_differences(rng: Rng) -> Made:
    names, depths = ["ext4", "xfs", "btrfs"], [1, 8]
    values = {(name, depth): 1e8 * rng.choice(FACTORS) for name in names for depth in depths}
    values = {cell: value for cell, value in values.items() if cell[1] == 1 or rng.random() < 0.8}
    cases, runs = results(["format", "queue_depth"], {"bandwidth": repeated(values)}, block_size=4096, jobs=1, **LOAD)
    factors = {"format": names, "queue_depth": depths}
    asked = {"kind": "peak", "over": "format", "metric": "bandwidth"}
    [fast] = of_kind(findings(study(factors, [asked]), cases, runs), "fastest")
    best = {name: max((value, depth) for (each, depth), value in values.items() if each == name) for name in names}
    ordered = sorted((value for value, _ in best.values()), reverse=True)
    top = max(best, key=lambda name: best[name][0])
    right = best[top][0] in [value for (name, depth), value in values.items()
                             if name in fast.sentence and f"queue depth {depth}" in fast.sentence]  # fmt: skip
    claims = [Claim(fast, [*ordered, ordered[0] / ordered[1], *(each / ordered[0] for each in ordered),
                          1, 8, 4096], holds=right)]  # fmt: skip
    noisy = {(name,): [0.6e8, 1e8 + number, 1.6e8] for number, name in enumerate(names)}
    cases, runs = results(["format"], {"bandwidth": noisy}, block_size=4096, queue_depth=1, jobs=1, **LOAD)
    asked = {"kind": "asymmetry", "over": "format", "metric": "bandwidth"}
    [none] = of_kind(findings(study({"format": names}, [asked]), cases, runs), "no differences")
    return [*claims, Claim(none, [4096, 4], holds=all(name in none.sentence for name in names))]


def frame(values: Mapping[tuple[str, str, str, str], float], repeats: int = 3) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
             "operation": operation, "metric": metric, "value": value, "order": i}
            for (case, part, operation, metric), value in values.items() for i in range(repeats)
        ]
    )  # fmt: skip


def asked_of(name: str, kind: str, cases: pl.DataFrame, runs: pl.DataFrame, outcomes: Any = None) -> list[Finding]:
    described = load(name)
    analysis = next(each for each in described.analysis if each.kind == kind)
    question = Question(
        study=described, analysis=analysis, cases=cases, runs=runs, outcomes=outcomes, support=Support()
    )
    return list(_answer(question))


def divided(rng: Rng) -> Made:
    is_divided, is_local = rng.random() < 0.7, rng.random() < 0.3
    is_divided &= not is_local
    several = not is_divided and not is_local and rng.random() < 0.5
    cases = pl.DataFrame(
        [{"case_id": case, "part": "main", "control": False, "operation": "read", "block_size": 4096,
          "queue_depth": depth, "jobs": 1, "read_fraction": 1.0, "access": "random"}
         for case, depth in {"far": 4, "deep": 16}.items() if several or case == "far"]
    )  # fmt: skip
    parts = {name: rng.uniform(2e5, 9e6) for name in ("client", "network", "server")}
    values = {("far", "main", "all", "completion_latency_ns_mean"): sum(parts.values())}
    if is_divided:
        values |= {("far", "main", "all", f"network_path_{name}_ns_mean"): time for name, time in parts.items()}
        values |= {("far", "main", "all", "network_path_ns_mean"): sum(parts.values())}
    reason = None if is_divided or is_local else "5 probes of the network; 6 are required"
    columns = {"case_id": "far", "outcome": "complete", "network_transport": None if is_local else "nfs",
               "network_unseparated": reason}  # fmt: skip
    failed = {**columns, "outcome": "failed", "network_transport": None}
    outcomes = pl.DataFrame(
        [columns, columns, failed, {**columns, "case_id": "deep"}][: 4 if several else 3],
        schema=dict.fromkeys(columns, pl.String),
    )
    [finding] = asked_of("network-path", "network_path", cases, frame(values), outcomes)
    if is_local:
        return [Claim(finding, [2], holds="latency is not divided" in finding.sentence)]
    if several:
        return [Claim(finding, [2, 4096, 4, 16, 5, 6], holds="2 of 2 loads: 5 probes" in finding.sentence)]
    if not is_divided:
        return [Claim(finding, [4096, 4, 5, 6], holds="5 probes" in finding.sentence)]
    listed = re.findall(r"(client|network|server) [0-9]", finding.sentence)
    return [
        Claim(
            finding,
            [4096, 4, sum(parts.values()), *parts.values()],
            holds=listed == sorted(parts, key=lambda each: -parts[each]),
        )
    ]


def outages(rng: Rng) -> Made:
    kind = rng.choice(["verified", "lost", "unverified", "watched", "partly", "unnoticed", "failed"])
    cases = pl.DataFrame(
        [{"case_id": "tcp", "part": "restart", "control": False, "protocol": "NVMe/TCP", "block_size": 4096,
          "queue_depth": 32, "jobs": 1, "read_fraction": 0.0, "access": "random",
          "verify": "during" if kind == "unverified" else "after"}]
    )  # fmt: skip
    unavailable, outage, wrong = rng.uniform(2e9, 9e9), rng.uniform(2e9, 9e9), rng.randrange(2, 900)
    values = {("tcp", "restart", "all", "iops"): 500.0}
    if kind not in ("unnoticed", "failed"):
        values |= {("tcp", "restart", "all", "unavailable_ns"): unavailable,
                   ("tcp", "restart", "all", "outage_backlog_max"): 812.0}  # fmt: skip
        if kind != "watched":
            values |= {("tcp", "restart", "all", "outage_length_ns"): outage}
        values |= {("tcp", "restart", "all", "verified_bytes"): 1e6}
        if kind != "unverified":
            values |= {
                       ("tcp", "restart", "all", "wrong_sectors"): float(wrong if kind == "lost" else 0)}  # fmt: skip
    ended = {"failed": ["failed"], "partly": ["complete"] * 4 + ["failed"]}.get(kind, ["complete"] * 3)
    outcomes = pl.DataFrame([{"case_id": "tcp", "outcome": each} for each in ended])
    [finding] = asked_of("failover", "outage", cases, frame(values), outcomes)
    words = {
        "verified": "no acknowledged write lost",
        "watched": "no acknowledged write lost",
        "lost": "differ from acknowledged writes",
        "unverified": "data not verified",
        "partly": "in 3 of 4 complete runs",
        "unnoticed": "not decided",
        "failed": "1 run failed",
    }
    failed = {"failed": [1], "partly": [3, 4, 1, 5]}.get(kind, [])
    return [
        Claim(finding, [4096, 32, unavailable, outage, 3 * wrong, 3, *failed], holds=words[kind] in finding.sentence)
    ]


def share_of_peak(rng: Rng) -> Made:
    shares = {(depth,): rng.choice([0.3, 0.5, 0.8, 1.0]) for depth in (1, 8, 64)}
    cases, runs = results(["queue_depth"], {"steady_fraction": repeated(shares)}, block_size=4096, jobs=1, **LOAD)
    asked = [{"kind": "steady_state", "over": "queue_depth", "metric": "steady_fraction"}]
    [finding] = of_kind(findings(study({"queue_depth": [1, 8, 64]}, asked), cases, runs), "share of peak")
    right = True
    for text, at in re.findall(r"(\d+(?:\.\d)?) % (?:of the best round )?at queue depth (\d+)", finding.sentence):
        right &= math.isclose(float(text) / 100, shares[int(at),])
    return [Claim(finding, [*shares.values(), 1, 8, 64], holds=right)]


def amplification(rng: Rng) -> Made:
    values = {(size,): rng.choice([1.0, 1.0, 2.5, 4.0]) for size in SIZES}
    metrics = {"media_write_amplification": repeated(values), "iops": repeated(dict.fromkeys(values, 1e3))}
    cases, runs = results(["block_size"], metrics, jobs=1, queue_depth=1, **LOAD)
    [finding] = of_kind(findings(study({"block_size": list(SIZES)}, []), cases, runs), "device write amplification")
    named = re.findall(r"([\d.]+) \((.+?)\)", finding.sentence)
    true = {SIZES[size]: value for (size,), value in values.items()}
    right = all(math.isclose(float(number), true[words]) for number, words in named)
    right &= (
        {float(number) for number, _ in named} == {min(values.values()), max(values.values())}
        if named
        else (len(set(values.values())) == 1)
    )
    return [Claim(finding, [*values.values(), *SIZES, 4, 64, 1, len(values)], holds=right)]


def stores(rng: Rng) -> Made:
    values = {(name, size): 1e4 * rng.choice(FACTORS) for name in ("rocksdb", "lmdb") for size in (100, 1000)}
    cpu = {cell: rng.choice([90.0, 250.0, 400.0]) for cell in values}
    received, cancelled = (
        {cell: rng.choice([0.5, 1.0]) for cell in values},
        {cell: rng.choice([0.0, 46.0]) for cell in values},
    )
    metrics = {
        "ops_per_sec": repeated(values), "cpu_percent": repeated(cpu), "cancelled_write_percent": repeated(cancelled),
        "file_system_write_amplification": repeated(received),
        "device_write_amplification": repeated(dict.fromkeys(values, 1.5)),
    }  # fmt: skip
    cases, runs = results(["store", "value_size"], metrics, database="empty", phase="load", jobs=1)
    found = findings(study({"store": ["rocksdb", "lmdb"], "value_size": [100, 1000]}, []), cases, runs)
    claims = []
    for each in found:
        own = getattr(each, "store", "")
        if each.kind == "store load":
            best = max(value for (name, _), value in values.items() if name == own)
            sizes = [size for (name, size), value in values.items() if (name, value) == (own, best)]
            right = any(f"({size})" in each.sentence for size in sizes)
            claims.append(Claim(each, [best, 1.5, *sizes], holds=right))
        elif each.kind == "background work":
            busy = [(value, cell) for cell, value in cpu.items() if cell[0] == own and value > 110]
            right = any(f"({cell[1]})" in each.sentence for value, cell in busy if value == max(busy)[0])
            claims.append(Claim(each, [max(busy)[0] / 100, *(cell[1] for _, cell in busy), len(busy), 2], holds=right))
        elif each.kind == "cancelled writes":
            claims.append(Claim(each, [0.46, 0.5]))
    return claims


def store_outcomes(rng: Rng) -> Made:
    count, gib = 6, 1 << 30
    stalled = [rng.choice([0, 2, 5]) * 10**8 for _ in range(count)]
    corrupted = [rng.choice([0, 0, 0, 0, 0, 7]) for _ in range(count)]
    database = [rng.choice([1, 2, 4]) * gib for _ in range(count)]
    limited = rng.random() < 0.5
    outcomes = pl.DataFrame(
        {"run_id": [f"r{n}" for n in range(count)], "case_id": ["main/read"] * count, "stalled_ns": stalled,
         "writing_jobs": [1] * count, "measure_start_ns": [0] * count, "measure_end_ns": [10**9] * count,
         "values_checked": [1000] * count, "values_corrupted": corrupted, "memory_limit_bytes": [gib if limited else None] * count,
         "database_bytes": database, "cached_bytes_at_start": [gib // 2] * count, "cached_bytes_at_end": database,
         "database_bytes_at_start": database, "database_bytes_at_end": database,
         "record_bytes": [100 * 4096] * count, "run_device_read_bytes": [rng.choice([100, 900]) * 4096 for _ in range(count)],
         "foreign_read_share": [0.0] * count},
        schema_overrides={"memory_limit_bytes": pl.Int64},
    )  # fmt: skip
    cases = pl.DataFrame({"case_id": ["main/read"], "part": ["main"], "store": ["lmdb"], "database": ["loaded"],
                          "records": [100], "control": [False], "phase": ["readrandom"]})  # fmt: skip
    runs = frame({("main/read", "main", "all", "ops_per_sec"): 1e3})
    found = list(questions.observed(cases, runs, outcomes, Support()))
    read = outcomes["run_device_read_bytes"].to_list()
    cached = [each / (1000 * 4096) for each in read if each < 500 * 4096]
    true: dict[str, list[float]] = {
        "write stalls": [sum(each > 0 for each in stalled), count, max(stalled) / 1e9],
        "checked values": [1000 * count],
        "memory pressure": [median(database) / gib, max(gib / 2 / each for each in database)],
        "cached database": [len(cached), count, *cached],
    }
    return [Claim(each, true[each.kind], holds=each.kind != "checked values" or not sum(corrupted))
            for each in found]  # fmt: skip


def rate_limits(rng: Rng) -> Made:
    is_found, may_be_burst, counts_bytes = (rng.random() < share for share in (0.6, 0.3, 0.3))
    rate = rng.uniform(2e6, 5e7) if counts_bytes else rng.uniform(50, 50_000)
    burst, bucket, constant_s = rate * rng.uniform(2, 20), rate * rng.uniform(100, 5000), rng.uniform(10, 600)
    weight, after = rng.uniform(0.5, 4), rate * rng.uniform(1.2, 3)
    unit = None if counts_bytes else rng.choice([None, 16 << 10, 256 << 10])
    rule = Rule(
        counts="bytes" if counts_bytes else "operations", operation=rng.choice(["read", "write"]),
        rate=estimated(rng, rate), unit_bytes=unit, constant_s=constant_s, may_be_burst=may_be_burst,
        burst_rate=None if may_be_burst else parameter(Estimate(method="start", value=burst)),
        bucket=None if may_be_burst else estimated(rng, bucket),
    )  # fmt: skip
    decided = rng.random() < 0.5
    identified = Identification(
        verdict="limited" if is_found else "not limited" if decided else "undecided",
        reason="" if is_found else "the rate depends on the queue depth",
        rules=[rule] if is_found else [],
        sharing=rng.choice(["shared", "separate", "unknown"]),
        write_weight=parameter(Estimate(method="rates", value=weight)),
        change=Change(before=rate, after=after, stage="last") if rng.random() < 0.5 else None,
        rejected=["a limit in bytes: 64 KiB blocks complete as many operations"] * rng.randint(0, 1),
        undecided=["a limit of large blocks"] * rng.randint(0, 1),
    )
    added, slower = rng.uniform(1e-4, 1e-2), rng.randint(1, 3)
    is_penalty = rng.random() < 0.5
    regions = tuple(
        TouchedRegion(offset=0, stride=4096, latencies_s=(0.1, 0.1), added_s=added, low_s=0.9 * added,
                      high_s=1.1 * added, is_slower=place < slower and is_penalty)
        for place in range(3)
    )  # fmt: skip
    touched = FirstTouch(
        verdict="penalty" if is_penalty else "none", regions=regions, bound_s=1.1 * added, reason="a read cache"
    )
    identified = replace(identified, first_touch=touched)
    case = Case(
        case_id="main", part="main", control=False, levels={}, parameters={}, cost=Cost(seconds=1, write_bytes=0)
    )
    conclusion = LimitsConclusion(
        case_id="main", reached=True, reason="", value=rate, found=identified, stages=(), target={}
    )
    true: dict[str, list[float]] = {
        "sustained limit": [rate, 1.01 * rate, 2, unit or 0, *parts_of(constant_s)],
        "burst credits": [
            *(burst, bucket, 1.01 * bucket, 2),
            *parts_of(bucket / (burst - rate)),
            *parts_of(bucket / rate),
        ],
        "shared budget": [weight],
        "changed limit": [rate, after],
        "not limited": [],
        "first-touch penalty": [1e9 * added, 1.1e9 * added, slower, 3],
        "rejected rules": [64 << 10],
    }
    return [Claim(each, true[each.kind]) for each in rate_limit_questions.conclusions([(case, conclusion)])]


def estimated(rng: Rng, value: float) -> Parameter:
    """One estimate, or two that differ by 1 %."""
    others = [Estimate(method="rest", value=1.01 * value)] * rng.randint(0, 1)
    return parameter(Estimate(method="drain", value=value), *others)


def parts_of(seconds: float) -> list[float]:
    """Hours, minutes and seconds of a duration in nanoseconds: text has seconds below an hour, else minutes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, after = divmod(round(round(seconds) / 60), 60)
    return [1e9 * each for each in (minutes * 60, rest, hours * 3600, after * 60, seconds)]


def idle(rng: Rng) -> Made:
    """Pauses between bursts, and the load without pauses after them."""
    base = 1000.0
    gains = {pause: rng.choice([0.97, 1.0, 1.05, 1.5, 3.0]) for pause in (1.0, 5.0, 10.0)[: rng.randint(1, 3)]}
    high, low = rng.choice([1.0, 2.0]), rng.choice([0.3, 1.0])
    counts = [int(base * (high if at < 5 else low)) for at in range(20)]
    ns = 10**9
    intervals = pl.DataFrame({"begin_ns": [at * ns for at in range(20)], "end_ns": [(at + 1) * ns for at in range(20)],
                              "count": counts, "bytes": [4096 * each for each in counts]})  # fmt: skip
    recoveries = [
        sustained_load.IdleRecovery(
            case_id="c", part="main", pause_s=pause, base=base, base_is_steady=False, base_run=("c", 1),
            bursts=np.array([gain * base] * 4), decay=sustained_load.decay_of("c", intervals, base),
        )
        for pause, gain in gains.items()
    ]  # fmt: skip
    states = iosonde.findings.device_state.DeviceStates({})
    claims = []
    smooth = [sum(counts[at : at + 3]) / 3 / base for at in range(18)]
    rests = [sum(counts[at:]) / (20 - at) / base for at in range(20)]
    for each in sustained_load.idle_findings(recoveries, states):
        assert "steady" not in each.sentence, "the rate before the pauses was not steady"
        if each.kind == "idle gain":
            right = ("no recovery" in each.sentence) == all(abs(gain - 1) <= 0.1 for gain in gains.values())
            numbers = [*gains.values(), *(pause * 1e9 for pause in gains), *gains, 0.1]
        else:
            right = ("from the start" in each.sentence) == (smooth[0] <= 1.1 and rests[0] >= 0.9)
            moved = [4096 * sum(counts[:at]) for at in range(20)]
            numbers = [*(pause * 1e9 for pause in gains), *smooth, *rests, *(at * 1e9 for at in range(21)), *moved, 0.1]
        claims.append(Claim(each, numbers, holds=right))
    return claims


MAKERS: Sequence[Callable[[Rng], Made]] = (
    amplification, divided, fastest_and_no_differences, idle, outages, rate_limits, share_of_peak, store_outcomes, stores, 
)  # fmt: skip
CHANGED = 1.37


@functools.cache
def claims_of(make: Callable[[Rng], Made]) -> list[Claim]:
    return [claim for seed in range(SEEDS) for claim in make(Rng(f"{make.__name__}/{seed}"))]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_sentence_is_true_and_no_changed_number_is(make: Callable[[Rng], Made]) -> None:
    claims = claims_of(make)
    assert claims
    accepted = 0
    changed = 0
    for claim in claims:
        sentence = claim.finding.sentence
        assert claim.is_true(), f"{claim.finding.kind}: {sentence}"
        text = INTERVAL.sub("", sentence)
        for match in NUMBER.finditer(text):
            number = float(match[1].replace(",", ""))
            other = f"{CHANGED * number + 1.7:.3g}"
            changed += 1
            accepted += claim.is_true(text[: match.start(1)] + other + text[match.end(1) :])
    assert accepted <= changed / 3, f"{accepted} of {changed} false sentences were accepted"


def test_a_value_that_may_be_higher_than_measured_is_not_slower() -> None:
    """Formats of 4, 3 and 2 GB/s, each limited by the client or by the device."""
    values = {("ext4",): 4e9, ("xfs",): 3e9, ("btrfs",): 2e9}
    cases, runs = results(["format"], {"bandwidth": repeated(values)}, block_size=4096, queue_depth=1, jobs=1, **LOAD)
    described = study({"format": ["ext4", "xfs", "btrfs"]}, [{"kind": "peak", "over": "format", "metric": "bandwidth"}])
    for limited, expected in {
        "": "are fastest with ext4: 4 GB/s, 1.33 times (95 % CI ±0.1 %) the value with xfs",
        "ext4": "are fastest with ext4: 4 GB/s, at least 1.33 times (95 % CI ±0.1 %) the value with xfs",
        "xfs": "highest value with ext4: 4 GB/s, at most 1.33 times (95 % CI ±0.1 %) the value with xfs; the device may "
        "be faster than measured with xfs",
        "btrfs": "highest value with ext4: 4 GB/s, 1.33 times (95 % CI ±0.1 %) the value with xfs; the device may be "
        "faster than measured with btrfs",
    }.items():
        names = dict(cases.select("case_id", "format").iter_rows())
        kinds = {case: "harness-limited" if name == limited else "device-limited" for case, name in names.items()}
        support = Support(verdicts={case: Counter({kind: 3}) for case, kind in kinds.items()})  # type: ignore[dict-item]
        [found] = peaks(
            Question(study=described, analysis=described.analysis[0], cases=cases, runs=runs, support=support)
        )
        assert expected in found.sentence
