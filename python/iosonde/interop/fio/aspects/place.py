"""Which bytes of which files a job addresses, and how many of them until it ends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.given import Given
from iosonde.units import compact_size


@dataclass(frozen=True, kw_only=True)
class Place:
    """Files of a job and their ranges."""

    files: tuple[str, ...]
    """Names as the job file has them; empty: each of the jobs has a file of its own."""
    offset: int | str
    """Bytes, or a share as `20%` where it depends on the target."""
    span: int | str | None
    """Bytes, a share as `20%`, or None where it depends on the target."""
    split: bool
    """Each of the jobs has its own part of `span`."""


def place_of(given: Given, jobs: int) -> Place:
    """The range that the jobs of a section address."""
    span = _span(given)
    offset = _offset(given)
    files = _files(given)
    increment = given.text("offset_increment")
    if jobs == 1 or not increment or increment == "0":
        return Place(files=files, offset=offset, span=span, split=False)
    if increment.endswith("%") or not files or isinstance(span, str):
        given.note(
            "offset_increment",
            why="ranges can be distinguished in one file of known size only",
            instead="all jobs address the same range" if files else "each job begins at `offset` of its own file",
        )
        return Place(files=files, offset=offset, span=span, split=False)
    return _stepped(given, jobs, Place(files=files, offset=offset, span=span, split=False))


def _stepped(given: Given, jobs: int, place: Place) -> Place:
    """Ranges that begin `offset_increment` after each other."""
    step = given.size("offset_increment")
    span = step if place.span is None else int(place.span)
    if step < span:
        given.note(
            "offset_increment", why="ranges of jobs do not overlap in part", instead="all jobs address all of them"
        )
        return Place(files=place.files, offset=place.offset, span=(jobs - 1) * step + span, split=False)
    if step > span:
        given.note(
            "offset_increment",
            why="ranges of jobs lie without gaps",
            instead="each job's range is as long as the increment",
        )
    return Place(files=place.files, offset=place.offset, span=jobs * step, split=True)


def _files(given: Given) -> tuple[str, ...]:
    for name in ("filename", "directory"):
        if name in given and given.raw(name):
            given.note(
                name, why="a study contains no paths", instead="`--target` names the file or directory when it is run"
            )
    names = tuple(name for name in re.split(r"(?<!\\):", given.raw("filename")) if name)
    if len(names) > 1:
        given.note("filename", why="a job has one file", instead=f"one range represents the {len(names)} files")
    if names:
        return (":".join(names),)
    if given.section.name.startswith("/dev/") and given.number("nrfiles", 1) == 1:
        given.note_section(
            why="fio takes the name of the section for its device",
            instead="`--target` names the file or directory when it is run",
        )
        return (given.section.name,)
    pattern = given.raw("filename_format")
    if pattern and "$jobnum" not in pattern:
        return (pattern.replace("$jobname", given.section.name),)
    return ()


def _span(given: Given) -> int | str | None:
    count = given.number("nrfiles", 1)
    if count > 1:
        given.note("nrfiles", why="a job has one file", instead=f"it is as large as the {count} together")
    whole = _file_bytes(given, count)
    text = given.text("size")
    if text and not text.endswith("%"):
        return given.size("size") if whole is None else min(given.size("size"), whole - int(_offset(given)))
    if not text:
        return whole
    percent = given.read("size", units.share)
    return int(whole * percent / 100) if whole is not None else f"{percent:g}%"


def _file_bytes(given: Given, count: int) -> int | None:
    """The meaning of `filesize` for all files of a job."""
    if "filesize" not in given:
        return None
    ends = re.split("[-:]", given.text("filesize"))
    if len(ends) > 1:
        given.note("filesize", why="a file has one size", instead="it has the largest of the range")
    return count * max(given.read("filesize", lambda _: units.size(end, kb_base=given.kb_base)) for end in ends)  # noqa: B023


def _offset(given: Given) -> int | str:
    text = given.text("offset")
    if not text.endswith("%"):
        return given.size("offset") if text else 0
    whole = _file_bytes(given, given.number("nrfiles", 1))
    percent = given.read("offset", units.share)
    if whole is None:
        return f"{percent:g}%" if percent else 0
    return int(whole * percent / 100) // 4096 * 4096


def limits(given: Given, jobs: int, place: Place) -> dict[str, Any]:
    """Return the limits of the job besides time, of all its jobs together."""
    if given.flag("time_based") and given.time_ns("runtime"):
        return {}
    loops = given.number("loops", 1)
    # A range that is trimmed and then written counts once.
    passes = loops * (2 if "trimwrite" in given.text("rw") else 1)
    limits = _limit_of_bytes(given, passes, jobs, place)
    count = given.number("number_ios", 0)
    if count:
        limits["limit_operations"] = count * loops * jobs
    return limits


def _limit_of_bytes(given: Given, passes: int, jobs: int, place: Place) -> dict[str, Any]:
    """In bytes, or in multiples of the range where its size depends on the target."""
    io_size = given.text("io_size")
    if io_size and not io_size.endswith("%"):
        limit = given.size("io_size") * passes * jobs
        return {"limit_bytes": compact_size(limit)} if limit else {}
    share = given.read("io_size", units.share) / 100 if io_size else 1.0
    span = _span(given)
    if isinstance(span, int):
        limit = int(span * share) * passes * jobs
        return {"limit_bytes": compact_size(limit)} if limit else {}
    # Jobs with files of their own address a range each.
    spans = share * passes * (jobs if place.files else 1)
    return {"limit_spans": round(spans, 6)} if spans else {}
