"""The facts of a result set as frames that metrics can be computed from: sums and buckets, nothing divided yet.

The large tables stay in DuckDB until they are summed up. A *member* is one row of `counts`: one operation of one stream
in one run, interval or case; its buckets carry its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import duckdb
import polars as pl

from iosonde.results import ResultSet, connect, frame
from iosonde.results.columns import RUNS, U64
from iosonde.study.model import STAGE, Rounds

Results = ResultSet | Sequence[ResultSet] | duckdb.DuckDBPyConnection
Per = Literal["run", "interval", "case"]

_KEYS: dict[Per, tuple[str, ...]] = {
    "run": ("result_set", "run_id"),
    "interval": ("result_set", "run_id", "phase", "interval", "begin_ns", "end_ns"),
    "case": ("result_set", "case_id", "part", "control"),
}

_RUNS_A_BATCH = 150
"""Runs whose intervals' buckets are taken into memory at a time."""

_SUMS = """
    coalesce(sum(count), 0)::BIGINT AS count,
    coalesce(sum(bytes), 0)::BIGINT AS bytes,
    coalesce(sum(errors), 0)::BIGINT AS errors,
    coalesce(sum(completion_latency_ns_sum), 0)::BIGINT AS completion_sum_ns,
    min(completion_latency_ns_min)::BIGINT AS completion_min_ns,
    max(completion_latency_ns_max)::BIGINT AS completion_max_ns,
    sum(response_latency_ns_sum)::BIGINT AS response_sum_ns,
    min(response_latency_ns_min)::BIGINT AS response_min_ns,
    max(response_latency_ns_max)::BIGINT AS response_max_ns,
    max(backlog_max)::BIGINT AS backlog_max,
    max(engine_stalled_ns)::BIGINT AS interval_stalled_ns
"""


_RUN = ", ".join(
    ["result_set"]
    + [
        f'"{column.name}"::BIGINT AS "{column.name}"' if column.dtype is U64 else f'"{column.name}"'
        for column in RUNS.columns
    ]
)
"""Every fact of a run. Not its factors: one of them may be called `operation`, as columns elsewhere are."""


class Facts:
    """The completed runs of one or several result sets."""

    def __init__(self, results: Results, *, run_ids: Sequence[str] | None = None) -> None:
        """Open a connection, or work beside one that is given; take only some runs if so asked."""
        if isinstance(results, ResultSet):
            results = [results]
        connection = results if isinstance(results, duckdb.DuckDBPyConnection) else connect(list(results))
        # A cursor has temporary tables of its own, so the caller's connection stays as it was.
        self._connection = connection.cursor()
        self._owner = connection  # whose end closes what it reads
        self._labelled = "result_set" in self._columns("runs")
        chosen = "true" if run_ids is None else f"run_id IN ({', '.join(map(_quoted, run_ids)) or 'NULL'})"
        self._keep("complete", f"SELECT {_RUN} FROM {self._view('runs')} WHERE outcome = 'complete' AND {chosen}")

    def runs(self) -> pl.DataFrame:
        """One row a run: identity, measured time, concurrency, loop, and the resources that its process used."""
        return self._frame("SELECT * FROM complete")

    def counts(self, *, per: Per) -> pl.DataFrame:
        """One row a member: its keys, `stream, operation, member` and the sums of what was counted.

        Per run and case the measurement alone; per interval warm-up too, and also those in which nothing completed.
        """
        member = ", ".join((*_KEYS[per], "stream", "operation"))
        source = self._every_interval() if per == "interval" else self._measured()
        self._keep(
            f"members_per_{per}",
            f"""
            SELECT {member}, row_number() OVER (ORDER BY {member}) AS member, {_SUMS}
            FROM ({source}) GROUP BY {member}
            """,
        )
        return self._frame(f"SELECT * FROM members_per_{per} ORDER BY member")

    def histograms(self, *, per: Per) -> Iterator[pl.DataFrame]:
        """Yield `member, response, bucket, count`, all buckets of a member in the same frame; after `counts`."""
        if per != "interval":
            yield self._merged_buckets(per)
            return
        run_ids = self._frame("SELECT DISTINCT run_id FROM complete ORDER BY run_id")["run_id"].to_list()
        for start in range(0, len(run_ids) or 1, _RUNS_A_BATCH):
            batch = run_ids[start : start + _RUNS_A_BATCH] or [""]
            yield self._interval_buckets(first=batch[0], last=batch[-1])

    def streams(self) -> pl.DataFrame:
        """One row a run and stream: its jobs, their busiest thread, and I/Os due and started (null in closed loop)."""
        return self._frame(
            f"""
            SELECT result_set, run_id, stream, count(*) AS stream_jobs,
                   max((user_ns + system_ns) / nullif(wall_ns, 0)) AS core_utilisation,
                   sum(due)::BIGINT AS due, sum(started)::BIGINT AS started
            FROM {self._view("jobs")} SEMI JOIN complete USING (result_set, run_id) GROUP BY ALL
            """
        )

    def named_values(self) -> pl.DataFrame:
        """One row a value of an external command."""
        return self._frame(
            f"SELECT * FROM {self._view('named_values')} SEMI JOIN complete USING (result_set, run_id)"
            " ORDER BY result_set, run_id, metric, point"
        )

    def queue_depths(self) -> pl.DataFrame:
        """One row a case and stream with its queue depth; stream null where all streams have the same.

        Null where levels of that name have labels that are no numbers.
        """
        columns = [name for name in self._columns("cases") if name.split(".")[-1] == "queue_depth"]
        empty = "SELECT '' AS result_set, '' AS case_id, '' AS stream, 0::BIGINT AS queue_depth LIMIT 0"
        selects = [
            f"SELECT result_set, case_id, {_stream_literal(name)} AS stream,"
            f" TRY_CAST({_identifier(name)} AS BIGINT) AS queue_depth FROM {self._view('cases')}"
            f" WHERE {_identifier(name)} IS NOT NULL"
            for name in columns
        ]
        return self._frame(" UNION ALL ".join([f"({empty})", *selects]))

    def rounds(self) -> pl.DataFrame:
        """One row a case whose runs are to be judged for steady state.

        `case_id, round_length, tracking`; where cases say so what they address (`span, files, jobs`), `active` and the
        criteria (`Rounds.criteria`).
        """
        known = set(self._columns("cases"))
        if not {"round_length", "tracking"} <= known:
            return self._frame("SELECT '' AS result_set, '' AS case_id LIMIT 0")
        said = [_identifier(name) for name in ("active", "span", "files", "jobs", *Rounds().criteria) if name in known]
        return self._frame(
            f"SELECT {', '.join(['result_set', 'case_id', 'round_length', 'tracking', *said])} "
            f"FROM {self._view('cases')} WHERE round_length IS NOT NULL AND NOT control"
        )

    def alternating(self) -> pl.DataFrame:
        """One row a case some of whose streams load the target for a part of the time: `result_set, case_id`."""
        names = [name for name in self._columns("cases") if name.rpartition(".")[2] == "active"]
        some = " OR ".join(f"{_identifier(name)} IS NOT NULL" for name in names) or "false"
        return self._frame(f"SELECT result_set, case_id FROM {self._view('cases')} WHERE {some}")

    def staged(self) -> pl.DataFrame:
        """One row a case that is a stage of a pass: `result_set, case_id`. Its results are reported for the pass."""
        some = f"{_identifier(STAGE)} IS NOT NULL" if STAGE in self._columns("cases") else "false"
        return self._frame(f"SELECT result_set, case_id FROM {self._view('cases')} WHERE {some}")

    def devices(self) -> pl.DataFrame:
        """One row a run: bytes read and written by the block device under the target that moved most.

        Of stacked devices (partition and disk) each counts the same bytes, so they are not added up.
        """
        return self._frame(
            f"""
            SELECT result_set, run_id, arg_max(read_bytes, read_bytes + write_bytes)::BIGINT AS device_read_bytes,
                   arg_max(write_bytes, read_bytes + write_bytes)::BIGINT AS device_write_bytes
            FROM (
              SELECT result_set, run_id, device, sum(read_bytes) AS read_bytes, sum(write_bytes) AS write_bytes
              FROM {self._view("usage")} SEMI JOIN complete USING (result_set, run_id)
              WHERE phase = 'measure' AND device <> 'process' GROUP BY ALL
            ) GROUP BY ALL
            """
        )

    def server_statistics(self) -> pl.DataFrame:
        """One row a statistic of a database server at the end of an interval; empty if no run was on a server."""
        return self._frame(
            f"""
            SELECT result_set, run_id, phase, interval, end_ns::BIGINT AS end_ns, statistic, value::BIGINT AS value
            FROM {self._view("store_statistics")}
            SEMI JOIN (SELECT * FROM complete WHERE server_title IS NOT NULL) USING (result_set, run_id)
            """
        )

    def simulated_media(self) -> pl.DataFrame:
        """One row a run on simulated drives: what they were handed in the measurement, and wrote to their media."""
        return self._frame(
            f"""
            SELECT result_set, run_id, sum(write_bytes)::BIGINT AS simulated_write_bytes,
                   sum(media_write_bytes)::BIGINT AS simulated_media_write_bytes
            FROM {self._view("usage")} SEMI JOIN complete USING (result_set, run_id)
            WHERE phase = 'measure' AND media_write_bytes IS NOT NULL GROUP BY ALL
            """
        )

    def members(self) -> pl.DataFrame:
        """One row a run on an array: what its members did during it, all together, and how evenly.

        `member_count, member_reads, member_writes, member_read_bytes, member_write_bytes` (sums), `member_busy_ns`
        (mean of the members), `member_most_bytes` (of the one that moved most).
        """
        return self._frame(
            f"""
            SELECT result_set, run_id, count(*)::BIGINT AS member_count, sum(reads)::BIGINT AS member_reads,
                   sum(writes)::BIGINT AS member_writes, sum(read_bytes)::BIGINT AS member_read_bytes,
                   sum(write_bytes)::BIGINT AS member_write_bytes, avg(busy_ns) AS member_busy_ns,
                   max(read_bytes + write_bytes)::BIGINT AS member_most_bytes
            FROM (
              SELECT result_set, run_id, device, sum(reads) AS reads, sum(writes) AS writes,
                     sum(read_bytes) AS read_bytes, sum(write_bytes) AS write_bytes, sum(busy_ns) AS busy_ns
              FROM {self._view("usage")} JOIN (
                SELECT result_set, run_id, members FROM {self._view("runs")} WHERE members IS NOT NULL
              ) USING (result_set, run_id) SEMI JOIN complete USING (result_set, run_id)
              WHERE phase = 'measure' AND list_contains(string_split(members, ' '), device) GROUP BY ALL
            ) GROUP BY ALL
            """
        )

    def _merged_buckets(self, per: Per) -> pl.DataFrame:
        return self._frame(
            f"""
            SELECT member, latency = 'response' AS response, bucket, merged.count
            FROM (
              SELECT result_set, run_id, stream, operation, latency, bucket, sum(count)::BIGINT AS count
              FROM {self._view("histograms")} WHERE phase = 'measure' GROUP BY ALL
            ) merged
            JOIN complete USING (result_set, run_id)
            JOIN members_per_{per} USING (result_set, {"case_id" if per == "case" else "run_id"}, stream, operation)
            """
        )

    def _interval_buckets(self, *, first: str, last: str) -> pl.DataFrame:
        """Return the buckets of a range of runs: a range, because Parquet statistics can skip files by it."""
        among = f"run_id BETWEEN {_quoted(first)} AND {_quoted(last)}"
        return self._frame(
            f"""
            SELECT member, latency = 'response' AS response, bucket, histograms.count::BIGINT AS count
            FROM (SELECT * FROM {self._view("histograms")} WHERE {among}) histograms
            JOIN (SELECT * FROM members_per_interval WHERE {among})
            USING (result_set, run_id, phase, interval, stream, operation)
            """
        )

    def _measured(self) -> str:
        return f"""
            SELECT intervals.*, case_id, part, control
            FROM {self._view("intervals")} intervals JOIN complete USING (result_set, run_id) WHERE phase = 'measure'
        """

    def _every_interval(self) -> str:
        """An operation that did not complete in an interval has no row there; a stall must not vanish for that."""
        return f"""
            SELECT * FROM (
              SELECT result_set, run_id, phase, interval, min(begin_ns)::BIGINT AS begin_ns,
                     max(end_ns)::BIGINT AS end_ns
              FROM (
                SELECT result_set, run_id, phase, interval, begin_ns, end_ns FROM {self._view("intervals")}
                UNION ALL
                SELECT result_set, run_id, phase, interval, begin_ns, end_ns FROM {self._view("usage")}
              ) SEMI JOIN complete USING (result_set, run_id) GROUP BY ALL
            )
            JOIN (SELECT DISTINCT result_set, run_id, stream, operation FROM {self._view("intervals")})
            USING (result_set, run_id)
            LEFT JOIN (SELECT * EXCLUDE (begin_ns, end_ns) FROM {self._view("intervals")})
            USING (result_set, run_id, phase, interval, stream, operation)
        """

    def _view(self, name: str) -> str:
        """A view that has a column `result_set`, also when the connection is to a single result set."""
        return name if self._labelled else f"(SELECT '' AS result_set, * FROM {name})"

    def _frame(self, query: str) -> pl.DataFrame:
        return frame(self._connection, query)

    def _keep(self, table: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}")

    def _columns(self, view: str) -> list[str]:
        return self._connection.sql(f"SELECT * FROM {view} LIMIT 0").columns


def _stream_literal(column: str) -> str:
    stream, _, _ = column.rpartition(".")
    return _quoted(stream) if stream else "NULL::VARCHAR"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
