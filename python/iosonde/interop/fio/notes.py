"""Differences between a job file and its import: one note each, with its place in the job file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from iosonde.interop.fio.jobfile import Setting


@dataclass(frozen=True, kw_only=True)
class Note:
    """One difference between the study and the job file."""

    option: str
    """As written in the file (`thinktime=200`); empty for a whole section."""
    section: str
    file: str
    line: int
    why: str
    instead: str
    """Behaviour of the import instead."""

    def __str__(self) -> str:
        subject = f"`{self.option}`: " if self.option else ""
        return f"{self.file}:{self.line} [{self.section}] {subject}{self.why}; {self.instead}"


class Notes:
    """Collects notes; options of `[global]` are noted once for all sections that take it from there."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}

    def __iter__(self) -> Iterator[Note]:
        return iter(sorted(self._notes, key=lambda note: (note.file, note.line)))

    def add(self, setting: Setting, *, why: str, instead: str) -> None:
        """An option that is not carried over unchanged."""
        self._add(str(setting), setting.section, setting.file, setting.line, why, instead)

    def add_section(self, section: str, file: str, line: int, *, why: str, instead: str) -> None:
        """Something about a section as a whole."""
        self._add("", section, file, line, why, instead)

    def _add(self, option: str, section: str, file: str, line: int, why: str, instead: str) -> None:
        note = Note(option=option, section=section, file=file, line=line, why=why, instead=instead)
        self._notes[note] = None


def wrapped(notes: Iterable[Note], *, width: int, indent: str, further: str) -> list[str]:
    """Notes as lines of text; continued lines of a note start with `further`."""
    return [
        line
        for note in notes
        for line in textwrap.wrap(
            str(note),
            width,
            initial_indent=indent,
            subsequent_indent=further,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
