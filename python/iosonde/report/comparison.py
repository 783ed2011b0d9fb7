"""Two systems measured by one study, case by case: the comparison as a table and in sums."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl

from iosonde.errors import ResultsError
from iosonde.findings.comparison.cases import (
    COMPARED,
    FALSE_DISCOVERIES,
    OBSCURED,
    UNUSABLE,
    Design,
    Recommendation,
    compare,
    recommend,
    sentences,
)
from iosonde.findings.comparison.sessions import PRIOR_STANDARD_DEVIATION
from iosonde.findings.finding import load_drift
from iosonde.metrics.registry import named_among
from iosonde.metrics.scopes import each_load, together
from iosonde.metrics.verdict.verdict import is_disturbed
from iosonde.metrics.wording import counted, load_words, metric_words, phrase
from iosonde.plan import Case
from iosonde.report.material import Material, Source, System, durability
from iosonde.report.quantities import case_name, level_text, metric_title
from iosonde.report.table import Cell, Table, metric_cell, tabulated
from iosonde.results.schema import Record
from iosonde.study import workload as workloads
from iosonde.study.setup import LAYOUT

VERDICTS = ("better", "worse", "same", "unclear", "excluded")


def _runs(system: System, material: Material, operation: str = "") -> pl.DataFrame:
    """Run metrics of each load, or of one kind of operation, in all sessions of a system."""
    labels = [source.label for source in system.sources]
    of_system = material.run_metrics.filter(pl.col("result_set").is_in(labels))
    return together(of_system).filter(operation=operation) if operation else each_load(of_system)


def pairs(material: Material, *, metrics: Sequence[str] = COMPARED, operation: str = "") -> pl.DataFrame:
    """Return `comparison.cases.compare` of the two systems of a study, of each load or of one kind of operation.

    Streams of a case are compared each by itself, not added up.

    Where all I/Os of a case have one size, its bandwidth and IOPS move together, and IOPS are left out.
    """
    baseline, contender = material.systems
    table = compare(
        _runs(baseline, material, operation),
        _runs(contender, material, operation),
        baseline_cases=baseline.sources[0].results.cases,
        contender_cases=contender.sources[0].results.cases,
        design=_design(material),
        metrics=(*metrics, *named_among(material.run_metrics["metric"].unique())),
    )
    if not table.height:
        before, after = (system.sources[0].results for system in material.systems)
        raise ResultsError(
            f"`{before.directory}` and `{after.directory}` have no case in common",
            where=f"both are of the study `{material.study.name}`, but no case has a result in both",
            hint="run the study with the same factors on both targets, or `iosonde report` them side by side",
        )
    order = {case.case_id: place for place, case in enumerate(baseline.cases)}
    by_case = pl.col("case_id").replace_strict(order, default=None)
    return _without_twins(table).sort(by_case, maintain_order=True)


def lines(table: pl.DataFrame, material: Material) -> list[str]:
    """Describe pairs: recommendations, the basis of the comparison, sums, and parameters that differ."""
    recommended = recommendations(material)
    return [
        *sentences(recommended, {"baseline": material.systems[0].label, "contender": material.systems[1].label}),
        *method(table, material, recommended),
        *summary(table, material),
        *differing(table),
    ]


def summary(table: pl.DataFrame, material: Material) -> list[str]:
    """Count for each metric the cases that are better, worse, or the same, in one line."""
    baseline, contender = material.systems
    lines = []
    for (metric,), rows in table.group_by(["metric"], maintain_order=True):
        counts = Counter(rows["verdict"].to_list())
        text = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
        lines.append(f"{metric_words(str(metric))} {text} of {counted(rows.height, 'case')}")
    return [f"{contender.label} against {baseline.label}: {'; '.join(lines)}"] if lines else []


def recommendations(material: Material) -> list[Recommendation]:
    """Recommend one of the two for each workload, with the evidence."""
    baseline, contender = material.systems
    return recommend(
        _runs(baseline, material),
        _runs(contender, material),
        {case.case_id: _workload(case) for case in baseline.cases if not case.control},
        design=_design(material),
    )


def _of_different_durability(material: Material) -> dict[str, str]:
    """Return the cases whose acknowledged writes survive different failures in the two systems."""
    baseline, contender = material.systems
    found = {}
    for case in baseline.cases:
        before, after = (
            next(filter(None, (durability(source, case.case_id) for source in system.sources)), "")
            for system in (baseline, contender)
        )
        if before and after and before != after:
            found[case.case_id] = f"acknowledged writes survive {before} in the baseline, {after} in the contender"
    return found


def _design(material: Material) -> Design:
    sources = [source for system in material.systems for source in system.sources]
    is_one_target = len({source.plan.target for source in sources}) == 1
    return Design(
        paired=material.paired,
        deterministic=sources[0].simulated,
        incomparable=_of_different_durability(material),
        unusable=CACHE_INCLUDED if material.paired and is_one_target else UNUSABLE,
        two_targets=not is_one_target,
        verdicts={
            (source.label, record.run_id): _kind(record.verdict.kind, record)
            for source in sources
            for record in source.records
            if record.verdict and not _is_comparable(record)
        },
        drift={source.label: _drift(material, source) for source in sources},
    )


def _kind(kind: str, record: Record) -> str:
    """Return the verdict on a run, and of a harness-limited run that something disturbed it too."""
    is_obscured = kind == "harness-limited" and is_disturbed(warning.code for warning in record.warnings)
    return OBSCURED if is_obscured else kind


def _is_comparable(record: Record) -> bool:
    """Return True if a run can be compared whatever limited it: no known disturbance.

    A run judged by shares of resources may use none of them completely; a command is compared whatever limited it.
    """
    if is_disturbed(warning.code for warning in record.warnings):
        return False
    load = record.spec["workload"]
    described = workloads.described(load)
    if described.io == "command":
        return True
    by_shares = described.rules(load) != "evidence"
    return bool(by_shares and record.verdict and record.verdict.kind == "undetermined")


CACHE_INCLUDED = ("undetermined", OBSCURED)
"""Verdicts that exclude a case where two settings of one target are compared: a cache belongs to a setting."""


def _drift(material: Material, source: Source) -> float:
    """Return the change of the control case through a session, as a share; 0 where it is not significant."""
    found = load_drift(material.runs_of(source), rates=("iops", "ops_per_sec"))
    if found is None or not (found.change.above(0) or found.change.below(0)):
        return 0.0
    return abs(found.change.value)


def method(table: pl.DataFrame, material: Material, recommended: Sequence[Recommendation]) -> list[str]:
    """Return the basis of the comparison: hypotheses, expected errors, sessions, drift, and exclusions."""
    used = table.filter(pl.col("verdict") != "excluded")
    decided = used.filter(pl.col("verdict").is_in(("better", "worse")))
    false = f"of which at most {FALSE_DISCOVERIES * decided.height:.1f} are expected to be false"
    pooled = any(each.choice in ("baseline", "contender") for each in recommended)
    means = "by itself; the recommendation compares means over all cases of a workload, which vary less"
    none = f"none differs {means}" if pooled else "none differs"
    lines = [
        f"{_of_all(used.height, table.height)} compared one by one at a false discovery rate of "
        f"{100 * FALSE_DISCOVERIES:g} %: " + (f"{decided.height} differ, {false}" if decided.height else none),
        *_session_lines(table, material),
    ]
    for label, share in _design(material).drift.items():
        if share and not material.paired:
            lines.append(f"Drift: the control case of {label} changed by {100 * share:.0f} %; the intervals include it")
    excluded = table.filter(pl.col("verdict") == "excluded").group_by("reason", maintain_order=True)
    for (reason,), rows in excluded:
        values, cases = counted(rows.height, "value"), counted(rows["case_id"].n_unique(), "case")
        lines.append(f"Excluded: {values} of {cases}: {reason}")
    return lines


def _of_all(used: int, known: int) -> str:
    return counted(used, "value") if used == known else f"{used} of {counted(known, 'value')}"


def _session_lines(table: pl.DataFrame, material: Material) -> Iterator[str]:
    """Yield how the variance between sessions enters."""
    counts = [len(system.sources) for system in material.systems]
    if material.paired:
        counted = table["repeats_baseline"].unique().sort().to_list()
        numbers = " to ".join(str(each) for each in dict.fromkeys((counted[0], counted[-1])))
        yield (
            f"Measured alternately in one session, pairs per case: {numbers}. Drift and session effects that both arms "
            "share cancel. Whether the difference is the same in another session is not shown"
        )
    elif material.systems[0].sources[0].simulated:
        return
    elif max(counts) == 1:
        yield (
            "One session each: repeats within a session cannot show how much sessions differ; a standard deviation of "
            f"{100 * PRIOR_STANDARD_DEVIATION:g} % is assumed"
        )
    else:
        yield (
            f"{counts[0]} and {counts[1]} sessions: the variance between them is estimated from the data and enters "
            "every interval"
        )


def _workload(case: Case) -> str:
    """Name what a case has in common with others from which only quantities and layouts distinguish it."""
    text = {name: level for name, level in case.levels.items() if isinstance(level, str) and name not in LAYOUT}
    labels = [level for name, level in text.items() if name not in ("operation", "access")]
    if set(text) <= {"operation", "access", "io_mode"}:
        direct = "direct " if text.get("io_mode") == "direct" else ""
        unstated = [name for name in ("block_size",) if name in case.levels]
        return direct + phrase(load_words(case.parameters, without=unstated))
    return ", ".join([*labels, *(text[name] for name in ("access", "operation") if name in text)])


def as_table(table: pl.DataFrame, material: Material) -> Table:
    """Write the pairs as a table of the report."""
    baseline, contender = material.systems
    names = {case.case_id: case_name(case) for case in baseline.cases}
    streams = table.group_by("case_id").agg(pl.col("stream").n_unique())
    several = set(streams.filter(pl.col("stream") > 1)["case_id"])
    rows = table.to_dicts()
    cases = [names[row["case_id"]] + f" ({row['stream']})" * (row["case_id"] in several) for row in rows]
    parts = [("Part", [row["part"] for row in rows])] if len(material.study.parts) > 1 else []
    return tabulated(
        "Comparison, case by case",
        [
            *parts,
            ("Case", cases),
            ("Metric", [metric_title(row["metric"]) for row in rows]),
        ],
        [
            (baseline.label, [metric_cell(row["metric"], row["baseline"]) for row in rows]),
            (contender.label, [metric_cell(row["metric"], row["contender"]) for row in rows]),
            ("Ratio", [_ratio(row["ratio"], row["low"], row["high"], row["bound"]) for row in rows]),
            ("Verdict", [row["verdict"] for row in rows]),
        ],
        caption=f"{baseline.label}, {contender.label}: medians. Ratio: {contender.label} over {baseline.label}, "
        f"{'the geometric mean of the pairs' if material.paired else 'of geometric means'}, with its 95 % confidence "
        "interval. At least, at most: one of the two is harness-limited, so the ratio is a bound. Same: the interval "
        "lies within 5 %. Unclear: neither a difference nor its absence is shown. Excluded: the value decides nothing, "
        "for one of the reasons listed.",
        keys=[f"{contender.label}\n{row['case_id']}" for row in rows],
    )


def differing(table: pl.DataFrame) -> list[str]:
    """List the parameters that differ between cases of the same name."""
    found: dict[str, set[str]] = {}
    for text in table["differs"].unique():
        for name, (before, after) in json.loads(text).items():
            found.setdefault(name, set()).add(f"{level_text(name, before)} and {level_text(name, after)}")
    return [f"{name} differs: {', '.join(sorted(values)[:3])}" for name, values in sorted(found.items())]


def _without_twins(table: pl.DataFrame) -> pl.DataFrame:
    """Drop IOPS rows that repeat the bandwidth row of the same case."""
    rates = table.filter(pl.col("metric") == "bandwidth").select("case_id", "stream", "operation", twin="ratio")
    marked = table.join(rates, on=["case_id", "stream", "operation"], how="left", maintain_order="left")
    is_twin = (pl.col("metric") == "iops") & ((pl.col("ratio") - pl.col("twin")).abs() < 1e-9)
    return marked.filter(~is_twin.fill_null(False)).drop("twin")


def _ratio(ratio: float, low: float | None, high: float | None, bound: str) -> Cell:
    interval = "" if low is None or high is None else f"{low:.3f} .. {high:.3f}"
    return Cell(text=f"{bound} {ratio:.3f}".strip(), interval=interval, number=ratio)
