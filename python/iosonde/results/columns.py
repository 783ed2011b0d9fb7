"""The registry of tables and columns: name, type, meaning and origin of every fact, one row each.

Parquet schemas, the tables of `iosonde sql`, exports and their READMEs, and the checks of records that are read follow
from it. A new fact of a run is one row of `RUNS`. Rates, percentiles and other derived values are metrics
(`iosonde.metrics.registry`).

Factors and parameters are columns too, of `runs` and `cases`; the study and the workload define them. One with the name
of a column in any table is called `NAME_level` there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.results import cache_columns, graph_columns, objects_columns, path_columns
from iosonde.results.server_counters import COUNTERS, STATES

TEXT, FLAG, NUMBER = pl.String, pl.Boolean, pl.Float64
U32, U64, I64 = pl.UInt32, pl.UInt64, pl.Int64
DType = type[pl.DataType]

_RANGES: dict[DType, tuple[int, int]] = {U32: (0, 2**32 - 1), U64: (0, 2**64 - 1), I64: (-(2**63), 2**63 - 1)}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    dtype: DType
    text: str
    """What it means; units are in the name or here."""
    value: Callable[[Any], Any] | None = None
    """Its value, for columns of `runs`: from the record's `RunFacts`."""
    added: bool = False
    """Whether Parquet files of the same format may lack it, because they are older."""
    computed: str = ""
    """SQL expression, for columns of stored tables that are not stored."""

    def check(self, value: Any) -> None:
        """Raise `ValueError` if the value is not of the column's type."""
        if value is not None and not self._fits(value):
            raise ValueError(f"`{self.name}` cannot be {str(value)[:40]!r}")

    def _fits(self, value: Any) -> bool:
        if self.dtype is TEXT:
            return isinstance(value, str)
        if isinstance(value, bool) or self.dtype is FLAG:
            return isinstance(value, bool) and self.dtype is FLAG
        if self.dtype is NUMBER:
            return isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)
        low, high = _RANGES[self.dtype]
        return isinstance(value, int) and low <= value <= high


@dataclass(frozen=True)
class Table:
    """A table: what a row is, and its columns."""

    text: str
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and types of the stored columns."""
        return pl.Schema({each.name: each.dtype for each in self.columns if not each.computed})

    def check(self, row: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a row has a value of the wrong type or an unknown column."""
        known = {each.name: each for each in self.columns}
        for name, value in row.items():
            if name not in known:
                raise ValueError(f"`{name[:40]}` is unknown")
            known[name].check(value)


_RUN_ID = Column("run_id", TEXT, "Run: case number and repeat", lambda run: run.record.run_id)

_PLACE = (
    _RUN_ID,
    Column("phase", TEXT, "`ramp` or `measure`"),
    Column("interval", U32, "Number of the interval in its phase, from 0"),
)
_BEGIN = Column("begin_ns", U64, "Start of the interval, ns since the run's time 0")
_END = Column("end_ns", U64, "End of the interval, ns since the run's time 0")
_STREAM = Column("stream", TEXT, "Stream")
_OPERATION = Column("operation", TEXT, "`read`, `write`, `trim` or `flush`")

_USAGE = {
    "wall_ns": "Elapsed time, ns",
    "user_ns": "User CPU time, ns",
    "system_ns": "System CPU time, ns",
    "voluntary_switches": "Voluntary context switches",
    "involuntary_switches": "Involuntary context switches",
    "minor_faults": "Minor page faults",
    "major_faults": "Major page faults",
    "fs_inputs": "File system inputs, in units of 512 bytes",
    "fs_outputs": "File system outputs, in units of 512 bytes",
}
"""The protocol's `Usage`."""


def _usage(prefix: str, text: str, dtype: DType, read: Callable[[Any], Mapping[str, Any]]) -> tuple[Column, ...]:
    def column(name: str, meaning: str) -> Column:
        return Column(f"{prefix}{name}", dtype, f"{text}. {meaning}", lambda run: read(run).get(name))

    return tuple(column(name, meaning) for name, meaning in _USAGE.items())


def _of_server(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, text, lambda run: run.server[name])


_SERVER = (
    _of_server("server_title", TEXT, "Database server; null without one"),
    _of_server("server_version", TEXT, "Its version, as it reports it"),
    *(_of_server(name, U64, f"Server, in the measurement: {text}") for name, text in COUNTERS.items()),
    *(_of_server(name, NUMBER, "Mean over the intervals of sessions in that state") for name in STATES),
    _of_server("server_data_bytes", U64, "Bytes of data pages that the server wrote in the measurement"),
    _of_server("statements", U64, "Statements that the clients executed"),
    _of_server("round_trips", U64, "Times that a client waited for an answer of the server"),
    _of_server("aborted_attempts", U64, "Attempts that ended in a serialization failure, deadlock or lock timeout"),
    _of_server("failed_transactions", U64, "Transactions that failed after all retries"),
    _of_server("restore_seconds", NUMBER, "Time to restore the database from its template, s"),
    _of_server("load_seconds", NUMBER, "Time to load the template, s"),
    _of_server("acknowledged_commits", U64, "Commits that were acknowledged before the server was killed"),
    _of_server("lost_commits", U64, "Of these, commits that the restarted server does not have"),
    _of_server("recovery_seconds", NUMBER, "Time from the restart of a killed server to its first connection, s"),
)


def _of_graph(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, f"Graph algorithm: {text}", lambda run: run.graph[name])


_GRAPH = (
    *(_of_graph(name, U64, text) for name, text in graph_columns.COUNTS.items()),
    *(_of_graph(name, NUMBER, text) for name, text in graph_columns.NUMBERS.items()),
    _of_graph("graph_is_complete", FLAG, "whether it converged, or nothing remained to visit"),
)


def _of_objects(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, f"Object store: {text}", lambda run: run.objects[name])


_OBJECTS = (
    *(_of_objects(name, U64, text) for name, text in objects_columns.COUNTS.items()),
    *(_of_objects(name, NUMBER, text) for name, text in objects_columns.SECONDS.items()),
)


def _of_path(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, f"Traced I/Os: {text}", lambda run: run.path[name])


_PATH = (
    *(_of_path(name, U64, text) for name, text in path_columns.COUNTS.items()),
    *(_of_path(name, TEXT, text) for name, text in path_columns.TEXTS.items()),
    *(_of_path(name, NUMBER, f"{text}, ns") for name, text in path_columns.TIMES.items()),
)


def _of_cache(name: str, dtype: DType, text: str) -> Column:
    return Column(name, dtype, f"Block cache: {text}", lambda run: run.cache[name])


_BLOCK_CACHE = (
    *(_of_cache(name, U64, text) for name, text in cache_columns.COLUMNS.items()),
    *(_of_cache(name, NUMBER, text) for name, text in cache_columns.MEANS.items()),
)


def _stored(dtype: DType, *columns: tuple[str, str], added: bool = False) -> tuple[Column, ...]:
    return tuple(Column(name, dtype, text, added=added) for name, text in columns)


CASES = Table(
    "One row per case (one parameter set), with its factors and parameters",
    (
        Column("case_id", TEXT, "Case: `PART/FACTOR=LEVEL/...`, or `control`"),
        Column("part", TEXT, "Part of the study"),
        Column("control", FLAG, "Whether this is the control case, repeated to show drift of the machine"),
        Column(
            "device_state",
            TEXT,
            "Device state that the plan prepares: `fresh`, `preconditioned`, `steady`, `unknown` or `not_applicable`",
        ),
        Column("cost_s", NUMBER, "Planned time of ramp and measurement, s"),
        Column("cost_write_bytes", U64, "Planned upper bound of bytes written; null where only time limits them"),
    ),
)

RUNS = Table(
    "One row per run (one repeat of a case), its latest attempt, with the factors of its case",
    (
        _RUN_ID,
        Column("case_id", TEXT, "Case that the run repeats", lambda run: run.record.case_id),
        Column("part", TEXT, "Part of the study", lambda run: run.record.part),
        Column("control", FLAG, "Whether it repeats the control case", lambda run: run.record.control),
        Column("device_state", TEXT, "Planned device state of its case", lambda run: run.record.device_state),
        Column("arm", TEXT, "Arm of an A/B comparison: `a`, `b` or empty", lambda run: run.record.arm),
        Column("repeat", U32, "Number of the repeat, from 1", lambda run: run.record.repeat),
        Column("order", U32, "Position in the order of execution, from 0", lambda run: run.record.order),
        Column(
            "attempt", U32, "Number of the attempt, from 1; above 1 after a failure", lambda run: run.record.attempt
        ),
        Column("outcome", TEXT, "`complete`, `stopped` or `failed`", lambda run: run.record.outcome),
        Column("failure", TEXT, "Code of the failure", lambda run: run.failure("code")),
        Column("failure_message", TEXT, "Message of the failure", lambda run: run.failure("message")),
        Column("started_at", TEXT, "Start of the engine, ISO 8601", lambda run: run.record.started_at),
        Column("ended_at", TEXT, "Exit of the engine, ISO 8601", lambda run: run.record.ended_at),
        Column(
            "measure_start_ns",
            U64,
            "Start of the measurement, ns since the run's time 0",
            lambda run: run.result.get("begin_ns"),
        ),
        Column(
            "measure_end_ns",
            U64,
            "End of the measurement, ns since the run's time 0",
            lambda run: run.result.get("end_ns"),
        ),
        Column("jobs_total", U64, "Jobs (threads) of all streams", lambda run: run.jobs_total),
        Column(
            "concurrency",
            U64,
            "Upper bound of I/Os in flight: jobs x queue depth, summed over streams",
            lambda run: run.concurrency,
        ),
        Column(
            "loop", TEXT, "`closed` (next I/O when one completes), `open` (at a rate), or `mixed`", lambda run: run.loop
        ),
        Column("backend_in_effect", TEXT, "Backend that did the I/O", lambda run: run.part("backend").get("kind")),
        Column(
            "layout_written_bytes", U64, "Bytes that layout wrote", lambda run: run.part("layout").get("written_bytes")
        ),
        Column(
            "layout_kept_bytes",
            U64,
            "Bytes that layout found already written",
            lambda run: run.part("layout").get("kept_bytes"),
        ),
        Column(
            "verified_bytes",
            U64,
            "Bytes read and verified, counted each time; null without verification",
            lambda run: run.part("verification").get("checked_bytes"),
        ),
        Column(
            "wrong_sectors",
            U64,
            "512-byte sectors with wrong data, counted each time; null without verification",
            lambda run: run.wrong_sectors,
        ),
        Column(
            "peak_memory_bytes",
            U64,
            "Peak resident memory of the engine as it reports it, or of the measured command (wait4), bytes",
            lambda run: run.result.get("peak_memory_bytes"),
        ),
        Column("buffer_bytes", U64, "Size of the I/O buffers, bytes", lambda run: run.result.get("buffer_bytes")),
        *_usage("process_", "Engine process during the measurement", U64, lambda run: run.part("process")),
        *_usage("child_", "Engine process from start to exit (wait4)", I64, lambda run: run.record.child),
        Column(
            "child_max_rss_bytes",
            I64,
            "Peak resident memory of the engine process (wait4), bytes; null where unknown",
            lambda run: run.record.child.get("max_rss_bytes"),
        ),
        Column(
            "child_exit_status",
            I64,
            "Exit status of the engine process; the negative signal number if a signal killed it",
            lambda run: run.record.child.get("exit_status"),
        ),
        Column("clock", TEXT, "Clock used for latencies", lambda run: run.record.engine.get("clock")),
        Column(
            "clock_read_ns", NUMBER, "Cost of one clock read, ns", lambda run: run.record.engine.get("clock_read_ns")
        ),
        Column(
            "realtime_ns",
            U64,
            "Wall clock at the run's time 0, Unix time in ns",
            lambda run: run.record.engine.get("realtime_ns"),
        ),
        Column("engine", TEXT, "Name of the engine", lambda run: run.record.engine.get("engine")),
        Column("engine_version", TEXT, "Version of the engine", lambda run: run.record.engine.get("version")),
        Column(
            "environment",
            TEXT,
            "Name of the file in `environments/` that describes machine and software",
            lambda run: run.record.environment,
        ),
        Column(
            "target_bytes",
            U64,
            "Size of the array or device under the run, bytes; null where not reported",
            lambda run: run.array["target_bytes"],
        ),
        Column(
            "members",
            TEXT,
            "Members of the array under the run, named as in `usage`, separated by spaces; null without an array",
            lambda run: run.array["members"],
        ),
        Column(
            "link_bytes_per_second",
            NUMBER,
            "Bandwidth limit of all members together, bytes/s; null where unknown",
            lambda run: run.array["link_bytes_per_second"],
        ),
        Column(
            "pcie_bytes_per_second",
            NUMBER,
            "Bandwidth limit of the PCIe links that members share, per direction, bytes/s; null where they share none",
            lambda run: run.array["pcie_bytes_per_second"],
        ),
        Column(
            "memory_copy_bytes_per_second",
            NUMBER,
            "Memory copy bandwidth of the machine, bytes/s; null unless the load is buffered",
            lambda run: run.array["memory_copy_bytes_per_second"],
        ),
        Column(
            "rebuild_share",
            NUMBER,
            "Share of a member that was rebuilt during the run; null without a rebuild",
            lambda run: run.array["rebuild_share"],
        ),
        Column(
            "rebuild_share_seconds",
            NUMBER,
            "Seconds that rebuilding this share took",
            lambda run: run.array["rebuild_share_seconds"],
        ),
        Column(
            "array_thread",
            TEXT,
            "Kernel thread of the array with the most CPU time, such as `md127_raid5`; null without one",
            lambda run: run.array["array_thread"],
        ),
        Column(
            "array_thread_share",
            NUMBER,
            "CPU time of that thread during the measurement, as a share of one core",
            lambda run: run.array["array_thread_share"],
        ),
        Column(
            "array_cpu_ns",
            U64,
            "CPU time of all kernel threads of the array, ns; null without an array",
            lambda run: run.array["array_cpu_ns"],
        ),
        Column(
            "kernel_cpu_ns",
            U64,
            "CPU time of all kernel threads during the measurement, ns; null where none is visible",
            lambda run: run.array["kernel_cpu_ns"],
        ),
        Column(
            "busiest_core_share",
            NUMBER,
            "Share of the measurement in which the busiest core was not idle",
            lambda run: run.array["busiest_core_share"],
        ),
        Column(
            "simulated",
            FLAG,
            "Whether the storage was simulated: values of a model, not of a device",
            lambda run: bool(run.record.target.get("simulated", False)),
        ),
        Column("warning_count", U32, "Number of warnings", lambda run: len(run.record.warnings)),
        Column(
            "verdict",
            TEXT,
            "`device-limited`, `harness-limited`, `cache-served`, `server-CPU-limited`, `lock-limited` or "
            "`undetermined`; null without a result",
            lambda run: run.record.verdict.kind if run.record.verdict else None,
        ),
        Column(
            "verdict_because",
            TEXT,
            "Reasons for the verdict, in sentences",
            lambda run: "; ".join(run.record.verdict.because) if run.record.verdict else None,
        ),
        Column(
            "engine_stalled_ns",
            U64,
            "Time in the measurement during which the engine itself did not run, ns",
            lambda run: (run.part("evidence").get("stalls") or {}).get("stalled_ns"),
        ),
        Column(
            "workload",
            TEXT,
            "Workload: `block`, `kv`, `tpcc`, `commit`, `paging`, `graph`, `objects` or `command`",
            lambda run: run.store["workload"],
        ),
        Column("store_version", TEXT, "Version of the store, as it reports it", lambda run: run.store["store_version"]),
        Column(
            "store_kind",
            TEXT,
            "Store: `lmdb`, `rocksdb`, `wiredtiger`, `redb`, `fjall`, `memcached`, `cassandra`, `mongodb` or `null`",
            lambda run: run.store["store_kind"],
        ),
        Column(
            "store_durability",
            TEXT,
            "What acknowledged writes survive: `nothing`, `process_crash` or `power_loss`; null of runs without writes",
            lambda run: run.store["store_durability"],
        ),
        Column(
            "cancelled_write_bytes",
            U64,
            "Bytes written to the page cache but deleted before writeback, in the span of the run's account",
            lambda run: run.store["cancelled_write_bytes"],
        ),
        Column(
            "started_empty",
            FLAG,
            "Whether the run started with an empty database; null for block I/O",
            lambda run: run.store["started_empty"],
        ),
        Column(
            "database_kept",
            FLAG,
            "Whether a complete database was found and reused",
            lambda run: run.store["database_kept"],
        ),
        Column(
            "database_bytes",
            U64,
            "Bytes allocated to the closed database, including its log",
            lambda run: run.store["database_bytes"],
        ),
        Column(
            "record_bytes",
            U64,
            "Size of keys and values of all records, counted once, bytes",
            lambda run: run.store["record_bytes"],
        ),
        Column(
            "cached_bytes_at_start",
            U64,
            "Bytes of the database in the page cache at measurement start (cachestat)",
            lambda run: run.store["cached_bytes_at_start"],
        ),
        Column("cached_bytes_at_end", U64, "The same at measurement end", lambda run: run.store["cached_bytes_at_end"]),
        Column("settle_ns", U64, "Time to settle before the measurement, ns", lambda run: run.store["settle_ns"]),
        Column(
            "settle_at_end_ns",
            U64,
            "Time to settle after the measurement, ns",
            lambda run: run.store["settle_at_end_ns"],
        ),
        Column("close_ns", U64, "Time to close the database, ns", lambda run: run.store["close_ns"]),
        Column(
            "writing_jobs", U32, "Jobs of the streams that write to the store", lambda run: run.store["writing_jobs"]
        ),
        Column(
            "stalled_ns",
            U64,
            "Time that writes were stalled, as the store reports it, summed over threads, ns",
            lambda run: run.store["stalled_ns"],
        ),
        Column(
            "block_cache_hits",
            U64,
            "RocksDB and WiredTiger: blocks found in the store's cache in the measurement",
            lambda run: run.store["block_cache_hits"],
        ),
        Column(
            "block_cache_misses",
            U64,
            "RocksDB and WiredTiger: blocks not found in the store's cache",
            lambda run: run.store["block_cache_misses"],
        ),
        Column(
            "read_cache_hits",
            U64,
            "RocksDB: blocks found in its persistent read cache in the measurement",
            lambda run: run.store["read_cache_hits"],
        ),
        Column(
            "read_cache_misses",
            U64,
            "RocksDB: blocks not found in its persistent read cache",
            lambda run: run.store["read_cache_misses"],
        ),
        Column(
            "values_checked",
            U64,
            "Values compared with the expected ones, ramp included",
            lambda run: run.store["values_checked"],
        ),
        Column("values_missing", U64, "Records that were not found", lambda run: run.store["values_missing"]),
        Column(
            "values_corrupted",
            U64,
            "Values that differ from the expected ones",
            lambda run: run.store["values_corrupted"],
        ),
        Column(
            "values_stale",
            U64,
            "Values older than the last write acknowledged before the read, where `freshness` is checked",
            lambda run: run.store["values_stale"],
        ),
        Column(
            "memory_limit_bytes",
            U64,
            "Memory limit of the engine's control group, bytes; null without one",
            lambda run: run.store["memory_limit_bytes"],
        ),
        Column(
            "memory_peak_bytes",
            U64,
            "Peak memory charged to it, page cache included, bytes",
            lambda run: run.store["memory_peak_bytes"],
        ),
        Column(
            "memory_at_limit",
            U64,
            "Number of times that memory was reclaimed at the limit",
            lambda run: run.store["memory_at_limit"],
        ),
        Column(
            "memory_oom_kills",
            U64,
            "Processes in it that the kernel killed for lack of memory",
            lambda run: run.store["memory_oom_kills"],
        ),
        Column(
            "page_bytes",
            U64,
            "Paging: size of a page, bytes",
            lambda run: run.paging["page_bytes"],
        ),
        Column(
            "fault_threshold_ns",
            U64,
            "Paging: accesses that took at least this long were classified by the kernel's fault counters, ns",
            lambda run: run.paging["fault_threshold_ns"],
        ),
        Column(
            "measuring_cost_ns",
            NUMBER,
            "Paging: cost of measuring an access that hits, ns",
            lambda run: run.paging["measuring_cost_ns"],
        ),
        Column(
            "classification_cost_ns",
            NUMBER,
            "Paging: cost of classifying a slow access, which is not part of its latency, ns",
            lambda run: run.paging["classification_cost_ns"],
        ),
        Column(
            "thread_minor_faults",
            U64,
            "Paging: minor faults of the threads from the start of the load to its end",
            lambda run: run.paging["thread_minor_faults"],
        ),
        Column(
            "thread_major_faults",
            U64,
            "Paging: major faults of the threads from the start of the load to its end",
            lambda run: run.paging["thread_major_faults"],
        ),
        Column(
            "unattributed_faults",
            U64,
            "Paging: faults of these that belong to no measured access",
            lambda run: run.paging["unattributed_faults"],
        ),
        Column(
            "pages_checked",
            U64,
            "Paging: accesses whose page was checked, and pages compared in full",
            lambda run: run.paging["pages_checked"],
        ),
        Column(
            "pages_wrong",
            U64,
            "Paging: checks that found a page without the contents that were written to it; a page counts each time",
            lambda run: run.paging["pages_wrong"],
        ),
        Column(
            "swap_in_bytes",
            U64,
            "Paging: bytes that the machine read from swap in the measurement",
            lambda run: run.paging["swap_in_bytes"],
        ),
        Column(
            "swap_out_bytes",
            U64,
            "Paging: bytes that the machine wrote to swap in the measurement",
            lambda run: run.paging["swap_out_bytes"],
        ),
        Column(
            "swap_kind",
            TEXT,
            "Swap area of the run: `file`, `device` or `zram`; null without one",
            lambda run: run.paging["swap_kind"],
        ),
        Column(
            "swap_bytes",
            U64,
            "Size of the swap area, bytes",
            lambda run: run.paging["swap_bytes"],
        ),
        Column(
            "swap_priority",
            I64,
            "Priority of the swap area, above that of all others",
            lambda run: run.paging["swap_priority"],
        ),
        Column(
            "swap_peak_bytes",
            U64,
            "Peak swap of the engine's control group, bytes; with cgroup v1 a lower bound",
            lambda run: run.paging["swap_peak_bytes"],
        ),
        Column(
            "vm_page_cluster",
            I64,
            "`vm.page-cluster` during a run with swap settings of its own",
            lambda run: run.paging["vm_page_cluster"],
        ),
        Column(
            "zswap_enabled",
            FLAG,
            "Whether zswap was on during such a run",
            lambda run: run.paging["zswap_enabled"],
        ),
        Column(
            "run_device_read_bytes",
            U64,
            "Bytes read by the outermost device from before engine start to engine exit",
            lambda run: run.store["run_device_read_bytes"],
        ),
        Column(
            "run_device_write_bytes",
            U64,
            "The same for writes, until everything was durable",
            lambda run: run.store["run_device_write_bytes"],
        ),
        *_SERVER,
        *_BLOCK_CACHE,
        *_GRAPH,
        *_OBJECTS,
        *_PATH,
        Column(
            "foreign_read_share",
            NUMBER,
            "Share of the bytes that the device read for other processes; null where the kernel does not report it",
            lambda run: run.foreign.read_share,
        ),
        Column(
            "foreign_write_share",
            NUMBER,
            "The same for writes; of key-value runs from engine start until everything was durable",
            lambda run: run.foreign.write_share,
        ),
        Column(
            "run_drive_write_bytes",
            U64,
            "Bytes that the kernel sent to the physical drives over the whole run",
            lambda run: run.drives["run_drive_write_bytes"],
        ),
        Column(
            "run_drive_units_written",
            U64,
            "The same as the drives count it, in data units of 512,000 bytes, rounded up",
            lambda run: run.drives["run_drive_units_written"],
        ),
        Column(
            "run_media_write_bytes",
            U64,
            "Bytes that the drives wrote to their media in that time; null unless all report it",
            lambda run: run.drives["run_media_write_bytes"],
        ),
        Column(
            "run_media_step_bytes",
            U64,
            "Resolution of their media counters, bytes",
            lambda run: run.drives["run_media_step_bytes"],
        ),
        Column(
            "run_media_not_reported",
            TEXT,
            "Why media writes are not reported; null where they are",
            lambda run: run.drives["run_media_not_reported"],
        ),
    ),
)

JOBS = Table(
    "One row per job (thread) of a run, over the measurement",
    (
        _RUN_ID,
        Column("stream", TEXT, "Stream of the job"),
        Column("job", U32, "Number in the stream, from 0"),
        *_stored(
            U64,
            ("operations", "I/Os completed in the measurement"),
            ("bytes", "Bytes moved in the measurement"),
            ("last_completion_ns", "Completion time of its last counted I/O, ns since the run's time 0"),
            ("abandoned", "I/Os in flight that did not complete in time after the end"),
            ("due", "I/Os due from run start to the end of the load; null in closed loop"),
            ("started", "I/Os of these that were started; null in closed loop"),
            ("start_lag_ns_sum", "Sum of start delays, ns; null in closed loop"),
            ("start_lag_ns_max", "Largest start delay, ns; null in closed loop"),
            ("spun_ns", "CPU time spent polling the clock for the next start, ns; null in closed loop"),
            *_USAGE.items(),
        ),
    ),
)

INTERVALS = Table(
    "One row per run, phase, interval, stream and operation: counts, and exact sum and extremes of latency",
    (
        *_PLACE,
        _BEGIN,
        _END,
        _STREAM,
        _OPERATION,
        *_stored(
            U64,
            ("count", "I/Os completed without error"),
            ("bytes", "Bytes that they moved"),
            ("errors", "I/Os that failed or were short"),
            ("completion_latency_ns_sum", "Sum of completion latencies (submission to completion), ns"),
            ("completion_latency_ns_min", "Smallest completion latency, ns; null where nothing completed"),
            ("completion_latency_ns_max", "Largest completion latency, ns; null where nothing completed"),
            (
                "response_latency_ns_sum",
                "Sum of response latencies (intended start to completion), ns; null in closed loop",
            ),
            ("response_latency_ns_min", "Smallest response latency, ns; null in closed loop"),
            ("response_latency_ns_max", "Largest response latency, ns; null in closed loop"),
            ("backlog_max", "Open loop: largest number of I/Os due but not started"),
        ),
        Column(
            "engine_stalled_ns",
            U64,
            "Time in the interval during which the engine itself did not run, ns",
            added=True,
        ),
    ),
)

HISTOGRAMS = Table(
    "One row per occupied latency bucket of a run, phase, interval, stream and operation",
    (
        *_PLACE,
        _STREAM,
        _OPERATION,
        Column("latency", TEXT, "`completion` (submission to completion) or `response` (intended start to completion)"),
        Column("bucket", U32, "Number of the bucket (docs/protocol.md, Histogram)"),
        Column("count", U64, "I/Os in the bucket"),
        Column("lower_ns", U64, "Smallest latency of the bucket, ns", computed="bucket_lower_ns(bucket)"),
        Column(
            "midpoint_ns",
            U64,
            "Representative latency, within 0.1 % of every latency in the bucket, ns",
            computed="bucket_midpoint_ns(bucket)",
        ),
    ),
)

USAGE = Table(
    "One row per interval for the engine process and for each block device under the target",
    (
        *_PLACE,
        _BEGIN,
        _END,
        Column(
            "device",
            TEXT,
            "Block device as `major:minor`; `process` for the engine; `array`, `drive0` of a simulated target",
        ),
        *_stored(
            U64,
            *_USAGE.items(),
            ("reads", "Reads completed by the device"),
            ("read_merges", "Reads merged with queued ones"),
            ("read_bytes", "Bytes read"),
            ("read_wait_ns", "Sum of read wait times, ns"),
            ("writes", "Writes completed by the device"),
            ("write_merges", "Writes merged with queued ones"),
            ("write_bytes", "Bytes written"),
            ("write_wait_ns", "Sum of write wait times, ns"),
            ("in_flight", "I/Os in flight at the end of the interval"),
            ("busy_ns", "Time with any I/O in flight, ns"),
            ("discards", "Discards completed"),
            ("discard_bytes", "Bytes discarded"),
            ("flushes", "Flushes completed"),
        ),
        *_stored(
            U64,
            ("media_read_bytes", "Bytes read from the media; simulated drives only"),
            ("media_write_bytes", "Bytes programmed: host data, copies and padding; simulated drives only"),
            ("copied_bytes", "Bytes of these that garbage collection copied"),
            ("padded_bytes", "Bytes of these that padded pages incomplete at a flush"),
            ("erases", "Erased blocks, of one die each"),
            ("buffer_read_hits", "Reads (4 KiB pages) served from the write buffer"),
            ("buffer_write_hits", "Writes (4 KiB pages or parts) that replaced data still in the write buffer"),
            added=True,
        ),
    ),
)

STORE_STATISTICS = Table(
    "One row per statistic of a store, or counter of the kernel (paging, block caches), at the end of an interval",
    (
        *_PLACE,
        _END,
        Column("statistic", TEXT, "Name, as the store calls it"),
        Column("value", U64, "Value: a counter since the store was opened, or a state"),
    ),
)

NAMED_VALUES = Table(
    "One row per value that an external command printed: one for the run, or one for each line over time",
    (
        _RUN_ID,
        Column("metric", TEXT, "Name that the study gives the value"),
        Column("title", TEXT, "Its title"),
        Column("unit", TEXT, "Unit: `1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios"),
        Column("better", TEXT, "`higher`, `lower` or `neither`"),
        Column("aggregate", TEXT, "How the value of a run follows from several: `mean`, `median`, `minimum` ..."),
        Column("point", U32, "Number of the value in the run, from 0"),
        _BEGIN,
        _END,
        Column("value", NUMBER, "Value in that unit"),
    ),
)

WARNINGS = Table(
    "One row per warning: a reason to distrust a run's numbers",
    (
        _RUN_ID,
        Column("code", TEXT, "Stable name (docs/warnings.md)"),
        Column("message", TEXT, "Message"),
        Column("hint", TEXT, "What to do about it"),
    ),
)

EVIDENCE = Table(
    "One row per number that a run's verdict is based on",
    (
        _RUN_ID,
        Column("number", TEXT, "Name of the number (docs/warnings.md)"),
        Column("value", NUMBER, "Value; a share from 0 to 1 if its name has `share`"),
    ),
)

FAULTS = Table(
    "One row per location where verification found wrong data, at most 64 per run",
    (
        _RUN_ID,
        Column("fault", TEXT, "`lost`, `torn`, `misdirected`, `stale`, `flipped` or `foreign` (docs/verification.md)"),
        Column("path", TEXT, "File"),
        Column("offset_bytes", U64, "Offset in the file, bytes"),
        Column("bytes", U64, "Length, bytes"),
        Column("expected", TEXT, "Expected content, in words"),
        Column("found", TEXT, "Content found, in words"),
    ),
)

TABLES: dict[str, Table] = {
    "cases": CASES,
    "runs": RUNS,
    "jobs": JOBS,
    "intervals": INTERVALS,
    "histograms": HISTOGRAMS,
    "usage": USAGE,
    "store_statistics": STORE_STATISTICS,
    "named_values": NAMED_VALUES,
    "warnings": WARNINGS,
    "evidence": EVIDENCE,
    "faults": FAULTS,
}
"""Every table of facts by name."""

COLUMNS: dict[str, dict[str, str]] = {
    name: {column.name: column.text for column in table.columns} for name, table in TABLES.items()
}
"""Table -> column -> meaning."""

RESERVED = {name for columns in COLUMNS.values() for name in columns} | {"result_set"}
"""Names that no factor or parameter keeps."""
