"""Truths: devices whose levels, noise and failures are known, result sets drawn from them, and what they make false.

A claim is false if its truth contradicts it beyond a tolerance of 2 %; an interval is false if it does not contain the
truth. What claims nothing, such as "no clear difference", cannot be false. `contradictions` names pairs of findings of
one result set that cannot both be true.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import Any

import polars as pl
from hand_made import controls, results, study

from iosonde.findings.finding import Finding
from iosonde.findings.findings import findings
from iosonde.findings.quality import (
    ControlDrift,
    FewRepeats,
    LittlesLaw,
    MissingRuns,
    NotUsable,
    TooFewSamples,
    Verdicts,
    Warned,
    WrongData,
)
from iosonde.findings.questions.comparison import Comparison, NoDifferences
from iosonde.findings.questions.peak import Fastest, OneLevel, Peak, Saturation
from iosonde.findings.questions.scaling import Dependence, NoGain, Scaling, TailGrowth
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics.statistics import Estimate

P50, P99 = "completion_latency_ns_p50", "completion_latency_ns_p99"
TOLERANCE = 0.02
SIZES = (4096, 16384, 65536, 262144)
DEPTHS = (1, 2, 4, 8, 16, 32)
NAMES = ("ext4", "xfs", "btrfs", "f2fs")
NOISE = (0.0, 0.002, 0.01, 0.03, 0.1, 0.4)
OPERATIONS = {"reads": 1.0, "writes": 0.0}

Cell = tuple[str, str, int, int]
"""Format, operation, block size, queue depth."""


@dataclass(frozen=True)
class Truth:
    """Values of every cell by metric, and what was measured of them."""

    formats: Sequence[str]
    operations: Sequence[str]
    sizes: Sequence[int]
    depths: Sequence[int]
    values: Mapping[str, Mapping[Cell, float]]
    drift: float
    """Change of the control case over the study, as a factor."""
    repeats: int
    ended: pl.DataFrame = field(default_factory=pl.DataFrame)
    """The view `runs`."""
    warned: pl.DataFrame = field(default_factory=pl.DataFrame)

    def rate(self, metric: str, operation: str, size: int, depth: int, form: str | None = None) -> float:
        return self.values[metric][form or self.formats[0], operation, size, depth]


def drawn(seed: int) -> tuple[Truth, list[Finding]]:
    """Draw a truth, measure it, and return what the findings of its result set state."""
    rng = random.Random(seed)
    truth = _truth(rng)
    noise, of_controls = rng.choice(NOISE), rng.choice(NOISE[:5])
    lost = rng.choice((0.0, 0.0, 0.05, 0.2)) if truth.repeats > 2 else 0.0
    measured: dict[str, dict[Cell, list[float]]] = {metric: {} for metric in truth.values}
    for cell in truth.values["iops"]:
        speeds = [math.exp(rng.gauss(0, noise)) for _ in range(truth.repeats) if rng.random() >= lost]
        for metric, values in truth.values.items():
            exponent = 1 if metric in ("iops", "bandwidth") else 0 if metric == "concurrency" else -1
            has_tail = metric != P99 or rng.random() > 0.1
            if speeds and has_tail:
                measured[metric][cell] = [values[cell] * speed**exponent for speed in speeds]
    names = ["format", "operation", "block_size", "queue_depth"]
    cases, runs = results(names, measured, access="random", io_mode="direct", jobs=1)
    fraction = cases["operation"].replace_strict(OPERATIONS).alias("read_fraction")
    count = rng.choice((4, 6, 9, 15))
    drifting = [1e5 * truth.drift ** (at / (count - 1)) * math.exp(rng.gauss(0, of_controls)) for at in range(count)]
    levels = [{"label": name, "set": {"read_fraction": OPERATIONS[name]}} for name in truth.operations]
    factors = {"format": truth.formats, "operation": levels, "block_size": truth.sizes, "queue_depth": truth.depths}
    asked = rng.sample(_questions(truth), k=min(4, len(_questions(truth))))
    every = pl.concat([runs, controls("iops", drifting).select(runs.columns)])
    ended = outcomes(rng, runs.select("run_id", "case_id").unique(maintain_order=True).rows(), of_failed=lost)
    warned = warnings(rng, ended)
    truth = replace(truth, ended=ended, warned=warned)
    return truth, findings(study(factors, asked), cases.with_columns(fraction), every, runs=ended, warnings=warned)


def outcomes(rng: random.Random, measured: Sequence[tuple[str, str]], *, of_failed: float) -> pl.DataFrame:
    """The view `runs` of runs that were measured, and of others that failed."""
    verdicts = rng.choice(
        (
            ["device-limited"],
            ["device-limited", "device-limited", "harness-limited"],
            ["undetermined"],
            ["undetermined", "cache-served"],
        )
    )
    rows = [
        {"run_id": run_id, "case_id": case_id, "outcome": "complete", "verdict": rng.choice(verdicts)}
        for run_id, case_id in measured
    ]
    failed = [
        {
            "run_id": f"failed-{at}",
            "case_id": case_id,
            "outcome": "failed",
            "failure": "no_space",
            "failure_message": "full",
        }
        for at, (_, case_id) in enumerate(measured)
        if rng.random() < of_failed
    ]
    texts = dict.fromkeys(("run_id", "case_id", "outcome", "verdict", "failure", "failure_message"), pl.String)
    return pl.DataFrame([*rows, *failed], schema=texts)


def warnings(rng: random.Random, ended: pl.DataFrame) -> pl.DataFrame:
    """The view `warnings`: some of the runs have some of the warnings."""
    codes = rng.choice(([], ["cpu_contention"], ["wrong_data"], ["memory_file_system", "short_run"]))
    share = rng.choice((0.1, 0.9))
    rows = [
        {"run_id": run_id, "code": code, "message": f"{code} of {run_id}", "hint": ""}
        for code in codes
        for run_id in ended.filter(outcome="complete")["run_id"]
        if rng.random() < share
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(("run_id", "code", "message", "hint"), pl.String))


def _truth(rng: random.Random) -> Truth:
    formats = rng.sample(NAMES, rng.choice((1, 1, 2, 3)))
    operations = rng.choice((["reads"], ["reads", "writes"]))
    sizes = sorted(rng.sample(SIZES, rng.choice((1, 1, 2, 3))))
    depths = sorted(rng.sample(DEPTHS, rng.choice((1, 2, 3, 4, 5))))
    values: dict[str, dict[Cell, float]] = {name: {} for name in ("iops", "bandwidth", "concurrency", P50, P99)}
    factor = {name: rng.choice((1.0, 1.0, 1.02, 1.1, 1.5, 3.0)) for name in formats}
    for form, operation, size in itertools.product(formats, operations, sizes):
        curve = _curve(rng)
        for depth in depths:
            cell = (form, operation, size, depth)
            rate = curve(depth) * factor[form]
            values["iops"][cell], values["bandwidth"][cell] = rate, rate * size
            values["concurrency"][cell] = depth
            values[P50][cell] = 1e9 * depth / rate
            values[P99][cell] = 1e9 * depth / rate * 3
    drift = rng.choice((1.0, 1.0, 0.9, 1.05))
    return Truth(formats, operations, sizes, depths, values, drift, repeats=rng.choice((1, 2, 3, 3, 4, 5, 7)))


def _curve(rng: random.Random) -> Callable[[int], float]:
    """IOPS over queue depth: servers with and without a sharp knee, no gain at all or at first, a loss beyond a peak, a line."""
    servers, service = rng.choice((1, 2, 4, 8, 24, 64)), rng.uniform(5e-5, 5e-3)
    return rng.choice(
        (
            lambda depth: min(depth, servers) / service,
            lambda depth: depth / (service * (1 + depth / servers)),
            lambda depth: 1 / service,
            lambda depth: max(1, depth / 2) / service,
            lambda depth: min(depth, servers) / service * (0.8 if depth > servers else 1.0),
            lambda depth: depth / service,
        )
    )


def _questions(truth: Truth) -> list[dict[str, Any]]:
    """Every kind of question that a study with these factors could ask."""
    over = {"over": "queue_depth", "by": ["format", "operation", "block_size"]}
    asked: list[dict[str, Any]] = [
        {"kind": kind, "metric": metric, **over}
        for kind, metric in (("saturation", "iops"), ("gain_per_doubling", "iops"), ("tail_growth", P99),
                             ("flatness", "iops"), ("peak", "bandwidth"))
    ]  # fmt: skip
    if len(truth.operations) > 1:
        by = ["format", "block_size", "queue_depth"]
        asked.append({"kind": "asymmetry", "over": "operation", "metric": "iops", "by": by})
    if len(truth.formats) > 1:
        named = {"over": "format", "metric": "iops", "by": ["operation", "block_size", "queue_depth"]}
        asked += [{"kind": "asymmetry", **named}, {"kind": "peak", **named, "by": ["operation"]}]
    return asked


# Predicates: whether a truth permits what a finding states; None where it states nothing -----------------------------------------------------------


def contains(estimate: Estimate, value: float) -> bool | None:
    """Return whether an interval contains a value; an estimate without one states nothing about it."""
    if estimate.low is None or estimate.high is None:
        return None
    return estimate.low * (1 - 1e-9) <= value <= estimate.high * (1 + 1e-9)


def cells_of(finding: Finding) -> list[Cell]:
    """The cells that a finding is based on, by the names of its cases."""
    found = []
    for case_id in finding.case_ids:
        levels = dict(level.split("=") for level in case_id.split("/")[1:])
        found.append((levels["format"], levels["operation"], int(levels["block_size"]), int(levels["queue_depth"])))
    return found


def _of_point(finding: Saturation, at: int) -> tuple[str, str, int]:
    """Format, operation and block size of a point of a finding about saturation."""
    form, operation, size, _ = cells_of(finding)[0]
    level = finding.points[at].axis_level
    return form, operation, size if level is None else int(level)


def saturation(finding: Saturation, truth: Truth) -> bool | None:
    if "rising to" in finding.sentence and not any(point.is_rising for point in finding.points):
        return False
    known = [(at, point) for at, point in enumerate(finding.points) if point.low is not None and not point.is_unknown]
    for at, point in known:
        form, operation, size = _of_point(finding, at)
        rates = {depth: truth.rate("iops", operation, size, depth, form) for depth in _measured(finding, truth)}
        peak = max(rates.values())
        low, high = point.low, point.high
        near = [depth for depth, rate in rates.items() if rate >= (0.95 - TOLERANCE) * peak]
        sure = [depth for depth, rate in rates.items() if rate >= (0.95 + TOLERANCE) * peak]
        if not min(near) <= high or not low <= min(sure):
            return False
        if point.is_rising and not rates[point.level] > max(
            rate for depth, rate in rates.items() if depth < point.level
        ):
            return False
    return True if known else None


def _measured(finding: Saturation, truth: Truth) -> list[int]:
    return [depth for depth in truth.depths if depth <= finding.last_level]


def no_gain(finding: NoGain, truth: Truth) -> bool:
    form, operation, size, _ = cells_of(finding)[0]
    sizes = finding.cells or (size,)
    ratios = [
        truth.rate("iops", operation, each, finding.upper, form)
        / truth.rate("iops", operation, each, finding.lower, form)
        for each in sizes
    ]
    return max(ratios) < 1.05 + TOLERANCE


def scaling(finding: Scaling, truth: Truth) -> bool | None:
    form, operation, size, _ = cells_of(finding)[0]
    sizes = {each[2] for each in cells_of(finding)} or {size}
    gains = [
        (truth.rate("iops", operation, each, upper, form) / truth.rate("iops", operation, each, lower, form))
        ** (1 / math.log2(upper / lower))
        for each in sizes
        for lower, upper in itertools.pairwise(truth.depths)
        if finding.lower <= lower and upper <= finding.upper
    ]
    if finding.nearly_doubles:
        return min(gains) > 1.8 - 2 * TOLERANCE
    return None if finding.gain.high is None else max(gains) <= finding.gain.high * (1 + TOLERANCE)


def comparison(finding: Comparison, truth: Truth) -> bool | None:
    pairs = _sides(finding, truth)
    mean = geometric_mean([top / bottom for top, bottom in pairs])
    if finding.decision == "higher":
        return mean > 1
    if finding.decision == "same":
        return 1 / 1.05 - TOLERANCE < mean < 1.05 + TOLERANCE
    return None


def _sides(finding: Comparison, truth: Truth) -> list[tuple[float, float]]:
    """The true values of both levels in each cell, in the order of the words of the finding."""
    index = 1 if {"reads", "writes"} & set(re.findall(r"\w+", finding.top)) else 0
    names = (truth.operations, truth.formats)[1 - index]
    top, bottom = (next(name for name in names if name in words) for words in (finding.top, finding.bottom))
    apart: dict[tuple[Any, ...], dict[str, float]] = {}
    for cell in cells_of(finding):
        rest = tuple(level for at, level in enumerate(cell) if at != index)
        apart.setdefault(rest, {})[cell[index]] = truth.values[finding.metric][cell]
    return [(each[top], each[bottom]) for each in apart.values() if {top, bottom} <= set(each)]


def dependence(finding: Dependence, truth: Truth) -> bool | None:
    form, operation, size, _ = cells_of(finding)[0]
    first, last = (
        truth.rate(finding.metric, operation, size, depth, form) for depth in (finding.first_level, finding.last_level)
    )
    if finding.decision == "flat":
        return last / first < 1.10 + TOLERANCE
    return None if finding.decision == "unclear" or not finding.ratio.certain else last > first


def tail_growth(finding: TailGrowth, truth: Truth) -> bool | None:
    if not finding.ratio.certain or finding.ratio.is_noise:
        return None
    form, operation, size, _ = cells_of(finding)[0]
    first, last = (truth.rate(P99, operation, size, depth, form) for depth in (finding.first_level, finding.last_level))
    return last > first if finding.last >= finding.first else last < first


def peak(finding: Peak, truth: Truth) -> bool | None:
    best, *_ = cells_of(finding)
    rivals = [value for cell, value in truth.values[finding.metric].items() if cell[:3] == best[:3]]
    value = truth.values[finding.metric][best]
    risen = not finding.unsaturated or _rises(truth, finding.metric, best)
    if not finding.maximum.certain:
        return None
    return contains(finding.maximum, value) and risen and max(rivals) <= (finding.maximum.high or 0) * 1.05


def _rises(truth: Truth, metric: str, cell: Cell) -> bool:
    *rest, depth = cell
    lower = [value for (*others, each), value in truth.values[metric].items() if others == rest and each < depth]
    return bool(lower) and truth.values[metric][cell] > max(lower)


def throughput(finding: Throughput, truth: Truth) -> bool | None:
    best, *_ = cells_of(finding)
    value = truth.values[finding.metric][best]
    return contains(finding.maximum, value) and (not finding.unsaturated or _rises(truth, finding.metric, best))


def unloaded_latency(finding: UnloadedLatency, truth: Truth) -> bool | None:
    return contains(finding.p50, truth.values[P50][cells_of(finding)[0]])


def one_level(finding: OneLevel, truth: Truth) -> bool | None:
    return contains(finding.value, truth.values[finding.metric][cells_of(finding)[0]])


def fastest(finding: Fastest, truth: Truth) -> bool | None:
    if finding.lead is None or not finding.lead.certain or finding.tied > 1 or finding.may_be_higher:
        return None
    first, *others = cells_of(finding)
    return all(truth.values[finding.metric][first] > truth.values[finding.metric][each] for each in others)


def drift(finding: ControlDrift, truth: Truth) -> bool | None:
    if not finding.drift.has_trend:
        return None
    return (finding.drift.change.value > 0) == (truth.drift > 1) and truth.drift != 1


def missing_runs(finding: MissingRuns, truth: Truth) -> bool:
    ended = truth.ended.filter(outcome="failed")
    empty = set(ended["case_id"]) - set(truth.ended.filter(outcome="complete")["case_id"])
    return (finding.count, finding.total, finding.empty_cases) == (len(ended), len(truth.ended), len(empty))


def verdicts(finding: Verdicts, truth: Truth) -> bool:
    return dict(finding.counts) == Counter(truth.ended["verdict"].drop_nulls())


def warned(finding: Warned, truth: Truth) -> bool:
    runs = truth.warned.filter(code=finding.code)["run_id"].n_unique()
    return finding.runs == runs and finding.of_most == (2 * runs > len(truth.ended))


def wrong_data(finding: WrongData, truth: Truth) -> bool:
    runs = truth.warned.filter(code="wrong_data")["run_id"].n_unique()
    return (finding.count, finding.total) == (runs, len(truth.ended))


def not_usable(finding: NotUsable, truth: Truth) -> bool:
    """True if other load disturbed most of the judged runs."""
    others = truth.ended.filter(pl.col("verdict").is_in(["undetermined", "cache-served"]))["run_id"].to_list()
    disturbed = truth.warned.filter(pl.col("code") == "cpu_contention", pl.col("run_id").is_in(others))
    judged = truth.ended["verdict"].drop_nulls().len()
    return finding.count == disturbed["run_id"].n_unique() and 2 * finding.count > judged == finding.total


def few_repeats(finding: FewRepeats, truth: Truth) -> bool:
    counts = truth.ended.filter(outcome="complete").group_by("case_id").len()
    return finding.count == len(counts.filter(pl.col("len") < 3)) and finding.total == len(counts)


def claims_nothing(finding: Finding, truth: Truth) -> None:
    return None


PREDICATES: dict[type[Finding], Callable[[Any, Truth], bool | None]] = {
    Saturation: saturation,
    NoGain: no_gain,
    Scaling: scaling,
    Comparison: comparison,
    NoDifferences: claims_nothing,
    Dependence: dependence,
    TailGrowth: tail_growth,
    Peak: peak,
    Throughput: throughput,
    UnloadedLatency: unloaded_latency,
    OneLevel: one_level,
    Fastest: fastest,
    ControlDrift: drift,
    FewRepeats: few_repeats,
    MissingRuns: missing_runs,
    NotUsable: not_usable,
    Verdicts: verdicts,
    Warned: warned,
    WrongData: wrong_data,
    TooFewSamples: claims_nothing,
    LittlesLaw: claims_nothing,
}


# Contradictions ------------------------------------------------------------------------------------------------------


def contradictions(found: Sequence[Finding]) -> Iterator[tuple[Finding, Finding]]:
    """Yield pairs of findings that cannot both be true of one device."""
    for first, second in itertools.permutations(found, 2):
        if _contradict(first, second):
            yield first, second


def _loads(finding: Finding) -> set[tuple[str, str, int]]:
    return {cell[:3] for cell in cells_of(finding)}


def _contradict(first: Finding, second: Finding) -> bool:
    if not isinstance(first, Saturation):
        flat = isinstance(first, Dependence) and first.decision == "flat"
        doubles = isinstance(second, Scaling) and second.nearly_doubles
        return flat and doubles and _loads(second) <= _loads(first)
    saturated = {
        _of_point(first, at): point
        for at, point in enumerate(first.points)
        if not point.is_rising and point.low is not None
    }
    if isinstance(second, Peak | Throughput) and second.unsaturated:
        return any(cell[:3] in saturated and saturated[cell[:3]].high < cell[3] for cell in cells_of(second)[:1])
    if isinstance(second, Scaling) and second.nearly_doubles:
        return any(load in saturated and saturated[load].high < second.upper for load in _loads(second))
    return False
