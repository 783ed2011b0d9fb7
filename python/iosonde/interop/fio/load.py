"""A job file -> a study file, checked like any other, and what it does not carry over."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iosonde.errors import StudyError
from iosonde.interop.fio import command_line, jobfile, write
from iosonde.interop.fio.arrange import arrange
from iosonde.interop.fio.convert import Job, begins_part, convert
from iosonde.interop.fio.given import Given
from iosonde.interop.fio.notes import Note, Notes


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Result of an import."""

    name: str
    """Name of the study."""
    text: str
    """The study as TOML."""
    notes: Sequence[Note]
    """Options that are not carried over unchanged, in the order of the file."""


def import_job_file(path: Path | str, *, environment: Mapping[str, str] | None = None) -> Imported:
    """Read a job file and all that it includes; `StudyError` states what is wrong with it."""
    path = Path(path)
    sections = jobfile.read(path, environment=os.environ if environment is None else environment)
    return _imported(sections, path.name.removesuffix(".fio"), f"the fio job file `{path.name}`")


def import_command_line(words: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Imported:
    """Read a command line of fio, as one word or as several; `StudyError` states what is wrong with it."""
    command = command_line.split(words)
    sections = command_line.read(command, environment=os.environ if environment is None else environment)
    return _imported(sections, sections[0].name if sections else "job", "the fio command line")


def _imported(sections: Sequence[jobfile.Section], name: str, origin: str) -> Imported:
    notes = Notes()
    jobs = _jobs([Given(section, notes) for section in sections])
    if not jobs:
        raise _nothing(origin, sections, notes)
    study = _study(name, origin, jobs)
    found = list(notes)
    text = write.toml(study, origin=origin, notes=found)
    _check(text, origin)
    return Imported(name=study["name"], text=text, notes=found)


def _jobs(sections: Sequence[Given]) -> list[Job]:
    """The loads; where a section is left out, the next one waits for those before it in its place."""
    jobs: list[Job] = []
    waits = False
    for given in sections:
        job = convert(given)
        waits |= begins_part(given)
        if job:
            jobs.append(replace(job, begins_part=waits))
            waits = False
    return jobs


def _study(name: str, origin: str, jobs: Sequence[Job]) -> dict[str, Any]:
    parts = arrange(jobs)
    return {
        "name": re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "job",
        "title": f"The load of {origin}",
        "question": f"What does the load of {origin} reach on this target?",
        "repeats": 3,
        # Parts are in the order of the job file: one may read what another has written.
        "shuffle": False,
        "parts": parts,
        "profiles": {"standard": {"title": f"As in {origin}"}},
        "views": [view for part in parts for view in _views(part)],
    }


def _views(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    of = f"{part['name']}"
    by = {"series": "stream", "facet": "operation"} if "streams" in part else {"series": "operation"}
    return [
        {"kind": "percentiles", "title": f"{of}: latency", "part": part["name"], **by},
        {"kind": "timeseries", "title": f"{of}: IOPS over time", "part": part["name"], "y": "iops", **by},
    ]


def _check(text: str, origin: str) -> None:
    """Check the finished study for contradictions between its streams."""
    from iosonde.planning import parse, study_size

    try:
        study_size(parse(text), profile="standard")
    except StudyError as error:
        raise StudyError(
            error.what,
            where=f"in the study made from {origin}" + (f", {error.where}" if error.where else ""),
            hint=error.hint or "the case is named after its section of the job file, and that has to change",
        ) from None


def _nothing(origin: str, sections: Sequence[jobfile.Section], notes: Notes) -> StudyError:
    if not sections:
        return StudyError(
            f"{origin} has no jobs", hint="a job starts with its name, such as `[reader]` or `--name=reader`"
        )
    return StudyError(
        f"{origin} has no load that iosonde measures",
        where="\n  ".join(str(note) for note in notes if note.instead.endswith("left out")),
        hint="iosonde does I/O on files and block devices; see docs/fio.md, Engines",
    )
