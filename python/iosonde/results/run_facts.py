"""The facts of a run: columns of the table `runs`, one row each with name, type, meaning and what reads its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from iosonde.base.features import contributed
from iosonde.results.accounting import COUNTED_NS, busiest_core_share, foreign, kernel_cpu_ns
from iosonde.results.column import FLAG, I64, NUMBER, TEXT, U32, U64, Column, Row, Table, any_of, facts
from iosonde.results.schema import RESOURCES, RUN_ID, Record
from iosonde.storage import pcie
from iosonde.study.workload import streams_of, workloads

Json = Mapping[str, Any]
F = TypeVar("F")


class RunFacts:
    """One record, with the parts of it that several columns share."""

    def __init__(self, record: Record) -> None:
        self.record: Record = record
        self._parts: dict[Any, Any] = {}

    def of(self, part: Callable[[Record], F]) -> F:
        """Return a part of the record, which is derived from it once and shared by its columns."""
        if part not in self._parts:
            self._parts[part] = part(self.record)
        return self._parts[part]  # type: ignore[no-any-return]


def _itself(record: Record) -> Record:
    return record


def values(record: Record, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the values of columns of `runs` for a record."""
    run = RunFacts(record)
    return {column.name: column.value(run) for column in columns if column.value}


SERVER_COUNTERS: Mapping[str, str] = {
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
    **dict(contributed("facts", "COUNTERS")),
}
"""Statistics of servers whose increase over the measurement is a fact of the run: of all, with SQL, of features."""

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
    ("aborted_attempts", U64, "Attempts that ended in a serialization failure, deadlock or lock timeout",
        "client.aborted_attempts"),
    ("failed_transactions", U64, "Transactions that failed after all retries", "client.failed_transactions"),
    ("restore_seconds", NUMBER, "Time to restore the database from its template, s", "server.restored.seconds"),
    ("load_seconds", NUMBER, "Time to load the template, s"),
    ("acknowledged_commits", U64, "Commits that were acknowledged before the server was killed",
        "server.durability.acknowledged"),
    ("lost_commits", U64, "Of these, commits that the restarted server does not have", "server.durability.lost"),
    ("recovery_seconds", NUMBER, "Time from the restart of a killed server to its first connection, s",
        "server.durability.recovery_seconds"),
    ("recovery_error", TEXT,
        "Why these could not be looked up: the server did not restart, or answered with an error; null if they were",
        "server.durability.error"),
)  # fmt: skip


def _not_reported(record: Record) -> str | None:
    """Return why one of the drives does not report its media writes."""
    return next(filter(None, map(_reason, record.drives)), None)


_OF_DRIVES = (
    *facts(
        lambda record: record.drives if record.drives and not _not_reported(record) else None,
        ("drive_write_bytes", U64, "Bytes that the kernel sent to the physical drives over the whole run",
            lambda drives: sum(drive["write_bytes"] for drive in drives)),
        ("drive_units_written", U64, "The same as the drives count it, in data units of 512,000 bytes, rounded up",
            lambda drives: _sum(drives, "data_units_written")),
        ("media_write_bytes", U64,
            "Bytes that the drives wrote to their media in that time; null unless all report it",
            lambda drives: _sum([_media(drive) for drive in drives], "written_bytes")),
        ("media_step_bytes", U64, "Resolution of their media counters, bytes",
            lambda drives: max(drive["end"]["media"]["step_bytes"] for drive in drives)),
        prefix="run_",
    ),
    *facts(_not_reported,
        ("run_media_not_reported", TEXT, "Why media writes are not reported; null where they are", str)),
)  # fmt: skip


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


def _target_bytes(record: Record) -> int | None:
    target = record.target
    if "size_bytes" in target:
        return int(target["size_bytes"])
    devices = target.get("devices") or []
    size = (target.get("file_system") or {}).get("size_bytes") or (devices[0].get("size_bytes") if devices else None)
    return None if size is None else int(size)


def _pcie_bytes_per_second(record: Record) -> float | None:
    """Return the bandwidth limit of PCIe links that all members share, in each direction; None without any."""
    members = members_of(record.target)
    return pcie.of_all([each for each in record.target.get("devices") or [] if each.get("device") in members])


_OF_TARGET = facts(
    _itself,
    ("target_bytes", U64, "Size of the array or device under the run, bytes; null where not reported", _target_bytes),
    ("members", TEXT,
        "Members of the array under the run, named as in `usage`, separated by spaces; null without an array",
        lambda record: " ".join(members_of(record.target)) or None),
    ("link_bytes_per_second", NUMBER, "Bandwidth limit of all members together, bytes/s; null where unknown",
        "spec.workload.backend.array.bytes_per_second"),
    ("pcie_bytes_per_second", NUMBER,
        "Bandwidth limit of the PCIe links that members share, per direction, bytes/s; null where they share none",
        _pcie_bytes_per_second),
    ("memory_copy_bytes_per_second", NUMBER,
        "Memory copy bandwidth of the machine, bytes/s; null unless the load is buffered",
        "harness.memory_copy_bytes_per_second"),
)  # fmt: skip


def _outermost(record: Record) -> Sequence[Json] | None:
    """Return the devices that data and log are on; where that is not known, the one that moved most.

    Of stacked devices each counts the same bytes, so they are not added up. None without devices.
    """
    totals = record.device_totals
    outermost = [each for each in totals if each.get("outermost")]
    return outermost or sorted(totals, key=lambda each: each["read_bytes"] + each["write_bytes"])[-1:] or None


_OF_RESOURCES = (
    *facts(
        lambda record: record.memory,
        ("swap_peak_bytes", U64, "Peak swap of the engine's control group, bytes; with cgroup v1 a lower bound"),
        ("memory_limit_bytes", U64, "Memory limit of the engine's control group, bytes; null without one",
            "limit_bytes"),
        ("memory_peak_bytes", U64, "Peak memory charged to it, page cache included, bytes", "peak_bytes"),
        ("memory_at_limit", U64, "Number of times that memory was reclaimed at the limit", "at_limit"),
        ("memory_oom_kills", U64, "Processes in it that the kernel killed for lack of memory", "oom_kills"),
    ),
    *facts(
        _outermost,
        ("read_bytes", U64, "Bytes read by the outermost device from before engine start to engine exit",
            lambda devices: sum(each["read_bytes"] for each in devices)),
        ("write_bytes", U64, "The same for writes, until everything was durable",
            lambda devices: sum(each["write_bytes"] for each in devices)),
        prefix="run_device_",
    ),
)  # fmt: skip


def _evidence(record: Record) -> Json:
    """Evidence of the engine's result; empty without one."""
    found: Json = (record.result or {}).get("evidence") or {}
    return found


def _streams(record: Record) -> Sequence[Json]:
    return streams_of(record.spec["workload"])


def _loop(streams: Sequence[Json]) -> str | None:
    kinds = {"closed" if stream["arrival"]["kind"] == "closed" else "open" for stream in streams}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def _job_cpus(evidence: Json) -> str | None:
    lists: list[str] = evidence.get("job_cpus") or []
    return " ".join(lists if len(set(lists)) > 1 else lists[:1]) or None


RUNS = Table(
    "One row per run (one repeat of a case), its latest attempt, with the factors of its case",
    (
        RUN_ID,
        *facts(
            _itself,
            ("case_id", TEXT, "Case that the run repeats"),
            ("part", TEXT, "Part of the study"),
            ("control", FLAG, "Whether it repeats the control case"),
            ("device_state", TEXT, "Planned device state of its case"),
            ("arm", TEXT, "Arm of an A/B comparison: `a`, `b` or empty"),
            ("repeat", U32, "Number of the repeat, from 1"),
            ("order", U32, "Position in the order of execution, from 0"),
            ("attempt", U32, "Number of the attempt, from 1; above 1 after a failure"),
            ("outcome", TEXT, "`complete`, `stopped` or `failed`"),
            ("failure", TEXT, "Code of the failure", "failure.code"),
            ("failure_message", TEXT, "Message of the failure", "failure.message"),
            ("started_at", TEXT, "Start of the engine, ISO 8601"),
            ("ended_at", TEXT, "Exit of the engine, ISO 8601"),
            ("measure_start_ns", U64, "Start of the measurement, ns since the run's time 0", "result.begin_ns"),
            ("measure_end_ns", U64, "End of the measurement, ns since the run's time 0", "result.end_ns"),
        ),
        *facts(_streams, ("jobs_total", U64, "Jobs (threads) of all streams",
            lambda streams: sum(stream["jobs"] for stream in streams))),
        *facts(_evidence, ("job_cpus", TEXT,
            "CPUs that the threads of the jobs were allowed to run on, such as `0-3`: one list if it is the same for "
            "all, or else one for each thread, separated by spaces", _job_cpus)),
        *facts(
            _streams,
            ("concurrency", U64, "Upper bound of I/Os in flight: jobs x queue depth, summed over streams",
                lambda streams: sum(each["jobs"] * each.get("queue_depth", each.get("batch", 1)) for each in streams)),
            ("loop", TEXT, "`closed` (next I/O when one completes), `open` (at a rate), or `mixed`", _loop),
        ),
        *facts(
            lambda record: record.result,
            ("backend_in_effect", TEXT, "Backend that did the I/O", "backend.kind"),
            ("layout_written_bytes", U64, "Bytes that layout wrote", "layout.written_bytes"),
            ("layout_kept_bytes", U64, "Bytes that layout found already written", "layout.kept_bytes"),
            ("verified_bytes", U64, "Bytes read and verified, counted each time; null without verification",
                "verification.checked_bytes"),
            ("wrong_sectors", U64, "512-byte sectors with wrong data, counted each time; null without verification",
                lambda result: result.get("verification") and sum(result["verification"]["faults"].values())),
        ),
        *facts(
            _itself,
            ("has_wrong_data", FLAG,
                "Whether the load found data (sectors, values, objects, pages, results) that was not what was written"),
            ("peak_memory_bytes", U64,
                "Peak resident memory of the engine as it reports it, or of the measured command (wait4), bytes",
                "result.peak_memory_bytes"),
            ("buffer_bytes", U64, "Size of the I/O buffers, bytes", "result.buffer_bytes"),
            *(
                (f"process_{name}", U64, f"Engine process during the measurement. {text}", f"result.process.{name}")
                for name, text in RESOURCES.items()
            ),
            *(
                (f"child_{name}", I64, f"Engine process from start to exit (wait4). {text}", f"child.{name}")
                for name, text in RESOURCES.items()
            ),
            ("child_max_rss_bytes", I64,
                "Peak resident memory of the engine process (wait4), bytes; null where unknown", "child.max_rss_bytes"),
            ("child_exit_status", I64,
                "Exit status of the engine process; the negative signal number if a signal killed it",
                "child.exit_status"),
            ("clock", TEXT, "Clock used for latencies", "engine.clock"),
            ("clock_read_ns", NUMBER, "Cost of one clock read, ns", "engine.clock_read_ns"),
            ("realtime_ns", U64, "Wall clock at the run's time 0, Unix time in ns", "engine.realtime_ns"),
            ("engine", TEXT, "Name of the engine", "engine.engine"),
            ("engine_version", TEXT, "Version of the engine", "engine.version"),
            ("environment", TEXT, "Name of the file in `environments/` that describes machine and software"),
        ),
        *_OF_TARGET,
        *facts(
            _evidence,
            ("kernel_cpu_ns", U64,
                "CPU time of all kernel threads during the measurement, ns; null where none is visible", kernel_cpu_ns),
            ("busiest_core_share", NUMBER, "Share of the measurement in which the busiest core was not idle",
                busiest_core_share),
        ),
        *facts(
            _itself,
            ("simulated", FLAG, "Whether the storage was simulated: values of a model, not of a device",
                lambda record: bool(record.target.get("simulated", False))),
            ("warning_count", U32, "Number of warnings", lambda record: len(record.warnings)),
            ("rate_is_transient", FLAG,
                "True if the rate of the run cannot last, by a warning: a published burst rate",
                lambda record: any(warning.is_transient for warning in record.warnings)),
            ("verdict", TEXT,
                "`device-limited`, `harness-limited`, `cache-served`, `network-limited`, `server-limited`, "
                "`server-CPU-limited`, `lock-limited` or `undetermined`; null without a result", "verdict.kind"),
            ("verdict_because", TEXT, "Reasons for the verdict, in sentences",
                lambda record: "; ".join(record.verdict.because) if record.verdict else None),
            ("engine_stalled_ns", U64,
                "Time in the measurement during which the engine itself did not run, ns",
                "result.evidence.stalls.stalled_ns"),
            ("workload", TEXT, f"Workload: {any_of(tuple(workloads()))}", "spec.workload.kind"),
        ),
        *_OF_RESOURCES,
        *_OF_SERVER,
        *contributed("facts", "COLUMNS", Column),
        *facts(
            lambda record: foreign(record.own_io, record.spec["workload"]),
            ("foreign_read_share", NUMBER,
                "Share of the bytes that the device read for other processes; null where the kernel does not report it",
                "read_share"),
            ("foreign_write_share", NUMBER,
                "The same for writes; of key-value runs from engine start until everything was durable", "write_share"),
        ),
        *_OF_DRIVES,
    ),
)  # fmt: skip
