"""A result set as plain files for other tools: one file a table or a run, and a README that says what is in them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from iosonde.errors import ResultsError
from iosonde.results import files
from iosonde.results.columns import TABLES
from iosonde.results.combine import Source
from iosonde.results.query import add_metrics, connect, metric_tables
from iosonde.results.reading import first_line
from iosonde.text_files import is_utf8

FORMATS = {
    "csv": "(FORMAT csv, HEADER true)",
    "parquet": "(FORMAT parquet, COMPRESSION zstd)",
    "json": "(FORMAT json, ARRAY true)",
}
"""Formats, and the options of DuckDB's COPY that write them."""


OF_RUNS = {"fio-json": "iosonde.interop.fio.json_plus", "hdr": "iosonde.interop.hdr.log"}
"""Formats of other tools with one file a run, and what makes them: a module with `files(result_set)` and `WHAT`."""


def export(result_set: Source, format: str, directory: Path) -> list[Path]:
    """Write every table, or every run, into a new or empty directory; returns the files."""
    if format not in FORMATS and format not in OF_RUNS:
        known = ", ".join(f"`{name}`" for name in (*FORMATS, *OF_RUNS))
        raise ResultsError(f"`{format}` is not a format of export", hint=f"use {known}")
    if not is_utf8(str(directory)):
        raise ResultsError(f"the name `{directory}` is not UTF-8", hint="name another directory with `--output`")
    _make_empty(directory)
    if format in FORMATS:
        written, text = _tables(result_set, format, directory)
    else:
        written, text = _runs(result_set, format, directory)
    readme = directory / "README.md"
    files.write_file(readme, text.encode())
    return [*written, readme]


def _tables(result_set: Source, format: str, directory: Path) -> tuple[list[Path], str]:
    written = []
    with connect(result_set, writable=directory.absolute()) as connection:
        add_metrics(connection, [result_set], [""])
        tables = TABLES | metric_tables()
        for table in tables:
            path = directory / f"{table}.{format}"
            temporary = path.absolute().with_name(f"{files.TEMPORARY}{path.name}")
            target = str(temporary).replace("'", "''")
            try:
                connection.execute(f"COPY (SELECT * FROM {table}) TO '{target}' {FORMATS[format]}")
            except duckdb.Error as error:
                raise ResultsError(f"cannot export the table `{table}`: {first_line(error)}") from error
            temporary.rename(path)
            written.append(path)
        columns = {table: [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()] for table in tables}
    return written, describe(result_set, format, columns)


def _runs(result_set: Source, format: str, directory: Path) -> tuple[list[Path], str]:
    module = importlib.import_module(OF_RUNS[format])
    written = []
    for name, content in module.files(result_set):
        files.write_file(directory / name, content)
        written.append(directory / name)
    names = {path.name for path in written}
    return written, "\n".join(_about_runs(result_set, module.WHAT, module.SUFFIX, names)) + "\n"


def _about_runs(result_set: Source, what: str, suffix: str, names: set[str]) -> Iterator[str]:
    yield from _origin(result_set)
    yield from ("", f"{what}. docs/fio.md of iosonde explains them.", "", "| file | case | |", "|---|---|---|")
    for record in result_set.records():
        name = record.run_id + suffix
        yield f"| {f'`{name}`' if name in names else '-'} | `{record.case_id}` | {record.outcome} |"


def describe(result_set: Source, format: str, columns: dict[str, list[str]]) -> str:
    """What lies in an export, as Markdown."""
    lines = _origin(result_set)
    for table, described in (TABLES | metric_tables()).items():
        meanings = {column.name: column.text for column in described.columns}
        lines += ["", f"## {table}.{format}", "", f"{described.text}.", "", "| column | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meanings.get(name, _FACTOR)} |" for name in columns[table]]
    return "\n".join(lines) + "\n"


def _origin(result_set: Source) -> list[str]:
    plan = result_set.plan
    return [
        f"# {plan.study['title']}",
        "",
        f"Exported by iosonde from the result set `{result_set.directory.name}`: study `{plan.study_name}`,",
        f"profile `{plan.profile}`, target `{plan.target}`.",
    ]


_FACTOR = "Factor or parameter of the study"


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
