"""A result set: the directory in which a study's plan and records lie (layout: `schema.py`).

It promises that what was written once stays as it is and is there completely or not at all, that one process writes at
a time while any number read, and that a damaged or foreign file is named and skipped, never trusted and never fatal.
Rates, percentiles and intervals of confidence are the analysis' business.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import ValidationError

from iosonde.errors import ResultsError
from iosonde.plan import Case, Plan, Run
from iosonde.results import files, frames, known
from iosonde.results.schema import ADDED, FORMAT, HISTOGRAMS, INTERVALS, STORE_STATISTICS, USAGE, Record

if TYPE_CHECKING:
    import duckdb

SIMULATED_BACKENDS = ("simulated", "ssd")
"""Backends of the engine that stand for storage: figures of a model."""
RECORD_TABLES = {"intervals": INTERVALS, "histograms": HISTOGRAMS, "usage": USAGE}

OWN_TABLES = {"store_statistics": STORE_STATISTICS}
"""Tables that only the records of some workloads have."""
"""The Parquet files of every record."""

_ATTEMPT = re.compile(r"(?P<run_id>.+?)(?:\.a(?P<attempt>[0-9]+))?")
_OWN_NAMES = {"format.json", "plan.json", "lock", "environments", "records", "figures", "temporary-drive-state"}


class ResultSet:
    """A directory with a plan and the records of its runs."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.plan = plan
        self._writable = False
        self.memo: dict[Hashable, Any] = {}
        """What others have worked out from records, which never change; each names it as it likes."""

    @classmethod
    def create(cls, directory: Path | str, plan: Plan) -> ResultSet:
        """Begin a result set in a directory that is new or empty."""
        directory = Path(directory).absolute()
        _make_empty(directory)
        (directory / "records").mkdir()
        (directory / "environments").mkdir()
        files.write_file(directory / "plan.json", plan.model_dump_json(indent=1).encode())
        files.write_file(directory / "format.json", json.dumps({"format": FORMAT}).encode())
        return cls(directory, plan)

    @classmethod
    def open(cls, directory: Path | str) -> ResultSet:
        """Open a result set to read it, or to go on with it under `lock`."""
        directory = Path(directory).absolute()
        _check_format(directory)
        return cls(directory, _read_plan(directory))

    def __repr__(self) -> str:
        return f"ResultSet({str(self.directory)!r}, {len(self.records())} of {len(self.known_runs())} runs)"

    # Writing

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer. What a killed writer left half-written is removed."""
        path = self.directory / "lock"
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(self.directory, path) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            for directory in (self.directory, self.directory / "records", self.directory / "environments"):
                files.remove_temporaries(directory)
            self._writable = True
            self.__dict__.pop("_contents", None)
            with files.reserve(self.directory) as self._reserve:
                try:
                    yield
                finally:
                    self._writable = False

    def write(
        self,
        record: Record,
        intervals: pl.DataFrame,
        histograms: pl.DataFrame,
        usage: pl.DataFrame,
        store_statistics: pl.DataFrame | None = None,
    ) -> None:
        """Keep one run for good."""
        assert self._writable, "only the holder of the lock writes"
        tables = {"intervals": intervals, "histograms": histograms, "usage": usage}
        if store_statistics is not None and len(store_statistics):
            tables["store_statistics"] = store_statistics
        content = {"record.json": record.model_dump_json(indent=1).encode()}
        for name, table in tables.items():
            assert table.schema == (RECORD_TABLES | OWN_TABLES)[name], f"`{name}` is not of its schema"
            content[f"{name}.parquet"] = _parquet(table)
        path = self.directory / "records" / _record_name(record.run_id, record.attempt)
        try:
            self._reserve.use(lambda: files.write_directory(path, content))
        except OSError as error:
            raise ResultsError(
                f"cannot write the record `{path}`: {error.strerror}",
                hint=f"put that right, then go on with `iosonde resume {self.directory}`; runs with a record are kept",
            ) from error
        self._contents.add(record)

    def write_environment(self, facts: dict[str, Any]) -> str:
        """Keep a description of machine and software, once for each state they were found in; returns its hash."""
        assert self._writable, "only the holder of the lock writes"
        content = json.dumps(facts, indent=1, sort_keys=True).encode()
        name = hashlib.sha256(content).hexdigest()[:16]
        path = self.directory / "environments" / f"{name}.json"
        if not path.exists():
            files.write_file(path, content)
        self._contents.environments[name] = facts
        return name

    def next_attempt(self, run_id: str) -> int:
        """Number that the next attempt of a run gets; damaged attempts keep theirs."""
        return self._contents.attempts.get(run_id, 0) + 1

    # Reading

    def records(self) -> list[Record]:
        """The latest attempt of each run that has a record, in the order of execution."""
        return sorted(self._contents.records.values(), key=lambda record: (record.order, record.run_id))

    def record(self, run_id: str) -> Record | None:
        """The latest attempt of a run, if it has a record."""
        return self._contents.records.get(run_id)

    def only(self, run_ids: Collection[str]) -> ResultSet:
        """The same result set as if it had no records but those of these runs."""
        part = ResultSet(self.directory, self.plan)
        records = {run_id: self._contents.records[run_id] for run_id in run_ids}
        part.__dict__["_contents"] = replace(self._contents, records=records)
        return part

    def missing_runs(self, *, retry_failed: bool = False) -> list[Run]:
        """Runs of the plan that a resumed study has yet to carry out, in the order of execution.

        What procedures will decide on is not among them: `procedure/agenda.py` asks them.
        """
        done = {
            run_id
            for run_id, record in self._contents.records.items()
            if record.outcome == "complete" or (record.outcome == "failed" and not retry_failed)
        }
        return [run for run in self._planned if run.run_id not in done]

    @property
    def simulated(self) -> bool:
        """Whether it is measured on simulated storage: figures of a model, not of a device."""
        return any(spec["workload"].get("backend", {}).get("kind") in SIMULATED_BACKENDS for spec in self.plan.specs())

    @property
    def problems(self) -> list[str]:
        """Damaged or foreign files, each with what is wrong with it; all of them are skipped."""
        return self._contents.problems

    def environments(self) -> dict[str, dict[str, Any]]:
        """Machine and software of the runs, by the hash that records name."""
        return dict(self._contents.environments)

    def table_files(self, name: str) -> list[Path]:
        """The Parquet files of one table, of the latest attempts only."""
        paths = [
            self.directory / "records" / _record_name(record.run_id, record.attempt) / f"{name}.parquet"
            for record in self.records()
        ]
        return [path for path in paths if path.exists()] if name in OWN_TABLES else paths

    def known_runs(self) -> list[Run]:
        """The runs of the plan, and those that procedures have decided on, in the order of execution."""
        planned = {run.run_id for run in self.plan.runs}
        return self._planned + [known.run(record) for record in self.records() if record.run_id not in planned]

    def known_cases(self) -> list[Case]:
        """The cases of the plan; in the place of one with a procedure, those that it has tried, if it has any."""
        return known.cases(self.plan, self.records())

    @property
    def cases(self) -> pl.DataFrame:
        """One row a case."""
        return frames.cases(self.known_cases())

    @property
    def runs(self) -> pl.DataFrame:
        """One row a run that has a record."""
        return frames.runs(self.records())

    @property
    def jobs(self) -> pl.DataFrame:
        """One row a job."""
        return frames.jobs(self.records())

    @property
    def warnings(self) -> pl.DataFrame:
        """One row a warning."""
        return frames.warnings(self.records())

    @property
    def evidence(self) -> pl.DataFrame:
        """One row a number that a run's verdict rests on."""
        return frames.evidence(self.records())

    @property
    def faults(self) -> pl.DataFrame:
        """One row a place where data did not come back as it was written."""
        return frames.faults(self.records())

    @property
    def intervals(self) -> pl.DataFrame:
        """One row a run, phase, interval, stream and operation."""
        return self.sql("SELECT * FROM intervals")

    @property
    def histograms(self) -> pl.DataFrame:
        """One row an occupied bucket. A large result set has tens of millions: aggregate with `sql` instead."""
        return self.sql("SELECT * FROM histograms")

    @property
    def usage(self) -> pl.DataFrame:
        """One row an interval for the engine process and for each block device."""
        return self.sql("SELECT * FROM usage")

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with the tables of `columns.py`."""
        from iosonde.results.query import connect

        return connect(self)

    def sql(self, text: str) -> pl.DataFrame:
        """The answer to one SELECT over the tables of `columns.py`."""
        from iosonde.results.query import select

        with self.connect() as connection:
            return select(connection, text)

    def export(self, format: str, directory: Path | str) -> list[Path]:
        """Write every table (`csv`, `parquet`, `json`) or run (`fio-json`, `hdr`) as one file, with a README."""
        from iosonde.results.export import export

        return export(self, format, Path(directory))

    @property
    def _planned(self) -> list[Run]:
        return sorted(self.plan.runs, key=lambda run: run.order)

    @cached_property
    def _contents(self) -> _Contents:
        return _read_contents(self.directory, self.plan)


def load(directory: Path | str) -> ResultSet:
    """Open a result set to read it."""
    return ResultSet.open(directory)


@dataclass
class _Contents:
    """What lies in the directory, as far as it is sound."""

    records: dict[str, Record] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """One more record; the latest attempt of a run counts."""
        self.attempts[record.run_id] = max(record.attempt, self.attempts.get(record.run_id, 0))
        if record.run_id not in self.records or self.records[record.run_id].attempt < record.attempt:
            self.records[record.run_id] = record


def _read_contents(directory: Path, plan: Plan) -> _Contents:
    contents = _Contents()
    for path in _entries(directory):
        if path.name not in _OWN_NAMES and not path.name.startswith("report."):
            contents.problems.append(f"`{path}` is not part of a result set")
    for path in _entries(directory / "environments"):
        _read_environment(path, contents)
    for path in _entries(directory / "records"):
        _read_attempt(path, plan, contents)
    return contents


def _read_environment(path: Path, contents: _Contents) -> None:
    try:
        contents.environments[path.stem] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        contents.problems.append(f"`{path}` is damaged: {_first_line(error)}")


def _read_attempt(path: Path, plan: Plan, contents: _Contents) -> None:
    match = _ATTEMPT.fullmatch(path.name)
    if not match or not plan.case_of(match["run_id"]) or not path.is_dir():
        contents.problems.append(f"`{path}` is not a record of this study")
        return
    run_id, attempt = match["run_id"], int(match["attempt"] or 1)
    contents.attempts[run_id] = max(attempt, contents.attempts.get(run_id, 0))
    try:
        contents.add(_read_record(path, run_id, attempt))
    except _DamagedError as damage:
        contents.problems.append(str(damage))


def _read_record(path: Path, run_id: str, attempt: int) -> Record:
    file = path / "record.json"
    try:
        record = Record.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise _DamagedError(f"`{file}` is damaged: {_first_line(error)}") from error
    if (record.run_id, record.attempt) != (run_id, attempt):
        raise _DamagedError(f"`{file}` is of another run: `{record.run_id}`, attempt {record.attempt}")
    for name, schema in RECORD_TABLES.items():
        _check_table(path / f"{name}.parquet", schema)
    for name, schema in OWN_TABLES.items():
        if (path / f"{name}.parquet").exists():
            _check_table(path / f"{name}.parquet", schema)
    return record


def _check_table(path: Path, schema: pl.Schema) -> None:
    """Only the footer is read: it stands last, so a truncated file has none."""
    try:
        found = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _DamagedError(f"`{path}` is damaged: {_first_line(error)}") from error
    missing = [name for name, dtype in schema.items() if found.get(name, dtype if name in ADDED else None) != dtype]
    if missing:
        raise _DamagedError(f"`{path}` is not of our schema: column `{missing[0]}` is missing or of another type")


class _DamagedError(Exception):
    """A record cannot be trusted; the text names the file and what is wrong with it."""


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = _entries(directory)
    except OSError as error:
        raise ResultsError(
            f"cannot make the result set `{directory}`: {error.strerror}",
            hint="name another directory with `--output DIR`",
        ) from error
    if entries:
        raise ResultsError(
            f"`{directory}` is not empty",
            hint="name a new directory with `--output DIR`, or go on with a result set by `iosonde resume DIR`",
        )


def _check_format(directory: Path) -> None:
    path = directory / "format.json"
    try:
        found = json.loads(path.read_bytes())["format"]
    except FileNotFoundError:
        raise ResultsError(
            f"`{directory}` is not a result set",
            where="it has no `format.json`" if directory.is_dir() else "there is no such directory",
            hint="name the directory that `iosonde run` printed",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(
            f"`{path}` is damaged",
            where=_first_line(error),
            hint='if the rest is sound, restore it by writing `{"format": 1}`',
        ) from error
    if found != FORMAT:
        raise ResultsError(
            f"`{directory}` is of format {found}, this iosonde reads format {FORMAT}",
            hint="read it with the iosonde that wrote it, or a newer one",
        )


def _read_plan(directory: Path) -> Plan:
    path = directory / "plan.json"
    try:
        return Plan.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ResultsError(
            f"`{path}` is damaged",
            where=_first_line(error),
            hint="without its plan a result set cannot be read; the records in it are sound JSON and Parquet",
        ) from error


def _in_use(directory: Path, lock: Path) -> ResultsError:
    holder = lock.read_text().strip()
    return ResultsError(
        f"`{directory}` is being written by process {holder or 'unknown'}",
        hint="wait until it ends, or stop it with Ctrl-C; reading (`report`, `sql`) is possible meanwhile",
    )


def _record_name(run_id: str, attempt: int) -> str:
    return run_id if attempt == 1 else f"{run_id}.a{attempt}"


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _entries(directory: Path) -> list[Path]:
    """What lies in a directory, without what is not written completely."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if not path.name.startswith(files.TEMPORARY))


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}"
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
