"""The facts of a result set as frames that metrics can be computed from: sums and buckets, nothing divided yet.

Large tables are scanned and summed up without being taken into memory. A *member* is one row of `counts`: one
operation of one stream in one run, interval or case; its buckets carry its number.

Without SQL: procedures need the metrics of a single run after each run, and starting DuckDB costs more than they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import polars as pl

from iosonde.metrics.scopes import INTERVAL_KEYS, RUN_KEYS, SCOPE_KEYS, SUMS, summed, total
from iosonde.results import frames
from iosonde.results.frames import labelled, stack
from iosonde.results.result_set import ResultSet, labels
from iosonde.results.schema import P, Record
from iosonde.study.model import STAGE, Rounds

Results = ResultSet | Sequence[ResultSet]
Per = Literal["run", "interval", "case"]

_KEYS: dict[Per, tuple[str, ...]] = {
    "run": RUN_KEYS,
    "interval": (*INTERVAL_KEYS, "begin_ns", "end_ns"),
    "case": ("result_set", "case_id", "part", "control"),
}

_SMALL_BYTES = 1 << 20
"""A table with files of fewer bytes is read once and kept: scanning it for each sum costs several times as much."""

_RUNS_A_BATCH = 150
"""Runs whose intervals' buckets are taken into memory at a time."""

_COUNTED = ("count", "bytes", "errors", "completion_sum_ns")
"""Zero where nothing was counted; sums and extremes of `SUMS` that are not among these are null there."""


_OF_MEMBERS = (
    pl.col("member"),
    (pl.col("latency") == "response").alias("response"),
    pl.col("bucket"),
    pl.col("count").cast(pl.Int64),
)
"""Buckets of members."""


class Facts:
    """The completed runs of one or several result sets."""

    def __init__(self, results: Results | Mapping[str, ResultSet], *, run_ids: Sequence[str] | None = None) -> None:
        """Take only some runs if so asked. Result sets are named after their directories, unless they have names."""
        sets = [results] if isinstance(results, ResultSet) else results
        sets = sets if isinstance(sets, Mapping) else dict(zip(labels(sets), sets, strict=True))
        self._sets = list(sets.items())
        chosen = None if run_ids is None else frozenset(run_ids)
        self._records = [
            [each for each in one.records() if each.outcome == "complete" and (chosen is None or each.run_id in chosen)]
            for _, one in self._sets
        ]
        self._counts: dict[Per, pl.DataFrame] = {}
        self._small_tables: dict[tuple[int, str], pl.DataFrame] = {}

    @cached_property
    def _cases(self) -> pl.DataFrame:
        """The cases of the runs, with the parameters that are read here."""

        def measured(one: ResultSet, records: Sequence[Record]) -> pl.DataFrame:
            names = {each.case_id for each in records}
            return frames.cases([each for each in one.known_cases() if each.case_id in names], _is_read)

        return self._each(measured)

    @cached_property
    def are_small(self) -> bool:
        """True if the intervals of all runs together fit in memory: less than `_SMALL_BYTES`."""
        sets = zip(self._sets, self._records, strict=True)
        return sum(one.table_bytes("intervals", records) for (_, one), records in sets) < _SMALL_BYTES

    @cached_property
    def _runs(self) -> pl.DataFrame:
        return self._each(ResultSet.fixed_runs).with_columns(pl.col(pl.UInt64).cast(pl.Int64))

    def runs(self, *names: str) -> pl.DataFrame:
        """One row a run: identity, measured time, concurrency, loop, and the resources that its process used.

        With `names` these columns alone, which is faster where nothing else is read.
        """
        if not names:
            return self._runs
        found = self._each(lambda _, records: frames.runs(records, names))
        return found.with_columns(pl.col(pl.UInt64).cast(pl.Int64))

    def counts(self, *, per: Per) -> pl.DataFrame:
        """One row a member: its keys, `stream, operation, member` and the sums of what was counted.

        Per run and case the measurement alone; per interval warm-up too, and also those in which nothing completed.
        """
        if per not in self._counts:
            keys = [*_KEYS[per], *SCOPE_KEYS]
            rows = self._every_interval() if per == "interval" else self._measured(keys)
            numbered = rows.sort(keys, nulls_last=True).with_row_index("member", offset=1)
            self._counts[per] = numbered.select(*keys, pl.col("member").cast(pl.Int64), *SUMS)
        return self._counts[per]

    def histograms(self, *, per: Per) -> Iterator[pl.DataFrame]:
        """Yield `member, response, bucket, count`, all buckets of a member in the same frame; after `counts`."""
        if per != "interval":
            yield self._merged_buckets(per)
            return
        run_ids = sorted(set(self._runs["run_id"]))
        for start in range(0, len(run_ids) or 1, _RUNS_A_BATCH):
            yield self._interval_buckets(frozenset(run_ids[start : start + _RUNS_A_BATCH]))

    def streams(self) -> pl.DataFrame:
        """One row a run and stream: its jobs, their busiest thread, and I/Os due and started (null in closed loop)."""
        busy, wall = pl.col("busiest_thread_cpu_ns"), pl.col("wall_ns")
        return (
            self._each(lambda _, records: frames.table("jobs", records))
            .group_by(*RUN_KEYS, "stream", maintain_order=True)
            .agg(
                stream_jobs=pl.len().cast(pl.Int64),
                core_utilisation=pl.when(wall > 0).then(busy / wall).max(),
                due=total(pl.col("due").cast(pl.Int64)),
                started=total(pl.col("started").cast(pl.Int64)),
            )
        )

    def named_values(self) -> pl.DataFrame:
        """One row a value of an external command."""
        return self._read("named_values", lambda rows: rows).sort("result_set", "run_id", "metric", "point")

    def queue_depths(self) -> pl.DataFrame:
        """One row a case and stream with its queue depth; stream null where all streams have the same.

        Null where levels of that name have labels that are no numbers.
        """
        schema = {"result_set": pl.String, "case_id": pl.String, "stream": pl.String, "queue_depth": pl.Int64}
        names = [name for name in self._cases.columns if name.split(".")[-1] == "queue_depth"]
        parts = [
            self._cases.filter(pl.col(name).is_not_null()).select(
                "result_set",
                "case_id",
                pl.lit(name.rpartition(".")[0] or None, dtype=pl.String).alias("stream"),
                pl.col(name).cast(pl.Int64, strict=False).alias("queue_depth"),
            )
            for name in names
        ]
        return pl.concat([pl.DataFrame(schema=schema), *parts])

    def rounds(self) -> pl.DataFrame:
        """One row a case whose runs are to be judged for steady state.

        `case_id, round_length, tracking`; where cases have them, the addressed range (`span, files, jobs`), `active`
        and the criteria (`Rounds.criteria`).
        """
        known = set(self._cases.columns)
        if not known >= _ROUNDS:
            return self._cases.select("result_set", "case_id").clear()
        present = [name for name in _OF_ROUNDS if name in known]
        return self._cases.filter(pl.col("round_length").is_not_null() & ~pl.col("control")).select(
            "result_set", "case_id", "round_length", "tracking", *present
        )

    def cases_with(self, parameter: str) -> pl.DataFrame:
        """`result_set, case_id` of the cases that have a parameter, or one of whose streams has it."""
        names = [name for name in self._cases.columns if name.rpartition(".")[2] == parameter]
        is_any = pl.any_horizontal(pl.lit(False), *(pl.col(name).is_not_null() for name in names))
        return self._cases.filter(is_any).select("result_set", "case_id")

    def devices(self) -> pl.DataFrame:
        """One row a run: bytes read and written by the block device under the target that moved most.

        Of stacked devices (partition and disk) each counts the same bytes, so they are not added up.
        """
        moved = self._of_devices(pl.col("device") != "process", "read_bytes", "write_bytes")
        return (
            moved.with_columns(moved=pl.col("read_bytes") + pl.col("write_bytes"))
            .sort("moved", "device", descending=[True, False], nulls_last=True)
            .group_by(RUN_KEYS, maintain_order=True)
            .agg(
                device_read_bytes=pl.col("read_bytes").filter(pl.col("moved").is_not_null()).first(),
                device_write_bytes=pl.col("write_bytes").filter(pl.col("moved").is_not_null()).first(),
            )
        )

    def server_statistics(self) -> pl.DataFrame:
        """One row a statistic of a database server at the end of an interval; empty if no run was on a server."""
        on_server = self._runs.filter(pl.col("server_title").is_not_null()).select(RUN_KEYS)
        rows = self._read("store_statistics", lambda rows: rows)
        return rows.join(on_server, on=RUN_KEYS, how="semi").with_columns(pl.col("end_ns", "value").cast(pl.Int64))

    def statistics(self, prefix: str) -> pl.DataFrame:
        """One row a statistic whose name starts with `prefix`, at the end of an interval: `statistic` without it."""
        is_of_prefix = pl.col("statistic").str.starts_with(prefix)
        rows = self._read("store_statistics", lambda rows: rows.filter(is_of_prefix))
        named = pl.col("statistic").str.strip_prefix(prefix)
        return rows.with_columns(named, pl.col("end_ns", "value").cast(pl.Int64))

    def parts(self, kind: type[P]) -> dict[tuple[Any, ...], P]:
        """Return what a feature has recorded, by result set and run."""
        return {
            (name, each.run_id): part
            for (name, _), records in zip(self._sets, self._records, strict=True)
            for each in records
            if (part := each.of(kind)) is not None
        }

    def simulated_media(self) -> pl.DataFrame:
        """One row a run on simulated drives: what they were handed in the measurement, and wrote to their media."""
        written = pl.col("media_write_bytes")
        return self._read(
            "usage",
            lambda rows: (
                rows.filter(pl.col("phase") == "measure", written.is_not_null())
                .group_by(RUN_KEYS)
                .agg(
                    simulated_write_bytes=total(pl.col("write_bytes").cast(pl.Int64)),
                    simulated_media_write_bytes=written.cast(pl.Int64).sum(),
                )
            ),
        )

    def members(self) -> pl.DataFrame:
        """One row a run on an array: what its members did during it, all together, and how evenly.

        `member_count, member_reads, member_writes, member_read_bytes, member_write_bytes` (sums), `member_busy_ns`
        (mean of the members), `member_most_bytes` (of the one that moved most), `member_counted_ns` (the time between
        the readings of these counters; null where they are of a virtual clock).
        """
        sums = ("reads", "writes", "read_bytes", "write_bytes")
        named = self._runs.filter(pl.col("members").is_not_null()).select(
            *RUN_KEYS, pl.col("members").str.split(" ").alias("device")
        )
        moved = self._of_devices(pl.lit(True), *sums, "busy_ns").join(
            named.explode("device").unique(), on=[*RUN_KEYS, "device"], how="semi"
        )
        process = self._of_devices(pl.col("device") == "process", "wall_ns").filter(pl.col("wall_ns") > 0)
        counted = process.select(*RUN_KEYS, member_counted_ns="wall_ns")
        busy = pl.col("busy_ns")
        summed = moved.group_by(RUN_KEYS).agg(
            pl.len().cast(pl.Int64).alias("member_count"),
            *(total(pl.col(name)).alias(f"member_{name}") for name in sums),
            member_busy_ns=busy.sum() / busy.count(),
            member_most_bytes=(pl.col("read_bytes") + pl.col("write_bytes")).max(),
        )
        return summed.join(counted, on=RUN_KEYS, how="left")

    def _of_devices(self, which: pl.Expr, *names: str) -> pl.DataFrame:
        """Sums of a measurement, one row a run and device."""
        return self._read(
            "usage",
            lambda rows: (
                rows.filter(pl.col("phase") == "measure", which)
                .group_by(*RUN_KEYS, "device")
                .agg(total(pl.col(name).cast(pl.Int64)).alias(name) for name in names)
            ),
        )

    def _merged_buckets(self, per: Per) -> pl.DataFrame:
        buckets = self._read(
            "histograms",
            lambda rows: (
                rows.filter(pl.col("phase") == "measure")
                .group_by(*RUN_KEYS, *SCOPE_KEYS, "latency", "bucket")
                .agg(pl.col("count").cast(pl.Int64).sum())
            ),
        )
        if per == "case":
            buckets = buckets.join(self._runs.select(*RUN_KEYS, "case_id"), on=RUN_KEYS)
        keys = ["result_set", "case_id" if per == "case" else "run_id", *SCOPE_KEYS]
        return buckets.join(self.counts(per=per).select(*keys, "member"), on=keys).select(_OF_MEMBERS)

    def _interval_buckets(self, run_ids: frozenset[str]) -> pl.DataFrame:
        keys = [*INTERVAL_KEYS, *SCOPE_KEYS]
        members = self.counts(per="interval").filter(pl.col("run_id").is_in(run_ids)).select(*keys, "member").lazy()
        return self._read(
            "histograms",
            lambda rows: rows.join(members, on=keys).select(_OF_MEMBERS),
            run_ids=run_ids,
        )

    def _measured(self, keys: Sequence[str]) -> pl.DataFrame:
        """Sums over the measurement of each run, or of all runs of a case."""
        sums = self._read(
            "intervals",
            lambda rows: (
                rows.filter(pl.col("phase") == "measure").group_by(*RUN_KEYS, *SCOPE_KEYS).agg(summed(from_table=True))
            ),
        )
        if "run_id" in keys:
            return sums
        known = self._runs.select(*RUN_KEYS, "case_id", "part", "control")
        return sums.join(known, on=RUN_KEYS).group_by(keys).agg(summed(from_table=False))

    def _every_interval(self) -> pl.DataFrame:
        """An operation that did not complete in an interval has no row there; a stall must not vanish for that."""
        times = (pl.col("begin_ns").cast(pl.Int64), pl.col("end_ns").cast(pl.Int64))
        counted = self._read(
            "intervals",
            lambda rows: rows.group_by(*INTERVAL_KEYS, *SCOPE_KEYS).agg(*_extent(), *summed(from_table=True)),
        )
        used = self._read("usage", lambda rows: rows.select(*INTERVAL_KEYS, *times))
        places = (
            pl.concat([counted.select(*INTERVAL_KEYS, "begin_ns", "end_ns"), used])
            .group_by(INTERVAL_KEYS)
            .agg(_extent())
        )
        return (
            places.join(counted.select(*RUN_KEYS, *SCOPE_KEYS).unique(), on=RUN_KEYS)
            .join(counted.drop("begin_ns", "end_ns"), on=[*INTERVAL_KEYS, *SCOPE_KEYS], how="left")
            .with_columns(pl.col(_COUNTED).fill_null(0))
        )

    def _read(
        self,
        table: str,
        rows: Callable[[pl.LazyFrame], pl.LazyFrame],
        *,
        run_ids: frozenset[str] | None = None,
    ) -> pl.DataFrame:
        """Collect rows of a table of each result set, with a column `result_set`: of all runs, or of some."""
        parts = []
        for place in range(len(self._sets)):
            small = self._small_table(table, place)
            if small is None:
                with self._scan(table, place, run_ids) as scanned:
                    parts.append(rows(scanned).collect(engine="streaming"))
            else:
                chosen = small if run_ids is None else small.filter(pl.col("run_id").is_in(run_ids))
                parts.append(rows(chosen.lazy()).collect())
        return pl.concat(parts)

    def _small_table(self, table: str, place: int) -> pl.DataFrame | None:
        """A table of all runs of a result set, unless it is large."""
        key = (place, table)
        if key not in self._small_tables:
            if self._sets[place][1].table_bytes(table, self._records[place]) >= _SMALL_BYTES:
                return None
            with self._scan(table, place) as scanned:
                self._small_tables[key] = scanned.collect()
        return self._small_tables[key]

    @contextmanager
    def _scan(self, table: str, place: int, run_ids: frozenset[str] | None = None) -> Iterator[pl.LazyFrame]:
        """Scan a table of all runs of a result set, or of some."""
        name, one = self._sets[place]
        chosen = [each for each in self._records[place] if run_ids is None or each.run_id in run_ids]
        with one.scan(table, chosen) as scanned:
            yield scanned.select(pl.lit(name).alias("result_set"), pl.all())

    def _each(self, table: Callable[[ResultSet, Sequence[Record]], pl.DataFrame]) -> pl.DataFrame:
        """A table of each result set, one below the other."""
        named = zip(self._sets, self._records, strict=True)
        return stack([labelled(table(one, records), name) for (name, one), records in named])


_ROUNDS = {"round_length", "tracking"}
_OF_ROUNDS = ("active", "span", "files", "jobs", *Rounds().criteria)


def _is_read(parameter: str) -> bool:
    """Return True for a parameter of cases that is used here; a parameter of a stream is named `STREAM.NAME`."""
    own_name = parameter.rpartition(".")[2]
    return own_name in ("queue_depth", "active", STAGE) or parameter in _ROUNDS or parameter in _OF_ROUNDS


def _extent() -> list[pl.Expr]:
    return [pl.col("begin_ns").cast(pl.Int64).min(), pl.col("end_ns").cast(pl.Int64).max()]
