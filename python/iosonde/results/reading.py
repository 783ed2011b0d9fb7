"""Reads what a result set contains and checks it.

A result set may be damaged, edited, or malicious. Whatever cannot be interpreted, for any reason, is named and skipped
here, and nowhere else: callers get records that are complete, unmodified, of our schema, and of the plan.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic_core import from_json

from iosonde.base.foreign_text import printable
from iosonde.base.python_process import installed_version
from iosonde.engine.protocol import VERSION
from iosonde.engine.protocol.validation import mismatch_of_hello, mismatch_of_result, mismatch_of_spec
from iosonde.errors import ResultsError
from iosonde.plan import MOST_PLANNED_CASES, PREPARATION, Case, Plan
from iosonde.results import frames, shapes
from iosonde.results.files import MARK, Directory
from iosonde.results.schema import FORMAT, MANIFEST, RECORD_TABLES, WORKLOAD_TABLES, Record, check_numbers
from iosonde.results.shapes import first_line

_OF_NUMBERS = ("search", "derived", "until")
"""Procedures whose levels are numbers, by which their cases are ordered; those of others are in the order of runs."""


def cases(plan: Plan, records: Sequence[Record]) -> list[Case]:
    """The plan's cases in order; what a procedure has tried takes the place of its case."""
    return [known for case in plan.cases for known in (_tried(case, plan, records) if case.procedure else [case])]


def mismatch(case: Case, record: Record) -> str:
    """Return the first level that a procedure cannot have tried; empty if there is none. Searches try numbers."""
    if not case.procedure or case.procedure.kind not in _OF_NUMBERS:
        return ""
    tried = {name: level for name, level in record.levels.items() if name not in case.levels}
    wrong = (name for name, level in tried.items() if not isinstance(level, int | float))
    return next((f"`levels.{name}` is not a number, as a search tries" for name in wrong), "")


def _tried(case: Case, plan: Plan, records: Sequence[Record]) -> list[Case]:
    """The cases that a procedure has tried, or its own; of searches in the order of the numbers that were tried."""
    own = {record.case_id: record for record in records if plan.case_of(record.run_id) is case}
    names = ("case_id", "part", "levels", "parameters")
    changes = [{name: getattr(record, name) for name in names} for record in own.values()]
    tried = [case.model_copy(update={**each, "procedure": None}) for each in changes]
    if case.procedure and case.procedure.kind in _OF_NUMBERS:
        tried.sort(key=lambda each: [float(at) for name, at in each.levels.items() if name not in case.levels])
    return tried or [case]


OWN_NAMES = {
    MARK,
    "plan.json",
    "lock",
    "environments",
    "records",
    "figures",
    "temporary-drive-state",
    "against",
    "hosts",
}

_FEW_ROWS, _ROWS_PER_BYTE = 1_000_000, 10
"""A table of a run has fewer rows than this: its times and counts take at least about a byte a row."""

_LARGEST, _LARGEST_FLOAT = 1 << 64, 1e300
"""Numbers in JSON are below these."""

OWN_VERSION = installed_version("iosonde") or "unknown"
"""Of iosonde: each result set has that of its writer."""

_ATTEMPT = re.compile(r"(?P<run_id>[A-Za-z0-9][A-Za-z0-9_-]*)(?:\.a(?P<attempt>[0-9]{1,6}))?")


@dataclass
class Contents:
    """Everything readable in a result set."""

    records: dict[str, Record] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Add a record; the latest attempt of a run counts."""
        self.attempts[record.run_id] = max(record.attempt, self.attempts.get(record.run_id, 0))
        if record.run_id not in self.records or self.records[record.run_id].attempt < record.attempt:
            self.records[record.run_id] = record

    def refuse(self, run_id: str, problem: str) -> None:
        """Name and skip a record that another reader than those here cannot decode."""
        del self.records[run_id]
        self.problems.append(problem)


class _DamagedError(Exception):
    """A file cannot be trusted; the text names it and the reason."""


def read_contents(path: Path, plan: Plan, *, tables: bool = True) -> Contents:
    """Read every environment and record; what is skipped is in `problems`.

    Without `tables` only the records themselves are checked: `scan_table` checks each table that it reads.
    """
    contents = Contents()
    with Directory.open(path) as directory:
        for name in directory.names():
            if name not in OWN_NAMES and not name.startswith("report."):
                contents.problems.append(f"`{path / name}` is not part of a result set")
        for environments in _subdirectory(directory, "environments", contents):
            for name in environments.names():
                with _skipping(path / "environments" / name, contents):
                    _read_environment(environments, name, contents)
        for records in _subdirectory(directory, "records", contents):
            for name in records.names():
                with _skipping(path / "records" / name, contents):
                    _read_attempt(records, name, plan, contents, tables=tables)
    return contents


@contextmanager
def scan_table(path: Path, name: str, files: Sequence[str], *, check: bool) -> Iterator[pl.LazyFrame]:
    """Scan Parquet files of one table, relative to `records`, without SQL; read in the block, in which they are open.

    Through a descriptor, and without patterns, so that a directory named `a[1]` is none. With `check`, files are first
    compared with the manifests of their records. `ResultsError` for damaged ones.
    """
    schema = (RECORD_TABLES | WORKLOAD_TABLES)[name]
    if not files:
        yield pl.LazyFrame(schema=schema)
        return
    with Directory.open(path) as directory, directory.subdirectory("records") as records:
        paths = [f"/proc/self/fd/{records.descriptor}/{file}" for file in files]
        contents = _checked_contents(path, records, files) if check else []
        try:
            rows = pl.scan_parquet(
                contents or paths, schema=schema, extra_columns="ignore", glob=False, hive_partitioning=False
            )
            if contents and rows.select(pl.len()).collect().item() > (most := _most_rows(contents)):
                raise _damaged_table(path, path / "records", ValueError(f"it has more than {most} rows"))
            yield rows
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise _damaged_table(path, path / "records", error) from error


def _checked_contents(path: Path, records: Directory, files: Sequence[str]) -> list[bytes]:
    contents = []
    for file in files:
        record, _, name = file.partition("/")
        try:
            with records.subdirectory(record) as found:
                contents.append(_checked_file(found, name, _read_manifest(found)))
        except (OSError, _DamagedError) as error:
            raise _damaged_table(path, path / "records" / record, error) from error
    return contents


def _damaged_table(path: Path, place: Path, error: BaseException) -> ResultsError:
    return ResultsError(
        f"a table of `{place}` is damaged",
        where=first_line(error),
        hint=f"`iosonde report {path}` names every damaged record",
    )


def _checked_file(directory: Directory, name: str, sums: Mapping[str, str]) -> bytes:
    """Read a file of a record; its checksum must be the one in the manifest."""
    content = directory.read(name)
    if hashlib.sha256(content).hexdigest() != sums.get(name):
        raise _DamagedError(
            f"`{directory.path / name}` was modified after it was written: its SHA-256 differs from the manifest"
        )
    return content


def read_plan(path: Path) -> Plan:
    """Read the plan; without it nothing else can be interpreted."""
    file = path / "plan.json"
    form = _read_format(path)
    expected, writer = form.get("plan_sha256"), form.get("iosonde", OWN_VERSION)
    try:
        with Directory.open(path) as directory:
            content = directory.read("plan.json")
        if expected is not None and hashlib.sha256(content).hexdigest() != expected:
            raise _DamagedError("its SHA-256 is not the one in `format.json`")
        found = parsed(content)
        _check_count(found, path)
        return checked_plan(found)
    except ResultsError:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not any((path / "records").glob("*")):
            raise ResultsError(
                f"`{path}` has no plan and no records: creating the result set was interrupted",
                hint=f"run the study again with `--output {path}`",
            ) from None
        is_modified = isinstance(error, _DamagedError)
        if expected is not None and not is_modified and writer != OWN_VERSION:
            raise ResultsError(
                f"`{file}` was written by iosonde {printable(str(writer))[:20]} and cannot be read by {OWN_VERSION}",
                where=first_line(error),
                hint="use the iosonde that wrote it, or a newer one",
            ) from error
        raise ResultsError(
            f"`{file}` {'was modified after it was written' if is_modified else 'is damaged'}",
            where=first_line(error),
            hint="restore the file: without its plan a result set cannot be read",
        ) from error


def checked_plan(content: Any) -> Plan:
    """Return the plan in JSON that somebody else may have written; `ValueError`, `KeyError` or `TypeError` if none."""
    plan = Plan.model_validate(content)
    for spec in plan.specs():
        _check_spec(spec)
    if problem := shapes.mismatch_of_plan(plan):
        raise ValueError(problem)
    return plan


def _check_count(plan: Any, path: Path) -> None:
    """Raise for more cases than a report can handle, before any of them is checked."""
    cases = plan.get("cases") if isinstance(plan, dict) else None
    if isinstance(cases, list) and len(cases) > MOST_PLANNED_CASES:
        raise ResultsError(
            f"the plan of `{path}` must have at most {MOST_PLANNED_CASES:,} cases, got {len(cases):,}",
            hint="it was not created by `iosonde run`, which refuses such studies",
        )


def _check_spec(spec: Any) -> None:
    if problem := mismatch_of_spec(spec):
        raise ValueError(problem)
    if "block_devices" not in spec.get("observe", {}):  # Optional in the protocol; plans always have it.
        raise ValueError("`observe` of a spec has no `block_devices`")


def _read_format(path: Path) -> dict[str, Any]:
    file = path / MARK
    try:
        with Directory.open(path) as directory:
            facts = parsed(directory.read(MARK))
        found = facts["format"]
    except (FileNotFoundError, NotADirectoryError):
        raise ResultsError(
            f"`{path}` is not a result set",
            where=_why_none(path),
            hint="name the directory that `iosonde run` printed",
        ) from None
    except Exception as error:
        raise ResultsError(
            f"`{file}` is damaged",
            where=first_line(error),
            hint=f'if the other files are intact, restore it by writing `{{"format": {FORMAT}}}`',
        ) from error
    if found != FORMAT:
        raise ResultsError(
            f"`{path}` has format {found}; this iosonde reads format {FORMAT}",
            hint="use the iosonde that wrote it, or a newer one",
        )
    return dict(facts)


def parsed(content: bytes) -> Any:
    """Parse JSON; `ValueError` also for what no writer of ours writes and what no reader may have to expect.

    That is a lone surrogate, deep nesting (the parser's own limits), NaN, infinity, and integers beyond 64 bits.
    """
    found = from_json(content, allow_inf_nan=False)
    waiting = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int | float):
            largest = _LARGEST if isinstance(value, int) else _LARGEST_FLOAT
            if not -largest < value < largest:
                raise ValueError(f"the number {str(value)[:40]} is out of range")
    return found


def _why_none(path: Path) -> str:
    if path.is_dir():
        return "it has no `format.json`"
    return "it is not a directory" if os.path.lexists(path) else "there is no such directory"


def record_name(run_id: str, attempt: int) -> str:
    """Return the name of a record's directory."""
    return run_id if attempt == 1 else f"{run_id}.a{attempt}"


def manifest(files: Mapping[str, bytes]) -> bytes:
    """Return the checksums of a record's files, as `sha256sum --check` reads them."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    return "".join(lines).encode()


@contextmanager
def _skipping(path: Path, contents: Contents) -> Iterator[None]:
    """Name what cannot be interpreted, whatever the reason, and continue."""
    try:
        with _naming(path):
            yield
    except _DamagedError as error:
        contents.problems.append(str(error))


def _subdirectory(directory: Directory, name: str, contents: Contents) -> Iterator[Directory]:
    """Yield a directory in this one, unless it is missing or something else."""
    with _skipping(directory.path / name, contents), suppress(FileNotFoundError), directory.subdirectory(name) as found:
        yield found


def _read_environment(environments: Directory, name: str, contents: Contents) -> None:
    content = environments.read(name)
    file = environments.path / name
    stem = name.removesuffix(".json")
    if not is_environment(name, content):
        raise _DamagedError(f"`{file}` was modified after it was written: its name is not its checksum")
    facts = parsed(content)
    if not isinstance(facts, dict):
        raise _DamagedError(f"`{file}` is damaged: it is not a JSON object")
    contents.environments[stem] = facts


def is_environment(name: str, content: bytes) -> bool:
    """Return True if a file has the name of its content."""
    stem = name.removesuffix(".json")
    return bool(stem) and hashlib.sha256(content).hexdigest()[: len(stem)] == stem


def _read_attempt(records: Directory, name: str, plan: Plan, contents: Contents, *, tables: bool) -> None:
    found = attempt_of(name, plan)
    if not found or not records.is_directory(name):
        contents.problems.append(f"`{records.path / name}` is not a record of this study")
        return
    run_id, attempt = found
    contents.attempts[run_id] = max(attempt, contents.attempts.get(run_id, 0))
    with records.subdirectory(name) as directory:
        contents.add(_read_record(directory, run_id, attempt, plan, tables=tables))


def attempt_of(name: str, plan: Plan) -> tuple[str, int] | None:
    """Return run and attempt of a record with this name; None if the plan yields no such record."""
    match = _ATTEMPT.fullmatch(name)
    if not match or not plan.case_of(match["run_id"]):
        return None
    return match["run_id"], int(match["attempt"] or 1)


def _read_record(directory: Directory, run_id: str, attempt: int, plan: Plan, *, tables: bool) -> Record:
    sums, file = _read_manifest(directory), directory.path / "record.json"
    with _naming(file):
        content = parsed(_checked_file(directory, "record.json", sums))
        _check_versions(content, file)
        record = Record.model_validate(content)
        _check_parts(record)
    if (record.run_id, record.attempt) != (run_id, attempt):
        raise _DamagedError(f"`{file}` belongs to another run: `{record.run_id}`, attempt {record.attempt}")
    if tables:
        _check_tables(directory, sums, run_id)
    case = plan.case_of(run_id)
    planned = plan.planned_case_id(run_id)
    assert case, "checked by the caller"
    own = record.case_id.removeprefix(f"{PREPARATION}/")
    if record.arm != case.arm or (own != planned if planned else not own.startswith(case.case_id)):
        raise _DamagedError(f"`{directory.path}` belongs to another case: `{record.case_id}`")
    if problem := mismatch(case, record):
        raise _DamagedError(f"`{file}` is damaged: {problem}")
    if tables:
        with _naming(file):
            frames.check(record)
    return record


def _check_versions(record: dict[str, Any], file: Path) -> None:
    """Tell a record of a newer iosonde, which has continued the study, from a damaged one."""
    for name, found, ours in (("format", record["format"], FORMAT), ("protocol", record["spec"]["protocol"], VERSION)):
        if type(found) is int and found > ours:
            raise _DamagedError(f"`{file}` has {name} {found}; this iosonde reads {name} {ours}: use a newer iosonde")


def _check_tables(directory: Directory, sums: Mapping[str, str], run_id: str) -> None:
    present = set(directory.names())
    for name, schema in (RECORD_TABLES | WORKLOAD_TABLES).items():
        file = f"{name}.parquet"
        if file not in present and name in WORKLOAD_TABLES:
            continue
        with _naming(directory.path / file):
            rows = _decoded_table(directory, file, schema, sums)
            if rows["run_id"].ne_missing(run_id).any():
                raise ValueError("it has rows from another run")
            check_numbers(rows)


def _check_parts(record: Record) -> None:
    """Check what a record has from the plan and from the engine, which its own types leave open."""
    _check_spec(record.spec)
    if record.outcome != "failed" and record.result is None:
        raise ValueError(f"the run is {record.outcome} but has no result")
    if record.outcome == "failed" and record.failure is None:
        raise ValueError("the run failed but the record has no `failure`")
    problem = mismatch_of_hello(record.engine) or shapes.mismatch_of_record(record)
    problem = problem or shapes.mismatch_of_parameters(record.parameters, record.spec["workload"]["kind"])
    if record.result is not None:
        problem = problem or mismatch_of_result(record.result)
    if problem:
        raise ValueError(problem)


def _read_manifest(directory: Directory) -> dict[str, str]:
    """Return the checksums of a record's files by name."""
    with _naming(directory.path / MANIFEST):
        try:
            text = directory.read(MANIFEST).decode()
        except FileNotFoundError:
            raise _DamagedError(f"`{directory.path / MANIFEST}` is missing, so the record cannot be checked") from None
        pairs = [line.split("  ", 1) for line in text.splitlines()]
        return {name: checksum for checksum, name in pairs}


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file of an error."""
    try:
        yield
    except _DamagedError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise _DamagedError(f"`{file}` is damaged: {first_line(error)}") from error


def _decoded_table(directory: Directory, name: str, schema: pl.Schema, sums: Mapping[str, str]) -> pl.DataFrame:
    """Check a table's checksum, rows and schema, and decode it: a checksum does not prove who wrote the file."""
    content = _checked_file(directory, name, sums)
    most = _most_rows([content])
    # Most tables are small: threads would cost more.
    rows = pl.read_parquet(io.BytesIO(content), parallel="none", n_rows=most + 1)
    if rows.height > most:  # Parquet stores a repeated row once.
        raise ValueError(f"it has more than {most} rows")
    missing = [each for each, kind in schema.items() if rows.schema.get(each) != kind]
    if missing:
        raise _DamagedError(
            f"`{directory.path / name}` has a different schema: column `{missing[0]}` is missing or "
            "has a different type"
        )
    return rows


def _most_rows(files: Sequence[bytes]) -> int:
    """More rows than any run writes into files of these sizes."""
    return sum(_FEW_ROWS + _ROWS_PER_BYTE * len(content) for content in files)
