"""fio's job files as text: sections, options and their places, without their meaning.

The dialect, as fio 3.33 reads it: `[global]` holds for the sections that follow it, and a later one adds to it; an
option without `=` is a switch; whatever follows the first `;` or `#` of a line is a comment, inside a value too;
`include FILE` puts that file's lines here (a relative name counts from the including file). A job file may come from
another person, and notes quote its lines: included files must be in the directory of the job file or below it.
`${NAME}` is an environment variable, and `$pagesize`, `$mb_memory` and `$ncpus` are facts of this machine, with which a
value may calculate.
"""

from __future__ import annotations

import ast
import errno
import operator
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from iosonde.base import memory, text_files
from iosonde.errors import StudyError

_MAX_INCLUDE_DEPTH = 16
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_OF_MACHINE = re.compile(r"\$(pagesize|mb_memory|ncpus)\b")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One option as written in a file."""

    option: str
    value: str | None
    """None for a switch. Environment variables that are set are filled in."""
    section: str
    file: str
    line: int

    def where(self) -> str:
        """Return the place, for errors and notes."""
        return f"in section `[{self.section}]`, line {self.line} of `{self.file}`"

    def __str__(self) -> str:
        return self.option if self.value is None else f"{self.option}={self.value}"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A job: the options of `[global]` up to here, then its own."""

    name: str
    file: str
    line: int
    settings: list[Setting]


_NOT_JOB_FILES = (
    (re.compile(r'\s*\{\s*"fio version"'), "a result of fio in JSON"),
    (re.compile(r"fio version \d+ iolog"), "an I/O log of fio (`write_iolog`)"),
    (re.compile(r"\d+;fio-[\d.]+"), "a result of fio in terse format"),
    (re.compile(r"(\d+, *){3,}\d+\s*$", re.MULTILINE), "a log of fio (`write_bw_log`, `write_lat_log`)"),
    (re.compile(r"[^\n]*: \(g=\d+\): rw="), "the output of fio"),
)
"""Beginnings of files of fio that are not job files."""


def read(path: Path, *, environment: Mapping[str, str]) -> list[Section]:
    """Return the sections of a job file, without `[global]`."""
    reader = Reader(environment)
    reader.read_file(path)
    return reader.sections


def _lines(
    path: Path, *, depth: int = 0, within: Path | None = None, included_at: str = ""
) -> Iterator[tuple[str, str, int]]:
    """Every line with content, its file and its number; those of included files in their place."""
    for number, raw in enumerate(_text(path, within, included_at).splitlines(), start=1):
        text = re.split("[;#]", raw, maxsplit=1)[0].strip()
        included = re.fullmatch(r"include\s+(.+)", text)
        if included:
            at = f"included in line {number} of `{path.name}`"
            if depth == _MAX_INCLUDE_DEPTH:
                raise StudyError(
                    f"job file includes must not be nested more than {_MAX_INCLUDE_DEPTH} deep",
                    where=at,
                    hint="remove the cycle of `include`",
                )
            file = path.parent / included[1].strip()
            yield from _lines(file, depth=depth + 1, within=within or path.parent, included_at=at)
        elif text:
            yield text, path.name, number


def _text(path: Path, within: Path | None, included_at: str) -> str:
    try:
        return text_files.read(path, within=within).removeprefix("\ufeff")
    except OSError as error:
        hint = "copy the file into the directory of the job file" if error.errno == errno.EXDEV else ""
        message = f"cannot read the job file `{path}`: {error.strerror}"
        raise StudyError(message, where=included_at, hint=hint) from error
    except UnicodeDecodeError as error:
        raise StudyError(f"cannot read the job file `{path}`: it is not text", where=included_at) from error


class Reader:
    """Lines in, sections out."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._globals: list[Setting] = []
        self._own: list[Setting] | None = None
        self._section = ""
        self.sections: list[Section] = []

    def read_file(self, path: Path, *, waits: bool = False) -> None:
        """Add the sections of a job file; one that `waits` for others has no global options of theirs."""
        kind = next((kind for start, kind in _NOT_JOB_FILES if start.match(_text(path, None, ""))), None)
        if kind:
            raise StudyError(
                f"`{path}` is {kind}, not a job file",
                hint='import the job file that fio ran, or its command line: `iosonde import fio "fio --name=..."`',
            )
        before = len(self.sections)
        self._own = None
        if waits:
            self._globals = []
        for text, file, line in _lines(path):
            header = re.fullmatch(r"\[(.*)\]", text)
            if header:
                self.start_section(header[1].strip(), file, line)
            else:
                option, equals, value = (part.strip() for part in text.partition("="))
                self.add(option, value if equals else None, file, line)
        for first in self.sections[before : before + waits]:
            first.settings.append(
                Setting(option="stonewall", value=None, section=first.name, file=first.file, line=first.line)
            )

    def start_section(self, name: str, file: str, line: int) -> None:
        """Begin a job, or `global`."""
        if not name:
            raise StudyError("a section has no name", where=f"line {line} of `{file}`")
        self._section = name
        # fio compares only these letters.
        if name.startswith("global"):
            self._own = self._globals
        else:
            self._own = list(self._globals)
            self.sections.append(Section(name=name, file=file, line=line, settings=self._own))

    def add(self, option: str, value: str | None, file: str, line: int) -> None:
        """Add an option to the section, with the values of variables."""
        if self._own is None:
            raise StudyError(
                f"the option `{option}` is outside of any section",
                where=f"line {line} of `{file}`",
                hint="put `[global]` or the name of a job, such as `[reader]`, above it",
            )
        if value is not None:
            value = _VARIABLE.sub(lambda found: self._environment.get(found[1], found[0]), value)
            if _OF_MACHINE.search(value):
                value = _calculated(_OF_MACHINE.sub(lambda found: str(_MACHINE[found[1]]()), value))
        self._own.append(Setting(option=option, value=value, section=self._section, file=file, line=line))


def unset_variables(setting: Setting) -> list[str]:
    """Environment variables that the value needs and that are not set."""
    return _VARIABLE.findall(setting.value or "")


_MACHINE = {
    "pagesize": lambda: os.sysconf("SC_PAGE_SIZE"),
    "mb_memory": lambda: memory.total_bytes() >> 20,
    "ncpus": lambda: os.cpu_count() or 1,
}
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def _calculated(text: str) -> str:
    """`2*4096` as `8192`; what is no calculation with whole numbers stays as it is."""
    try:
        return str(_value(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return text


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result: int = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        return result
    raise ValueError
