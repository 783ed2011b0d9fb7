"""Every finding of random noise-free studies is true of the raw cells, by an evaluator of its own.

The evaluator shares no code with the findings: it reads the typed values, and for findings about several cells also the
sentence, and checks them against the values that the study was made from.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hand_made import results, study

from iosonde.findings.finding import Finding
from iosonde.findings.findings import findings
from iosonde.findings.questions.comparison import Comparison
from iosonde.findings.questions.peak import Peak, Saturation
from iosonde.findings.questions.scaling import Dependence, NoGain, Scaling, TailGrowth
from iosonde.findings.throughput import Throughput, UnloadedLatency

SIZES = [4096, 16384, 65536, 262144]
DEPTHS = [1, 2, 4, 8, 16]
P99 = "completion_latency_ns_p99"
QUESTIONS: list[dict[str, Any]] = [
    {"kind": "saturation", "over": "queue_depth", "metric": "iops", "by": ["operation", "block_size"]},
    {"kind": "gain_per_doubling", "over": "queue_depth", "metric": "iops", "by": ["operation", "block_size"]},
    {"kind": "asymmetry", "over": "operation", "metric": "iops", "by": ["block_size", "queue_depth"]},
    {"kind": "tail_growth", "over": "queue_depth", "metric": P99, "by": ["operation", "block_size"]},
    {"kind": "flatness", "over": "queue_depth", "metric": "iops", "by": ["operation", "block_size"]},
    {"kind": "peak", "over": "queue_depth", "metric": "bandwidth", "by": ["operation"]},
]
Cell = tuple[str, int, int]


@dataclass(frozen=True)
class World:
    """A device by its values: operation, block size, queue depth to metric and value."""

    sizes: list[int]
    depths: list[int]
    values: dict[str, dict[Cell, float]]

    def iops(self, operation: str, size: int, depth: int) -> float:
        return self.values["iops"][operation, size, depth]

    def cells(self, metric: str, operation: str) -> dict[tuple[int, int], float]:
        return {(size, depth): value for (op, size, depth), value in self.values[metric].items() if op == operation}


def world(rng: random.Random) -> World:
    """Random servers, service times and steps, or no law at all."""
    sizes, depths = sorted(rng.sample(SIZES, rng.randint(1, 4))), sorted(rng.sample(DEPTHS, rng.randint(2, 4)))
    values: dict[str, dict[Cell, float]] = {"iops": {}, "bandwidth": {}, P99: {}, "concurrency": {}}
    values["completion_latency_ns_p50"] = {}
    lawless, single = rng.random() < 0.4, rng.random() < 0.3
    for operation, size in itertools.product(("read", "write"), sizes):
        servers, service = rng.choice([1] if single else [1, 2, 3, 4, 8, 32]), rng.uniform(5e-5, 5e-4)
        for depth in depths:
            cell = (operation, size, depth)
            rate = rng.choice([0.9, 0.96, 1.0, 1.04, 1.5, 2, 4]) * 1e4 if lawless else min(depth, servers) / service
            values["iops"][cell], values["bandwidth"][cell] = rate, rate * size
            values["completion_latency_ns_p50"][cell] = 1e9 * depth / rate
            values[P99][cell] = 1e9 * depth / rate * rng.uniform(1, 5)
            values["concurrency"][cell] = depth
    return World(sizes, depths, values)


def studied(seed: int) -> tuple[World, list[Finding]]:
    rng = random.Random(seed)
    made = world(rng)
    repeated = {metric: {cell: [value] * 3 for cell, value in cells.items()} for metric, cells in made.values.items()}
    # A level of the factor `operation` sets the read fraction, as in the shipped studies.
    levels = [{"label": name, "set": {"read_fraction": share}} for name, share in (("read", 1.0), ("write", 0.0))]
    cases, runs = results(
        ["operation", "block_size", "queue_depth"], repeated, access="random", io_mode="direct", jobs=1
    )
    fraction = cases["operation"].replace_strict({"read": 1.0, "write": 0.0}).alias("read_fraction")
    factors = {"operation": levels, "block_size": made.sizes, "queue_depth": made.depths}
    return made, findings(study(factors, [QUESTIONS[seed % len(QUESTIONS)]]), cases.with_columns(fraction), runs)


@pytest.mark.parametrize("seeds", [range(36), pytest.param(range(36, 500), marks=pytest.mark.extended)], ids=len)
def test_no_sentence_is_false(seeds: range) -> None:
    seen = set()
    for seed in seeds:
        made, found = studied(seed)
        for finding in found:
            if finding.topic != "quality":
                assert CHECKS[type(finding)](finding, made), f"seed {seed}: {finding.sentence}"
                seen.add(type(finding))
    assert seen == set(CHECKS)


def operation_of(text: str) -> str:
    return "write" if "writes" in text else "read"


def size_in(text: str) -> int:
    number, unit = re.findall(r"(\d+) (KiB|MiB)", text)[-1]
    return int(number) << {"KiB": 10, "MiB": 20}[unit]


def sizes_named(clause: str, made: World) -> set[int]:
    """The block sizes that a clause of a sentence is about."""
    if "at every block size" in clause or len(made.sizes) == 1:
        return set(made.sizes)
    found = {int(number) << 10 for number in re.findall(r"(\d+) KiB", clause)}
    found |= {int(number) << 10 for number in re.findall(r"(\d+)(?=(?:, \d+)* and \d+ KiB)", clause)}
    if "up to" in clause:
        return {size for size in made.sizes if size <= max(found)}
    if "from" in clause and " to " in clause:
        return {size for size in made.sizes if min(found) <= size <= max(found)}
    if "from" in clause:
        return {size for size in made.sizes if size >= min(found)}
    return found


def saturated_at(made: World, operation: str, size: int) -> int:
    rates = [made.iops(operation, size, depth) for depth in made.depths]
    return next(depth for depth, rate in zip(made.depths, rates, strict=True) if rate >= 0.95 * max(rates))


def saturation_is_true(finding: Saturation, made: World) -> bool:
    operation = operation_of(finding.load)
    sizes = made.sizes if finding.axis else [size_in(finding.load)]
    truth = {size: saturated_at(made, operation, size) for size in sizes}
    typed = {point.axis_level if finding.axis else sizes[0]: point.level for point in finding.points}
    if typed != truth or any(point.is_last != (point.level == made.depths[-1]) for point in finding.points):
        return False
    return not finding.axis or all(clause_is_true(clause, truth, made) for clause in clauses(finding.sentence))


def clauses(sentence: str) -> list[str]:
    """One clause for each queue depth that is named."""
    return [part for half in sentence.split("; ") for part in re.split(r", (?=at queue depth)", half)]


def clause_is_true(clause: str, truth: dict[int, int], made: World) -> bool:
    sizes = sizes_named(clause, made)
    if between := re.search(r"between queue depth (\d+) and (\d+)", clause):
        low, high = int(between[1]), int(between[2])
        named = sizes if re.search("KiB|every", clause) else set(truth)
        chosen = [truth[size] for size in named]
        return (min(chosen), max(chosen)) == (low, high)
    depth = int(re.findall(r"queue depth (\d+)", clause)[0])
    claimed = {size for size, level in truth.items() if level == depth}
    if "rising to" in clause:
        return sizes == claimed and depth == made.depths[-1]
    return sizes == claimed and depth < made.depths[-1]


def steps(made: World, operation: str, lower: int, upper: int) -> dict[int, float]:
    return {size: made.iops(operation, size, upper) / made.iops(operation, size, lower) for size in made.sizes}


def no_gain_is_true(finding: NoGain, made: World) -> bool:
    ratios = steps(made, operation_of(finding.load), finding.lower, finding.upper)
    sizes = set(finding.cells) if finding.axis else set(made.sizes)
    where = finding.sentence.split(" gain ")[0].split(" lose ")[0]
    named = sizes_named(where, made) if finding.axis else sizes
    return named == sizes and all(ratios[size] < 1.05 for size in sizes)


def scaling_is_true(finding: Scaling, made: World) -> bool:
    operation = operation_of(finding.load)
    pairs = list(itertools.pairwise(made.depths))
    gains = {
        (lower, upper): [
            ratio ** (1 / math.log2(upper / lower)) for ratio in steps(made, operation, lower, upper).values()
        ]
        for lower, upper in pairs
    }
    if finding.nearly_doubles:
        inside = [gain for (lower, upper), each in gains.items() for gain in each
                  if finding.lower <= lower and upper <= finding.upper]  # fmt: skip
        return min(inside) >= 1.8
    return math.isclose(finding.gain.value, max(gain for each in gains.values() for gain in each))


def comparison_is_true(finding: Comparison, made: World) -> bool:
    ratios = [made.iops("read", *cell) / made.iops("write", *cell) for cell in made.cells("iops", "read")]
    if finding.top == "writes":
        ratios = [1 / ratio for ratio in ratios]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    extremes = (finding.cells[0][1], finding.cells[-1][1])
    known = math.isclose(finding.ratio.value, mean) and extremes == (
        pytest.approx(min(ratios)),
        pytest.approx(max(ratios)),
    )
    above, below = sum(ratio > 1.05 for ratio in ratios), sum(ratio < 1 / 1.05 for ratio in ratios)
    opposed = f"is higher in {above} and lower in {below} of {len(ratios)} cells" in finding.sentence
    match finding.decision:
        case "higher":
            varied = max(ratios) / min(ratios) > 1.25
            if varied and below > 0:
                return known and mean > 1 and "on average" not in finding.sentence and ": from " in finding.sentence
            return known and mean > 1 and ("on average" in finding.sentence) == varied
        case "same" if not opposed:
            alike = len(ratios) - above - below
            some = f"in {alike} of {len(ratios)} cells" in finding.sentence
            return known and 1 / 1.05 <= mean <= 1.05 and some == (alike < len(ratios))
    return known and opposed == (above > 0 and below > 0)


def tail_is_true(finding: TailGrowth, made: World) -> bool:
    first, last = made.depths[0], made.depths[-1]
    cells = made.cells(P99, operation_of(finding.load))
    growth = {size: cells[size, last] / cells[size, first] for size in made.sizes}
    size = max(growth, key=lambda each: growth[each])
    return (finding.first, finding.last) == (pytest.approx(cells[size, first]), pytest.approx(cells[size, last])) and (
        finding.ratio.is_noise or ("rises" in finding.sentence) == (cells[size, last] >= cells[size, first])
    )


def dependence_is_true(finding: Dependence, made: World) -> bool:
    operation = operation_of(finding.load)
    spreads = []
    for size in made.sizes:
        rates = [made.iops(operation, size, depth) for depth in made.depths]
        spreads.append(max(rates) / min(rates))
    if finding.decision == "flat":
        return max(spreads) < 1.10
    ends = (finding.last / finding.first, finding.ratio.value)
    return finding.decision == "unclear" or (ends[0] == pytest.approx(max(spreads)) and ends[0] > 1.05)


def peak_is_true(finding: Peak, made: World) -> bool:
    cells = made.cells("bandwidth", operation_of(finding.load))
    best = max(cells.values())
    levels = [depth for (_, depth), value in sorted(cells.items(), key=lambda each: each[0][1]) if value >= 0.95 * best]
    reached = int(re.findall(r"queue depth (\d+)", finding.reached)[0])
    return finding.value.value == pytest.approx(best) and reached == levels[0]


def throughput_is_true(finding: Throughput, made: World) -> bool:
    operation, size = operation_of(finding.load), size_in(finding.load)
    large = finding.metric == "bandwidth"
    cells = made.cells(finding.metric, operation)
    rivals = [value for (each, _), value in cells.items() if (each >= 65536) == large]
    depth = int(re.findall(r"queue depth (\d+)", finding.setting)[0]) if finding.setting else 1
    own = {each: value for (of, each), value in cells.items() if of == size}
    unsaturated = (
        depth == max(own)
        and len(own) > 1
        and all(value < 0.95 * own[depth] for each, value in own.items() if each != depth)
    )
    return (
        (size >= 65536) == large
        and own[depth] >= 0.99 * max(rivals)
        and finding.value.value == pytest.approx(max(rivals), rel=0.005)
        and finding.unsaturated == unsaturated
    )


def latency_is_true(finding: UnloadedLatency, made: World) -> bool:
    operation, size = operation_of(finding.load), size_in(finding.load)
    cell = (operation, size, 1)
    return finding.p50.value == pytest.approx(made.values["completion_latency_ns_p50"][cell]) and (
        finding.p99 == pytest.approx(made.values[P99][cell])
    )


CHECKS: dict[type[Finding], Callable[[Any, World], bool]] = {
    Saturation: saturation_is_true,
    NoGain: no_gain_is_true,
    Scaling: scaling_is_true,
    Comparison: comparison_is_true,
    TailGrowth: tail_is_true,
    Dependence: dependence_is_true,
    Peak: peak_is_true,
    Throughput: throughput_is_true,
    UnloadedLatency: latency_is_true,
}
