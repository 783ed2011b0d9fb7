"""A result set as plain files for other tools: one file per table or run, and a README that describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb

from iosonde.base.foreign_text import markdown, markdown_code
from iosonde.base.provided import provided
from iosonde.base.text_files import is_utf8
from iosonde.errors import ResultsError
from iosonde.results import frames
from iosonde.results.files import Directory
from iosonde.results.frames import TABLES
from iosonde.results.query import connect, metric_tables
from iosonde.results.result_set import ResultSet
from iosonde.results.shapes import first_line, interpreting
from iosonde.storage.targets.temporary_files import temporary_names

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
            target = str(temporary).replace("'", "''")
            columns = [(name, kind) for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
            described[table] = [name for name, _ in columns]
            rows = frames.select_of(table, columns) if format == "csv" else f"SELECT * FROM {table}"
            try:
                connection.execute(f"COPY ({rows}) TO '{target}' {FORMATS[format]}")
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
