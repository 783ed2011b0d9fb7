"""Throughput and latency of loads: the highest rates, one I/O in flight, offered rates and what was achieved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl
from polars.dataframe.group_by import GroupBy

from iosonde.findings.cells import under_own_names, unstated_levels
from iosonde.findings.finding import Fact, Finding, Support
from iosonde.findings.kinds import Highest, highest, still_rises
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL, overall
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.study.model import Part, Study
from iosonde.study.workload import workloads
from iosonde.study.workload.workload import number_of, operation_words

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
        offered = f"{_rate_text(self.offered)}{self.where}"
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
        rates = {_rate_text(each.offered) for each in self.rates}
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
            f"{_rate_text(each.offered)}{_partly(each)}"
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


def offered_rates(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, support: Support) -> Iterator[Finding]:
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
        streams = group["stream"].n_unique() > 1
        yield OfferedRates(
            rates=tuple(_of_stream(row, levels[row["case_id"]], support, streams=streams) for row in group.to_dicts()),
            **support.claim(group["case_id"], part=str(part)),
        )


def _of_stream(row: Mapping[str, Any], levels: list[str], support: Support, *, streams: bool) -> Rate:
    return Rate(
        **{name: row[name] for name in ("case_id", "stream", "achieved", "p99_ns")},
        shares=tuple(row["shares"]),
        levels=(*([row["stream"]] if streams else []), *levels),
        harness=_harness(row["case_id"], support),
    )


def _rate_text(value: float) -> str:
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


_BACKEND = ("backend", "submission_polling", "completion_polling")
_LOAD = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "durability", "jobs", "queue_depth")
LARGE = 64 << 10
"""Smallest block size whose rate is stated as bandwidth."""


class Throughput(Highest, kind="throughput", topic="performance", place=4):
    """The highest rate of an operation.

    Its setting is queue depth and jobs unless it is one I/O in flight, and the backend where the study has several.
    """

    specificity = 2

    @property
    def facts(self) -> set[Fact]:
        unsaturated = {("unsaturated", self.part, self.metric, self.load)} if self.unsaturated else set()
        return super().facts | unsaturated

    @property
    def superseded_by(self) -> set[Fact]:
        """The level of a run is the mean over its window, and this rate that over the whole run."""
        return {self.highest_fact, *(("level", self.metric, case_id) for case_id in self.case_ids)}

    def _sentence(self) -> str:
        bound = "at least " if self.lower_bound and not self.cache_served else ""
        return "; ".join([self._stated(bound), *self._limits])

    def _evidence(self) -> str:
        few = "" if self.value.certain else ", too few for a confidence interval"
        return f"{self._selection}{few}{self._other_verdicts}"


class _Latency(Finding):
    """A latency of a closed loop. Its setting is the backend, where the study has several."""

    load: str
    repeats: int
    verdicts: str
    setting: str = ""

    def _subject(self, in_flight: str) -> str:
        return f"{in_flight} in flight{f' {self.setting}' if self.setting else ''}"

    def _evidence(self) -> str:
        verdicts = f"; {self.verdicts}" if self.verdicts else ""
        return f"closed loop, {wording.counted(self.repeats, 'run')}{verdicts}"


class UnloadedLatency(_Latency, kind="unloaded latency", topic="performance"):
    """Latency with one I/O in flight."""

    p50: Estimate
    p99: float | None
    """Of the same runs; None where any of them has too few samples."""

    def _sentence(self) -> str:
        median_latency = wording.estimate_text(_P50, self.p50)
        return f"{self.load} with {self._subject('one I/O')}: median latency {median_latency}{_tail(self.p99)}"


class DurableWrites(_Latency, kind="durable writes", topic="performance", place=2):
    """Time per write, flush included, of writes that are durable by flushes; with the fewest I/Os in flight."""

    time: Estimate
    """Mean time of a write with its share of a flush."""
    flush_p50: Estimate
    flush_p99: float | None
    """Of the same runs; None where any of them has too few samples."""
    in_flight: int

    def _sentence(self) -> str:
        time, flush = wording.estimate_text(_DURABLE, self.time), wording.estimate_text(_P50, self.flush_p50)
        subject = f"{self.load}, {self._subject(wording.counted(self.in_flight, 'I/O'))}"
        return f"{subject}: {time} per durable write; median flush latency {flush}{_tail(self.flush_p99)}"

    def _evidence(self) -> str:
        return f"mean of write and flush together, {super()._evidence()}"


def _tail(p99: float | None) -> str:
    return "" if p99 is None else f", p99 {wording.value_text(_P99, p99)}"


_DURABLE, _P50, _P99 = "durable_write_ns_mean", "completion_latency_ns_p50", "completion_latency_ns_p99"


def find(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, support: Support) -> Iterator[Finding]:
    """Return the highest rates and the unloaded latency of each operation."""
    measured, seeks_latency = _closed_loop(study, under_own_names(cases), runs), _seeks_latency(study)
    for (_, is_flushed), group in measured.group_by("operation_words", "is_flushed", maintain_order=True):
        large = pl.col("block_size").fill_null(LARGE) >= LARGE
        by_metric = {
            metric: group.filter(pl.col("metric") == metric, sizes)
            for metric, sizes in (("bandwidth", large), ("iops", ~large))
        }
        rates = [_throughput(metric, each, support) for metric, each in by_metric.items() if len(each)]
        medians = group.filter(pl.col("metric") == _P50, pl.col("concurrency").is_not_null())
        if is_flushed and len(medians):
            fewest = medians.sort("concurrency", "block_size", "median", maintain_order=True).row(0, named=True)
            yield from [*rates, *_durable(fewest, runs, support)]
            continue
        alone = medians.filter(pl.col("concurrency") == 1).sort("block_size", "median", maintain_order=True)
        latencies = [_latency(shortest, group, support) for shortest in alone.head(1).to_dicts()]
        # With one I/O in flight the rate is the reciprocal of the latency.
        reciprocal = {each.load for each in latencies} if seeks_latency else set()
        yield from (each for each in rates if each.setting or each.load not in reciprocal)
        yield from latencies


_OF_Y = ("lines", "bars", "heatmap", "points", "timeseries")
"""Kinds of views that draw their `y`."""


def _seeks_latency(study: Study) -> bool:
    """True if a study asks for latencies alone."""
    asked = [analysis.metric for analysis in study.analysis] + [view.y for view in study.views if view.kind in _OF_Y]
    return bool(asked) and all("latency" in name for name in asked if name)


def _closed_loop(study: Study, cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per case, stream and metric: load, concurrency, repeats. Streams are not added up."""
    names = (*_LOAD, *_BACKEND)
    known = [name for name in names if name in cases.columns]
    missing = [pl.lit(None).alias(name) for name in names if name not in cases.columns]
    rated = runs.filter(pl.col("metric") == "achieved_rate_fraction")["case_id"].unique()
    several = runs.filter(pl.col("stream") == ALL)["case_id"].unique()
    of_memory = [each.subject for each in workloads().values() if each.io == "page faults"]
    accesses = [pl.col(name).is_not_null() for name in of_memory if name in cases.columns]
    of_memory_cases = cases.filter(pl.any_horizontal(False, *accesses))["case_id"]
    rows = overall(runs).filter(
        ~pl.col("control"),
        pl.col("value") > 0,
        ~pl.col("case_id").is_in(rated.to_list()),
        ~pl.col("case_id").is_in(several.to_list()),
        ~pl.col("case_id").is_in(of_memory_cases.to_list()),
    )
    depth = rows.filter(pl.col("metric") == "concurrency").group_by("case_id").agg(concurrency=pl.col("value").first())
    joined = (
        rows.group_by("case_id", "part", "metric", maintain_order=True)
        .agg(
            pl.col("value").sort_by("repeat").alias("values"), pl.col("repeat").sort(), median=pl.col("value").median()
        )
        .join(cases.select("case_id", *known, *missing), on="case_id", maintain_order="left")
        .join(depth, on="case_id", how="left", maintain_order="left")
    )
    words = [
        operation_words(row["read_fraction"], row["trim_fraction"] or 0.0)
        for row in joined.filter(pl.col("read_fraction").is_not_null()).to_dicts()
    ]
    is_one = joined["backend"].n_unique() < 2
    backends = ["" if is_one else _backend(row) for row in joined.select(_BACKEND).to_dicts()]
    parts = {part.name: part for part in study.parts}
    stated = _LOAD if is_one else (*_LOAD, *_BACKEND)
    loads = {row["case_id"]: _load(parts.get(row["part"]), row, stated) for row in cases.to_dicts()}
    return (
        joined.with_columns(
            backend_words=pl.Series(backends, dtype=pl.String),
            load=pl.col("case_id").replace_strict(loads, return_dtype=pl.String),
            is_flushed=pl.col("durability").cast(pl.String).str.starts_with("flush").fill_null(value=False),
        )
        .filter(pl.col("read_fraction").is_not_null())
        .with_columns(operation_words=pl.Series(words, dtype=pl.String))
    )


def _load(part: Part | None, case: Mapping[str, Any], stated: Sequence[str]) -> str:
    """`4 KiB random reads (RAID 0 of 3)`."""
    phrase = wording.phrase(wording.load_words(case))
    levels = unstated_levels(part, case, stated=stated) if part else []
    words = phrase.split()
    levels = [
        each for each in levels if f" {each} " not in f" {phrase} " and not any(w.startswith(each) for w in words)
    ]
    return phrase + (f" ({', '.join(levels)})" if levels else "")


def _backend(case: Mapping[str, Any]) -> str:
    """`with uring and completion polling`."""
    polling = [f"{kind} polling" for kind in ("submission", "completion") if case[f"{kind}_polling"]]
    return f"with {wording.listing([str(case['backend']), *polling])}" if case["backend"] else ""


def _throughput(metric: str, rates: pl.DataFrame, support: Support) -> Throughput:
    """Take the case with the highest median; of those equal to three digits the one with the least effort."""
    rounded = pl.col("median").round_sig_figs(3)
    order = [True, False, False]
    row = rates.sort(rounded, "block_size", "concurrency", descending=order, maintain_order=True).row(0, named=True)
    return Throughput(
        **highest(row, rates, support),
        load=row["load"],
        setting=" ".join(filter(None, (_setting(row), row["backend_words"]))),
        metric=metric,
        unsaturated=_is_unsaturated(row, rates),
        part=row["part"],
    )


def _is_unsaturated(best: Mapping[str, Any], rates: pl.DataFrame) -> bool:
    alike = rates.filter(
        *(pl.col(name).eq_missing(best[name]) for name in ("part", "block_size", "access", "io_mode")),
        pl.col("concurrency").is_not_null(),
    )
    if best["concurrency"] is None or best["concurrency"] < alike["concurrency"].max():
        return False
    return still_rises(best, alike.filter(pl.col("concurrency") < best["concurrency"]))


def _latency(row: Mapping[str, Any], group: pl.DataFrame, support: Support) -> UnloadedLatency:
    p50 = repeats_interval(row["values"])
    tail = group.filter(pl.col("case_id") == row["case_id"], pl.col("metric") == _P99)
    paired = len(tail) > 0 and tail["repeat"].to_list()[0] == row["repeat"]
    return UnloadedLatency(p50=p50, p99=tail["median"].item() if paired else None, **_of_case(row, support, p50))


def _durable(row: Mapping[str, Any], runs: pl.DataFrame, support: Support) -> Iterator[DurableWrites]:
    of_case = runs.filter(pl.col("case_id") == row["case_id"]).sort("repeat")

    def values(operation: str, metric: str) -> list[float]:
        found = of_case.filter(pl.col("operation") == operation, pl.col("metric") == metric)
        return found["value"].to_list()

    times, medians, tails = values("write", _DURABLE), values("flush", _P50), values("flush", _P99)
    if times and medians:
        time, flush_p50 = repeats_interval(times), repeats_interval(medians)
        yield DurableWrites(
            time=time,
            flush_p50=flush_p50,
            flush_p99=median(tails) if len(tails) == len(medians) else None,
            in_flight=round(row["concurrency"]),
            **(_of_case(row, support, time, flush_p50) | {"repeats": len(times)}),
        )


def _of_case(row: Mapping[str, Any], support: Support, *estimates: Estimate) -> dict[str, Any]:
    return {
        "load": row["load"],
        "setting": row["backend_words"],
        "repeats": len(row["values"]),
        "verdicts": support.note([row["case_id"]]),
        **support.claim([row["case_id"]], *estimates, part=row["part"]),
    }


def _setting(row: Mapping[str, Any]) -> str:
    levels = [
        wording.level_words(name, row[name]) for name in ("queue_depth", "jobs") if (number_of(row[name]) or 0) > 1
    ]
    return f"at {' and '.join(levels)}" if levels else ""
