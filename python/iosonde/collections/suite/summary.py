"""Results of a suite: for each study the values that it quotes, on one target or compared between two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from iosonde.collections.suite.directory import SuiteDirectory
from iosonde.collections.suite.planning import Entry, Value, load
from iosonde.data import shipped_suites
from iosonde.errors import ResultsError
from iosonde.findings.cells import cells
from iosonde.findings.comparison.cases import UNUSABLE
from iosonde.metrics.metrics import repeat_noise
from iosonde.metrics.registry import find
from iosonde.metrics.scopes import ALL
from iosonde.metrics.statistics import Estimate, known_noise, ratio, verdict
from iosonde.metrics.verdict.verdict import TimeUse, mean_of, time_use
from iosonde.metrics.wording import level_words, range_text, value_text
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.report import comparison
from iosonde.report.content import collect
from iosonde.report.material import gather
from iosonde.results import ResultSet
from iosonde.results.shapes import interpreting

if TYPE_CHECKING:
    from iosonde.plan import Case
    from iosonde.report.material import Material, Source


LIMIT = "limit"
"""Metric of a value that quotes the limit of a search."""


def limit_of(source: Source, part: str) -> SearchConclusion | None:
    """The search of a part, if it found a limit."""
    found = (each for case, each in source.procedures if case.part == part and isinstance(each, SearchConclusion))
    return next((each for each in found if each.reached and each.value and each.fails_at), None)


def limit_text(found: SearchConclusion) -> str:
    """A limit with the value that failed: `16 to 22.6`."""
    return f"{found.value:,.3g} to {found.fails_at:,.3g}"


Row = Mapping[str, Any]
NO_CASE = "no case of this profile fits, or it has no result"
NO_LIMIT = "the search found no limit, or was not carried out on every target"
NOTHING_LIMITS = "; no other limit was found"
SMALL_GAIN = 1.25
"""Improvement below which the report names what limits it."""
TOO_FEW = "no value on both targets: a percentile needs ten operations beyond it, so more than this profile has"
Outcome = Literal["better", "worse", "same", "unexplained", "unclear", "excluded", "value", "missing"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One value of one case."""

    entry: Entry
    value: Value
    case: str = ""
    """Distinguishing levels of the case; empty if it is the only one."""
    outcome: Outcome
    """`value`: of a single target."""
    first: str = ""
    """The median on the first target, as text."""
    second: str = ""
    notes: tuple[str, str] = ("", "")
    """Differences between the two values besides the target."""
    improvement: float | None = None
    """Factor by which the second target is better: above 1 is more throughput or less latency."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Reason for an outcome of `excluded`, `unexplained` or `missing`."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Limiting factor of the runs of the case, by target."""
    uses: Mapping[str, TimeUse] = field(default_factory=dict)
    """Breakdown of their time, by target."""

    @property
    def gain_limit(self) -> str:
        """Cause of a small or missing gain, from the runs on the first target; empty where the gain is clear."""
        use = next(iter(self.uses.values()), None)
        if use is None or self.improvement is None or self.improvement >= SMALL_GAIN:
            return ""
        return gain_limit(use)


@dataclass(frozen=True, kw_only=True)
class StudySummary:
    """Results of one study of the suite."""

    entry: Entry
    lines: Sequence[Line]
    answers: Mapping[str, Sequence[str]]
    """Sentences that answer the question of the study, and how far to trust them, by target."""
    question: str = ""
    result_sets: Sequence[Path] = ()
    skipped: str = ""
    """Reason for skipping it, or for its incompleteness."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Results of the whole suite."""

    directory: SuiteDirectory
    studies: Sequence[StudySummary]
    simulated: bool
    """True if any result set is of a device model."""
    mixed: bool = False
    """True if others are of a device."""

    @property
    def differs_from_shipped(self) -> bool:
        """True if the suite has the name of one that comes with iosonde, but other entries or published values."""
        suite = self.directory.description.suite
        return suite.name in shipped_suites() and suite != load(suite.name)

    @property
    def lines(self) -> list[Line]:
        """Every line, those with the largest improvement first."""
        found = [line for study in self.studies for line in study.lines]
        return sorted(found, key=lambda line: -(line.improvement or 0.0))

    @property
    def compares(self) -> bool:
        return self.directory.description.against is not None

    def recommendation(self) -> list[str]:
        """Sentences that name the target to prefer, from decided differences only."""
        if not self.compares:
            return []
        description = self.directory.description
        by_entry: dict[str, list[Line]] = {}
        for line in self.lines:
            by_entry.setdefault(line.entry.title, []).append(line)
        sentences = {
            "better": f"{description.against} is better for",
            "worse": f"{description.target} is better for",
            "mixed": "It depends on the load for",
            "same": "Both are the same within 5 % for",
            "unexplained": "The difference is larger than the devices account for, so it has another cause, for",
            "unclear": "Neither a difference nor its absence is shown for",
            "excluded": "Excluded, because most runs of a target are undetermined or were served from a cache:",
            "missing": "Not measured:",
        }
        groups: dict[str, list[str]] = {}
        for title, lines in by_entry.items():
            outcomes = {line.outcome for line in lines}
            kind = "mixed" if outcomes >= {"better", "worse"} else next(each for each in sentences if each in outcomes)
            groups.setdefault(kind, []).append(_with_gain(title, lines))
        return [f"{text} {_listed(groups[kind])}" for kind, text in sentences.items() if kind in groups]


def _with_gain(title: str, lines: Sequence[Line]) -> str:
    """The application with its decided improvements, and how many of its values they are where not all are decided."""
    decided = [line for line in lines if line.outcome in ("better", "worse") and line.improvement]
    if not decided:
        return title
    better, worse = ([line for line in decided if line.outcome == outcome] for outcome in ("better", "worse"))
    if better and worse:
        return f"{title} ({len(better)} of {len(lines)} values better, {len(worse)} worse)"
    # Of the target that is better: a ratio below 1 is turned.
    ratios = sorted(each if better else 1 / each for line in decided if (each := line.improvement))
    ends = [f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"]
    gain = f"{ends[0]}×" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}×"
    count = f", {len(decided)} of {len(lines)} values" if len(decided) < len(lines) else ""
    return f"{title} ({gain}{count})"


def summarize(directory: SuiteDirectory) -> Summary:
    """Read every result set of a suite. Studies without results, or that cannot be read, are listed with the reason."""
    studies = []
    kinds: set[bool] = set()
    for entry in directory.description.suite.entries:
        paths = list(directory.of_entry(entry.name).values())
        if not paths:
            studies.append(_skipped(entry, directory.description.skipped.get(entry.name, "not planned")))
            continue
        try:
            with interpreting(paths):
                result_sets = [ResultSet.open(path) for path in paths]
                kinds |= {each.simulated for each in result_sets}
                studies.append(_study(entry, result_sets, directory))
        except ResultsError as error:
            studies.append(_skipped(entry, error.what, paths))
    return Summary(directory=directory, studies=studies, simulated=True in kinds, mixed=len(kinds) > 1)


def _skipped(entry: Entry, reason: str, paths: Sequence[Path] = ()) -> StudySummary:
    """A study without values."""
    return StudySummary(
        entry=entry,
        lines=[Line(entry=entry, value=value, outcome="missing", reason=reason) for value in entry.values],
        answers={},
        result_sets=paths,
        skipped=reason,
    )


def _study(entry: Entry, result_sets: Sequence[ResultSet], directory: SuiteDirectory) -> StudySummary:
    paths = [each.directory for each in result_sets]
    if not all(any(record.outcome == "complete" for record in each.records()) for each in result_sets):
        return _skipped(entry, "no complete runs", paths)
    mixed = len({each.simulated for each in result_sets}) > 1
    chapter = collect(result_sets, mix_simulated=mixed).chapters[0]
    answers = {
        label: [*(finding.sentence for finding in answer.summary), answer.trust.line]
        for label, answer in chapter.answers
    }
    if entry.log_device:
        lines = list(_compared_levels(entry, chapter.material, str(directory.description.against)))
    elif directory.description.against is None:
        lines = list(_single(entry, chapter.material))
    else:
        material = gather(result_sets, mix_simulated=mixed)[0]
        if not result_sets[0].plan.arms:
            labels = [source.label for source in material.sources]
            material = replace(material, groups=[labels[:1], labels[1:]])
        lines = list(_compared(entry, material))
    return StudySummary(entry=entry, lines=lines, answers=answers, question=chapter.study.question, result_sets=paths)


def _missing(entry: Entry, value: Value, reason: str) -> Line:
    return Line(entry=entry, value=value, outcome="missing", reason=reason)


def _compared(entry: Entry, material: Material) -> Iterator[Line]:
    baseline, _ = material.systems
    cases = {case.case_id: case for case in baseline.cases}
    for value in entry.values:
        if value.metric == LIMIT:
            yield _compared_limit(entry, value, material)
            continue
        try:
            table = comparison.pairs(material, metrics=(value.metric,), operation=value.operation)
        except ResultsError as error:
            is_tail = "_p99" in value.metric
            yield _missing(entry, value, TOO_FEW if is_tail else error.what)
            continue
        found = list(_of_cases(entry, value, table.to_dicts(), cases, material))
        if not found:
            yield _missing(entry, value, f"{NO_CASE} on both targets")
        for row, line in found:
            compared = replace(
                line,
                outcome=row["verdict"],
                first=_text(value.metric, row["baseline"]),
                second=_text(value.metric, row["contender"]),
                reason=row["reason"] or "",
                **_improvement(value.metric, row["ratio"], row["low"], row["high"]),
            )
            yield _checked_by_device_time(compared, [source.plan.target for source in material.sources])


def _checked_by_device_time(line: Line, targets: Sequence[str]) -> Line:
    """A decided difference is `unexplained` if a device that takes no time could not make it on the slower target.

    Of rates alone: such a device raises them by no more than the time in which it was busy allows.
    """
    metric = find(line.value.metric)
    is_rate = metric and (metric.counted or (metric.unit in ("1/s", "B/s") and metric.better == "higher"))
    if line.outcome not in ("better", "worse") or not is_rate:
        return line
    slower = targets[0] if line.outcome == "better" else targets[-1]
    use = line.uses.get(slower)
    least = line.low if line.outcome == "better" else line.high and 1 / line.high
    if use is None or use.most_gain is None or use.device_busy is None or least is None or least <= use.most_gain:
        return line
    reason = (
        f"the device was busy {100 * use.device_busy:.0f} % of the time on {slower}, which accounts for "
        f"{use.most_gain:.2f}× at most"
    )
    return replace(line, outcome="unexplained", reason=reason)


def _compared_levels(entry: Entry, material: Material, second: str) -> Iterator[Line]:
    """Lines of a log device: a level of a factor against its baseline, within one result set."""
    source = material.sources[0]
    noise = repeat_noise(material.run_metrics)
    for value in entry.values:
        [(factor, levels)] = value.levels.items()
        found = cells(
            material.run_metrics, source.results.cases, part=value.part, metric=value.metric,
            factors=[factor, *value.where], where=value.where,
        )  # fmt: skip
        of_level = {row[factor]: row for row in found.to_dicts()}
        if any(level not in of_level for level in levels):
            yield _missing(entry, value, f"{NO_CASE} at both levels")
            continue
        rows = [of_level[level] for level in levels]
        with known_noise(noise[source.label]):
            estimate = ratio(rows[1]["values"], rows[0]["values"])
        metric = find(value.metric)
        better: Literal["higher", "lower"] = "lower" if metric and metric.better == "lower" else "higher"
        unusable = [kind for row in rows if (kind := source.verdict(row["case_id"])) in UNUSABLE]
        first, other = (_text(value.metric, median(row["values"])) for row in rows)
        times = {f"log {level}": _time(material, row["case_id"]) for level, row in zip(levels, rows, strict=True)}
        yield Line(
            entry=entry,
            value=value,
            outcome="excluded" if unusable else verdict(estimate, better=better),
            first=first,
            second=other,
            notes=(f"log {levels[0]}", f"log on {second}"),
            reason=f"most runs of a level are {unusable[0]}" if unusable else "",
            limits={log: text for log, (limits, _) in times.items() for text in limits.values()},
            uses={log: use for log, (_, uses) in times.items() for use in uses.values()},
            **_improvement(value.metric, estimate.value, estimate.low, estimate.high),
        )


def _compared_limit(entry: Entry, value: Value, material: Material) -> Line:
    """The limit of a search on both targets; its interval is what the precision of both searches leaves."""
    first, second = (limit_of(system.sources[0], value.part) for system in material.systems)
    if first is None or second is None:
        return _missing(entry, value, NO_LIMIT)
    assert first.value and first.fails_at and second.value and second.fails_at, "both searches found a limit"
    found = Estimate(second.value / first.value, second.value / first.fails_at, second.fails_at / first.value)
    return Line(
        entry=entry,
        value=value,
        outcome=verdict(found, better="higher"),
        first=limit_text(first),
        second=limit_text(second),
        improvement=found.value,
        low=found.low,
        high=found.high,
    )


def _single(entry: Entry, material: Material) -> Iterator[Line]:
    source = material.sources[0]
    cases = {case.case_id: case for case in source.cases if not case.control}
    for value in entry.values:
        if value.metric == LIMIT:
            found = limit_of(source, value.part)
            line = Line(entry=entry, value=value, outcome="value", first=limit_text(found)) if found else None
            yield line or _missing(entry, value, NO_LIMIT)
            continue
        lines = list(_of_cases(entry, value, material.summary.to_dicts(), cases, material))
        if not lines:
            yield _missing(entry, value, NO_CASE)
        yield from (replace(line, first=_interval_text(value.metric, row)) for row, line in lines)


def _of_cases(
    entry: Entry, value: Value, table: Sequence[Row], cases: Mapping[str, Case], material: Material
) -> Iterator[tuple[Row, Line]]:
    """Yield the rows of a table that match a value, each with its line, which has no values yet."""
    rows = _of_streams([row for row in table if row["case_id"] in cases and _fits(row, value, cases[row["case_id"]])])
    chosen = [cases[row["case_id"]] for row in rows]
    for row, case in zip(rows, chosen, strict=True):
        limits, uses = _time(material, case.case_id)
        text = _case_text(case, chosen, row, rows)
        yield row, Line(entry=entry, value=value, case=text, outcome="value", limits=limits, uses=uses)


def _fits(row: Mapping[str, object], value: Value, case: Case) -> bool:
    """Return True if a row of a table matches the value: its metric, stream, operation and levels."""
    if row["metric"] != value.metric or case.part != value.part:
        return False
    if row.get("operation", ALL) not in ((value.operation,) if value.operation else (ALL, "", None)):
        return False
    if value.stream and row.get("stream") != value.stream:
        return False
    return all(str(case.levels.get(name)) == str(level) for name, level in value.where.items())


def _improvement(metric: str, ratio: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    """A ratio with its interval, turned so that above 1 is better."""
    definition = find(metric)
    if definition and definition.better == "lower":
        ratio, high, low = (1 / each if each else None for each in (ratio, low, high))
    return {"improvement": ratio, "low": low, "high": high}


def _time(material: Material, case_id: str) -> tuple[dict[str, str], dict[str, TimeUse]]:
    """Return the limiting factor of a case and the breakdown of the time of its complete runs, for each target.

    The limiting factor is the verdict and the first sentence of its evidence.
    """
    limits, uses = {}, {}
    for source in material.sources:
        records = [each for each in source.records if each.case_id == case_id]
        if kind := source.verdict(case_id):
            verdicts = [each.verdict for each in records if each.verdict and each.verdict.kind == kind]
            sentences = [each.because[0] for each in verdicts if each.because]
            limits[source.plan.target] = f"{kind}: {sentences[0]}" if sentences else kind
        if mean := mean_of([use for each in records if each.outcome == "complete" and (use := time_use(each))]):
            uses[source.plan.target] = mean
    return limits, uses


def gain_limit(use: TimeUse) -> str:
    """Upper bound of the gain from a faster device, and the largest consumer of the remaining time."""
    if use.device_busy is None or use.most_gain is None:
        return ""
    parts = {
        "device": "",
        "application": f"; the application used {use.application_cores:.1f} cores",
        "kernel": f"; the kernel used {use.kernel_cores:.1f} cores",
        "locks": f"; sessions waited for locks {100 * (use.lock_waits or 0):.0f} % of the time",
    }
    reason = parts[use.largest] if use.is_significant else NOTHING_LIMITS
    return (
        f"the device was busy {100 * use.device_busy:.0f} % of the time, so a faster one gains at most "
        f"{use.most_gain:.2f}×{reason}"
    )


def _of_streams(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the rows of all streams together of cases that have several, whose sum is not a rate of a load."""
    apart = {row["case_id"] for row in rows if row.get("stream") not in (ALL, None)}
    return [row for row in rows if row["case_id"] not in apart or row.get("stream") != ALL]


def _case_text(case: Case, cases: Sequence[Case], row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the levels and stream that distinguish a case from the others that the value covers."""
    varying = [name for name in case.levels if len({str(each.levels.get(name)) for each in cases}) > 1]
    streams = {each.get("stream") for each in rows if each["case_id"] == case.case_id}
    stream = [str(row["stream"])] if len(streams) > 1 else []
    return ", ".join([*(level_words(name, case.levels[name]) for name in varying), *stream])


def _interval_text(metric: str, row: Mapping[str, float | None]) -> str:
    """The median with its interval, unless both ends read like the median."""
    text, low, high = (_text(metric, row.get(each)) for each in ("median", "low", "high"))
    return f"{text} ({range_text(low, high)})" if low and high and (low, high) != (text, text) else text


def _text(metric: str, number: float | None) -> str:
    return "" if number is None else value_text(metric, number)


def _listed(names: Sequence[str]) -> str:
    """Titles in a sentence; they contain commas."""
    return names[0] if len(names) == 1 else f"{'; '.join(names[:-1])}; and {names[-1]}"
