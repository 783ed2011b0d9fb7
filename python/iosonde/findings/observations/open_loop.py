"""Open loop: started share of the operations due, and response latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl
from polars.dataframe.group_by import GroupBy

from iosonde.findings.cells import under_own_names, unstated_levels
from iosonde.findings.finding import Finding, cases_of
from iosonde.findings.support import Support
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL
from iosonde.study.model import Study

KEPT_UP = 0.99
"""Share of the operations due that must be started for the rate to count as kept."""
NAMED = 4
P99 = "response_latency_ns_p99"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """One stream of one open-loop case; `achieved` and `p99_ns` are medians over its repeats."""

    case_id: str
    stream: str
    achieved: float
    """Operations per second."""
    shares: tuple[float, ...]
    """Started over due in every repeat."""
    p99_ns: float | None
    """Response latency."""
    levels: tuple[str, ...] = ()
    """Levels of the case, and the stream if there are several, in words."""
    harness: str = ""
    """Verdicts of the case, if at least half of its runs are harness-limited or undetermined: no overload is shown."""

    @property
    def share(self) -> float:
        return median(self.shares)

    @property
    def offered(self) -> float:
        """Operations per second that were due."""
        return self.achieved / self.share

    @property
    def kept(self) -> bool:
        """True if the target kept up in every repeat."""
        return self.kept_runs == len(self.shares)

    @property
    def kept_runs(self) -> int:
        return sum(share >= KEPT_UP for share in self.shares)

    @property
    def where(self) -> str:
        return f" ({', '.join(self.levels)})" if self.levels else ""

    @property
    def shortfall(self) -> str:
        """The missed rate, in words."""
        offered = f"{_rate(self.offered)}{self.where}"
        if self.kept_runs:
            runs = f"in {self.kept_runs} of {len(self.shares)} runs"
            return f"{offered} achieved {runs}, {wording.percent_text(min(self.shares))} of it in the worst"
        if self.harness:
            return f"{offered} not achieved, {wording.percent_text(self.share)} of it: {self.harness}"
        return f"overloaded at {offered}: {wording.percent_text(self.share)} of it achieved"


class OfferedRates(Finding, kind="offered rates", topic="limits"):
    """The open-loop streams of a part, with the rates that were offered and achieved."""

    states_verdicts = True
    rates: tuple[Rate, ...]

    def _sentence(self) -> str:
        behind = [each for each in self.rates if not each.kept]
        of = f" (part `{self.part}`)" if self.part else ""
        total = wording.counted(len(self.rates), "offered rate")
        if not behind:
            return f"{self._every}{of}{self._latency()}"
        kept = len(self.rates) - len(behind)
        worst_first = sorted(behind, key=lambda each: (each.share, min(each.shares)))
        missed = [each.shortfall for each in worst_first[:NAMED]]
        more = [f"and {len(behind) - NAMED} more not achieved"] if len(behind) > NAMED else []
        runs = " in every run" if any(each.kept_runs for each in behind) else ""
        return "; ".join([f"{kept} of {total} achieved{runs}{of}{self._latency()}", *missed, *more])

    @property
    def _every(self) -> str:
        rates = {_rate(each.offered) for each in self.rates}
        if len(rates) == 1:
            every = "both" if len(self.rates) == 2 else f"all {len(self.rates):,}"
            cases = f" in {every} cases" if len(self.rates) > 1 else ""
            return f"the offered rate of {rates.pop()} was achieved{cases}"
        return f"{'both' if len(self.rates) == 2 else f'all {len(self.rates):,}'} offered rates achieved"

    def _evidence(self) -> str:
        ordered = sorted(self.rates, key=lambda each: each.share)
        streams = len({each.stream for each in self.rates}) > 1
        listed = "; ".join(
            f"`{each.case_id}`{f' ({each.stream})' if streams else ''} {wording.percent_text(each.share)} of "
            f"{_rate(each.offered)}{_partly(each)}"
            for each in ordered[:NAMED]
        )
        more = f"; and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
        overloaded = any(not each.kept and not each.harness for each in self.rates)
        growing = "; latency of overloaded cases grows with run length" if overloaded else ""
        return f"{listed}{more}{growing}"

    def _latency(self) -> str:
        tails = sorted((each.p99_ns, each.where) for each in self.rates if each.kept and each.p99_ns is not None)
        if not tails:
            return ""
        low, high = (f"{wording.value_text(P99, value)}{where}" for value, where in (tails[0], tails[-1]))
        return f", p99 response latency {low}" + (f" to {high}" if high != low else "")


def find(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, support: Support) -> Iterator[Finding]:
    """Return one finding per part with open-loop cases."""
    shares = _by_stream(runs, "achieved_rate_fraction").agg(shares=pl.col("value").sort_by("repeat"))
    if shares.is_empty():
        return
    parts = {part.name: part for part in study.parts}
    levels = {
        row["case_id"]: unstated_levels(parts[row["part"]], row) if row["part"] in parts else []
        for row in under_own_names(cases).to_dicts()
    }
    keys = ["case_id", "part", "stream"]
    achieved = [_medians(runs, name) for name in ("iops", "ops_per_sec")]
    rates = pl.concat(achieved).unique(subset=keys, keep="first", maintain_order=True).rename({"median": "achieved"})
    tails = _medians(runs, P99).rename({"median": "p99_ns"})
    joined = shares.join(rates, on=keys, maintain_order="left").join(tails, on=keys, how="left", maintain_order="left")
    for (part,), group in joined.filter(pl.col("shares").list.median() > 0).group_by(["part"], maintain_order=True):
        case_ids = cases_of(group)
        streams = group["stream"].n_unique() > 1
        yield OfferedRates(
            rates=tuple(_of_stream(row, levels[row["case_id"]], support, streams=streams) for row in group.to_dicts()),
            strength=support.of_cases(case_ids),
            case_ids=case_ids,
            part=str(part),
        )


def _of_stream(row: Mapping[str, Any], levels: list[str], support: Support, *, streams: bool) -> Rate:
    return Rate(
        **{name: row[name] for name in ("case_id", "stream", "achieved", "p99_ns")},
        shares=tuple(row["shares"]),
        levels=(*([row["stream"]] if streams else []), *levels),
        harness=_harness(row["case_id"], support),
    )


def _rate(value: float) -> str:
    return f"{wording.value_text('iops', value).removesuffix(' IOPS')}/s"


def _partly(rate: Rate) -> str:
    return f" (achieved in {rate.kept_runs} of {len(rate.shares)} runs)" if rate.kept_runs and not rate.kept else ""


def _harness(case_id: str, support: Support) -> str:
    counts = support.counts([case_id])
    unknown = counts["harness-limited"] + counts["undetermined"]
    return support.note([case_id]) if counts and 2 * unknown >= counts.total() else ""


def _medians(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    return _by_stream(runs, metric).agg(median=pl.col("value").median())


def _by_stream(runs: pl.DataFrame, metric: str) -> GroupBy:
    """Return the repeats of each stream of each case; streams are not added up."""
    each = runs.filter(
        pl.col("metric") == metric, pl.col("operation") == ALL, pl.col("stream") != ALL, ~pl.col("control")
    )
    return each.group_by("case_id", "part", "stream", maintain_order=True)
