"""One section of a job file -> the parameters of one stream, and what could not be converted.

Each module of `aspects` takes one aspect of the load. Values are as a study has them (text with units). What depends on
the sections that run with this one (files, layout, what they must agree on) is left to `arrange`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iosonde.errors import StudyError
from iosonde.interop.fio.aspects.access import access
from iosonde.interop.fio.aspects.data import durability, payload, verification, why_unverifiable
from iosonde.interop.fio.aspects.direction import direction_of
from iosonde.interop.fio.aspects.mix import block_size, mix
from iosonde.interop.fio.aspects.place import Place, limits, place_of
from iosonde.interop.fio.aspects.submission import (
    backend,
    chosen_engine,
    concurrency,
    cpus,
    engine_name,
    io_mode,
    page_cache,
)
from iosonde.interop.fio.aspects.timing import arrival, duration_ns, ramp, start_ns
from iosonde.interop.fio.given import Given
from iosonde.interop.fio.options import Fate
from iosonde.workload.block import BLOCK


@dataclass(frozen=True, kw_only=True)
class Job:
    """A section, converted."""

    name: str
    title: str
    given: Given
    begins_part: bool = False
    """It waits for those before it; `load` decides."""
    stream: dict[str, Any]
    """Parameters of the stream."""
    run: dict[str, Any]
    """Parameters of the whole run, on which jobs of a part must agree."""
    jobs: int
    place: Place
    start_ns: int
    """Delay of the start after the others."""
    duration_ns: int
    """Longest duration; 0 where only its bytes end it."""
    needs_data: bool
    """It reads, or overwrites what must be there."""
    unverifiable: str = ""
    """Reason for which its data cannot be verified, as a clause; empty where it can."""


def convert(given: Given) -> Job | None:
    """Return a section's load; None, with a note, if iosonde cannot measure it."""
    engine = chosen_engine(given)
    if engine.backend is None:
        given.note_section(
            why=f"`ioengine={engine_name(given)}` is no block I/O: {engine.differs}", instead="it is left out"
        )
        return None
    if "read_iolog" in given:
        given.note(
            "read_iolog", why="the load is in a trace, and traces are not replayed", instead="the section is left out"
        )
        return None
    if given.flag("create_only"):
        given.note(
            "create_only",
            why="the section creates files and does no I/O on them",
            instead="files are created as the loads need them; the section is left out",
        )
        return None
    _note_dropped(given)
    direction = direction_of(given)
    jobs = given.number("numjobs", 1)
    place = place_of(given, jobs)
    stream = {
        **access(given, direction, jobs, place),
        **mix(given, direction),
        **block_size(given, direction),
        **concurrency(given, engine, jobs),
        **io_mode(given),
        **durability(given, direction),
        **limits(given, jobs, place),
        **payload(given, direction),
        **cpus(given, jobs),
        **arrival(given, direction, jobs),
    }
    unverifiable = why_unverifiable(given, direction, stream)
    return Job(
        name=given.text("name") if _names_itself(given) else given.section.name,
        title=given.text("description"),
        given=given,
        stream=_checked(given, stream),
        run={
            **backend(given, engine, stream),
            **ramp(given, stream),
            **page_cache(given),
            **verification(given, direction, unverifiable),
        },
        jobs=jobs,
        place=place,
        start_ns=start_ns(given),
        duration_ns=duration_ns(given),
        needs_data="read" in direction.operations or given.flag("overwrite"),
        unverifiable=unverifiable,
    )


def _note_dropped(given: Given) -> None:
    for option, setting in given.all():
        if option.fate is Fate.DROPPED and (setting.value is None or setting.value not in option.off):
            given.notes.add(setting, why=option.why, instead=option.instead)


def _names_itself(given: Given) -> bool:
    """A `name` in `[global]` would give all sections the same."""
    return "name" in given and given.setting("name").section == given.section.name


def begins_part(given: Given) -> bool:
    """Return True if the section waits for those before it; those after a section that is left out still do."""
    if "wait_for" in given:
        given.note(
            "wait_for",
            why="a job cannot wait for a single other job",
            instead="it waits for all earlier jobs: a new part",
        )
    return given.flag("stonewall") or "wait_for" in given


def _checked(given: Given, stream: dict[str, Any]) -> dict[str, Any]:
    """Unsupported options are reported for the section that has them."""
    for name, value in stream.items():
        try:
            BLOCK.read_value(name, value)
        except StudyError as error:
            raise StudyError(error.what, where=_where(given), hint=error.hint) from None
    return stream


def _where(given: Given) -> str:
    return f"in section `[{given.section.name}]`, line {given.section.line} of `{given.section.file}`"
