"""From the sums of a run's scopes to its metrics, by the expressions of the registry.

Media write amplification is the last step of its chain: from what a drive was handed to what it wrote to its media. A
drive's counters are coarse, and its log pages may be as old as ten minutes (OCP Datacenter NVMe SSD Specification,
SLOG-7), so a ratio of two differences is a number only where much was written, and where the drive's own count of what
the host wrote agrees with the kernel's: otherwise they cover different times, or another process wrote too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from iosonde.base.features import contributed
from iosonde.metrics import sustained
from iosonde.metrics.facts import Facts
from iosonde.metrics.registry import METRICS
from iosonde.metrics.scopes import (
    ALL,
    INTERVAL_KEYS,
    RUN_KEYS,
    SCOPE_KEYS,
    of_usual_length,
    scopes_of,
    seconds_between,
    sums,
)
from iosonde.results.run_facts import DATA_BYTES, RUNS, SERVER_COUNTERS, SERVER_STATES, SOURCES, counters
from iosonde.study.workload import names_where, workloads

DATA_UNIT_BYTES = 512_000
"""In which a drive counts what the host wrote (`storage/nvme.py`)."""

STEPS = 64
"""Of the coarsest counter, that a difference must have: two roundings then are about 3 % at most."""

AGREEMENT = 0.05
"""By how much drive and kernel may differ in what the host wrote."""

STOOD_STILL = "the drives' counters of their media did not move"
TOO_LITTLE = "too little was written for the drives' counters, which are coarse"
DISAGREE = "drives and kernel disagree on what was written: the drives' counters lag behind, or others wrote as well"


def judged(runs: pl.DataFrame) -> pl.DataFrame:
    """Add `media_write_bytes` and `media_taken_bytes` where their ratio is a number, and else `media_not_reported`.

    `runs` has the columns of `results.drive_facts`; of runs on simulated drives also `simulated_media_write_bytes` and
    `simulated_write_bytes`, which are exact.
    """
    written, taken, units, step = (
        pl.col(name).cast(pl.Int64)
        for name in (
            "run_media_write_bytes",
            "run_drive_write_bytes",
            "run_drive_units_written",
            "run_media_step_bytes",
        )
    )
    reason = (
        pl.when(written.is_null())
        .then("run_media_not_reported")
        .when(taken < STEPS * pl.max_horizontal(step, pl.lit(DATA_UNIT_BYTES)))
        .then(pl.lit(TOO_LITTLE))
        .when((units * DATA_UNIT_BYTES - taken).abs() > AGREEMENT * taken)
        .then(pl.lit(DISAGREE))
        .when(written == 0)
        .then(pl.lit(STOOD_STILL))
    )
    reported = written.is_not_null() & reason.is_null()
    return runs.with_columns(
        media_not_reported=reason,
        media_write_bytes=pl.when(reported).then(written).otherwise("simulated_media_write_bytes"),
        media_taken_bytes=pl.when(reported).then(taken).otherwise("simulated_write_bytes"),
    )


SERVER_FACTS = (*SERVER_COUNTERS, DATA_BYTES, *SERVER_STATES)
"""Facts that follow from the statistics of the server, of a run and of each of its intervals."""

IntervalFacts = tuple[Sequence[str], Callable[[Facts], pl.DataFrame]]
"""Names of facts that a run and each of its intervals have, and a function to a frame of `INTERVAL_KEYS` and these."""


def with_interval_facts(table: pl.DataFrame, facts: Facts, metrics: Sequence[str]) -> pl.DataFrame:
    """Replace the facts of a run that these metrics need by those of the interval, at operation `all`; null if unknown.

    Statistics at the end of each interval (of a server, of the kernel, of a feature) become facts with the names of the
    run's own, so that a metric needs one expression for both.
    """
    needed: set[str] = set().union(*(_ROOTS.get(name, ()) for name in metrics))
    for names, of_intervals in _INTERVAL_FACTS:
        if not needed.isdisjoint(names):
            own = table.drop(name for name in names if name in table.columns)
            found = own.join(of_intervals(facts), on=INTERVAL_KEYS, how="left", maintain_order="left")
            table = found.with_columns(pl.when(pl.col("operation") == ALL).then(name).alias(name) for name in names)
    return table


def increases(statistics: pl.DataFrame) -> pl.DataFrame:
    """Return `result_set, run_id, phase, interval` and `SERVER_FACTS`: increases of counters, and states as they were.

    Of the first interval that was polled only the states are known. A counter that was reset has no increase.
    PostgreSQL publishes the counters of a session once a second at most: shorter intervals show steps.
    """
    chosen = statistics.filter(pl.col("statistic").is_in([*SOURCES, *SERVER_STATES]))
    place = (*INTERVAL_KEYS, "end_ns")
    polls = []
    for key, group in chosen.group_by(*place):
        known = dict(group.select("statistic", "value").iter_rows())
        states = {name: known[name] for name in SERVER_STATES if name in known}
        polls.append({**dict(zip(place, key, strict=True)), **counters(known), **states})
    schema = {name: statistics.schema[name] for name in place} | dict.fromkeys(SERVER_FACTS, pl.Int64())
    table = pl.DataFrame(polls, schema=schema).sort(*RUN_KEYS, "end_ns")
    grown = (pl.col(name).diff().over(RUN_KEYS) for name in (*SERVER_COUNTERS, DATA_BYTES))
    return table.with_columns(pl.when(each >= 0).then(each) for each in grown).drop("end_ns")


_INTERVAL_FACTS: tuple[IntervalFacts, ...] = (
    (SERVER_FACTS, lambda facts: increases(facts.server_statistics())),
    *contributed("facts", "INTERVALS"),
)


_ADJUSTMENTS: tuple[Callable[[pl.DataFrame], pl.DataFrame], ...] = contributed("facts", "ADJUSTMENTS")
"""Functions of the sums of scopes, before metrics are derived from them."""

ALWAYS_KNOWN = frozenset(
    (*SCOPE_KEYS, "workload", "loop", "seconds", "count", "bytes", "errors", "completion_sum_ns", "response_count")
)
"""Columns that every scope has: they do not show whether a metric has a value."""


def derived(table: pl.DataFrame) -> pl.DataFrame:
    """Add every metric of a run's scope; those that no scope has may be missing.

    A run's metrics have the same digits alone and among others. Polars divides by a constant column by multiplying with
    its reciprocal; a column made from values counts as constant only where it has one row, which is computed twice.
    """
    if table.height == 1:
        return derived(pl.concat([table, table])).head(1)
    table = pl.DataFrame(table.get_columns())
    table = _at_their_scope(table)
    for adjusted in _ADJUSTMENTS:
        table = adjusted(table)
    counted = derived_counts(table)
    metrics = counted.with_columns(**_expressions(counted, per_interval=False))
    return _without_sums_over_streams(metrics)


def _expressions(table: pl.DataFrame, *, per_interval: bool) -> dict[str, pl.Expr]:
    """The expressions of metrics over the columns of a table.

    Most metrics are of other workloads, and an expression costs as much for three rows as for thousands: where all
    columns of a metric are null, it is null.
    """
    columns, known = set(table.columns), known_columns(table) | ALWAYS_KNOWN
    found = {}
    for name, metric in METRICS.items():
        if metric.expression is None or metric.per_interval != per_interval:
            continue
        roots = _ROOTS[name]
        if per_interval and not roots <= columns:
            continue
        has_values = not known.isdisjoint(roots - ALWAYS_KNOWN or roots)
        found[name] = metric.expression if has_values else _NULL
    return found


_NULL = pl.lit(None, dtype=pl.Float64)

_ROOTS = {
    name: frozenset(metric.expression.meta.root_names())
    for name, metric in METRICS.items()
    if metric.expression is not None
}
"""Columns of the expression of each metric."""

_USED = frozenset(METRICS).union(*_ROOTS.values())
"""Columns that metrics are computed from. A metric without an expression is the column of its name."""

_COUNTED = tuple(
    name
    for name in dict.fromkeys(name for each in workloads().values() for name in each.operations)
    if f"{name}_count" in _USED and name != "write"
)
"""Operations whose number over a run is in metrics of their workload; that of writes is in others too."""


def known_columns(table: pl.DataFrame) -> set[str]:
    """Return the columns that have any value."""
    rows = len(table)
    return {name for name, nulls in zip(table.columns, table.null_count().row(0), strict=True) if nulls < rows}


OF_ONE_LOAD = ("rate", "latency", "concurrency", "spread")
"""Kinds of metrics without meaning for readers and a writer together."""


_SEPARATE = names_where(lambda each: each.io == "store")
_EXTERNAL = names_where(lambda each: each.io == "command")


def _without_sums_over_streams(table: pl.DataFrame) -> pl.DataFrame:
    """Drop rates and latencies of all streams of a key-value run together: reads are not added to writes.

    An external command has none at all.
    """
    if not set(table["workload"].unique()) & {*_SEPARATE, *_EXTERNAL}:
        return table
    together = pl.col("workload").is_in(_SEPARATE) & (pl.col("stream") == ALL)
    several = together & (pl.col("stream") != ALL).any().over(RUN_KEYS) | pl.col("workload").is_in(_EXTERNAL)
    names = [name for name, metric in METRICS.items() if metric.kind in OF_ONE_LOAD and name in table.columns]
    return table.with_columns(pl.when(~several).then(name).alias(name) for name in names)


def derived_counts(table: pl.DataFrame) -> pl.DataFrame:
    """Add the metrics that counts, sums and percentiles over `seconds` give; percentiles only where there are any."""
    expressions = _expressions(table, per_interval=True)
    counted = table.with_columns(**expressions)
    if not set(table["workload"].unique()) & {*_EXTERNAL}:
        return counted
    # Nothing is known of the operations of an external command: not even that there were none.
    unknown = [name for name in (*expressions, "errors") if name in counted.columns]
    return counted.with_columns(
        pl.when(~pl.col("workload").is_in(_EXTERNAL)).then(name).alias(name) for name in unknown
    )


_OF_STREAM = (
    *("in_flight_sum_ns", "stream_concurrency", "continuous_concurrency", "core_utilisation", "due", "started"),
)
_OF_RUN = (
    *("device_read_bytes", "device_write_bytes", "media_write_bytes", "media_taken_bytes"),
    *("member_reads", "member_writes", "member_read_bytes", "member_write_bytes", "member_busy_ns"),
    *("member_counted_ns", "member_most_bytes"),
    *sustained.METRICS,
    *(column.name for column in RUNS.columns if column.is_number and column.name in _USED),
)
"""Columns that belong to a run as a whole: every fact of a run that a metric is computed from, and such sums."""


def _at_their_scope(table: pl.DataFrame) -> pl.DataFrame:
    """Keep what belongs to a stream at its operation `all`, and what belongs to the run at its widest scope."""
    alone = ~(pl.col("stream") == ALL).any().over(RUN_KEYS)
    table = table.with_columns(is_together=(pl.col("stream") == ALL) | alone)
    together, whole_stream = pl.col("is_together"), pl.col("operation") == ALL
    table = table.with_columns(is_whole_run=whole_stream & together)
    whole_run = pl.col("is_whole_run")
    known = known_columns(table)
    # Half of what is read, modified and written was read.
    halved = pl.when(pl.col("operation") == "read_modify_write").then(pl.col("bytes") / 2).otherwise("bytes")
    reads, writes = (
        halved.filter(pl.col("operation").is_in(operations) & together).sum()
        for operations in (("read", "scan", "read_modify_write"), ("write", "read_modify_write"))
    )
    # Of a stream whose writes are followed by flushes: the time of both.
    flushed = (pl.col("operation") == "flush") & (pl.col("count") > 0)
    stream = (*RUN_KEYS, "stream")
    durable = pl.when((pl.col("operation") == "write") & flushed.any().over(stream)).then(
        pl.col("completion_sum_ns") + pl.col("completion_sum_ns").filter(flushed).sum().over(stream)
    )
    written = pl.col("count").filter(pl.col("operation").is_in(("write", "read_modify_write")) & together)
    counts = {
        f"{name}_count": pl.col("count").filter((pl.col("operation") == name) & together).sum().over(RUN_KEYS)
        for name in _COUNTED
    }
    return table.with_columns(
        *(pl.when(whole_stream).then(name).alias(name) for name in _OF_STREAM if name in known),
        *(pl.when(whole_run).then(name).alias(name) for name in _OF_RUN if name in known),
        **{name: pl.when(whole_run).then(count) for name, count in counts.items()},
        durable_write_sum_ns=durable,
        read_bytes=reads.over(RUN_KEYS),
        write_bytes=writes.over(RUN_KEYS),
        write_count=written.sum().over(RUN_KEYS),
    )


def of_streams(facts: Facts, counts: pl.DataFrame) -> pl.DataFrame:
    """Return the facts of a whole stream: time in flight, concurrency, busiest thread, I/Os due and started.

    Also for stream `all` where there are several. `continuous_concurrency` is null where a stream of the case is active
    for a part of the time only.
    """
    in_flight = counts.group_by([*RUN_KEYS, "stream"]).agg(in_flight_sum_ns=pl.col("completion_sum_ns").sum())
    each = in_flight.join(_concurrency(facts), on=[*RUN_KEYS, "stream"], how="left")
    together = each.group_by(RUN_KEYS).agg(
        pl.lit(ALL).alias("stream"),
        pl.col("in_flight_sum_ns").sum(),
        pl.col("stream_concurrency", "continuous_concurrency").sum(),
        pl.col("core_utilisation").max(),
        pl.col("due", "started").sum(),
    )
    return pl.concat([each, together])


def _concurrency(facts: Facts) -> pl.DataFrame:
    """Return concurrency, busiest thread, and I/Os due and started of each run's streams."""
    depths = facts.queue_depths()
    common = depths.filter(pl.col("stream").is_null()).drop("stream")
    own = depths.rename({"queue_depth": "own_queue_depth"})
    depth = pl.coalesce("own_queue_depth", "queue_depth")
    alone = pl.len().over(RUN_KEYS) == 1
    pausing = facts.cases_with("active").with_columns(pauses=True)
    return (
        facts.streams()
        .join(facts.runs().select(*RUN_KEYS, "case_id", "concurrency"), on=RUN_KEYS)
        .join(common, on=["result_set", "case_id"], how="left")
        .join(own, on=["result_set", "case_id", "stream"], how="left")
        .join(pausing, on=["result_set", "case_id"], how="left")
        .with_columns(stream_concurrency=pl.when(alone).then("concurrency").otherwise(pl.col("stream_jobs") * depth))
        .with_columns(continuous_concurrency=pl.when(pl.col("pauses").is_null()).then("stream_concurrency"))
        .select(
            *(*RUN_KEYS, "stream", "stream_concurrency", "continuous_concurrency", "core_utilisation"),
            *("due", "started"),
        )
    )


MINIMUM_INTERVALS = 3
"""Fewer intervals show no variation."""


def iops_variation(facts: Facts) -> pl.DataFrame:
    """Return the coefficient of variation of IOPS over the intervals of each run's scopes.

    An interval shorter than half of the usual (the last one) is left out.
    """
    counts = facts.counts(per="interval").filter(pl.col("phase") == "measure")
    keys = (*RUN_KEYS, "interval", "begin_ns", "end_ns")
    seconds = seconds_between("begin_ns", "end_ns")
    rate = pl.col("rate")
    return (
        sums(counts, scopes_of(counts, keys=keys))
        .with_columns(seconds=seconds)
        .filter(of_usual_length(RUN_KEYS))
        .with_columns(rate=pl.col("count") / pl.col("seconds"))
        .group_by([*RUN_KEYS, *SCOPE_KEYS], maintain_order=True)
        .agg(iops_variation=pl.when((pl.len() >= MINIMUM_INTERVALS) & (rate.mean() > 0)).then(rate.std() / rate.mean()))
    )
