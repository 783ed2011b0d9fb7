"""Measurement quality: verdicts, missing runs, I/O errors, Little's law, drift, repeats and warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import polars as pl

from iosonde.findings.finding import Count, Drift, Finding, Loss, cases_of, load_drift, some, verdicts_text
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.metrics.verdict.evidence import SATURATED
from iosonde.metrics.verdict.rules import rules
from iosonde.metrics.verdict.verdict import KINDS, MEANING, Kind
from iosonde.results.accounting import MOST
from iosonde.results.schema import UNSUPPORTED, WRONG_DATA
from iosonde.study.workload import names_where

RESOLUTION = 0.02
"""Deviation that turnaround between I/Os and the clock may cause, whatever the length of the run."""
LONGEST_CUT = 0.03
"""A run whose mean latency is a larger part of its measured time is too short to check: with this the law holds within
5 % wherever it is reported to hold."""


def littles_law(runs: pl.DataFrame) -> pl.DataFrame:
    """Check every closed-loop run.

    Columns: `run_id, case_id, ratio, tolerance, verdict` (`holds`, `above`, `below`,
    `too_short`). The tolerance follows from what the run can resolve: an I/O that is in flight at the start counts in
    full, one at the end not at all, so each of the I/Os in flight is off by one mean latency at most, on average. A
    ratio above that which the longest latency could explain is not a fault, but shows nothing either: `too_short`.
    A run in which no I/O completed has no mean latency, and no row.
    """
    names = ("littles_law_ratio", "completion_latency_ns_mean", "completion_latency_ns_max", "seconds")
    longest = pl.coalesce("completion_latency_ns_max", "completion_latency_ns_mean") / 1e9 / pl.col("seconds")
    ratio, tolerance = pl.col("littles_law_ratio"), pl.col("tolerance")
    wide = (
        overall(runs)
        .filter(pl.col("metric").is_in(names))
        .pivot(on="metric", index=["run_id", "case_id"], values="value")
    )
    return (
        wide.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in names if name not in wide.columns)
        .drop_nulls(["littles_law_ratio", "completion_latency_ns_mean"])
        .with_columns(tolerance=RESOLUTION + pl.col("completion_latency_ns_mean") / 1e9 / pl.col("seconds"))
        .with_columns(
            verdict=pl.when(tolerance > RESOLUTION + LONGEST_CUT)
            .then(pl.lit("too_short"))
            .when(ratio > 1 + RESOLUTION + longest)
            .then(pl.lit("above"))
            .when(ratio > 1 + tolerance)
            .then(pl.lit("too_short"))
            .when(ratio < 1 - tolerance)
            .then(pl.lit("below"))
            .otherwise(pl.lit("holds"))
        )
        .select("run_id", "case_id", ratio.alias("ratio"), "tolerance", "verdict")
    )


STEADY = 0.05


class Verdicts(Finding, kind="verdicts", topic="quality"):
    counts: tuple[tuple[Kind, int], ...]
    warnings: tuple[tuple[str, int], ...]
    """Warnings behind the verdicts other than device-limited, with the number of runs."""

    def _sentence(self) -> str:
        total = sum(count for _, count in self.counts)
        return verdicts_text(dict(self.counts), total, verb="was " if self.counts[0][1] == 1 else "were ")

    def _evidence(self) -> str:
        listed = ", ".join(f"`{code}` ({wording.counted(count, 'run')})" for code, count in self.warnings)
        return listed or "; ".join(f"{kind}: {MEANING[kind]}" for kind, _ in self.counts)


class NotUsable(Count, kind="not usable", topic="quality"):
    """Most runs were disturbed by other load on this machine: no answer, and no list of weak findings."""

    code: str
    """The warning that most of them have."""
    example: str
    """Message of one of them."""

    @property
    def loss(self) -> Loss:
        """Nothing that was measured is worth reading."""
        return "disturbed"

    def _sentence(self) -> str:
        return f"Not usable: other load on this machine disturbed {self.some}; {self.example}; repeat when it is idle"

    def _evidence(self) -> str:
        return f"warning `{self.code}` most often; {rules()[self.code].hint}"


class MissingRuns(Count, kind="missing runs", topic="quality"):
    """Runs that failed or were stopped."""

    outcome: Literal["failed", "stopped"]
    empty_cases: int
    """Cases without any complete run."""
    reasons: tuple[tuple[str, int], ...]

    def _sentence(self) -> str:
        empty = f"; {wording.counted(self.empty_cases, 'case')} without a value" if self.empty_cases else ""
        verb = "failed" if self.outcome == "failed" else "was stopped" if self.count == 1 else "were stopped"
        return f"{self.some} {verb}{empty}"

    def _evidence(self) -> str:
        return "; ".join(f"{message} ({times})" for message, times in self.reasons) or "stopped before their limit"


class FailedIos(Finding, kind="failed I/Os", topic="quality"):
    """I/Os that failed in runs that continued."""

    evidence_text = "failed and short I/Os are counted separately and are in no rate or latency"
    count: int
    runs: int

    def _sentence(self) -> str:
        return f"{wording.counted(self.count, 'I/O')} failed in {wording.counted(self.runs, 'run')} that continued"


class LittlesLaw(Count, kind="Little's law", topic="quality"):
    """Runs in which the mean number of I/Os in flight does, or does not, equal the concurrency."""

    verdict: Literal["holds", "above", "below", "too_short"]
    ratios: tuple[float, float]
    """Mean in flight over concurrency: smallest and largest."""
    tolerance: float
    """The largest deviation from 1 that these runs cannot resolve."""
    has_verdicts: bool
    """True if verdicts explain the runs with fewer I/Os in flight; a simulated device has none."""

    @property
    def loss(self) -> Loss | None:
        """Of latencies that are wrong."""
        return "another load" if self.verdict == "above" else None

    def _sentence(self) -> str:
        see = ", see verdicts" if self.has_verdicts else ""
        every = "the only run" if self.total == 1 else f"all {wording.counted(self.count, 'run')}"
        holds = f"Little's law holds in {every} long enough to check"
        if self.count < self.total:
            others = "fewer I/Os in flight in the others"
            holds = f"Little's law holds in {self.some} long enough to check; {others}{see}"
        return {
            "holds": holds,
            "above": f"More I/Os in flight than the concurrency in {self.some}: their latencies are wrong",
            "below": f"Fewer I/Os in flight than the concurrency in {self.some}",
            "too_short": f"{self.some} too short to check Little's law",
        }[self.verdict]

    def _evidence(self) -> str:
        ratios = wording.range_text(*(wording.ratio_text(end) for end in self.ratios))
        hint = "; use a longer `duration` or a larger `limit_bytes`" if self.verdict == "too_short" else ""
        resolved = f"resolved within {wording.percent_text(self.tolerance)}"
        return f"mean in flight over concurrency {ratios}; {resolved}{hint}"


class BusyCore(Count, kind="busy core", topic="quality"):
    """Runs without a verdict in which a thread saturated its core."""

    evidence_text = f"a thread used at least {100 * SATURATED:.0f} % of a core; try more jobs"

    def _sentence(self) -> str:
        return f"A job saturated its core in {self.some}: they may be CPU-limited"


class ControlDrift(Finding, kind="drift", topic="quality"):
    """Change and spread of the control case."""

    drift: Drift

    def _sentence(self) -> str:
        spread = wording.percent_text(self.drift.spread)
        if self.drift.has_trend:
            verb = "gained" if self.drift.change.value > 0 else "lost"
            return f"Drift: the control case {verb} {wording.percent_text(abs(self.drift.change.value))} over the study"
        if self.drift.spread <= STEADY:
            return f"No drift: the control case stayed within {spread}"
        return f"The control case varied by {spread} without a trend"

    def _evidence(self) -> str:
        change, interval = self.drift.change, ""
        if change.low is not None and change.high is not None:
            interval = f"; 95 % CI of the change {wording.percent_range(change.low, change.high)} ({change.method})"
        runs = wording.counted(self.drift.controls, "control run")
        return f"{runs}{interval}; spread {wording.percent_text(self.drift.spread)}"


class WithheldAmplification(Count, kind="withheld amplification", topic="quality"):
    """Runs whose device amplification is withheld, because other processes used the device."""

    share: float
    """Largest share of a run's device bytes that were not its own."""
    evidence_text = (
        f"withheld above {wording.percent_text(MOST)}; the engine's own bytes are those of its control group"
    )

    def _sentence(self) -> str:
        moved = f"other processes moved up to {wording.percent_text(self.share)} of the device's bytes"
        return f"Device amplification is withheld for {self.some}: {moved}"


class FewRepeats(Count, kind="few repeats", topic="quality"):
    """Cases without enough repeats for a confidence interval."""

    noun = "case"
    evidence_text = f"use `--repeats {MINIMUM_REPEATS}` or more"

    def _sentence(self) -> str:
        verb = "has" if self.total == 1 else "have"
        return f"{self.some} {verb} fewer than {MINIMUM_REPEATS} repeats, so no CI"


class WrongData(Count, kind="wrong data", topic="integrity"):
    """Runs whose load found data that was not what had been written."""

    what: str
    example: str
    """Message of one of the runs."""
    hint: str

    @property
    def loss(self) -> Loss:
        """The worst of all: a rate of such storage is of no use."""
        return "wrong data"

    def _sentence(self) -> str:
        return f"Wrong data in {self.some}: {self.what}"

    def _evidence(self) -> str:
        return f"for example {self.example}; {self.hint}"


_LOSSES: Mapping[str, Loss] = {
    "memory_file_system": "served from memory",
    "cache_below": "served from memory",
    "not_direct": "another load",
}
"""Warnings without which the numbers of a study are misread, where most of its runs have them."""


class TooFewSamples(Finding, kind="too few samples", topic="quality"):
    """A percentile that no run of a part, or of some of its levels, has enough samples for."""

    evidence_text = "a percentile requires ten samples beyond it; use a longer `duration`"
    metric: str
    levels: tuple[str, ...] = ()
    """Levels of the cases, in words; empty for all cases of the part."""

    def _sentence(self) -> str:
        levels = f" with {wording.listing(self.levels)}" if self.levels else ""
        return f"Too few samples for {wording.metric_words(self.metric)} in every case of part `{self.part}`{levels}"


class Warned(Finding, kind="warning", topic="quality"):
    """A warning, and the runs that have it."""

    code: str
    runs: int
    example: str
    """Message of one of the runs."""
    hint: str
    of_most: bool = False
    """True if more than half of all runs have it."""

    @property
    def loss(self) -> Loss | None:
        """Of some warnings that hold for most runs."""
        return _LOSSES.get(self.code) if self.of_most else None

    def _sentence(self) -> str:
        title = rules()[self.code].title if self.code in rules() else self.example
        return f"{title} ({wording.counted(self.runs, 'run')})"

    def _evidence(self) -> str:
        example = f"for example {self.example}" if self.code in rules() else ""
        return "; ".join(filter(None, (f"warning `{self.code}`", example, self.hint)))


def find(
    runs: pl.DataFrame,
    *,
    outcomes: pl.DataFrame | None,
    warnings: pl.DataFrame | None,
    probes: Collection[str] = (),
    simulated: bool = False,
) -> Iterator[Finding]:
    """Return what a reader must know about the measurement.

    `outcomes` is the view `runs` of the result set; `probes` are cases of which a search took as many repeats as it
    needed. Nothing but its model limits a `simulated` device.
    """
    judged: list[str] = []
    if outcomes is not None:
        judged = outcomes.filter(pl.col("verdict").is_not_null())["run_id"].to_list()
        yield from _missing(outcomes)
        yield from _verdicts(outcomes, warnings)
        yield from _not_usable(outcomes, warnings)
        yield from _withheld(outcomes)
    yield from _errors(runs)
    yield from _in_flight(runs, runs["run_id"].unique().to_list() if simulated else judged, has_verdicts=not simulated)
    if not simulated:
        yield from _busy_core(runs.filter(~pl.col("run_id").is_in(judged)))
    yield from _drift(runs)
    yield from _few_repeats(runs.filter(~pl.col("case_id").is_in(list(probes))))
    if warnings is not None:
        yield from _warnings(warnings, outcomes)


def _verdicts(outcomes: pl.DataFrame, warnings: pl.DataFrame | None) -> Iterator[Finding]:
    judged = outcomes.filter(pl.col("verdict").is_not_null())
    if judged.is_empty():
        return
    others = judged.filter(pl.col("verdict") != "device-limited")
    yield Verdicts(
        counts=tuple((kind, count) for kind in KINDS if (count := int((judged["verdict"] == kind).sum()))),
        warnings=tuple(_deciding(others, warnings).items()),
        strength="strong",
        case_ids=cases_of(others),
    )


OF_OTHERS = ("cpu_contention", "cpus_shared", "engine_stalled", "steal_time", "other_io")
"""Warnings that other load on the machine causes."""


def _not_usable(outcomes: pl.DataFrame, warnings: pl.DataFrame | None) -> Iterator[Finding]:
    """More than half of all judged runs were disturbed by others and do not show the device: a cache is slowed too."""
    judged = outcomes.filter(pl.col("verdict").is_not_null())
    if warnings is None or judged.is_empty():
        return
    others = judged.filter(pl.col("verdict").is_in(["undetermined", "cache-served"])).select("run_id", "case_id")
    found = warnings.filter(pl.col("code").is_in(OF_OTHERS)).join(others, on="run_id", maintain_order="left")
    disturbed = others.filter(pl.col("run_id").is_in(found["run_id"].to_list()))
    if 2 * len(disturbed) <= len(judged):
        return
    counts = found["code"].value_counts().sort("count", "code", descending=[True, False])
    code = str(counts["code"][0])
    messages = found.filter(pl.col("code") == code)["message"]
    yield NotUsable(
        **some(disturbed, judged),
        code=code,
        example=f"{'in one of them ' if len(disturbed) > 1 else ''}{messages[len(messages) // 2]}",
        strength="strong",
    )


def _withheld(outcomes: pl.DataFrame) -> Iterator[Finding]:
    columns = [name for name in ("foreign_read_share", "foreign_write_share") if name in outcomes.columns]
    if not columns:
        return
    if "workload" in outcomes.columns:
        # External commands have no amplification.
        outcomes = outcomes.filter(~pl.col("workload").is_in(names_where(lambda each: each.io == "command")))
    known = outcomes.with_columns(share=pl.max_horizontal(columns)).filter(pl.col("share").is_not_null())
    withheld = known.filter(pl.col("share") > MOST)
    if len(withheld):
        yield WithheldAmplification(
            **some(withheld, known),
            share=float(withheld["share"].max()),  # type: ignore[arg-type]  # a number
            strength="strong",
        )


def _deciding(others: pl.DataFrame, warnings: pl.DataFrame | None) -> Mapping[str, int]:
    """Return the warnings behind verdicts with their number of runs, the most frequent first."""
    if warnings is None or others.is_empty():
        return {}
    decided = warnings.join(others.select("run_id", "verdict"), on="run_id", maintain_order="left").filter(
        pl.col("code").is_in([code for code, kind in rules().items() if kind.points_to != "note"])
    )
    runs = decided.group_by("code", maintain_order=True).agg(pl.col("run_id").n_unique())
    return dict(runs.sort("run_id", descending=True, maintain_order=True).iter_rows())


def _missing(outcomes: pl.DataFrame) -> Iterator[Finding]:
    possible = outcomes.filter(pl.col("failure").fill_null("") != UNSUPPORTED)
    measured = possible.filter(pl.col("outcome") == "complete")["case_id"].unique().to_list()
    ended = possible.filter(pl.col("outcome") != "complete")
    for (outcome,), group in ended.group_by("outcome", maintain_order=True):
        reasons = group["failure_message"].drop_nulls().value_counts(name="times")
        reasons = reasons.sort("times", "failure_message", descending=[True, False]).head(3)
        yield MissingRuns(
            outcome="stopped" if outcome == "stopped" else "failed",
            **some(group, possible),
            empty_cases=int(group["case_id"].unique().is_in(measured).not_().sum()),
            reasons=tuple(reasons.iter_rows()),
            strength="strong",
        )


def _errors(runs: pl.DataFrame) -> Iterator[Finding]:
    failed = overall(runs).filter(pl.col("metric") == "errors", pl.col("value") > 0)
    if len(failed):
        yield FailedIos(
            count=int(failed["value"].sum()), runs=len(failed), strength="strong", case_ids=cases_of(failed)
        )


def _in_flight(runs: pl.DataFrame, judged: list[str], *, has_verdicts: bool) -> Iterator[LittlesLaw]:
    """Too many in flight is a fault; too few is covered by the verdict on `judged` runs, which did not hold either."""
    checked = littles_law(runs)
    explained = pl.col("run_id").is_in(judged)
    short = checked.filter(~explained, pl.col("verdict") == "too_short")
    checkable = checked.filter(pl.col("verdict") != "too_short", ~(explained & (pl.col("verdict") == "below")))
    long_enough = len(checked.filter(pl.col("verdict") != "too_short"))
    groups = [(short, "too_short", len(checked))]
    totals = {"below": len(checkable), "above": long_enough}
    groups += [(checkable.filter(pl.col("verdict") == law), law, total) for law, total in totals.items()]
    if len(checkable) and (checkable["verdict"] == "holds").all():
        groups.append((checkable, "holds", long_enough))
    for group, law, total in groups:
        if len(group):
            yield LittlesLaw(
                verdict=law,  # type: ignore[arg-type]  # one of the four
                count=len(group),
                total=total,
                ratios=(float(group["ratio"].min()), float(group["ratio"].max())),  # type: ignore[arg-type]
                tolerance=float(group["tolerance"].max()),  # type: ignore[arg-type]
                has_verdicts=has_verdicts,
                strength="strong",
                case_ids=() if law == "holds" else cases_of(group),
            )


def _busy_core(runs: pl.DataFrame) -> Iterator[Finding]:
    utilisation = overall(runs).filter(pl.col("metric") == "core_utilisation")
    busy = utilisation.filter(pl.col("value") >= SATURATED)
    if len(busy):
        yield BusyCore(**some(busy, utilisation), strength="moderate")


def _drift(runs: pl.DataFrame) -> Iterator[Finding]:
    found = load_drift(runs)
    if found is not None:
        yield ControlDrift(drift=found, strength="moderate" if found.spread > STEADY else "strong")


def _few_repeats(runs: pl.DataFrame) -> Iterator[Finding]:
    repeats = runs.filter(~pl.col("control")).group_by("case_id", maintain_order=True).agg(pl.col("run_id").n_unique())
    few = repeats.filter(pl.col("run_id") < MINIMUM_REPEATS)
    if len(few):
        yield FewRepeats(**some(few, repeats), strength="strong")


def _warnings(warnings: pl.DataFrame, outcomes: pl.DataFrame | None) -> Iterator[Finding]:
    for (code,), group in warnings.group_by(["code"], maintain_order=True):
        known, total = rules().get(str(code)), len(outcomes) if outcomes is not None else 0
        case_ids: tuple[str, ...] = ()
        if (known or code in WRONG_DATA) and outcomes is not None:
            case_ids = tuple(
                group.join(outcomes, on="run_id", maintain_order="left")["case_id"].unique(maintain_order=True)
            )
        count = group["run_id"].n_unique()
        given = {"example": group["message"][0], "hint": group["hint"][0] or "", "case_ids": case_ids}
        if what := WRONG_DATA.get(str(code)):
            yield WrongData(what=what, count=count, total=max(total, count), strength="strong", **given)
            continue
        yield Warned(
            code=str(code),
            runs=count,
            of_most=2 * count > total > 0,
            strength="weak" if known and known.points_to == "note" else "moderate",
            **given,
        )
