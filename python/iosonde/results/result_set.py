"""A result set: the directory with a study's plan and records (layout: `schema.py`).

Files are written once, completely or not at all. One process writes at a time while any number read. Damaged, modified
and foreign files are named and skipped (`reading.py`). Rates, percentiles and confidence intervals are metrics.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
from pydantic import ValidationError

from iosonde.base.provided import provided
from iosonde.base.text_files import is_utf8
from iosonde.errors import ResultsError
from iosonde.plan import Arm, Case, Plan, Run
from iosonde.results import column, files, frames, reading
from iosonde.results.files import MARK, Directory
from iosonde.results.reading import Contents, manifest, read_contents, read_plan, record_name, scan_table
from iosonde.results.schema import FORMAT, MANIFEST, STORED_TABLES, WORKLOAD_TABLES, Record
from iosonde.results.shapes import field_of, first_line, reason_of

if TYPE_CHECKING:
    import duckdb

    from iosonde.study.model import Study

T = TypeVar("T")
_SUBDIRECTORIES = ("records", "environments")


@dataclass(frozen=True, kw_only=True)
class _Writable:
    """Resources that the only writer holds open."""

    directory: Directory
    records: Directory
    environments: Directory
    reserve: files.Reserve


class ResultSet:
    """A directory with a plan and the records of its runs."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.plan = plan
        self.label = ""
        """Name of the arm, where it is one of two (`arms`)."""
        self.whole_plan = plan
        """The plan with both arms, where it is one of two."""
        self._writable: _Writable | None = None
        self._tables = True
        self._fixed_runs: tuple[tuple[tuple[str, int], ...], pl.DataFrame] | None = None
        self._derived: dict[Hashable, Any] = {}

    def derived(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what others derive from records, which never change; computed once for each key that they choose."""
        if key not in self._derived:
            self._derived[key] = compute()
        found: T = self._derived[key]
        return found

    @classmethod
    def create(cls, directory: Path | str, plan: Plan) -> ResultSet:
        """Create a result set in a directory that is new, empty, or has no more than a killed `create` left there."""
        path = _absolute(directory)
        content = plan.model_dump_json(indent=1).encode()
        try:
            with files.new_directory(path) as place, Directory.open(place) as opened:
                if not _is_unused(opened):
                    raise ResultsError(
                        f"`{path}` is not empty",
                        hint="name a new directory with `--output DIR`, or continue a result set with `iosonde resume "
                        "DIR`",
                    )
                # First: by it `resume` knows what a kill left in a directory that existed.
                digest = hashlib.sha256(content).hexdigest()
                mark = {"format": FORMAT, "plan_sha256": digest, "iosonde": reading.OWN_VERSION}
                opened.write(MARK, json.dumps(mark).encode())
                for name in _SUBDIRECTORIES:
                    opened.subdirectory(name, create=True).close()
                opened.write("plan.json", content)  # Last: with it the result set exists.
        except OSError as error:
            raise ResultsError(
                f"cannot create the result set `{path}`: {error.strerror}",
                hint="name another directory with `--output DIR`",
            ) from error
        return cls(path, plan)

    @classmethod
    def create_or_open(cls, directory: Path, plan: Plan) -> ResultSet:
        """Return the result set of an earlier session of the same study, or a new one."""
        if not (directory / "plan.json").exists():
            return cls.create(directory, plan)
        found = cls.open(directory)
        if found.plan != plan:
            raise ResultsError(
                f"`{directory}` must be of the same study; got another plan",
                hint="resume with the same hosts, or name another directory with `--output DIR`",
            )
        return found

    @classmethod
    def open(cls, directory: Path | str) -> ResultSet:
        """Open a result set to read it, or to continue it under `lock`."""
        path = _absolute(directory)
        return cls(path, read_plan(path))

    @classmethod
    def open_records(cls, directory: Path | str) -> ResultSet:
        """Open a result set for its records alone, which is fast; its tables are checked when they are scanned."""
        opened = cls.open(directory)
        opened._tables = False
        return opened

    def __repr__(self) -> str:
        return f"ResultSet({str(self.directory)!r}, {len(self.records())} of {len(self.known_runs())} runs)"

    def __str__(self) -> str:
        """The report as text: answer, trust, summary and findings."""
        return str(provided("report").as_text(self))

    def _repr_html_(self) -> str:
        """The same with figures, for notebooks."""
        return str(provided("report").notebook(self))

    @cached_property
    def study(self) -> Study:
        """The study of the plan; `ResultsError` if it is none."""
        from iosonde.study.model import Study

        try:
            study = Study.model_validate(self.plan.study)
        except ValidationError as error:
            raise self._damaged_study(field_of(error), reason_of(error)) from error
        parts = {part.name for part in study.parts}
        for field in ("views", "analysis"):
            for number, each in enumerate(getattr(study, field)):
                if each.part not in parts:
                    raise self._damaged_study(f"{field}.{number}.part", f"there is no part `{each.part}`")
        return study

    def _damaged_study(self, field: str, reason: str) -> ResultsError:
        return ResultsError(
            f"the study in `{self.directory / 'plan.json'}` is damaged",
            where=f"`study.{field}`: {reason}",
            hint="restore the file; `iosonde sql` and `iosonde export` read the records without the study",
        )

    # Writing

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Become the only writer. Incompletely written files of a killed writer are removed."""
        with ExitStack() as opened:
            with self._writing("lock"):
                directory = opened.enter_context(Directory.open(self.directory))
                lock = directory.open_lock("lock")
                opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(self.directory, os.read(lock, 20).decode(errors="replace").strip()) from None
            with self._writing("prepare"):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                subdirectories = (directory.subdirectory(name, create=True) for name in _SUBDIRECTORIES)
                records, environments = map(opened.enter_context, subdirectories)
                for each in (directory, records, environments):
                    each.remove_temporaries()
            self.__dict__.pop("_contents", None)
            reserve = files.Reserve(directory)
            opened.callback(reserve.release)
            self._writable = _Writable(directory=directory, records=records, environments=environments, reserve=reserve)
            try:
                yield
            finally:
                self._writable = None

    def write(self, record: Record, *tables: pl.DataFrame | None) -> None:
        """Write the record of a run and its tables, which are in the order of `STORED_TABLES`."""
        assert self._writable, "only the holder of the lock writes"
        records = self._writable.records
        content = {"record.json": record.model_dump_json(indent=1).encode()}
        for (name, described), table in zip(STORED_TABLES.items(), tables, strict=False):
            if table is None or (name in WORKLOAD_TABLES and table.is_empty()):
                continue
            assert table.schema == described.schema, f"`{name}` is not of its schema"
            buffer = io.BytesIO()
            table.write_parquet(buffer, compression="zstd")
            content[f"{name}.parquet"] = buffer.getvalue()
        content[MANIFEST] = manifest(content)
        name = record_name(record.run_id, record.attempt)
        with self._writing(f"write the record `{name}` to"):
            self._writable.reserve.use(lambda: records.write_directory(name, content))
        with self._writing("find"):
            now = self._writable.directory.moved_to()
        if now:  # Records are written all the same, and readers would not find it.
            raise ResultsError(
                f"the result set `{self.directory}` was moved during a run, to `{now}`",
                hint=f"complete runs are kept: run `iosonde resume {now}`",
            )
        self._contents.add(record)

    def write_environment(self, facts: dict[str, Any]) -> str:
        """Write a description of machine and software, once per state; returns its hash."""
        assert self._writable, "only the holder of the lock writes"
        environments = self._writable.environments
        content = json.dumps(facts, indent=1, sort_keys=True).encode()
        name = hashlib.sha256(content).hexdigest()[:16]
        with self._writing("write to"):
            if f"{name}.json" not in environments.names():
                self._writable.reserve.use(lambda: environments.write(f"{name}.json", content))
        self._contents.environments[name] = facts
        return name

    def next_attempt(self, run_id: str) -> int:
        """Return the number of the next attempt of a run; damaged attempts keep theirs."""
        return self._contents.attempts.get(run_id, 0) + 1

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResultsError(
                f"cannot {what} the result set `{self.directory}`: {first_line(error)}",
                hint=f"fix the cause, then run `iosonde resume {self.directory}`: complete runs are kept",
            ) from error

    # Reading

    def records(self) -> list[Record]:
        """Return the latest attempt of each run that has a record, in the order of execution."""
        return sorted(self._contents.records.values(), key=lambda record: (record.order, record.run_id))

    def record(self, run_id: str) -> Record | None:
        """Return the latest attempt of a run, if it has a record."""
        return self._contents.records.get(run_id)

    @property
    def attempts(self) -> int:
        """Number of all attempts of all runs: another one after every record that is written."""
        return sum(self._contents.attempts.values())

    def only(self, run_ids: Collection[str]) -> ResultSet:
        """Return the same result set with only the records of these runs."""
        part = ResultSet(self.directory, self.plan)
        part.label = self.label
        records = {run_id: self._contents.records[run_id] for run_id in run_ids}
        part.__dict__["_contents"] = replace(self._contents, records=records)
        return part

    def arms(self) -> list[ResultSet]:
        """Return both arms of a comparison within one session, each as a result set of its own; otherwise this one."""
        return [self._arm(arm) for arm in self.plan.arms] or [self]

    def _arm(self, arm: Arm) -> ResultSet:
        part = ResultSet(self.directory, self.plan.of_arm(arm.name))
        part.label = arm.label
        part.whole_plan = self.plan
        records = {
            run_id: record.model_copy(update={"case_id": record.case_id.removeprefix(f"{arm.name}/")})
            for run_id, record in self._contents.records.items()
            if record.arm == arm.name
        }
        part.__dict__["_contents"] = replace(self._contents, records=records)
        return part

    def hosts(self) -> list[ResultSet]:
        """Return the result sets of the hosts of a study on several, as far as they are on this machine."""
        directories = [self.directory / "hosts" / name for name in self.plan.hosts if Path(name).name == name]
        return [ResultSet.open(each) for each in directories if not each.parent.is_symlink() and each.is_dir()]

    def missing_runs(self, *, retry_failed: bool = False) -> list[Run]:
        """Return the planned runs without a record that counts, in the order of execution.

        With `retry_failed`, failed runs are among them, and unsupported combinations are not. Runs that procedures
        decide on are never among them.
        """
        done = {
            run_id
            for run_id, record in self._contents.records.items()
            if record.outcome != "stopped" and not (retry_failed and record.is_failed)
        }
        return [run for run in self._planned if run.run_id not in done]

    @property
    def simulated(self) -> bool:
        """True if its storage is simulated: values of a model, not of a device."""
        from iosonde.study.workload.block.backends import ON_VIRTUAL_TIME

        return any(spec["workload"].get("backend", {}).get("kind") in ON_VIRTUAL_TIME for spec in self.plan.specs())

    @property
    def problems(self) -> list[str]:
        """Damaged, modified or foreign files, each with the reason; all of them are skipped."""
        return self._contents.problems

    def refuse(self, record: Record, problem: str) -> None:
        """Skip a record from now on, and add the reason to `problems`."""
        self._contents.refuse(record.run_id, problem)

    def environments(self) -> dict[str, dict[str, Any]]:
        """Return machine and software of the runs, by the hash in the records."""
        return dict(self._contents.environments)

    def table_files(self, name: str) -> list[str]:
        """Return the Parquet files of one table, of the latest attempts only, relative to `records`."""
        return self._files(name, self.records())

    def _files(self, name: str, records: Sequence[Record]) -> list[str]:
        paths = [f"{record_name(each.run_id, each.attempt)}/{name}.parquet" for each in records]
        if name in WORKLOAD_TABLES:
            return [path for path in paths if (self.directory / "records" / path).is_file()]
        return paths

    def scan(self, name: str, records: Sequence[Record]) -> AbstractContextManager[pl.LazyFrame]:
        """Scan a table of some runs, without SQL; collect what is needed of it within the block."""
        return scan_table(self.directory, name, self._files(name, records), check=not self._tables)

    def table_bytes(self, name: str, records: Sequence[Record]) -> int:
        """Return the size of the files of a table of some runs; 0 if one cannot be read, which `scan` reports."""
        try:
            return sum((self.directory / "records" / path).stat().st_size for path in self._files(name, records))
        except OSError:
            return 0

    def known_runs(self) -> list[Run]:
        """The runs of the plan, and those that procedures have decided on, in the order of execution."""
        planned = {run.run_id for run in self.plan.runs}
        return self._planned + [
            Run(run_id=each.run_id, case_id=each.case_id, repeat=each.repeat, order=each.order, spec=each.spec)
            for each in self.records()
            if each.run_id not in planned
        ]

    def known_cases(self) -> list[Case]:
        """The cases of the plan; a case with a procedure is replaced by those that it has tried, if any."""
        return reading.cases(self.plan, self.records())

    @property
    def cases(self) -> pl.DataFrame:
        """One row per case."""
        return frames.cases(self.known_cases())

    @property
    def runs(self) -> pl.DataFrame:
        """One row per run that has a record."""
        records = self.records()
        return frames.with_columns(self.fixed_runs(records), [record.levels for record in records])

    def fixed_runs(self, records: Sequence[Record]) -> pl.DataFrame:
        """Return `runs` of some records without the columns of factors.

        The last table is remembered: the readers of a report need the same one, and it has hundreds of columns.
        """
        key = tuple((record.run_id, record.attempt) for record in records)
        if self._fixed_runs is None or self._fixed_runs[0] != key:
            self._fixed_runs = key, frames.table("runs", records)
        return self._fixed_runs[1]

    @property
    def jobs(self) -> pl.DataFrame:
        """One row per job."""
        return frames.table("jobs", self.records())

    @property
    def warnings(self) -> pl.DataFrame:
        """One row per warning."""
        return frames.table("warnings", self.records())

    @property
    def evidence(self) -> pl.DataFrame:
        """One row per number that a run's verdict is based on."""
        return frames.table("evidence", self.records())

    @property
    def faults(self) -> pl.DataFrame:
        """One row per location where verification found wrong data."""
        return frames.table("faults", self.records())

    @property
    def intervals(self) -> pl.DataFrame:
        """One row per run, phase, interval, stream and operation."""
        return self._all_of("intervals")

    @property
    def histograms(self) -> pl.DataFrame:
        """One row per occupied bucket. A large result set has tens of millions: aggregate with `sql` instead."""
        rows = self._all_of("histograms")
        buckets = rows["bucket"].to_numpy()
        return rows.with_columns(
            pl.Series("lower_ns", column.lower_ns(buckets), dtype=pl.UInt64),
            pl.Series("midpoint_ns", column.midpoint_ns(buckets), dtype=pl.UInt64),
        )

    @property
    def usage(self) -> pl.DataFrame:
        """One row per interval for the engine process and for each block device."""
        return self._all_of("usage")

    def _all_of(self, name: str) -> pl.DataFrame:
        with self.scan(name, self.records()) as rows:
            return rows.collect()

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per metric of a run, stream and operation: IOPS, bandwidth, latency percentiles, CPU time, ..."""
        rows: pl.DataFrame = provided("metrics").table("metrics", self)
        return rows

    @property
    def case_metrics(self) -> pl.DataFrame:
        """One row per metric of a case: median, 95 % confidence interval with its method, number of runs, verdict."""
        rows: pl.DataFrame = provided("metrics").table("case_metrics", self)
        return rows

    @property
    def findings(self) -> list[Any]:
        """All statements of the report, each finding with its evidence."""
        return list(provided("report").findings(self))

    @property
    def figures(self) -> list[Any]:
        """The figures of the report, each with its rows and its chart."""
        return list(provided("report").figures([self]))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with all tables, metrics included; it can read nothing else."""
        connection: duckdb.DuckDBPyConnection = provided("query").connect(self, check=True, metrics=True)
        return connection

    def sql(self, text: str) -> pl.DataFrame:
        """Return the result of one SELECT; metrics are also columns of `runs` and `cases` where a query names them."""
        rows: pl.DataFrame = provided("query").answer(self, text)
        return rows

    def export(self, format: str, directory: Path | str) -> list[Path]:
        """Write every table (`csv`, `parquet`, `json`) or run (`fio-json`, `hdr`) to one file, with a README."""
        return list(provided("query").export(self, format, Path(directory)))

    @property
    def _planned(self) -> list[Run]:
        return sorted(self.plan.runs, key=lambda run: run.order)

    @cached_property
    def _contents(self) -> Contents:
        return read_contents(self.directory, self.plan, tables=self._tables)


def labels(result_sets: Sequence[ResultSet]) -> list[str]:
    """Return a name for each: its directory's, with as many parents as needed to make them distinct."""
    paths = [result_set.directory for result_set in result_sets]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    alone = len(set(paths)) == 1
    return [
        name if not each.label else each.label if alone else f"{name} {each.label}"
        for name, each in zip(names, result_sets, strict=True)
    ]


def require_distinct(result_sets: Sequence[ResultSet]) -> None:
    """Refuse a result set that is named twice, whatever the path."""
    places = Counter(each.directory.resolve() for each in result_sets)
    twice = next((place for place, times in places.items() if times > 1), None)
    if twice:
        raise ResultsError(f"result set `{twice}` was given twice", hint="give each result set once")


def require_others(baselines: Sequence[ResultSet], others: Sequence[ResultSet], *, called: str) -> None:
    """Refuse a comparison of a result set with itself, and one with a result set that is named twice."""
    both = {each.directory.resolve() for each in baselines} & {each.directory.resolve() for each in others}
    if both:
        raise ResultsError(
            f"`{sorted(map(str, both))[0]}` is both baseline and {called}",
            hint="a result set compared with itself never differs; name another baseline",
        )
    require_distinct([*baselines, *others])


def load(directory: Path | str) -> ResultSet:
    """Open a result set to read it."""
    return ResultSet.open(directory)


def _is_unused(directory: Directory) -> bool:
    """Return whether a directory is empty, or has only what precedes the plan, without any record."""
    names = directory.names()
    if not {*names} <= {*_SUBDIRECTORIES, MARK}:
        return False
    for name in {*names} & {*_SUBDIRECTORIES}:
        with directory.subdirectory(name) as each:
            if each.names():
                return False
    return True


def _absolute(directory: Path | str) -> Path:
    path = Path(directory).absolute()
    if not is_utf8(str(path)) or "\0" in str(path):
        raise ResultsError(f"the name `{path}` has a null character or is not UTF-8", hint="rename the directory")
    return path


def _in_use(directory: Path, holder: str) -> ResultsError:
    holder = holder if holder.isdecimal() else "unknown"
    return ResultsError(
        f"`{directory}` is being written by process {holder}",
        hint="wait until it exits, or stop it with Ctrl-C; `report` and `sql` can read it at any time",
    )
