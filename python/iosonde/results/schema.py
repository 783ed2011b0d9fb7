"""The layout of a result set on disk.

    DIR/
      format.json                     {"format": 1, "plan_sha256": ..., "iosonde": "0.1.0"}
      plan.json                       the Plan, written before the first run
      environments/HASH.json          machine and software, once per state; HASH is of the content
      records/RUN_ID[.aN]/            one run; .aN is attempt N (from 2) after a failure
        record.json                   `Record`
        intervals.parquet             `INTERVALS`
        histograms.parquet            `HISTOGRAMS`
        usage.parquet                 `USAGE`
        store_statistics.parquet      `STORE_STATISTICS`; key-value workloads, servers and block caches only
        named_values.parquet          `NAMED_VALUES`; external commands only
        SHA256SUMS                    checksums of these files, for `sha256sum --check`
      hosts/NAME/                     result set of a host, on that host, if the study ran on several

Every file and directory is written under a name that begins with `.tmp-`, synced, and renamed; it is never modified
afterwards. Names that begin with `.tmp-` are not part of the set.

A changed meaning of anything in it is a new format. No released format becomes unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from iosonde.plan import ArmName, DeviceState, Scalar
from iosonde.results.column import BUCKETS, NUMBER, TEXT, U32, U64, Column, DType, Table, grown

FORMAT: Literal[1] = 1

MANIFEST = "SHA256SUMS"

RUN_ID = Column("run_id", TEXT, "Run: case number and repeat", lambda run: run.record.run_id)

_PLACE = (
    RUN_ID,
    Column("phase", TEXT, "`ramp` or `measure`"),
    Column("interval", U32, "Number of the interval in its phase, from 0"),
)
_BEGIN = Column("begin_ns", U64, "Start of the interval, ns since the run's time 0")
_END = Column("end_ns", U64, "End of the interval, ns since the run's time 0")
_STREAM = Column("stream", TEXT, "Stream")
_OPERATION = Column("operation", TEXT, "`read`, `write`, `trim` or `flush`")

RESOURCES: Mapping[str, str] = {
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
"""Resource use of a process or thread: the protocol's `Usage`."""


def stored(dtype: DType, *columns: tuple[str, str]) -> tuple[Column, ...]:
    """Return columns of the same type from names and meanings."""
    return tuple(Column(name, dtype, text) for name, text in columns)


STORED_TABLES: Mapping[str, Table] = {
    "intervals": Table(
        "One row per run, phase, interval, stream and operation: counts, and exact sum and extremes of latency",
        (
            *_PLACE,
            _BEGIN,
            _END,
            _STREAM,
            _OPERATION,
            *stored(
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
                ("engine_stalled_ns", "Time in the interval during which the engine itself did not run, ns"),
            ),
        ),
    ),
    "histograms": Table(
        "One row per occupied latency bucket of a run, phase, interval, stream and operation",
        (
            *_PLACE,
            _STREAM,
            _OPERATION,
            Column(
                "latency", TEXT, "`completion` (submission to completion) or `response` (intended start to completion)"
            ),
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
    ),
    "usage": Table(
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
            *stored(
                U64,
                *RESOURCES.items(),
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
                ("media_read_bytes", "Bytes read from the media; simulated drives only"),
                ("media_write_bytes", "Bytes programmed: host data, copies and padding; simulated drives only"),
                ("copied_bytes", "Bytes of these that garbage collection copied"),
                ("padded_bytes", "Bytes of these that padded pages incomplete at a flush"),
                ("erases", "Erased blocks, of one die each"),
                ("buffer_read_hits", "Reads (4 KiB pages) served from the write buffer"),
                ("buffer_write_hits", "Writes (4 KiB pages or parts) that replaced data still in the write buffer"),
            ),
        ),
    ),
    "store_statistics": Table(
        "One row per statistic of a store, or counter of the kernel (swap, block caches), at the end of an interval",
        (
            *_PLACE,
            _END,
            Column("statistic", TEXT, "Name, as the store calls it"),
            Column("value", U64, "Value: a counter since the store was opened, or a state"),
        ),
    ),
    "named_values": Table(
        "One row per value that an external command printed: one for the run, or one for each line over time",
        (
            RUN_ID,
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
    ),
}
"""The tables of a record that are files, by name."""

INTERVALS = STORED_TABLES["intervals"].schema
HISTOGRAMS = STORED_TABLES["histograms"].schema
USAGE = STORED_TABLES["usage"].schema
STORE_STATISTICS = STORED_TABLES["store_statistics"].schema
NAMED_VALUES = STORED_TABLES["named_values"].schema

RECORD_TABLES = {"intervals": INTERVALS, "histograms": HISTOGRAMS, "usage": USAGE}
"""The Parquet files of every record."""

WORKLOAD_TABLES = {"store_statistics": STORE_STATISTICS, "named_values": NAMED_VALUES}
"""Parquet files of the records of some workloads."""


def _time(text: str) -> str:
    """Check a time of a run; one before 1970 or without an offset could not be converted."""
    if datetime.fromisoformat(text).astimezone().timestamp() < 0 or datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("not a valid run time")
    return text


Time = Annotated[str, AfterValidator(_time)]
"""ISO 8601 with offset."""


SHARED_LOG_DEVICE = "shared_log_device"
"""Code of the warning about a log on the device of the data, although the study has it apart."""


class RecordWarning(BaseModel):
    """Something that may mislead a reader of the numbers."""

    model_config = ConfigDict(frozen=True)
    code: str
    message: str
    hint: str = ""
    is_lasting: bool = False
    """True if it holds for the following runs on the same setup too, such as a failed device."""
    is_transient: bool = False
    """True if the rate of the run cannot last, such as one that spends burst credits."""


WRONG_DATA: dict[str, str] = {
    "wrong_data": "sectors read differ from those written",
    "wrong_pages": "pages read differ from those written",
    "wrong_objects": "objects read differ from those written",
    "corrupted_values": "values read differ from those written",
    "stale_values": "values read are older than an acknowledged write",
    "missing_records": "records that were written are missing",
    "damaged_graph": "stored data has another checksum than when it was written",
    "wrong_result": "the result breaks the rules of its algorithm",
}
"""Warnings of the engine that data was not what it must be, with what was found."""


VerdictKind = Literal[
    "device-limited",
    "harness-limited",
    "cache-served",
    "network-limited",
    "server-limited",
    "server-CPU-limited",
    "lock-limited",
    "undetermined",
]


class RecordVerdict(BaseModel):
    """Limiting factor of a run, and the numbers behind it (verdict/verdict.py)."""

    model_config = ConfigDict(frozen=True)
    kind: VerdictKind
    because: list[str]
    """Sentences, the heaviest first."""
    evidence: dict[str, float | None]
    """Numbers by name (verdict/evidence.py); null where they are not known."""


class Failure(BaseModel):
    """Reason for a run without a result."""

    model_config = ConfigDict(frozen=True)
    code: str
    """The engine's code, or `crashed`, `killed`, `out_of_memory`, `not_started`, `protocol`; `setup`, `purge`
    if it did not start because the target could not be prepared."""
    message: str
    context: str = ""
    hint: str = ""


UNSUPPORTED = "unsupported"
"""Failure code of a combination that store or target do not support: repeating the run cannot help."""


REFUSED = "invalid_spec"
"""Code of the failure of a run that the engine refused because of the study, such as an option that no store has."""


class RecordPart(BaseModel):
    """The part of a record that belongs to a feature. Subclasses are listed in `PARTS` of the feature's `record.py`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str]
    """Key of `Record.parts`."""

    @classmethod
    def of_hosts(cls, parts: Sequence[Self]) -> Self | None:
        """Return the part of a run on several hosts from those of the hosts; None if the total has none."""
        return None

    def about_target(self) -> dict[str, dict[str, Any]]:
        """Return facts about the target for the report, in groups by title."""
        return {}


P = TypeVar("P", bound=RecordPart)


class Record(BaseModel):
    """One run: what was requested, what happened, on what. Facts only."""

    model_config = ConfigDict(frozen=True)
    format: Literal[1] = FORMAT
    run_id: str
    attempt: int
    case_id: str
    part: str
    control: bool
    device_state: DeviceState = "unknown"
    """State of the device that the run measures, as far as the plan could bring it about."""
    arm: ArmName = ""
    """Arm of an A/B comparison within one session."""
    repeat: int
    order: int
    levels: dict[str, Scalar]
    parameters: dict[str, Any]
    spec: dict[str, Any]
    started_at: Time
    ended_at: Time
    outcome: Literal["complete", "stopped", "failed"]
    failure: Failure | None
    end_reason: Literal["", "steady", "decided", "time_limit", "server_killed"] = ""
    """Reason if iosonde stopped the measurement before its planned end; otherwise empty."""
    engine: dict[str, Any]
    """The engine's `hello`, unchanged; empty if it sent none."""
    phases: list[dict[str, Any]]
    """The engine's `phase` events."""
    result: dict[str, Any] | None
    """The engine's `result` event, as it came."""
    child: dict[str, Any]
    """The kernel's account of the engine process (`wait4`): wall_ns, user_ns, system_ns, switches, inputs, outputs,
    max_rss_bytes, exit status."""
    target: dict[str, Any]
    """Description of the target: file system, mount options, block-device stack with model, firmware, sizes, queue
    settings, temperature where the device reports it (storage/block_layer/block_stack.py)."""
    setup: dict[str, Any] = {}
    """Setup between target and workload (execution/context.py): `requested` (the case's `Setup`), `target` (the
    target below it), when and for which run it was created, in how many seconds and by which commands, and the result.
    Empty without a setup."""
    environment: str
    """Hash of the environment file."""
    session: str = ""
    """The `run` or `resume` that wrote it: between two sessions the target was idle, and its files may be different."""
    warnings: list[RecordWarning]
    """Warnings of the engine, then those that follow from the facts."""
    target_after: dict[str, Any] = {}
    """Temperatures of the target's devices after the run, where they report them."""
    harness: dict[str, Any] | None = None
    """Cost of an I/O of each stream on the null backend, and where it was measured (execution/harness.py)."""
    memory: dict[str, Any] | None = None
    """Counters of the control group of its memory limit (storage/control_groups.py); None without a limit."""
    server: dict[str, Any] | None = None
    """Workloads on a database server: version, settings, open files, restored template, statistics at the start and the
    end of the measurement, control group, shutdown, durability (execution/instruments/database_server.py)."""
    device_totals: list[dict[str, Any]] = []
    """Key-value workloads: I/O of each block device from before the start until all data was durable
    (execution/instruments/counters.py)."""
    own_io: dict[str, Any] | None = None
    """Bytes of each device that holds the target, and the engine's own of them, over the run and over the measurement
    (execution/instruments/counters.py); None without a device."""
    drives: list[dict[str, Any]] = []
    """Media, wear and temperature reported by each drive under the target before and after the run, or the reason for
    their absence, and the kernel's requests to the drive in the same time (execution/instruments/counters.py)."""
    queue_settings: list[dict[str, Any]] = []
    """Settings of block queues that were changed for the run, with their values before it
    (execution/instruments/conditions.py)."""
    parts: dict[str, Any] = {}
    """Parts of features, by `RecordPart.name`; read with `of`."""
    verdict: RecordVerdict | None = None
    """None for runs without a result."""

    def of(self, kind: type[P]) -> P | None:
        """Return what a feature has recorded; None if it took no part in the run."""
        found = self.parts.get(kind.name)
        return None if found is None else kind.model_validate(found)

    @property
    def ended(self) -> tuple[str, str, str, bool]:
        """Outcome, code of the failure, verdict, and whether wrong data was found; empty texts for none."""
        failure, verdict = self.failure.code if self.failure else "", self.verdict.kind if self.verdict else ""
        return self.outcome, failure, verdict, self.has_wrong_data

    @property
    def has_wrong_data(self) -> bool:
        """True if the load found data that was not what had been written."""
        return any(each.code in WRONG_DATA for each in self.warnings)

    @property
    def refused(self) -> bool:
        """True if the study has to be corrected before this can be measured."""
        return self.failure is not None and self.failure.code == REFUSED

    @property
    def is_failed(self) -> bool:
        """True if it failed and repeating it may help: unsupported combinations are not failures."""
        return self.outcome == "failed" and not self.is_unsupported

    @property
    def is_unsupported(self) -> bool:
        """True if it was an unsupported combination: a row with its reason, and nothing to repeat."""
        return self.failure is not None and self.failure.code == UNSUPPORTED


class ServerCounters(BaseModel):
    """Counters of a server at two instants within the measurement; both are empty if there were none."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    host: str
    machine: str
    """Boot id of its kernel."""
    cpus: int
    cache_dropped: bool = False
    """True if its page cache was dropped before the load started."""
    at_start: dict[str, int] = Field(default_factory=dict)
    """By name, since the server was booted: `cpu_ns` of all CPUs, `disk_*` of all drives, `busy_ms.NAME` of each,
    `nic_*` of all interfaces, and `nfsd_*` where it serves NFS. With `time_ns` on its clock, and the counters `load_*`
    of the load of all hosts at that time."""
    at_end: dict[str, int] = Field(default_factory=dict)

    def grown(self, name: str) -> int | None:
        """Increase of a counter; None if it is missing or was reset."""
        return grown(self.at_start, self.at_end, name)


class ServerReading(RecordPart):
    """All servers of a run."""

    name = "servers"

    servers: list[ServerCounters]

    def about_target(self) -> dict[str, dict[str, object]]:
        """Name the servers that were measured."""
        return {"Servers among the hosts": {each.host: f"{each.cpus} CPUs" for each in self.servers}}


_LARGEST = (1 << 63) - 1
"""Metrics are computed with signed integers."""


def check_numbers(rows: pl.DataFrame) -> None:
    """Raise `ValueError` for numbers of a stored table that no run has and that arithmetic would stop at."""
    for name, kind in rows.schema.items():
        if kind == pl.UInt64 and (rows[name] > _LARGEST).any():
            raise ValueError(f"a number in the column `{name}` is out of range")
    if "bucket" in rows.columns and (rows["bucket"] >= BUCKETS).any():
        raise ValueError("a number in the column `bucket` is not a bucket")
