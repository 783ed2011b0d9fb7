"""The facts of a run: columns of the table `runs`, one row each with name, type, meaning and value.

Facts about one thing (drives, server ...) are in the module of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from iosonde.core.features import contributed
from iosonde.results.column import FLAG, I64, NUMBER, TEXT, U32, U64, Column, DType, Table, any_of
from iosonde.results.run_facts import cores, drives, members, resources, server
from iosonde.results.run_facts.drives import DriveFacts
from iosonde.results.run_facts.members import TargetFacts
from iosonde.results.run_facts.own_io import Foreign, foreign
from iosonde.results.run_facts.server import ServerFacts
from iosonde.results.schema import Record
from iosonde.results.stored_tables import RESOURCES, RUN_ID
from iosonde.workload import streams_of, workloads

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

    def failure(self, name: str) -> str | None:
        """Return a part of the failure, if the run failed."""
        return getattr(self.record.failure, name) if self.record.failure else None

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
    def target(self) -> TargetFacts:
        return TargetFacts(self.record)

    @cached_property
    def server(self) -> ServerFacts:
        return ServerFacts(self.record)

    @cached_property
    def foreign(self) -> Foreign:
        return foreign(self.record.own_io, self.record.spec["workload"])

    @cached_property
    def drives(self) -> DriveFacts:
        return DriveFacts(self.record)


def values(record: Record, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the values of columns of `runs` for a record."""
    facts = RunFacts(record)
    return {column.name: column.value(facts) for column in columns if column.value}


def _usage(prefix: str, text: str, dtype: DType, read: Callable[[Any], Mapping[str, Any]]) -> tuple[Column, ...]:
    def column(name: str, meaning: str) -> Column:
        return Column(f"{prefix}{name}", dtype, f"{text}. {meaning}", lambda run: read(run).get(name))

    return tuple(column(name, meaning) for name, meaning in RESOURCES.items())


RUNS = Table(
    "One row per run (one repeat of a case), its latest attempt, with the factors of its case",
    (
        RUN_ID,
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
            "job_cpus",
            TEXT,
            "CPUs that the threads of the jobs were allowed to run on, such as `0-3`: one list if it is the same for "
            "all, or else one for each thread, separated by spaces",
            lambda run: run.job_cpus,
        ),
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
            "has_wrong_data",
            FLAG,
            "Whether the load found data (sectors, values, objects, pages, results) that was not what was written",
            lambda run: run.record.has_wrong_data,
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
        *members.COLUMNS,
        *cores.COLUMNS,
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
            f"Workload: {any_of(tuple(workloads()))}",
            lambda run: run.record.spec["workload"]["kind"],
        ),
        *resources.COLUMNS,
        *server.COLUMNS,
        *contributed("facts", "COLUMNS", Column),
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
        *drives.COLUMNS,
    ),
)
