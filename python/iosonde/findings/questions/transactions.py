"""Transactions on a database server: gain of a separate log device, what limits a server, commits lost in a crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Topic, weakest
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.questions.asymmetry import asymmetry
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, maximum_interval, pooled_ratio, repeats_interval, verdict
from iosonde.results.schema import SHARED_LOG_DEVICE
from iosonde.verdict.verdict import Kind, of_repeats
from iosonde.workload import terms

LIMITS = {
    "device-limited": "limited by the device",
    "server-CPU-limited": "limited by its CPU time",
    "lock-limited": "limited by lock waits",
    "harness-limited": "limited by the client",
}
"""Verdicts as a clause about a server."""


@dataclass(frozen=True, kw_only=True)
class LogGain(Finding):
    """Effect of a write-ahead log on a device of its own."""

    kind: ClassVar[str] = "log gain"
    topic: ClassVar[Topic] = "transactions"
    server: str
    metric: str
    gain: Estimate
    """Separate log over log on the data device, pooled over the cells."""
    decision: str
    """`better`, `worse`, `same` or `unclear`."""
    limit: str
    """Verdict of most runs with a separate log, `undetermined` where they differ; empty if there is none."""
    about: str
    cells: int
    repeats: int
    published: float | None = None
    """Published ratio of the same comparison."""
    source: str = ""
    is_same_device: bool = False
    """Whether the device under the separate log is also under the data."""
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""

    def _sentence(self) -> str:
        place = "another directory of the same device" if self.is_same_device else "a separate device"
        subject = f"Moving the write-ahead log of {self.server} to {place}"
        metric = wording.metric_words(self.metric)
        change = _percent_change(self.gain, signed=self.decision in ("unclear", "same"))
        then = f"; {self.server} is then {LIMITS[self.limit]}" if self.limit in LIMITS else ""
        if self.opposed:
            return f"{subject}: {metric} {self.opposed.text}{self.about}{then}"
        if self.decision == "unclear":
            return f"{subject} has no clear effect on {metric}: {change}{self.about}{then}"
        if self.decision == "same":
            return f"{subject} does not change {metric}: {change}{self.about}{then}"
        verb = "raises" if self.decision == "better" else "lowers"
        return f"{subject} {verb} {metric} by {change}{self.about}{then}"

    def _evidence(self) -> str:
        cells = f" over {self.cells} cells" if self.cells > 1 else ""
        return (
            f"{wording.metric_words(self.metric)} with a separate log over log on the data device: "
            f"{wording.ratio_estimate_text(self.gain)}{cells}; {wording.counted(self.repeats, 'run')} each"
            + (f"; published: {self.published:g} times ({self.source})" if self.published else "")
        )


@dataclass(frozen=True, kw_only=True)
class ServerLimit(Finding):
    """Highest throughput of a server, and what limits it there."""

    kind: ClassVar[str] = "server limit"
    topic: ClassVar[Topic] = "transactions"
    states_verdicts: ClassVar[bool] = True
    server: str
    metric: str
    value: Estimate
    setting: str
    limit: str
    """Verdict of most runs there, `undetermined` where they differ."""
    because: str
    """Reasons of the first run with this verdict, or the verdicts that differ."""
    repeats: int

    def _sentence(self) -> str:
        value = wording.estimate_text(self.metric, self.value)
        reached = f"{self.server} reaches {value} {self.setting}"
        if self.limit not in LIMITS:
            return f"{reached}; no limit was found ({self.because})"
        return f"{reached}, {LIMITS[self.limit]}: {self.because}"

    def _evidence(self) -> str:
        return f"highest median of {wording.counted(self.repeats, 'run')}"


@dataclass(frozen=True, kw_only=True)
class Durability(Finding):
    """Acknowledged commits after the server was killed and restarted: one setting with losses, or all without.

    A setting after one of whose kills commits could not be looked up is a finding of its own, too.
    """

    kind: ClassVar[str] = "durability"
    topic: ClassVar[Topic] = "transactions"
    settings: tuple[str, ...]
    """Each with its server."""
    acknowledged: int
    lost: int
    runs: int
    """Fewest of any setting."""
    recovery_s: float | None
    """The longest; None if no server recovered."""
    unverified: int = 0
    """Runs after whose kill the commits could not be looked up."""
    error: str = ""
    """Why, of the first of them."""

    def _sentence(self) -> str:
        counts = [f"{self.lost:,} of {self.acknowledged:,}"] if self.unverified < self.runs else []
        unknown = f"not known after {self.unverified} of {wording.counted(self.runs, 'kill')} ({self.error})"
        found = "; ".join([*counts, *([unknown] if self.unverified else [])])
        return f"{wording.listing(self.settings)}: acknowledged commits lost after SIGKILL: {found}"

    def _evidence(self) -> str:
        each = " each" if len(self.settings) > 1 else ""
        took = "no server recovered" if self.recovery_s is None else f"recovery took {self.recovery_s:.1f} s at most"
        return f"{wording.counted(self.runs, 'run')}{each}; {took}"


@dataclass(frozen=True, kw_only=True)
class ThinkTime(Finding):
    """What kind of TPC-C result this is."""

    kind: ClassVar[str] = "think time"
    topic: ClassVar[Topic] = "transactions"
    cases: int
    """Cases without think time."""
    total: int

    def _sentence(self) -> str:
        some = f" of {self.cases} of {self.total} cases" if self.cases < self.total else ""
        return f"Results{some} are TPC-C-like, no think time: they are not comparable with published TPC-C results"

    def _evidence(self) -> str:
        return "terminals have no keying and think times (clause 5.2.5 of TPC-C 5.11)"


def log_gain(question: Question) -> Iterator[Finding]:
    """Compare the log on the data device with a log on a device of its own, for each server."""
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    if answers.is_empty():
        return
    for key, group in question.over_numbers(answers):
        rows = list(group.iter_rows(named=True))
        pairs = [(row["second_values"], row["first_values"]) for row in rows]
        pooled = pooled_ratio(pairs)
        apart = [row["case_ids"][1] for row in rows]
        limit = _of_most(question, apart)
        case_ids = tuple(dict.fromkeys(case for row in rows for case in row["case_ids"]))
        yield LogGain(
            server=server_words(question.case(apart[0])),
            metric=question.analysis.metric,
            gain=pooled,
            decision=verdict(pooled, better="higher"),
            limit=limit,
            is_same_device=question.have_warning(apart, SHARED_LOG_DEVICE),
            published=question.analysis.published,
            source=question.study.source,
            about=_about(question, key),
            cells=len(rows),
            repeats=min(len(row[values]) for row in rows for values in ("first_values", "second_values")),
            opposed=opposed([question.numbers(row) for row in rows], pairs),
            strength=question.support.strength(case_ids, pooled),
            case_ids=case_ids,
            part=question.part.name,
        )


def server_limit(question: Question) -> Iterator[Finding]:
    """Return the highest throughput for each combination of `by`, and what limits the server there.

    Levels that are names, such as those of arrays, are not maximised over.
    """
    cells, over = question.cells(), question.analysis.over
    if cells.is_empty():
        return
    apart = [*question.analysis.by, *([] if cells.schema[over].is_numeric() else [over])]
    for key, group in groups(cells, apart):
        rows = group.with_columns(median=pl.col("values").list.median()).sort("median", maintain_order=True).to_dicts()
        best = rows[-1]
        value = maximum_interval([row["values"] for row in rows]) if len(rows) > 1 else repeats_interval(best["values"])
        factors = [name for name in (*question.by, over) if name != "server"]
        limit = _of_most(question, [best["case_id"]])
        yield ServerLimit(
            server=server_words(question.case(best["case_id"]) | key),
            metric=question.analysis.metric,
            value=value,
            setting=f"with {wording.listing([wording.level_words(name, best[name]) for name in factors])}",
            limit=limit,
            because=_reasons(question, best["case_id"], limit),
            repeats=len(best["values"]),
            strength=question.support.strength([best["case_id"]], value),
            case_ids=(best["case_id"],),
            part=question.part.name,
        )


def _reasons(question: Question, case_id: str, verdict: Kind | Literal[""]) -> str:
    """Return the reasons of the first run with a verdict; all verdicts if most runs have another."""
    if question.outcomes is None:
        return "no run has a verdict"
    counts = question.support.counts([case_id])
    if verdict and 2 * counts[verdict] <= counts.total():
        return f"verdicts of runs: {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}"
    runs = question.outcomes.filter(pl.col("case_id") == case_id, pl.col("verdict") == verdict)
    return str(runs["verdict_because"][0]) if len(runs) else "no run has a verdict"


def durability(question: Question) -> Iterator[Finding]:
    """Report lost commits: each setting with losses, the largest number first, or not verified, then all others."""
    if question.outcomes is None or "acknowledged_commits" not in question.outcomes.columns:
        return
    outcomes = question.outcomes
    if "recovery_error" not in outcomes.columns:
        outcomes = outcomes.with_columns(recovery_error=pl.lit(None, pl.String))
    was_killed = pl.col("acknowledged_commits").is_not_null() | pl.col("recovery_error").is_not_null()
    of_part = outcomes.filter(pl.col("part") == question.part.name, was_killed)
    each = [
        _durability(question, str(case_id), group)
        for (case_id,), group in of_part.group_by(["case_id"], maintain_order=True)
    ]
    bad = [found for found in each if found.lost or found.unverified]
    yield from sorted(bad, key=lambda found: (-found.lost, -found.unverified))
    kept = [found for found in each if found not in bad]
    if kept:
        yield Durability(
            settings=tuple(name for found in kept for name in found.settings),
            acknowledged=sum(found.acknowledged for found in kept),
            lost=0,
            runs=min(found.runs for found in kept),
            recovery_s=max((found.recovery_s for found in kept if found.recovery_s is not None), default=None),
            strength=weakest(*(found.strength for found in kept)),
            case_ids=tuple(case_id for found in kept for case_id in found.case_ids),
            part=question.part.name,
        )


def _durability(question: Question, case_id: str, runs: pl.DataFrame) -> Durability:
    case = question.case(case_id)
    level = str(case.get(question.analysis.over, case.get(f"{question.analysis.over}_level")))
    server = server_words(case)
    is_named = any(word in level for word in server.split())
    is_verified = pl.col("lost_commits").is_not_null()
    verified, unverified = runs.filter(is_verified), runs.filter(~is_verified)
    longest_s = verified["recovery_seconds"].max()
    return Durability(
        settings=(level if is_named else f"{server}, {level}",),
        acknowledged=int(verified["acknowledged_commits"].sum()),
        lost=int(verified["lost_commits"].sum()),
        runs=len(runs),
        recovery_s=None if longest_s is None else float(longest_s),  # type: ignore[arg-type]
        unverified=len(unverified),
        error=next((str(error) for error in unverified["recovery_error"] if error), "for a reason that is not recorded")
        if len(unverified)
        else "",
        strength="strong" if len(runs) >= MINIMUM_KILLS else "moderate",
        case_ids=(case_id,),
        part=question.part.name,
    )


MINIMUM_KILLS = 3
"""Kills from which the absence of losses is more than luck."""


def think_time(cases: pl.DataFrame, metrics: pl.DataFrame) -> list[Finding]:
    """The label of TPC-C results without keying and think times."""
    measured = cases.filter(pl.col("case_id").is_in(metrics["case_id"].unique().to_list()))
    known = measured["think"].drop_nulls() if "think" in cases.columns else pl.Series()
    without = int((known == "none").sum()) if len(known) else 0
    return [ThinkTime(cases=without, total=len(known), strength="strong")] if without else []


def server_words(case: dict[str, Any]) -> str:
    """Name the server of a case."""
    return terms.store_name(str(case.get("server") or case.get("server_level") or "the server"))


def _of_most(question: Question, case_ids: list[str]) -> Kind | Literal[""]:
    """Return the verdict of more than half of the runs of some cases, else `undetermined`; empty without verdicts."""
    return of_repeats(list(question.support.counts(case_ids).elements())) or ""


def _about(question: Question, key: dict[str, Any]) -> str:
    words = [wording.level_words(name, level) for name, level in key.items() if name != "server"]
    return f" ({', '.join(words)})" if words else ""


def _percent_change(gain: Estimate, *, signed: bool) -> str:
    """`38 % (95 % CI 31–44 %)`, positive where a verb has the direction, else `signed`: `-2 % (95 % CI -8 to 3 %)`."""
    sign = 1 if signed or gain.value >= 1 else -1
    text = f"{round(100 * sign * (gain.value - 1))} %"
    if gain.low is None or gain.high is None:
        return text
    low, high = sorted(round(100 * sign * (end - 1)) for end in (gain.low, gain.high))
    return f"{text} (95 % CI {low} to {high} %)" if low < 0 else f"{text} (95 % CI {low}–{high} %)"


KINDS = (
    QuestionKind("log_gain", log_gain, compares_levels=True),
    QuestionKind("durability", durability),
    QuestionKind("server_limit", server_limit),
)
