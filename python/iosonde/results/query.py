"""SQL over result sets, and their tables as plain files for other tools.

The tables of `frames.py` are in one DuckDB connection. The large ones are views over the records' Parquet files, so
nothing is copied and a percentile over any number of runs is a GROUP BY. The small ones are made from plan and records.

The connection reads the records of its result sets and a scratch directory of its own, and nothing else: no other file,
no network, no extension; its configuration is locked. Paths go through `/proc/self/fd`, so a directory named `a[1]` is
never taken for a pattern. Memory and temporary files are limited; `query_process.py` limits what DuckDB does not.

An export has one file per table or run, and a README that describes them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from iosonde.base import object_storage
from iosonde.base.foreign_text import markdown, markdown_code
from iosonde.base.memory import available_bytes
from iosonde.base.provided import provided
from iosonde.base.text_files import is_utf8
from iosonde.errors import ResultsError
from iosonde.results import column, schema
from iosonde.results.column import Table
from iosonde.results.files import Directory
from iosonde.results.frames import TABLES, labelled, select_of, stack
from iosonde.results.reading import record_name
from iosonde.results.result_set import ResultSet
from iosonde.results.shapes import first_line, interpreting
from iosonde.storage.targets.temporary_files import create_scratch, remove_scratch, temporary_names
from iosonde.units import format_bytes

HOSTS = "hosts"
"""Schema with the tables of the hosts of a study on several."""
_WIDE = {"HUGEINT", "UHUGEINT"}
_MOST_MEMORY_BYTES = 4 << 30
_MOST_TEMPORARY_BYTES = 8 << 30
_WATCH_S = 0.1


_ABOUT_QUERIES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.OutOfMemoryException)
"""Errors that no damaged file causes."""


def answer(result_set: ResultSet, text: str) -> pl.DataFrame:
    """Return the result of one statement that a user wrote; only reading is allowed.

    Each file of a result set could be decoded by Polars (`reading.py`). Only if DuckDB fails, which takes its own time
    to decode everything, is each tried with DuckDB, and records with a file that it cannot decode are skipped.
    """
    hosts = result_set.hosts() if re.search(rf"\b{HOSTS}\s*\.", text.lower()) else []
    try:
        with connect(result_set, hosts=hosts) as connection:
            return select(connection, text, result_set, hosts)
    except ResultsError as error:
        if not isinstance(error.__cause__, duckdb.Error) or isinstance(error.__cause__, _ABOUT_QUERIES):
            raise
    with connect(result_set, hosts=hosts, check=True) as connection:
        return select(connection, text, result_set, hosts)


def answer_library(library: Mapping[str, Any], text: str) -> pl.DataFrame:
    """Return the result of one statement over a library (`library/indexing.py`); only reading is allowed."""
    scratch = create_scratch()
    connection = duckdb.connect()
    weakref.finalize(connection, _close, scratch, [])
    if address := library.get("address"):
        connection.register_filesystem(object_storage.opened(address).system)
    _confine(connection, scratch, [library["directory"]])
    try:
        for name in ("result_sets", "segments"):
            _add_table(connection, name, pl.DataFrame(library[name], infer_schema_length=None))
        # Rows of a result set that has changed since are in an older segment.
        files = ", ".join(map(_quoted, library["files"]))
        rows = f"read_parquet([{files}], hive_partitioning = false) SEMI JOIN segments USING (result_set, segment)"
        connection.execute(f"CREATE VIEW metrics AS SELECT * EXCLUDE (segment) FROM {rows}")
        connection.execute("SET lock_configuration = true")
        _check_reading(connection.extract_statements(text))
    except duckdb.Error as error:
        raise _failed(error) from error
    return frame(connection, text)


def connect(
    result_set: ResultSet,
    *,
    hosts: Sequence[ResultSet] = (),
    writable: Path | None = None,
    check: bool = False,
    metrics: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Connect to a result set.

    The tables of `hosts` are in a schema of that name and start with a column `host`. `writable` is a directory that
    statements may write to. With `check`, records with a file that DuckDB cannot decode are skipped; with `metrics`,
    the tables of metrics are added.
    """
    scratch = create_scratch()
    opened = [(each, _open_records(each)) for each in (result_set, *hosts)]
    connection = duckdb.connect()
    weakref.finalize(connection, _close, scratch, [records for _, records in opened])
    directories = [_path(records) for _, records in opened if records is not None]
    _confine(connection, scratch, [*directories, *([str(writable)] if writable else [])])
    for each, records in opened:
        if check and records is not None:
            _skip_undecodable(connection, each, records)
    for macro in column.MACROS:
        connection.execute(macro)
    _make_tables(connection, "", {"": opened[0]})
    if hosts:
        connection.execute(f"CREATE SCHEMA {HOSTS}")
        _make_tables(connection, f"{HOSTS}.", {each.directory.name: (each, records) for each, records in opened[1:]})
    connection.execute("SET lock_configuration = true")
    for table in metric_tables() if metrics else ():
        _add_table(connection, table, provided("metrics").table(table, result_set))
    return connection


def _confine(connection: duckdb.DuckDBPyConnection, scratch: Path, directories: Sequence[str]) -> None:
    """Limit what the connection can read and write."""
    allowed = ", ".join(_quoted(f"{directory}/") for directory in (scratch, *directories))
    temporary = min(_MOST_TEMPORARY_BYTES, shutil.disk_usage(scratch).free // 2)
    for setting in (
        f"memory_limit = '{min(_MOST_MEMORY_BYTES, available_bytes() // 2)}B'",
        f"max_temp_directory_size = '{temporary}B'",
        "enable_progress_bar = false",  # it would go to standard output, where the data goes
        f"temp_directory = {_quoted(scratch)}",
        f"allowed_directories = [{allowed}]",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
    ):
        connection.execute(f"SET {setting}")


def _skip_undecodable(connection: duckdb.DuckDBPyConnection, result_set: ResultSet, records: int) -> None:
    """Skip records with a file that DuckDB cannot decode, although Polars could."""
    found = {record_name(each.run_id, each.attempt): each for each in result_set.records()}
    for file in [file for table in schema.STORED_TABLES for file in result_set.table_files(table)]:
        name = file.partition("/")[0]
        if name not in found:
            continue
        path = _quoted(f"{_path(records)}/{file}")
        try:
            connection.execute(f"SELECT count(COLUMNS(*)) FROM read_parquet([{path}])").fetchall()
        except duckdb.Error as error:
            problem = f"`{result_set.directory / 'records' / file}` is damaged: {first_line(error)}"
            result_set.refuse(found.pop(name), problem)


def _open_records(result_set: ResultSet) -> int | None:
    """Return a descriptor of `records`; none if there is no such directory."""
    try:
        with Directory.open(result_set.directory) as directory:
            return directory.subdirectory("records").descriptor
    except OSError:
        return None


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _close(scratch: Path, descriptors: Sequence[int | None]) -> None:
    remove_scratch(scratch)
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def select(
    connection: duckdb.DuckDBPyConnection, text: str, result_set: ResultSet, hosts: Sequence[ResultSet]
) -> pl.DataFrame:
    """Return the result of one statement that a user wrote; only reading is allowed.

    The tables of metrics, and columns of `runs` and `cases` that are metrics, are computed only for queries that name
    them: percentiles take time.
    """

    def computed(table: str, rows: Callable[[ResultSet], pl.DataFrame]) -> Iterator[tuple[str, pl.DataFrame]]:
        yield table, rows(result_set)
        if hosts:
            yield f"{HOSTS}.{table}", stack([labelled(rows(each), each.directory.name, "host") for each in hosts])

    metrics = provided("metrics")
    try:
        _check_reading(connection.extract_statements(text))
        for table in sorted(_words(text) & set(metrics.TABLES)):
            for name, rows in computed(table, partial(metrics.table, table)):
                _add_table(connection, name, rows)
        while (added := _missing_column(connection, text)) and added in metrics.names(result_set):
            table = "cases" if "cases" in _words(text) and "runs" not in _words(text) else "runs"
            for name, rows in computed(table, partial(metrics.whole_load, table, added)):
                _add_column(connection, name, rows)
    except duckdb.Error as error:
        raise _failed(error) from error
    return frame(connection, text)


def metric_tables() -> dict[str, Table]:
    """Return the tables of metrics by name."""
    tables: dict[str, Table] = provided("metrics").TABLES
    return tables


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z_][a-z0-9_]*", text.lower()))


def _missing_column(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return a column of the query that does not exist; empty if all exist."""
    try:
        connection.sql(text.strip().rstrip(";"))
    except duckdb.BinderException as error:
        match = re.search(r'column "(\w+)" (?:was )?not found|have a column named "(\w+)"', str(error))
        return next(filter(None, match.groups()), "").lower() if match else ""
    return ""


def _add_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    path = _scratch(connection) / f"{name}-{secrets.token_hex(4)}.parquet"
    rows.write_parquet(path)
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM read_parquet({_quoted(path)})")
    path.unlink()


def _add_column(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    _add_table(connection, "added_column", rows)
    keys = ", ".join(rows.columns[:-1])
    joined = f"{table} LEFT JOIN added_column USING ({keys})"
    connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {joined}")
    connection.execute("DROP TABLE added_column")


def frame(connection: duckdb.DuckDBPyConnection, text: str) -> pl.DataFrame:
    """Return the result of a SELECT as a Polars frame.

    It goes through a Parquet file: DuckDB's own conversion needs pyarrow, and handing its Arrow stream to Polars leaves
    a reference behind that it complains about at exit.
    """
    query = text.strip().rstrip(";")
    try:
        answer = connection.sql(query)
        if answer is None:
            raise ResultsError("the query returns no rows", hint="write a SELECT")
        # Parquet has no 128-bit integers, which is what the sum of integers is.
        wide = [name for name, kind in zip(answer.columns, answer.types, strict=True) if str(kind) in _WIDE]
        casts = ", ".join(f"CAST({_column(name)} AS BIGINT) AS {_column(name)}" for name in wide)
        replace = f" REPLACE ({casts})" if casts else ""
        path = _scratch(connection) / f"answer-{secrets.token_hex(4)}.parquet"
        try:
            with _bounded(connection, path):
                connection.execute(f"COPY (SELECT *{replace} FROM (\n{query}\n)) TO {_quoted(path)} (FORMAT parquet)")
            return pl.read_parquet(path, memory_map=False, glob=False)
        finally:
            path.unlink(missing_ok=True)
    except (duckdb.Error, pl.exceptions.PolarsError, RuntimeError, OSError) as error:
        raise _failed(error) from error


@contextmanager
def _bounded(connection: duckdb.DuckDBPyConnection, answer: Path) -> Iterator[None]:
    """Interrupt a query whose answer grows beyond half of the free space, or beyond the limit of temporary files."""
    limit = min(_MOST_TEMPORARY_BYTES, shutil.disk_usage(answer.parent).free // 2)
    is_over, is_too_large = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.wait(_WATCH_S):
            with suppress(FileNotFoundError):
                if answer.stat().st_size > limit:
                    is_too_large.set()
                    connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except duckdb.InterruptException:
        if not is_too_large.is_set():
            raise KeyboardInterrupt from None
        raise ResultsError(f"query result exceeds {format_bytes(limit)}", hint="aggregate, or add `LIMIT`") from None
    finally:
        is_over.set()
        watcher.join()


def _scratch(connection: duckdb.DuckDBPyConnection) -> Path:
    found = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    assert found, "a setting has a value"
    return Path(found[0])


def _failed(error: Exception) -> ResultsError:
    text = str(error).strip() if isinstance(error, duckdb.Error) else first_line(error)
    # DuckDB proposes its own system tables.
    text = re.sub(r"\nDid you mean \"pg_\w+\"\?", "", text)
    tables = ", ".join(f"`{table}`" for table in (*TABLES, *metric_tables()))
    hint = f"the tables are {tables}; `DESCRIBE runs` lists the columns of one"
    return ResultsError(f"the query failed: {text}", hint=hint)


def _make_tables(
    connection: duckdb.DuckDBPyConnection, prefix: str, of: Mapping[str, tuple[ResultSet, int | None]]
) -> None:
    """Make the tables of result sets, by the names of their hosts, with a descriptor of `records` each.

    Those that are no files go through Parquet files, because DuckDB reads Polars frames only with pyarrow.
    """
    for table in (name for name in TABLES if name not in schema.STORED_TABLES):
        parts = [labelled(getattr(each, table), name, "host") for name, (each, _) in of.items()]
        _add_table(connection, f"{prefix}{table}", stack(parts))
    for table, columns in schema.STORED_TABLES.items():
        selects = [_select(table, columns, name, *each) for name, each in of.items()]
        try:
            connection.execute(f"CREATE VIEW {prefix}{table} AS {' UNION ALL '.join(selects)}")
        except duckdb.Error as error:
            raise _failed(error) from error


def _select(table: str, described: Table, host: str, result_set: ResultSet, records: int | None) -> str:
    """Return one result set's part of a view; without records, the columns without rows."""
    columns = [f"{_quoted(host)} AS host"] if host else []
    columns += [f'{each.computed or _column(each.name)} AS "{each.name}"' for each in described.columns]
    paths = [f"{_path(records)}/{file}" for file in result_set.table_files(table)] if records is not None else []
    source = f"read_parquet([{', '.join(map(_quoted, paths))}])" if paths else _empty(described.schema)
    return f"SELECT {', '.join(columns)} FROM {source}"


def _empty(schema: pl.Schema) -> str:
    types = {pl.String: "VARCHAR", pl.UInt32: "UINTEGER", pl.UInt64: "UBIGINT", pl.Float64: "DOUBLE"}
    columns = ", ".join(f'NULL::{types[type(dtype)]} AS "{name}"' for name, dtype in schema.items())
    return f"(SELECT {columns} LIMIT 0)"


def _check_reading(statements: Sequence[duckdb.Statement]) -> None:
    if len(statements) != 1:
        raise ResultsError(
            f"the query must have one statement; got {len(statements)}",
            hint='quote it as one argument, for example `"SELECT * FROM runs"`',
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise ResultsError(
            f"result sets are read-only, but the query is a {statements[0].type.name}",
            hint="write a SELECT; `iosonde export` writes the tables to files",
        )


def _quoted(text: str | Path) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


FORMATS = {
    "csv": "(FORMAT csv, HEADER true)",
    "parquet": "(FORMAT parquet, COMPRESSION zstd)",
    "json": "(FORMAT json, ARRAY true)",
}
"""Formats, and the options of DuckDB's COPY that write them."""


def export(result_set: ResultSet, format: str, directory: Path) -> list[Path]:
    """Write every table, or every run, into a new or empty directory; returns the files."""
    of_runs = provided("interop").exports()
    if format not in FORMATS and format not in of_runs:
        known = ", ".join(f"`{name}`" for name in (*FORMATS, *of_runs))
        raise ResultsError(f"unknown export format `{format}`", hint=f"use {known}")
    if not is_utf8(str(directory)):
        raise ResultsError(
            f"directory name must be UTF-8; got `{directory}`", hint="name another directory with `--output`"
        )
    _make_empty(directory)
    try:
        with interpreting([result_set.directory]):
            of_format = _tables if format in FORMATS else _runs
            written, text = of_format(result_set, format, directory)
        readme = directory / "README.md"
        with Directory.open(directory) as opened:
            opened.write(readme.name, text.encode())
    except OSError as error:
        raise ResultsError(
            f"cannot export into `{directory}`: {first_line(error)}", hint="name another directory with `--output DIR`"
        ) from error
    return [*written, readme]


def _tables(result_set: ResultSet, format: str, directory: Path) -> tuple[list[Path], str]:
    written = []
    described: dict[str, list[str]] = {}
    with (
        connect(result_set, writable=directory.absolute(), check=True, metrics=True) as connection,
        temporary_names(directory) as names,
    ):
        tables = TABLES | metric_tables()
        for table in tables:
            path = directory / f"{table}.{format}"
            temporary = path.absolute().with_name(names.new())
            columns = [(name, kind) for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
            described[table] = [name for name, _ in columns]
            rows = select_of(table, columns) if format == "csv" else f"SELECT * FROM {table}"
            try:
                connection.execute(f"COPY ({rows}) TO {_quoted(temporary)} {FORMATS[format]}")
            except duckdb.Error as error:
                # DuckDB writes JSON about a failed write.
                found = re.search(r'"exception_message":"((?:[^"\\]|\\.)*)"', str(error))
                reason = found[1].replace('\\"', "`") if found else first_line(error)
                raise ResultsError(
                    f"cannot export the table `{table}`: {reason}",
                    hint="make room, or name another directory with `--output DIR`",
                ) from error
            temporary.rename(path)
            written.append(path)
    return written, describe(result_set, format, described)


def _runs(result_set: ResultSet, format: str, directory: Path) -> tuple[list[Path], str]:
    module = provided("interop").exports()[format]
    names = []
    with Directory.open(directory) as opened:
        for name, content in module.files(result_set):
            opened.write(name, content)
            names.append(name)
    text = "\n".join(_about_runs(result_set, module.WHAT, module.SUFFIX, set(names))) + "\n"
    return [directory / name for name in names], text


def _about_runs(result_set: ResultSet, what: str, suffix: str | None, names: set[str]) -> Iterator[str]:
    yield from _origin(result_set)
    if suffix is None:
        yield from ("", f"{what}.", "", *(f"- {markdown_code(name)}" for name in sorted(names)))
        return
    yield from ("", f"{what}. docs/fio.md of iosonde explains them.", "", "| file | case | |", "|---|---|---|")
    for record in result_set.records():
        name = record.run_id + suffix
        file = markdown_code(name) if name in names else "-"
        yield f"| {file} | {markdown_code(record.case_id)} | {record.outcome} |"


def describe(result_set: ResultSet, format: str, columns: dict[str, list[str]]) -> str:
    """Describe the contents of an export, as Markdown."""
    lines = _origin(result_set)
    for table, described in (TABLES | metric_tables()).items():
        meanings = {column.name: column.text for column in described.columns}
        lines += ["", f"## {table}.{format}", "", f"{described.text}.", "", "| column | meaning |", "|---|---|"]
        lines += [f"| {markdown_code(name)} | {meanings.get(name, _FACTOR)} |" for name in columns[table]]
    if format == "csv":
        lines += ["", _FORMULAS]
    return "\n".join(lines) + "\n"


def _origin(result_set: ResultSet) -> list[str]:
    plan = result_set.plan
    return [
        f"# {markdown(str(plan.study.get('title', plan.study_name)))}",
        "",
        f"Exported by iosonde from the result set {markdown_code(result_set.directory.name)}: study "
        f"{markdown_code(plan.study_name)}, profile {markdown_code(plan.profile)}, target "
        f"{markdown_code(plan.target)}.",
    ]


_FACTOR = "Factor or parameter of the study"
_FORMULAS = (
    "A text that a spreadsheet would evaluate (it starts with `=`, `+`, `-` or `@` and is not a number) has an "
    "apostrophe before it. The formats `parquet` and `json` have all texts as they are."
)


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"cannot export into `{directory}`: {error.strerror}", hint="name another directory"
        ) from error
    if any(directory.iterdir()):
        raise ResultsError(
            f"cannot export into `{directory}`: it is not empty", hint="name a new directory with `--output DIR`"
        )
