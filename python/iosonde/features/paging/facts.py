"""Facts and metrics of paging: classification of accesses, swapped bytes, contents of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.metrics.metric import Metric, over
from iosonde.metrics.scopes import RUN_KEYS
from iosonde.results.column import NUMBER, U64, facts

if TYPE_CHECKING:
    from iosonde.metrics.facts import Facts


Json = Mapping[str, Any]


COLUMNS = facts(
    lambda record: (record.result or {}).get("paging") or {},
    ("page_bytes", U64, "size of a page, bytes"),
    ("fault_threshold_ns", U64,
        "accesses that took at least this long were classified by the kernel's fault counters, ns",
        "threshold_ns"),
    ("measuring_cost_ns", NUMBER, "cost of measuring an access that hits, ns"),
    ("classification_cost_ns", NUMBER,
        "cost of classifying a slow access, which is not part of its latency, ns",
        "classification_cost_ns"),
    ("thread_minor_faults", U64, "minor faults of the threads from the start of the load to its end",
        "minor_faults"),
    ("thread_major_faults", U64, "major faults of the threads from the start of the load to its end",
        "major_faults"),
    ("unattributed_faults", U64, "faults of these that belong to no measured access",
        lambda paging: _sum(paging, "unattributed_minor_faults", "unattributed_major_faults")),
    ("pages_checked", U64, "accesses whose page was checked, and pages compared in full",
        lambda paging: _sum(paging, "checked", "verified_pages")),
    ("pages_wrong", U64,
        "checks that found a page without the contents that were written to it; a page counts each time",
        lambda paging: _sum(paging, "corrupted", "stale", "wrong_pages")),
    ("swap_in_bytes", U64, "bytes that the machine read from swap in the measurement",
        lambda paging: _swapped(paging, "vmstat.pswpin")),
    ("swap_out_bytes", U64, "bytes that the machine wrote to swap in the measurement",
        lambda paging: _swapped(paging, "vmstat.pswpout")),
    words="Paging: ",
)  # fmt: skip
"""Columns of `runs` about paging."""


def _sum(paging: Json, *names: str) -> int | None:
    return sum(int(paging[name]) for name in names) if paging else None


def _swapped(paging: Json, counter: str) -> int | None:
    """Return the bytes of a counter of pages, over the measurement."""
    before, after = paging.get("statistics_at_start") or {}, paging.get("statistics_at_end") or {}
    if counter not in before or counter not in after:
        return None
    return max(0, int(after[counter]) - int(before[counter])) * int(paging["page_bytes"])


IS_PAGING = pl.col("workload") == "paging"

METRICS = (
    Metric("major_fault_fraction", "Share of major faults", "", "lower", "store",
        "accesses that caused a page fault with I/O / accesses",
        pl.when(IS_PAGING).then(over("major_fault_count", "count"))),
    Metric("minor_fault_fraction", "Share of minor faults", "", "lower", "store",
        "accesses that caused a page fault without I/O / accesses",
        pl.when(IS_PAGING).then(over("minor_fault_count", "count"))),
    Metric("major_faults_per_sec", "Major faults per second", "1/s", "neither", "store",
        "accesses that caused a page fault with I/O / seconds",
        pl.when(IS_PAGING).then(over("major_fault_count", "seconds"))),
    Metric("swap_in_bandwidth", "Swap-in bandwidth", "B/s", "neither", "store",
        "pages that the machine read from swap x page size / seconds",
        over(pl.coalesce("swap_in_bytes", "server_swap_in_bytes"), "seconds"), per_interval=True),
    Metric("swap_out_bandwidth", "Swap-out bandwidth", "B/s", "neither", "store",
        "pages that the machine wrote to swap x page size / seconds",
        over(pl.coalesce("swap_out_bytes", "server_swap_out_bytes"), "seconds"), per_interval=True),
    Metric("swap_in_pages_per_fault", "Pages read per major fault", "", "neither", "store",
        "pages that the machine read from swap / major faults of measured accesses",
        pl.when(IS_PAGING).then(over(pl.col("swap_in_bytes") / pl.col("page_bytes"), "major_fault_count"))),
    Metric("measuring_cost_ns", "Cost of measuring an access", "ns", "lower", "cpu",
        "loop of resident pages with clock, check and histogram - the same accesses without, per access"),
    Metric("unattributed_faults", "Faults without an access", "", "lower", "count",
        "page faults of the threads, by the kernel's count, that belong to no measured access"),
    Metric("pages_checked", "Pages checked", "", "neither", "count",
        "accesses whose page was compared with what it must contain, and pages compared in full"),
    Metric("pages_wrong", "Checks that found a wrong page", "", "lower", "count",
        "checks that found a page without the contents that were written to it; a page counts each time"),
)  # fmt: skip
"""Metrics of paging runs, in the order of docs/metrics.md."""


SWAP_COUNTERS = {"swap_in_bytes": "pswpin", "swap_out_bytes": "pswpout"}
"""Facts of a run and of each interval -> the kernel's counter of pages, as `/proc/vmstat` names it."""


def _increases(facts: Facts) -> pl.DataFrame:
    """Return the bytes of each interval from the counters at the end of each; the first one has none."""
    runs = facts.runs().filter(pl.col("page_bytes").is_not_null()).select(*RUN_KEYS, "page_bytes")
    statistics = facts.statistics("vmstat.").join(runs, on=RUN_KEYS)
    keys = [*RUN_KEYS, "phase", "interval"]
    columns = [
        pl.col("value").filter(pl.col("statistic") == counter).first().alias(name)
        for name, counter in SWAP_COUNTERS.items()
    ]
    polls = statistics.group_by(*keys, "end_ns", "page_bytes", maintain_order=True).agg(columns)
    grown = [(pl.col(name).diff().over(RUN_KEYS) * pl.col("page_bytes")).alias(name) for name in SWAP_COUNTERS]
    return polls.sort(*RUN_KEYS, "end_ns").with_columns(grown).drop("end_ns", "page_bytes")


INTERVALS = ((tuple(SWAP_COUNTERS), _increases),)
