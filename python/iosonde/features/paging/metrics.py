"""Metrics of paging: page faults and what went through swap."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over, store_metric

IS_PAGING = pl.col("workload") == "paging"

METRICS = (
    store_metric(
        "major_fault_fraction",
        "Share of major faults",
        "accesses that caused a page fault with I/O / accesses",
        pl.when(IS_PAGING).then(over("major_fault_count", "count")),
        per_interval=False,
    ),
    store_metric(
        "minor_fault_fraction",
        "Share of minor faults",
        "accesses that caused a page fault without I/O / accesses",
        pl.when(IS_PAGING).then(over("minor_fault_count", "count")),
        per_interval=False,
    ),
    store_metric(
        "major_faults_per_sec",
        "Major faults per second",
        "accesses that caused a page fault with I/O / seconds",
        pl.when(IS_PAGING).then(over("major_fault_count", "seconds")),
        "neither",
        unit="1/s",
        per_interval=False,
    ),
    store_metric(
        "swap_in_bandwidth",
        "Swap-in bandwidth",
        "pages that the machine read from swap x page size / seconds",
        over(pl.coalesce("swap_in_bytes", "server_swap_in_bytes"), "seconds"),
        "neither",
        unit="B/s",
    ),
    store_metric(
        "swap_out_bandwidth",
        "Swap-out bandwidth",
        "pages that the machine wrote to swap x page size / seconds",
        over(pl.coalesce("swap_out_bytes", "server_swap_out_bytes"), "seconds"),
        "neither",
        unit="B/s",
    ),
    store_metric(
        "swap_in_pages_per_fault",
        "Pages read per major fault",
        "pages that the machine read from swap / major faults of measured accesses",
        pl.when(IS_PAGING).then(over(pl.col("swap_in_bytes") / pl.col("page_bytes"), "major_fault_count")),
        "neither",
        per_interval=False,
    ),
    Metric(
        name="measuring_cost_ns",
        title="Cost of measuring an access",
        unit="ns",
        formula="loop of resident pages with clock, check and histogram - the same accesses without, per access",
        better="lower",
        kind="cpu",
    ),
    Metric(
        name="unattributed_faults",
        title="Faults without an access",
        unit="",
        formula="page faults of the threads, by the kernel's count, that belong to no measured access",
        better="lower",
        kind="count",
    ),
    Metric(
        name="pages_checked",
        title="Pages checked",
        unit="",
        formula="accesses whose page was compared with what it must contain, and pages compared in full",
        better="neither",
        kind="count",
    ),
    Metric(
        name="pages_wrong",
        title="Checks that found a wrong page",
        unit="",
        formula="checks that found a page without the contents that were written to it; a page counts each time",
        better="lower",
        kind="count",
    ),
)
"""Metrics of paging runs, in the order of docs/metrics.md."""
