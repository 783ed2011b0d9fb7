"""The facts of a run: columns of the table `runs`, one row each with name, type, meaning and what reads its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from iosonde.base.features import contributed
from iosonde.results.accounting import COUNTED_NS, Foreign, busiest_core_share, foreign, kernel_cpu_ns
from iosonde.results.column import FLAG, I64, NUMBER, TEXT, U32, U64, Column, DType, Row, Table, any_of, facts
from iosonde.results.schema import RESOURCES, RUN_ID, Record
from iosonde.storage import pcie
from iosonde.study.workload import streams_of, workloads

Json = Mapping[str, Any]
F = TypeVar("F")


class RunFacts:
    """One record, with the parts of it that several columns share."""

    def __init__(self, record: Record) -> None:
        self.record: Record = record
        self._of_features: dict[Any, Any] = {}

    def of(self, kind: Callable[[Record], F]) -> F:
        """Return the facts of a feature, which are derived from the record once and shared by its columns."""
        if kind not in self._of_features:
            self._of_features[kind] = kind(self.record)
        return self._of_features[kind]  # type: ignore[no-any-return]

    @cached_property
    def result(self) -> Json:
        """The engine's result; empty if it sent none."""
        return self.record.result or {}

    @cached_property
    def streams(self) -> Sequence[Json]:
        return streams_of(self.record.spec["workload"])

    def part(self, name: str) -> Json:
        """Return a part of the engine's result; empty where there is none."""
        found: Json = self.result.get(name) or {}
        return found

    @property
    def jobs_total(self) -> int:
        """Threads of all streams."""
        return sum(stream["jobs"] for stream in self.streams)

    @property
    def concurrency(self) -> int:
        """I/Os in flight at most."""
        return sum(stream["jobs"] * stream.get("queue_depth", stream.get("batch", 1)) for stream in self.streams)

    @property
    def loop(self) -> str | None:
        """`closed`, `open`, or `mixed` when the streams differ."""
        kinds = {"closed" if stream["arrival"]["kind"] == "closed" else "open" for stream in self.streams}
        if not kinds:
            return None
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def job_cpus(self) -> str | None:
        """CPUs that the threads of the jobs were allowed to run on."""
        lists: list[str] = self.part("evidence").get("job_cpus") or []
        return " ".join(lists if len(set(lists)) > 1 else lists[:1]) or None

    @property
    def wrong_sectors(self) -> int | None:
        """Wrong sectors of all kinds; none without verification."""
        verification = self.part("verification")
        return sum(verification["faults"].values()) if verification else None

    @cached_property
    def foreign(self) -> Foreign:
        return foreign(self.record.own_io, self.record.spec["workload"])


def values(record: Record, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the values of columns of `runs` for a record."""
    run = RunFacts(record)
    return {column.name: column.read(run) for column in columns if column.value}


_SERVER_COUNTERS: Mapping[str, str] = {
    COUNTED_NS: "Time between the two readings of these counters, ns",
    "server_cpu_ns": "CPU time of all its processes, ns",
    "wal_bytes": "Bytes of write-ahead log that it generated",
    "buffer_hits": "Page requests that hit its buffer pool",
    "buffer_reads": "Page requests that read a page from the operating system",
    "checkpoints": "Checkpoints, timed and requested",
    "checkpoint_write_ms": "Time in which checkpoints wrote, ms",
    "vacuums": "Tables vacuumed",
    "log_waits": "Waits for room in the log buffer",
    "lock_waits": "Waits for row locks",
    "lock_wait_ms": "Time that transactions waited for row locks, ms",
    "deadlocks": "Deadlocks",
    "group_read_bytes": "Bytes that its control group read from block devices",
    "group_write_bytes": "Bytes that its control group wrote to block devices",
    "server_major_faults": "Major page faults of its control group",
    "server_swap_in_bytes": "Bytes that the machine read from swap, in runs with a swap area",
    "server_swap_out_bytes": "Bytes that the machine wrote to swap, in runs with a swap area",
}
"""Those of all servers, and of database servers with SQL."""

SERVER_COUNTERS: Mapping[str, str] = {**_SERVER_COUNTERS, **dict(contributed("facts", "COUNTERS"))}
"""Statistics of servers whose increase over the measurement is a fact of the run."""

SERVER_STATES = ("sessions_active", "sessions_waiting_for_lock", "sessions_waiting_for_log", "sessions_waiting_for_io")
"""Statistics whose mean over the intervals is a fact of the run."""

DATA_BYTES = "server_data_bytes"
"""Bytes of data pages that the server wrote, without its log."""

PAGE_BYTES = 8192
"""Page of PostgreSQL, which counts buffers."""

CHECKPOINTS = ("checkpoints_timed", "checkpoints_requested")
WRITTEN_BUFFERS = ("checkpoint_buffers", "background_buffers", "client_buffers")

SOURCES = (*SERVER_COUNTERS, *CHECKPOINTS, *WRITTEN_BUFFERS, "data_written_bytes")
"""Statistics that counters are derived from."""


def counters(statistics: Mapping[str, int | None]) -> dict[str, int]:
    """Return the counters of one poll that a server has: `COUNTERS` and `DATA_BYTES`, each since the server started."""
    known = {name: int(value) for name, value in statistics.items() if value is not None}
    found = {name: known[name] for name in SERVER_COUNTERS if name in known}
    for name, parts in (("checkpoints", CHECKPOINTS), (DATA_BYTES, WRITTEN_BUFFERS)):
        values = [known[part] for part in parts if part in known]
        if values:
            found[name] = sum(values) * (PAGE_BYTES if name == DATA_BYTES else 1)
    if "data_written_bytes" in known:
        found[DATA_BYTES] = known["data_written_bytes"]
    return found


class ServerFacts:
    """The parts of a record about a database server and its clients; empty without one."""

    def __init__(self, record: Record) -> None:
        self.server: Json = record.server or {}
        self._begin = counters(self.server.get("statistics_at_start") or {})
        self._end = counters(self.server.get("statistics_at_end") or {})
        self.client: Json = ((record.result or {}).get("oltp") or {}).get("counters") or {}

    def __getitem__(self, name: str) -> int | None:
        """Increase of a counter over the measurement."""
        before, after = self._begin, self._end
        return max(0, after[name] - before[name]) if name in before and name in after else None

    @property
    def load_seconds(self) -> float | None:
        load: Json = (self.server.get("template") or {}).get("result", {}).get("load") or {}
        return load["duration_ns"] / 1e9 if load else None


def _counter(name: str, text: str) -> Row:
    return name, U64, text, lambda facts: facts[name]


_OF_SERVER = facts(
    ServerFacts,
    ("server_title", TEXT, "Database server; null without one", "server.title"),
    ("server_version", TEXT, "Its version, as it reports it", "server.version"),
    *(_counter(name, f"Server, in the measurement: {text}") for name, text in SERVER_COUNTERS.items()),
    *(
        (name, NUMBER, "Mean over the intervals of sessions in that state", f"server.statistics_mean.{name}")
        for name in SERVER_STATES
    ),
    _counter(DATA_BYTES, "Bytes of data pages that the server wrote in the measurement"),
    ("statements", U64, "Statements that the clients executed", "client.statements"),
    ("round_trips", U64, "Times that a client waited for an answer of the server", "client.round_trips"),
    (
        "aborted_attempts",
        U64,
        "Attempts that ended in a serialization failure, deadlock or lock timeout",
        "client.aborted_attempts",
    ),
    ("failed_transactions", U64, "Transactions that failed after all retries", "client.failed_transactions"),
    ("restore_seconds", NUMBER, "Time to restore the database from its template, s", "server.restored.seconds"),
    ("load_seconds", NUMBER, "Time to load the template, s"),
    (
        "acknowledged_commits",
        U64,
        "Commits that were acknowledged before the server was killed",
        "server.durability.acknowledged",
    ),
    ("lost_commits", U64, "Of these, commits that the restarted server does not have", "server.durability.lost"),
    (
        "recovery_seconds",
        NUMBER,
        "Time from the restart of a killed server to its first connection, s",
        "server.durability.recovery_seconds",
    ),
    (
        "recovery_error",
        TEXT,
        "Why these could not be looked up: the server did not restart, or answered with an error; null if they were",
        "server.durability.error",
    ),
)


def _not_reported(record: Record) -> str | None:
    """Return why one of the drives does not report its media writes."""
    return next(filter(None, map(_reason, record.drives)), None)


_OF_DRIVES = (
    *facts(
        lambda record: record.drives if record.drives and not _not_reported(record) else None,
        (
            "drive_write_bytes",
            U64,
            "Bytes that the kernel sent to the physical drives over the whole run",
            lambda drives: sum(drive["write_bytes"] for drive in drives),
        ),
        (
            "drive_units_written",
            U64,
            "The same as the drives count it, in data units of 512,000 bytes, rounded up",
            lambda drives: _sum(drives, "data_units_written"),
        ),
        (
            "media_write_bytes",
            U64,
            "Bytes that the drives wrote to their media in that time; null unless all report it",
            lambda drives: _sum([_media(drive) for drive in drives], "written_bytes"),
        ),
        (
            "media_step_bytes",
            U64,
            "Resolution of their media counters, bytes",
            lambda drives: max(drive["end"]["media"]["step_bytes"] for drive in drives),
        ),
        prefix="run_",
    ),
    Column(
        "run_media_not_reported",
        TEXT,
        "Why media writes are not reported; null where they are",
        lambda run: _not_reported(run.record),
    ),
)


def _reason(drive: Json) -> str | None:
    """Return why a drive's media writes are unknown; None where they are known."""
    for moment in ("start", "end"):
        if "media" not in drive[moment]:
            return str(drive[moment]["not_reported"])
    if "write_bytes" not in drive:
        return f"the kernel does not count the bytes sent to `{drive['name']}`"
    if _grown(drive, "data_units_written") < 0 or _grown(_media(drive), "written_bytes") < 0:
        return f"a counter of `{drive['name']}` went backwards during the run"
    return None


def _media(drive: Json) -> Json:
    return {moment: drive[moment]["media"] for moment in ("start", "end")}


def _sum(drives: Sequence[Json], counter: str) -> int:
    return sum(_grown(drive, counter) for drive in drives)


def _grown(drive: Json, counter: str) -> int:
    return int(drive["end"][counter]) - int(drive["start"][counter])


_OF_TARGET = (
    Column(
        "target_bytes",
        U64,
        "Size of the array or device under the run, bytes; null where not reported",
        lambda run: _size(run.record.target),
    ),
    Column(
        "members",
        TEXT,
        "Members of the array under the run, named as in `usage`, separated by spaces; null without an array",
        lambda run: " ".join(members_of(run.record.target)) or None,
    ),
    Column(
        "link_bytes_per_second",
        NUMBER,
        "Bandwidth limit of all members together, bytes/s; null where unknown",
        lambda run: _link(run.record.spec),
    ),
    Column(
        "pcie_bytes_per_second",
        NUMBER,
        "Bandwidth limit of the PCIe links that members share, per direction, bytes/s; null where they share none",
        lambda run: _pcie(run.record.target),
    ),
    Column(
        "memory_copy_bytes_per_second",
        NUMBER,
        "Memory copy bandwidth of the machine, bytes/s; null unless the load is buffered",
        "record.harness.memory_copy_bytes_per_second",
    ),
)


def members_of(target: Json) -> list[str]:
    """Return the members of the array below a target, as the table `usage` calls them.

    Of arrays on arrays those of the upper one. A btrfs over several devices has them as members; its `devices` are
    listed side by side.
    """
    devices: Sequence[Json] = target.get("devices") or []
    if target.get("simulated"):
        return [each["device"] for each in devices] if len(devices) > 1 else []
    for device in devices:
        if device.get("kind") == "md":
            under = set(device.get("under", []))
            return [each["device"] for each in devices if each.get("name") in under]
    if (target.get("file_system") or {}).get("kind") == "btrfs":
        covered = {name for device in devices for name in device.get("under", [])}
        tops = [each["device"] for each in devices if each.get("name") not in covered]
        return tops if len(tops) > 1 else []
    return []


def _size(target: Json) -> int | None:
    if "size_bytes" in target:
        return int(target["size_bytes"])
    devices = target.get("devices") or []
    size = (target.get("file_system") or {}).get("size_bytes") or (devices[0].get("size_bytes") if devices else None)
    return None if size is None else int(size)


def _pcie(target: Json) -> float | None:
    """Return the bandwidth limit of PCIe links that all members share, in each direction; None without any."""
    members = members_of(target)
    return pcie.of_all([each for each in target.get("devices") or [] if each.get("device") in members])


def _link(spec: Json) -> float | None:
    """Of simulated drives, reading and writing together."""
    array = ((spec.get("workload") or {}).get("backend") or {}).get("array") or {}
    limit = array.get("bytes_per_second")
    return None if limit is None else float(limit)


def _moved(name: str, text: str) -> Column:
    """Return bytes of the outermost devices."""

    def value(run: RunFacts) -> int | None:
        totals = _outermost(run.record.device_totals)
        return sum(each[name] for each in totals) if totals else None

    return Column(f"run_device_{name}", U64, text, value)


_OF_RESOURCES = (
    Column(
        "swap_peak_bytes",
        U64,
        "Peak swap of the engine's control group, bytes; with cgroup v1 a lower bound",
        "record.memory.swap_peak_bytes",
    ),
    *(
        Column(f"memory_{name}", U64, text, f"record.memory.{name}")
        for name, text in (
            ("limit_bytes", "Memory limit of the engine's control group, bytes; null without one"),
            ("peak_bytes", "Peak memory charged to it, page cache included, bytes"),
            ("at_limit", "Number of times that memory was reclaimed at the limit"),
            ("oom_kills", "Processes in it that the kernel killed for lack of memory"),
        )
    ),
    _moved("read_bytes", "Bytes read by the outermost device from before engine start to engine exit"),
    _moved("write_bytes", "The same for writes, until everything was durable"),
)


def _outermost(totals: Sequence[Json]) -> Sequence[Json]:
    """Return the devices that data and log are on; where that is not known, the one that moved most.

    Of stacked devices each counts the same bytes, so they are not added up.
    """
    outermost = [each for each in totals if each.get("outermost")]
    return outermost or sorted(totals, key=lambda each: each["read_bytes"] + each["write_bytes"])[-1:]


def _usage(prefix: str, text: str, dtype: DType, path: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{prefix}{name}", dtype, f"{text}. {meaning}", f"{path}.{name}") for name, meaning in RESOURCES.items()
    )


_OF_CORES = (
    Column(
        "kernel_cpu_ns",
        U64,
        "CPU time of all kernel threads during the measurement, ns; null where none is visible",
        lambda run: kernel_cpu_ns(run.part("evidence")),
    ),
    Column(
        "busiest_core_share",
        NUMBER,
        "Share of the measurement in which the busiest core was not idle",
        lambda run: busiest_core_share(run.part("evidence")),
    ),
)


RUNS = Table(
    "One row per run (one repeat of a case), its latest attempt, with the factors of its case",
    (
        RUN_ID,
        Column("case_id", TEXT, "Case that the run repeats", "record.case_id"),
        Column("part", TEXT, "Part of the study", "record.part"),
        Column("control", FLAG, "Whether it repeats the control case", "record.control"),
        Column("device_state", TEXT, "Planned device state of its case", "record.device_state"),
        Column("arm", TEXT, "Arm of an A/B comparison: `a`, `b` or empty", "record.arm"),
        Column("repeat", U32, "Number of the repeat, from 1", "record.repeat"),
        Column("order", U32, "Position in the order of execution, from 0", "record.order"),
        Column("attempt", U32, "Number of the attempt, from 1; above 1 after a failure", "record.attempt"),
        Column("outcome", TEXT, "`complete`, `stopped` or `failed`", "record.outcome"),
        Column("failure", TEXT, "Code of the failure", "record.failure.code"),
        Column("failure_message", TEXT, "Message of the failure", "record.failure.message"),
        Column("started_at", TEXT, "Start of the engine, ISO 8601", "record.started_at"),
        Column("ended_at", TEXT, "Exit of the engine, ISO 8601", "record.ended_at"),
        Column("measure_start_ns", U64, "Start of the measurement, ns since the run's time 0", "result.begin_ns"),
        Column("measure_end_ns", U64, "End of the measurement, ns since the run's time 0", "result.end_ns"),
        Column("jobs_total", U64, "Jobs (threads) of all streams", "jobs_total"),
        Column(
            "job_cpus",
            TEXT,
            "CPUs that the threads of the jobs were allowed to run on, such as `0-3`: one list if it is the same for "
            "all, or else one for each thread, separated by spaces",
            "job_cpus",
        ),
        Column(
            "concurrency", U64, "Upper bound of I/Os in flight: jobs x queue depth, summed over streams", "concurrency"
        ),
        Column("loop", TEXT, "`closed` (next I/O when one completes), `open` (at a rate), or `mixed`", "loop"),
        Column("backend_in_effect", TEXT, "Backend that did the I/O", "result.backend.kind"),
        Column("layout_written_bytes", U64, "Bytes that layout wrote", "result.layout.written_bytes"),
        Column("layout_kept_bytes", U64, "Bytes that layout found already written", "result.layout.kept_bytes"),
        Column(
            "verified_bytes",
            U64,
            "Bytes read and verified, counted each time; null without verification",
            "result.verification.checked_bytes",
        ),
        Column(
            "wrong_sectors",
            U64,
            "512-byte sectors with wrong data, counted each time; null without verification",
            "wrong_sectors",
        ),
        Column(
            "has_wrong_data",
            FLAG,
            "Whether the load found data (sectors, values, objects, pages, results) that was not what was written",
            "record.has_wrong_data",
        ),
        Column(
            "peak_memory_bytes",
            U64,
            "Peak resident memory of the engine as it reports it, or of the measured command (wait4), bytes",
            "result.peak_memory_bytes",
        ),
        Column("buffer_bytes", U64, "Size of the I/O buffers, bytes", "result.buffer_bytes"),
        *_usage("process_", "Engine process during the measurement", U64, "result.process"),
        *_usage("child_", "Engine process from start to exit (wait4)", I64, "record.child"),
        Column(
            "child_max_rss_bytes",
            I64,
            "Peak resident memory of the engine process (wait4), bytes; null where unknown",
            "record.child.max_rss_bytes",
        ),
        Column(
            "child_exit_status",
            I64,
            "Exit status of the engine process; the negative signal number if a signal killed it",
            "record.child.exit_status",
        ),
        Column("clock", TEXT, "Clock used for latencies", "record.engine.clock"),
        Column("clock_read_ns", NUMBER, "Cost of one clock read, ns", "record.engine.clock_read_ns"),
        Column("realtime_ns", U64, "Wall clock at the run's time 0, Unix time in ns", "record.engine.realtime_ns"),
        Column("engine", TEXT, "Name of the engine", "record.engine.engine"),
        Column("engine_version", TEXT, "Version of the engine", "record.engine.version"),
        Column(
            "environment",
            TEXT,
            "Name of the file in `environments/` that describes machine and software",
            "record.environment",
        ),
        *_OF_TARGET,
        *_OF_CORES,
        Column(
            "simulated",
            FLAG,
            "Whether the storage was simulated: values of a model, not of a device",
            lambda run: bool(run.record.target.get("simulated", False)),
        ),
        Column("warning_count", U32, "Number of warnings", lambda run: len(run.record.warnings)),
        Column(
            "rate_is_transient",
            FLAG,
            "True if the rate of the run cannot last, by a warning: a published burst rate",
            lambda run: any(warning.is_transient for warning in run.record.warnings),
        ),
        Column(
            "verdict",
            TEXT,
            "`device-limited`, `harness-limited`, `cache-served`, `network-limited`, `server-limited`, "
            "`server-CPU-limited`, `lock-limited` or `undetermined`; null without a result",
            "record.verdict.kind",
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
            "result.evidence.stalls.stalled_ns",
        ),
        Column("workload", TEXT, f"Workload: {any_of(tuple(workloads()))}", "record.spec.workload.kind"),
        *_OF_RESOURCES,
        *_OF_SERVER,
        *contributed("facts", "COLUMNS", Column),
        Column(
            "foreign_read_share",
            NUMBER,
            "Share of the bytes that the device read for other processes; null where the kernel does not report it",
            "foreign.read_share",
        ),
        Column(
            "foreign_write_share",
            NUMBER,
            "The same for writes; of key-value runs from engine start until everything was durable",
            "foreign.write_share",
        ),
        *_OF_DRIVES,
    ),
)
