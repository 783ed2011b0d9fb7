"""Strategies of loading weights, and queries of an index of vectors beside the device's own latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import polars as pl

from iosonde.features.ai.accelerators import accelerators_fed
from iosonde.findings.finding import Finding
from iosonde.findings.kinds import best_of
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval

LOAD_RATE = "weights_load_rate"
CACHED = 0.01
"""Share of a restore in the page cache that is stated."""
QUERY_RATE = "queries_per_sec"
_LIMITS = {
    "device-limited": "the device is the limit",
    "harness-limited": "the client is the limit",
    "cache-served": "served from the page cache",
}


def limit_words(question: Question, case_id: str) -> str:
    """Return a clause about the limit of a case: the verdict of most of its runs."""
    return _LIMITS.get(question.support.of_most([case_id]), "the limit is undetermined")


def of_storage(question: Question, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out levels that the page cache served, unless it served all: their values are none of the storage."""
    return [row for row in rows if question.support.of_most([row["case_id"]]) != "cache-served"] or rows


Leads = Mapping[str, Estimate]
"""Ratios of the first level to the others, by case."""


def ranked(question: Question, cells: pl.DataFrame) -> tuple[list[dict[str, Any]], Leads, dict[str, Any]]:
    """Return the rows of cells, the highest value first and those after it that do not differ measurably; the leads of
    the first; and fields of `_Ranked`.
    """
    over = question.analysis.over
    ordered = sorted(cells.to_dicts(), key=lambda row: -repeats_interval(row["values"]).value)
    best, *others = of_storage(question, ordered)
    leads = {row["case_id"]: ratio(best["values"], row["values"]) for row in others}
    tied = [row for row in others if (lead := leads[row["case_id"]]).certain and not lead.above(1)]
    rows = [best, *tied, *(row for row in others if row not in tied)]
    levels = tuple((str(row[over]), repeats_interval(row["values"])) for row in rows)
    fields = {"levels": levels, "tied": 1 + len(tied), "limit": limit_words(question, best["case_id"])}
    return rows, leads, fields


class _Ranked(Finding):
    """Levels of a factor by a value."""

    load: str
    levels: tuple[tuple[str, Estimate], ...]
    """The highest first; those that do not differ measurably from it follow it."""
    tied: int
    """Number of the first ones that do not differ measurably, the first itself included."""
    limit: str
    """Clause about the limit of the first one."""

    @property
    def _first(self) -> str:
        alike = [name for name, _ in self.levels[1 : self.tied]]
        return f"{self.levels[0][0]}{f' ({wording.listing(alike)}: not measurably different)' if alike else ''}"


class LoadStrategy(_Ranked, kind="load strategy", topic="comparison", place=1):
    """The fastest strategy of loading weights, over a plain memory map."""

    over_map: Estimate | None
    """Ratio of the first to the memory map; None if that is the first, or was not measured."""
    is_map_limited_itself: bool
    """True if the device delivered measurably more with another strategy than with the memory map."""
    repeats: int

    def _sentence(self) -> str:
        rate = wording.estimate_text(LOAD_RATE, self.levels[0][1])
        clauses = [f"{self.load} are fastest with {self._first}: {rate}"]
        if self.over_map is not None:
            clauses.append(f"{wording.ratio_estimate_text(self.over_map)} the rate of a memory map")
        clauses.append(self.limit)
        if self.is_map_limited_itself:
            clauses.append("the device is not the limit of the memory map")
        return f"{clauses[0]}{', ' if self.over_map else '; '}{'; '.join(clauses[1:])}"

    def _evidence(self) -> str:
        listed = "; ".join(f"{name} {wording.estimate_text(LOAD_RATE, value)}" for name, value in self.levels)
        return f"{listed}; {wording.counted(self.repeats, 'run')} each"


def load_strategy(question: Question) -> Iterator[Finding]:
    """Compare the levels of `over`; the one called `mmap` is the plain memory map."""
    cells = question.cells(LOAD_RATE)
    if cells.is_empty():
        return
    rows, leads, fields = ranked(question, cells)
    over_map = next((leads[row["case_id"]] for row in rows[1:] if row[question.analysis.over] == "mmap"), None)
    yield LoadStrategy(
        load=wording.phrase(wording.load_words(question.case(rows[0]["case_id"]))),
        over_map=over_map,
        is_map_limited_itself=over_map is not None and over_map.certain and over_map.above(1),
        repeats=min(len(row["values"]) for row in rows),
        **fields,
        **question.claim([row["case_id"] for row in rows], *([over_map] if over_map else [])),
    )


class VectorQueries(Finding, kind="vector queries", topic="performance", place=1):
    """Queries per second at the concurrency with most, over what the device's own latency permits."""

    load: str
    hosts: str
    """` on each of 2 hosts`, if there are several."""
    concurrency: int
    rate: Estimate
    p99_ns: float | None
    """Latency of a query; None with too few samples."""
    over_prediction: Estimate | None
    """Queries per second over those of queries whose hops take the mean latency of block reads with as many in flight;
    None if these were not measured."""
    limit: str
    levels: tuple[tuple[int, Estimate], ...]
    """Every concurrency, with its queries per second."""
    repeats: int

    def _sentence(self) -> str:
        rate = wording.estimate_text(QUERY_RATE, self.rate)
        tail = f", p99 {wording.value_text('completion_latency_ns_p99', self.p99_ns)}" if self.p99_ns else ""
        clauses = [f"{self.load}: {rate} at concurrency {self.concurrency}{self.hosts}{tail}"]
        if self.over_prediction is not None:
            share = wording.ratio_estimate_text(self.over_prediction, unit="")
            clauses.append(f"{share} of the prediction from the latency of block reads with as many in flight")
        return "; ".join([*clauses, self.limit])

    def _evidence(self) -> str:
        rates = [f"{wording.estimate_text(QUERY_RATE, rate)} at concurrency {level}" for level, rate in self.levels]
        return "; ".join([*rates, f"{wording.counted(self.repeats, 'run')} each"])


def vector_queries(question: Question) -> Iterator[Finding]:
    """Compare queries per second with IOPS of `device_part` at as many jobs, over the reads of a query."""
    cells, over = question.cells(), question.analysis.over
    if cells.is_empty():
        return
    best = best_of(cells)
    level = best[over]
    alike = [row for row in question.of_device("iops", "jobs").iter_rows(named=True) if row["jobs"] == level]
    tails = question.values("completion_latency_ns_p99", best["case_id"])
    compared = _over_prediction(question, best, alike[0]) if alike else None
    yield VectorQueries(
        load=question.load({}, best["case_id"], without=[over]),
        hosts=question.on_each_host(best["case_id"]),
        concurrency=int(level),
        rate=repeats_interval(best["values"]),
        p99_ns=sorted(tails)[len(tails) // 2] if tails else None,
        over_prediction=compared,
        limit=limit_words(question, best["case_id"]),
        levels=tuple((int(row[over]), repeats_interval(row["values"])) for row in cells.iter_rows(named=True)),
        repeats=len(best["values"]),
        **question.claim([best["case_id"], *(row["case_id"] for row in alike)], compared),
    )


def _over_prediction(question: Question, best: dict[str, Any], device: dict[str, Any]) -> Estimate | None:
    reads = question.values("reads_per_query", best["case_id"])
    if len(reads) != len(best["values"]):
        return None
    read_rates = [rate * each for rate, each in zip(best["values"], reads, strict=True)]
    return ratio(read_rates, device["values"])


class CheckpointTime(Finding, kind="checkpoint", topic="performance", place=1):
    """Times of checkpoints and restores."""

    load: str
    count: int
    """Checkpoints in a row."""
    times: Mapping[str, Estimate]
    """Time until `returned` and `durable`, and of a `restore`, in seconds; without those that are 0 or not measured."""
    straggler: float
    """Slowest rank over the median, of checkpoints."""
    slowdown: Estimate | None
    """Last of several checkpoints over the first."""
    cached: float
    """Largest share of a restore in the page cache."""
    limit: str
    """Empty of a simulated drive."""

    def _sentence(self) -> str:
        text = {name: wording.estimate_text(f"checkpoint_{name}_seconds", time) for name, time in self.times.items()}
        clauses = [f"durable after {text['durable']}"]
        if "returned" not in text:
            clauses.insert(0, "returned at once")
        elif self.times["returned"].value != self.times["durable"].value:
            clauses.insert(0, f"returned after {text['returned']}")
        if "restore" in text:
            origin = f", {wording.percent_text(self.cached)} of it from the page cache" if self.cached > CACHED else ""
            clauses.append(f"restored in {text['restore']}{origin}")
        clauses.append(f"the slowest rank takes {wording.times_text(self.straggler)} the median")
        if self.slowdown is not None:
            same = "" if self.slowdown.above(1) or self.slowdown.below(1) else ", not measurably different"
            times = wording.ratio_estimate_text(self.slowdown)
            clauses.append(f"the last of {self.count} takes {times} the time of the first{same}")
        return f"{self.load}: {'; '.join(filter(None, [*clauses, self.limit]))}"

    def _evidence(self) -> str:
        return f"{wording.counted(self.times['durable'].n, 'run')}; slowest of all ranks, mean of a run's checkpoints"


def checkpoint(question: Question) -> Iterator[Finding]:
    """Yield the times of each level of `over`, the shortest until durable first."""
    found = []
    for case_id in question.cells("checkpoint_durable_seconds")["case_id"]:
        names = ("returned", "durable", "restore")
        values = {name: question.values(f"checkpoint_{name}_seconds", case_id) for name in names}
        slowdown = question.values("checkpoint_slowdown", case_id)
        times = {name: repeats_interval(each) for name, each in values.items() if each}
        size = wording.value_text("checkpoint_bytes", question.values("checkpoint_bytes", case_id)[0])
        case = question.case(case_id)
        found.append(
            CheckpointTime(
                load=f"{wording.phrase(wording.load_words(case))} of {size}",
                count=case["checkpoint_count"],
                times=times,
                straggler=median(question.values("checkpoint_durable_straggler", case_id)),
                slowdown=repeats_interval(slowdown) if slowdown else None,
                cached=max(question.values("checkpoint_cached_fraction", case_id), default=0.0),
                limit=limit_words(question, case_id) if question.support.of_most([case_id]) else "",
                **question.claim([case_id], times["durable"]),
            )
        )
    yield from sorted(found, key=lambda each: each.times["durable"].value)


class KvBreakEven(_Ranked, kind="KV cache break-even", topic="comparison", place=1):
    """The prefill speed below which loading a cached prefix beats recomputation."""

    cached: tuple[tuple[str, Estimate], ...]
    """The same of those that the page cache served, if others were not."""
    unfinished: float
    """Share of requests that were not loaded in time with the first one."""
    latencies: tuple[tuple[str, float], ...]
    """Words and ns, of the first one: look-ups, loads of a block, and of a request from its look-up."""

    def _sentence(self) -> str:
        speed = wording.estimate_text(KV_BREAK_EVEN, self.levels[0][1])
        late = f"; {100 * self.unfinished:.1f} % of requests not loaded in time" if self.unfinished else ""
        what = "loading beats recomputation if prefill is slower than"
        return f"{self.load}: {what} {speed} with {self._first}{late}; {self.limit}"

    def _evidence(self) -> str:
        cached = [(f"from the page cache, {name}", speed) for name, speed in self.cached]
        listed = [f"{name} {wording.estimate_text(KV_BREAK_EVEN, speed)}" for name, speed in (*self.levels, *cached)]
        times = [f"{name} {wording.value_text('completion_latency_ns_p50', value)}" for name, value in self.latencies]
        return "; ".join([*listed, *times])


class KvWear(Finding, kind="KV cache hits and wear", topic="performance", place=1):
    """Hits of the cache, and what it writes."""

    load: str
    hits: float
    """Share of looked-up blocks."""
    dram: float
    common: float
    """Shares of looked-up blocks: hits in memory, and of the block that all requests have first."""
    writes_per_read: float | None
    bytes_per_day: float
    life_years: float | None
    """None if the endurance is not known."""
    from_page_cache: float | None
    """Share of loaded bytes that the device did not read, of buffered loads."""

    def _sentence(self) -> str:
        named = {"in memory": self.dram, "of the block common to all requests": self.common}
        parts = [f"{100 * share:.1f} % {where}" for where, share in named.items() if share >= 0.0005]
        tiers = f" ({', '.join(parts)})" if parts else ""
        ratio = f", {self.writes_per_read:.2f} blocks written per block read" if self.writes_per_read else ""
        cached = self.from_page_cache or 0.0
        memory = f"; {100 * cached:.0f} % of buffered loads from the page cache" if cached >= 0.005 else ""
        life = "set `endurance` to compute the drive life, such as `--set endurance=600TBW`"
        if self.life_years is not None:
            is_long = self.life_years >= 1
            time = f"{self.life_years:.3g} years" if is_long else f"{self.life_years * 365:.3g} days"
            life = f"drive life {time}"
        written = f"{self.bytes_per_day / 2**40:.3g} TiB written per day at the speed of the trace"
        return f"{self.load}: {100 * self.hits:.1f} % hits{tiers}{ratio}; {written}; {life}{memory}"

    def _evidence(self) -> str:
        return "LRU cache in the order of the trace; blocks of the model before `scale`; write amplification of 1"


def kv_cache(question: Question) -> Iterator[Finding]:
    """Compare break-even speeds of the levels of `over`, and state hits and wear, which they share."""
    cells, over = question.cells(KV_BREAK_EVEN), question.analysis.over
    if cells.is_empty():
        return
    rows, leads, fields = ranked(question, cells)
    case_id, measured = rows[0]["case_id"], [row["case_id"] for row in rows]
    load, case = question.load({}, case_id, without=[over]), question.case(case_id)
    scale, bandwidth = case.get("scale", 1), wording.percent_text(case.get("scale", 1) * case.get("speed", 1))
    smaller = f" with blocks of {scale:.3g} of their size, at {bandwidth} of the bandwidth of the trace"
    cached = [row for row in cells.iter_rows(named=True) if row["case_id"] not in measured]
    yield KvBreakEven(
        load=load if scale == 1 else load + smaller,
        cached=tuple((str(row[over]), repeats_interval(row["values"])) for row in cached),
        unfinished=question.mean("kv_unfinished_fraction", [case_id]) or 0.0,
        latencies=tuple(_latencies(question, case_id)),
        **fields,
        **question.claim(measured, *leads.values()),
    )
    means = {name: question.mean(f"kv_{name}", [case_id]) for name in _KV_SHARED}
    buffered = [each for each in cells["case_id"] if question.case(each).get("io_mode") == "buffered"]
    read = question.mean("device_read_amplification", buffered)
    yield KvWear(
        load=load,
        hits=means["hit_fraction"] or 0.0,
        dram=(means["hit_fraction"] or 0.0) - (means["storage_hit_fraction"] or 0.0),
        common=means["common_hit_fraction"] or 0.0,
        writes_per_read=means["writes_per_read"],
        bytes_per_day=means["write_bytes_per_day"] or 0.0,
        life_years=means["drive_life_years"],
        from_page_cache=max(0.0, 1 - read) if read is not None else None,
        **question.claim([case_id]),
    )


def _latencies(question: Question, case_id: str) -> Iterator[tuple[str, float]]:
    """Means over the repeats of those percentiles that have enough samples."""
    of_all = question.runs.filter(pl.col("case_id") == case_id, pl.col("stream") == ALL)
    for words, operation in (("look-up", "lookup"), ("load of a block", "read"), ("load of a request", "load")):
        for name in ("p50", "p99"):
            is_metric = pl.col("metric") == f"completion_latency_ns_{name}"
            values = of_all.filter(is_metric, pl.col("operation") == operation)["value"].to_list()
            if values:
                yield f"{words} {name}", sum(values) / len(values)


KV_BREAK_EVEN = "kv_break_even"
_KV_SHARED = (
    *("hit_fraction", "storage_hit_fraction", "common_hit_fraction"),
    *("writes_per_read", "write_bytes_per_day", "drive_life_years"),
)

KINDS = (
    QuestionKind("kv_cache", kv_cache, is_of_names=True),
    QuestionKind("checkpoint", checkpoint, is_of_names=True),
    QuestionKind("load_strategy", load_strategy, is_of_names=True),
    QuestionKind("vector_queries", vector_queries, needs_device_part=True),
    QuestionKind("accelerators_fed", accelerators_fed),
)
