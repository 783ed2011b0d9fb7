"""Two result sets of one study, case by case: what the analysis says of each pair, as a table and in sums."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import polars as pl

from iosonde.comparison.cases import COMPARED, FALSE_DISCOVERIES, compare
from iosonde.comparison.variance import PRIOR_STANDARD_DEVIATION
from iosonde.errors import ResultsError
from iosonde.metrics.scopes import each_load
from iosonde.plan import Case
from iosonde.report.content.table import Cell, Table
from iosonde.report.material.quantities import case_name, level_text, metric_text, metric_title
from iosonde.report.material.result_sets import Material, Source

VERDICTS = ("better", "worse", "same", "unclear", "excluded")


def pairs(material: Material, *, metrics: Sequence[str] = COMPARED) -> pl.DataFrame:
    """Return `comparison.cases.compare` of the two result sets of a study, of each load.

    Streams of a case are compared each by itself, not added up.

    Where all I/Os of a case have one size, its bandwidth and IOPS move together, and IOPS are left out.
    """
    baseline, contender = _two(material)
    runs = each_load(material.run_metrics)
    table = compare(
        runs.filter(pl.col("result_set") == baseline.label),
        runs.filter(pl.col("result_set") == contender.label),
        baseline_cases=baseline.results.cases,
        contender_cases=contender.results.cases,
        verdicts=_verdicts(material),
        deterministic=baseline.simulated,
        metrics=tuple(metrics),
    )
    if not table.height:
        raise ResultsError(
            f"`{baseline.directory}` and `{contender.directory}` have no case in common",
            where=f"both are of the study `{material.study.name}`, but no case has a result in both",
            hint="run the study with the same factors on both targets, or `iosonde report` them side by side",
        )
    order = {case.case_id: place for place, case in enumerate(baseline.cases)}
    by_case = pl.col("case_id").replace_strict(order, default=None)
    return _without_twins(table).sort(by_case, maintain_order=True)


def summary(table: pl.DataFrame, material: Material) -> list[str]:
    """Say for each metric how many cases are better, worse, the same."""
    baseline, contender = _two(material)
    lines = []
    for (metric,), rows in table.group_by(["metric"], maintain_order=True):
        counts = Counter(rows["verdict"].to_list())
        said = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
        what = metric_title(str(metric))
        lines.append(f"{what}: {contender.label} against {baseline.label} is {said} of {rows.height} cases")
    return lines


def recommendations(material: Material) -> list[str]:
    """Say which of the two to choose for which workload, and by what evidence."""
    from iosonde.comparison.recommendation import recommend, sentences

    baseline, contender = _two(material)
    runs = each_load(material.run_metrics)
    found = recommend(
        runs.filter(pl.col("result_set") == baseline.label),
        runs.filter(pl.col("result_set") == contender.label),
        {case.case_id: _workload(case) for case in baseline.cases if not case.control},
        verdicts=_verdicts(material),
        deterministic=baseline.simulated,
    )
    return list(sentences(found, {"baseline": baseline.label, "contender": contender.label}))


def _verdicts(material: Material) -> dict[tuple[str, str], str]:
    """Return the verdict on each run, by the label of its result set."""
    return {
        (source.label, record.run_id): record.verdict.kind
        for source in material.sources
        for record in source.records
        if record.verdict
    }


def method(table: pl.DataFrame, material: Material) -> list[str]:
    """Return what the comparison rests on: the number of hypotheses, expected errors, and what it cannot show."""
    used = table.filter(pl.col("verdict") != "excluded")
    decided = used.filter(pl.col("verdict").is_in(("better", "worse")))
    lines = [
        f"{used.height} values compared, {decided.height} differ; at a false discovery rate of "
        f"{100 * FALSE_DISCOVERIES:g} %, {FALSE_DISCOVERIES * decided.height:.1f} of these are expected to be false"
    ]
    if not _two(material)[0].simulated:
        lines.append(
            "One session each: repeats within a session cannot show how much sessions differ; a standard deviation of "
            f"{100 * PRIOR_STANDARD_DEVIATION:g} % is assumed"
        )
    for reason in table.filter(pl.col("verdict") == "excluded")["reason"].unique(maintain_order=True):
        lines.append(f"Excluded: {reason}")
    return lines


def _workload(case: Case) -> str:
    """Name what a case has in common with others that only quantities and layouts tell from it."""
    from iosonde.findings.array_performance import LAYOUT
    from iosonde.metrics.wording import load_words, phrase

    text = {name: level for name, level in case.levels.items() if isinstance(level, str) and name not in LAYOUT}
    labels = [level for name, level in text.items() if name not in ("operation", "access")]
    if set(text) <= {"operation", "access", "io_mode"}:
        direct = "direct " if text.get("io_mode") == "direct" else ""
        unsaid = [name for name in ("block_size",) if name in case.levels]
        return direct + phrase(load_words(case.parameters, without=unsaid))
    return ", ".join([*labels, *(text[name] for name in ("access", "operation") if name in text)])


def as_table(table: pl.DataFrame, material: Material) -> Table:
    """Write the pairs as a table of the report."""
    baseline, contender = _two(material)
    names = {case.case_id: case_name(case) for case in baseline.cases}
    streams = table.group_by("case_id").agg(pl.col("stream").n_unique())
    several = set(streams.filter(pl.col("stream") > 1)["case_id"])
    parts = len(material.study.parts) > 1
    rows = [
        [
            *([Cell(text=row["part"])] if parts else []),
            Cell(text=names[row["case_id"]] + (f" ({row['stream']})" if row["case_id"] in several else "")),
            Cell(text=metric_title(row["metric"])),
            Cell(text=metric_text(row["metric"], row["baseline"]), number=row["baseline"]),
            Cell(text=metric_text(row["metric"], row["contender"]), number=row["contender"]),
            _ratio(row["ratio"], row["low"], row["high"]),
            Cell(text=row["verdict"]),
        ]
        for row in table.iter_rows(named=True)
    ]
    return Table(
        title="Comparison, case by case",
        caption=f"Ratio: {contender.label} over {baseline.label} with its 95 % confidence interval. Same: the "
        "interval lies within 5 %. Unclear: neither a difference nor its absence is shown.",
        heads=[*(["Part"] if parts else []), "Case", "Metric", baseline.label, contender.label, "Ratio", "Verdict"],
        labels=3 if parts else 2,
        rows=rows,
        keys=[f"{contender.label}\n{case_id}" for case_id in table["case_id"]],
    )


def differing(table: pl.DataFrame) -> list[str]:
    """Say which parameters differ between cases of the same name: then more than the device was changed."""
    found: dict[str, set[str]] = {}
    for text in table["differs"].unique():
        for name, (before, after) in json.loads(text).items():
            found.setdefault(name, set()).add(f"{level_text(name, before)} and {level_text(name, after)}")
    return [f"{name} differs: {', '.join(sorted(values)[:3])}" for name, values in sorted(found.items())]


def _two(material: Material) -> tuple[Source, Source]:
    assert len(material.sources) == 2, "a comparison is of two"
    return material.sources[0], material.sources[1]


def _without_twins(table: pl.DataFrame) -> pl.DataFrame:
    """Drop IOPS rows that say what the bandwidth row of the same case says."""
    rates = table.filter(pl.col("metric") == "bandwidth").select("case_id", "stream", "operation", twin="ratio")
    marked = table.join(rates, on=["case_id", "stream", "operation"], how="left", maintain_order="left")
    is_twin = (pl.col("metric") == "iops") & ((pl.col("ratio") - pl.col("twin")).abs() < 1e-9)
    return marked.filter(~is_twin.fill_null(False)).drop("twin")


def _ratio(ratio: float, low: float | None, high: float | None) -> Cell:
    interval = "" if low is None or high is None else f"{low:.3f} .. {high:.3f}"
    return Cell(text=f"{ratio:.3f}", interval=interval, number=ratio)
