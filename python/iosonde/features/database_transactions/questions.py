"""Transactions on a database server: gain of a separate log device, what limits a server, commits lost in a crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Count, Finding, Loss, weakest
from iosonde.findings.kinds import Ratio, Value, best_of, every_two, in_parentheses, of_question, selected
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.verdict.verdict import Kind
from iosonde.results.schema import SHARED_LOG_DEVICE
from iosonde.study.workload import store_name

LIMITS = {
    "device-limited": "limited by the device",
    "server-CPU-limited": "limited by its CPU time",
    "lock-limited": "limited by lock waits",
    "harness-limited": "limited by the client",
}
"""Verdicts as a clause about a server."""


class LogGain(Ratio, kind="log gain", topic="transactions", place=2):
    """Throughput with the write-ahead log on a device of its own over that with the log on the data device."""

    server: str
    limit: str
    """Verdict of most runs with a separate log, `undetermined` where they differ; empty if there is none."""
    is_same_device: bool = False
    """True if the device under the separate log is also under the data."""

    def _sentence(self) -> str:
        place = "another directory of the same device" if self.is_same_device else "a separate device"
        subject = f"Moving the write-ahead log of {self.server} to {place}"
        effect = {
            "higher": f"{subject} raises {self._metric} by {self._change}",
            "lower": f"{subject} lowers {self._metric} by {self._change}",
            "same": f"{subject} does not change {self._metric}: {self._change}",
            "unclear": f"{subject} has no clear effect on {self._metric}: {self._change}",
        }[self.decision]
        if self.bounds and not self.opposed:
            effect = f"{subject}: {self._metric} {self._times}"
        elif self.opposed:
            effect = f"{subject}: {self._metric} {self.opposed.text}"
        then = f"; {self.server} is then {LIMITS[self.limit]}" if self.limit in LIMITS else ""
        return f"{effect}{self.about}{then}"

    @property
    def _change(self) -> str:
        """`38 % (95 % CI 31–44 %)`; `-2 % (95 % CI -8 to 3 %)` where no verb has the direction."""
        sign = -1 if self.decision == "lower" else 1
        text = f"{round(100 * sign * (self.ratio.value - 1))} %"
        if self.ratio.low is None or self.ratio.high is None:
            return text
        low, high = sorted(round(100 * sign * (end - 1)) for end in (self.ratio.low, self.ratio.high))
        return f"{text} (95 % CI {low} to {high} %)" if low < 0 else f"{text} (95 % CI {low}–{high} %)"


class ServerLimit(Value, kind="server limit", topic="transactions", place=3):
    """Highest throughput of a server, and what limits it there."""

    states_verdicts = True
    limit: str
    """Verdict of most runs there, `undetermined` where they differ."""
    because: str
    """Reasons of the first run with this verdict, or the verdicts that differ."""

    def _sentence(self) -> str:
        reached = f"{self.load} reaches {wording.estimate_text(self.metric, self.value)} {self.setting}"
        if self.limit not in LIMITS:
            return f"{reached}; no limit was found ({self.because})"
        return f"{reached}, {LIMITS[self.limit]}: {self.because}"

    def _evidence(self) -> str:
        return f"highest median of {self._runs}"


class Durability(Finding, kind="durability", topic="transactions", place=1):
    """Acknowledged commits after the server was killed and restarted: one setting with losses, or all without.

    A setting after one of whose kills commits could not be looked up is a finding of its own, too.
    """

    holds_under_load = True
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
    """Its reason, of the first of them."""

    @property
    def loss(self) -> Loss | None:
        """Of settings that lose acknowledged commits."""
        return "lost durability" if self.lost else None

    def _sentence(self) -> str:
        counts = [f"{self.lost:,} of {self.acknowledged:,}"] if self.unverified < self.runs else []
        unknown = f"not known after {self.unverified} of {wording.counted(self.runs, 'kill')} ({self.error})"
        found = "; ".join([*counts, *([unknown] if self.unverified else [])])
        return f"{wording.listing(self.settings)}: acknowledged commits lost after SIGKILL: {found}"

    def _evidence(self) -> str:
        each = " each" if len(self.settings) > 1 else ""
        took = "no server recovered" if self.recovery_s is None else f"recovery took {self.recovery_s:.1f} s at most"
        return f"{wording.counted(self.runs, 'run')}{each}; {took}"


class ThinkTime(Count, kind="think time", topic="transactions", place=4):
    """The label of TPC-C results without keying and think times."""

    evidence_text = "terminals have no keying and think times (clause 5.2.5 of TPC-C 5.11)"

    def _sentence(self) -> str:
        some = f" of {self.count} of {self.total} cases" if self.count < self.total else ""
        return f"Results{some} are TPC-C-like, no think time: they are not comparable with published TPC-C results"


def log_gain(question: Question) -> Iterator[Finding]:
    """Compare the log on the data device with a log on a device of its own, for each server."""
    for key, top, bottom, rows in every_two(question):
        apart = [row["cases"][0] for row in rows]
        yield LogGain(
            **of_question(question, rows),
            top=wording.level_words(question.analysis.over, top),
            bottom=wording.level_words(question.analysis.over, bottom),
            about=in_parentheses(key, without=["server"]),
            server=server_words(question.case(apart[0])),
            limit=question.support.of_most(apart),
            is_same_device=question.have_warning(apart, SHARED_LOG_DEVICE),
            published=question.analysis.published,
            source=question.study.source,
        )


def server_limit(question: Question) -> Iterator[Finding]:
    """Return the highest throughput for each combination of `by`, and what limits the server there.

    Levels that are names, such as arrays, are not maximised over.
    """
    cells, over = question.cells(), question.analysis.over
    apart = [*question.analysis.by, *([] if cells.schema[over].is_numeric() else [over])]
    factors = [name for name in (*question.by, over) if name != "server"]
    for key, group in groups(cells, apart):
        best = best_of(group)
        case_ids, value = [best["case_id"]], selected(best, group)
        limit = question.support.of_most(case_ids)
        yield ServerLimit(
            load=server_words(question.case(best["case_id"]) | key),
            metric=question.analysis.metric,
            value=value,
            setting=f"with {wording.listing([wording.level_words(name, best[name]) for name in factors])}",
            limit=limit,
            because=_reasons(question, best["case_id"], limit),
            repeats=len(best["values"]),
            **question.claim(case_ids, value),
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
"""Fewest kills after which the absence of losses is more than luck."""


def think_time(cases: pl.DataFrame, metrics: pl.DataFrame, *_: object) -> list[Finding]:
    """Label TPC-C results without keying and think times."""
    measured = cases.filter(pl.col("case_id").is_in(metrics["case_id"].unique().to_list()))
    known = measured["think"].drop_nulls() if "think" in cases.columns else pl.Series()
    without = int((known == "none").sum()) if len(known) else 0
    return [ThinkTime(count=without, total=len(known), strength="strong")] if without else []


def server_words(case: dict[str, Any]) -> str:
    return store_name(str(case.get("server") or case.get("server_level") or "the server"))


KINDS = (
    QuestionKind("log_gain", log_gain, compares_levels=True),
    QuestionKind("durability", durability),
    QuestionKind("server_limit", server_limit),
)
OBSERVATIONS = (think_time,)
