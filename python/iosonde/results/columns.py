"""The tables of a result set by name, with the meaning of every column.

The tables of `iosonde sql`, exports and their READMEs, and the checks of records that are read follow from it. A new
fact of a run is one row in `run_facts`. Rates, percentiles and other derived values are metrics
(`iosonde.metrics.registry`).

Factors and parameters are columns too, of `runs` and `cases`; the study and the workload define them. One with the name
of a column in any table is called `NAME_level` there.
"""

from __future__ import annotations

from iosonde.results import stored_tables
from iosonde.results.column import FLAG, NUMBER, TEXT, U32, U64, Column, Table
from iosonde.results.run_facts.run import RUNS
from iosonde.results.stored_tables import RESOURCES, RUN_ID, stored

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

JOBS = Table(
    "One row per job of a run, over the measurement; a job is one thread unless `threads` has another number",
    (
        RUN_ID,
        Column("stream", TEXT, "Stream of the job"),
        Column("job", U32, "Number in the stream, from 0"),
        *stored(
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
            *RESOURCES.items(),
            ("threads", "Threads of the job; resources are their sums"),
            ("busiest_thread_cpu_ns", "CPU time of the busiest of them, ns"),
        ),
    ),
)

WARNINGS = Table(
    "One row per warning: a reason to distrust a run's numbers",
    (
        RUN_ID,
        Column("code", TEXT, "Stable name (docs/warnings.md)"),
        Column("message", TEXT, "Message"),
        Column("hint", TEXT, "What to do about it"),
    ),
)

EVIDENCE = Table(
    "One row per number that a run's verdict is based on",
    (
        RUN_ID,
        Column("number", TEXT, "Name of the number (docs/warnings.md)"),
        Column("value", NUMBER, "Value; a share from 0 to 1 if its name has `share`"),
    ),
)

FAULTS = Table(
    "One row per location where verification found wrong data, at most 64 per run",
    (
        RUN_ID,
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
    **stored_tables.TABLES,
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
