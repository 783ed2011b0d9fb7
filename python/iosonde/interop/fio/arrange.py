"""Jobs -> the parts of a study: which run together, in which files, and what they must agree on.

fio runs all sections at once; `stonewall` waits for those before it and begins a new part here. A study has one target:
jobs with files of their own get files of their own again; where names are shared, or some have a name and some have
none, each name becomes a range of one file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from iosonde.interop.fio.convert import Job
from iosonde.study.check import CONTROL
from iosonde.units import compact_duration, compact_size, parse_duration, parse_size

UNKNOWN_SPAN_BYTES = 1 << 30
"""The range of a job whose size the job file leaves to the target."""

_LONGEST_NAME = 100
"""Characters of a name of a part or stream; files are named after it."""

_ALIGNMENT = 1 << 20
"""Ranges begin at multiples of this, which any block size of direct I/O divides that can be used at all."""

_LOUDEST_FIRST = {"page_cache": ("warm", "drop", "keep"), "backend": ("uring", "sync", "null")}
"""Rule for the value of the run where jobs differ."""


def arrange(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The parts of the study as its file has them."""
    taken = {CONTROL}
    groups = _groups(_with_contents_of_files(jobs))
    return [_part(_without_idle_start(group), _distinct(_title(group), taken)) for group in groups]


_CONTENTS = ("payload", "compression_ratio", "duplicate_fraction", "duplicate_size")


def _with_contents_of_files(jobs: Sequence[Job]) -> list[Job]:
    """The jobs; one that only reads a file of an earlier job reads that job's kind of data.

    All others have their own, and the plan lays files out again where kinds differ.
    """
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    found = []
    for job in jobs:
        only_reads, files = job.stream["read_fraction"] == 1, job.place.files
        if only_reads and files in known:
            own = {name: value for name, value in job.stream.items() if name not in _CONTENTS}
            job = replace(job, stream=own | known[files])
        elif files and not _only_trims(job):
            known[files] = {name: job.stream[name] for name in _CONTENTS if name in job.stream}
        found.append(job)
    return found


def _only_trims(job: Job) -> bool:
    return bool(job.stream.get("trim_fraction") == 1)


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: list[list[Job]] = []
    for job in jobs:
        if job.begins_part or not groups:
            groups.append([])
        groups[-1].append(job)
    return groups


def _without_idle_start(group: Sequence[Job]) -> Sequence[Job]:
    """fio waits until the first job starts; there is nothing to measure meanwhile."""
    idle_ns = min(job.start_ns for job in group)
    for job in (job for job in group if idle_ns):
        job.given.note(
            "startdelay",
            why=f"no job runs in the first {compact_duration(idle_ns)}",
            instead="the measurement starts with the first job",
        )
    return [replace(job, start_ns=job.start_ns - idle_ns) for job in group]


def _part(group: Sequence[Job], name: str) -> dict[str, Any]:
    places = _places(group)
    agreed = _agreed(group)
    run = {**_duration(group), **agreed, **_layout(group, agreed), **_files(group)}
    streams = [{**job.stream, **place, **_active(job, group)} for job, place in zip(group, places, strict=True)]
    titles = list(dict.fromkeys(job.title for job in group if job.title))
    part: dict[str, Any] = {"name": name, "title": "; ".join(titles) or ", ".join(job.name for job in group)}
    if len(group) == 1:
        return {**part, "measurement": {**streams[0], **run}}
    taken: set[str] = set()
    names = [_distinct(job.name, taken) for job in group]
    named = [{"name": name, "set": stream} for name, stream in zip(names, streams, strict=True)]
    return {**part, "measurement": run, "streams": named}


def _title(group: Sequence[Job]) -> str:
    if len(group) < 3:
        return "-and-".join(job.name for job in group)
    return f"{group[0].name}-and-{len(group) - 1}-more"


def _distinct(name: str, taken: set[str]) -> str:
    """A name that is valid in a study, in the names of its cases and of files."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:_LONGEST_NAME] or "job"
    candidates = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
    distinct = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(distinct)
    return distinct


# What a run has once


def _agreed(group: Sequence[Job]) -> dict[str, Any]:
    """One value for all; who wanted another is noted."""
    agreed: dict[str, Any] = {}
    for name in dict.fromkeys(name for job in group for name in job.run):
        wanted = [job.run[name] for job in group if name in job.run]
        agreed[name] = _one_of(name, wanted)
        for job in group:
            if name in job.run and job.run[name] != agreed[name]:
                _note_other(job, name, agreed[name])
    if "verify" in agreed:
        _verify_all_or_none(group, agreed)
    if agreed["backend"] == "sync" or "uring" not in {job.run["backend"] for job in group}:
        for name in ("registered_files", "registered_buffers", "submission_polling", "completion_polling"):
            agreed.pop(name, None)
    return agreed


def _verify_all_or_none(group: Sequence[Job], agreed: dict[str, Any]) -> None:
    """Verify all data or none: data that one job writes, another overwrites or reads."""
    reason = next((job.unverifiable for job in group if job.unverifiable), "")
    if not reason:
        return
    del agreed["verify"]
    for job in group:
        if "verify" in job.run:
            job.given.note(
                "verify",
                why=f"a concurrent job cannot be verified: {reason}",
                instead="the load is the same without the check",
            )


def _one_of(name: str, wanted: Sequence[Any]) -> Any:
    match name:
        case "ramp" | "interval":
            return max(wanted, key=parse_duration)
        case "verify":
            return "after" if "after" in wanted else "during"
        case "page_cache" | "backend":
            return min(wanted, key=_LOUDEST_FIRST[name].index)
        case _:
            return all(wanted)


def _note_other(job: Job, name: str, agreed: Any) -> None:
    option = next((each for each in _WRITTEN_AS[name] if each in job.given), None)
    why = f"jobs that run together need the same `{name}`, and another has `{agreed}`"
    instead = f"`{name}` is `{agreed}` for all of them"
    if option:
        job.given.note(option, why=why, instead=instead)
    else:
        job.given.note_section(why=why, instead=instead)


_WRITTEN_AS = {
    "ramp": ("ramp_time",),
    "interval": ("log_avg_msec",),
    "page_cache": ("invalidate", "pre_read"),
    "backend": ("ioengine",),
    "verify": ("verify",),
    "registered_files": ("registerfiles",),
    "registered_buffers": ("fixedbufs",),
    "submission_polling": ("sqthread_poll",),
    "completion_polling": ("hipri",),
}


def _duration(group: Sequence[Job]) -> dict[str, str]:
    """Until the last of those that time ends."""
    ends_ns = [job.start_ns + job.duration_ns for job in group if job.duration_ns]
    if not ends_ns:
        return {"duration": "none"}
    for job in (job for job in group if not job.duration_ns):
        job.given.note_section(
            why=f"it has no `runtime`, and concurrent jobs end after {compact_duration(max(ends_ns))}",
            instead="it ends then at the latest",
        )
    return {"duration": compact_duration(max(ends_ns))}


def _active(job: Job, group: Sequence[Job]) -> dict[str, str]:
    """When the job runs, if not from begin to end."""
    if len(group) == 1:
        return {}
    end_ns = job.start_ns + job.duration_ns if job.duration_ns else 0
    ends_earlier = any(end_ns and other.start_ns + other.duration_ns > end_ns for other in group)
    if not job.start_ns and not ends_earlier:
        return {}
    return {"active": f"{compact_duration(job.start_ns)}-{compact_duration(end_ns) if ends_earlier else ''}"}


def _layout(group: Sequence[Job], run: dict[str, Any]) -> dict[str, str]:
    """fio writes files before it reads them, and not before it writes them; what is verified must be known."""
    needed = any(job.needs_data for job in group) or "verify" in run
    kinds = {tuple(job.stream.get(name) for name in _CONTENTS) for job in group}
    if needed and len(kinds) > 1 and not _have_own_files(group):
        for job in (job for job in group if job.needs_data and any(name in job.stream for name in _CONTENTS)):
            job.given.note_section(
                why="concurrent jobs with different kinds of data share one file",
                instead="it is laid out with incompressible data",
            )
    return {"layout": "missing" if needed else "never"}


# Files


def _have_own_files(group: Sequence[Job]) -> bool:
    is_single = len(group) == 1 and group[0].jobs == 1
    return not is_single and not any(job.place.files for job in group)


def _files(group: Sequence[Job]) -> dict[str, str]:
    return {"files": "per_job"} if _have_own_files(group) else {}


def _places(group: Sequence[Job]) -> list[dict[str, Any]]:
    """Where each job finds its bytes: in its own file, or as a range of the one that all share."""
    if _have_own_files(group):
        return [_own(job) for job in group]
    if len({_key(job) for job in group}) == 1:
        return [_range(job, 0) for job in group]
    group = [_with_known_span(job) for job in group]
    starts = _starts(group)
    return [_range(job, starts[_key(job)]) for job in group]


def _with_known_span(job: Job) -> Job:
    """Ranges of one file follow each other only if their lengths are known."""
    place = job.place
    for name, value in (("size", place.span), ("offset", place.offset)):
        if isinstance(value, str):
            job.given.note(
                name,
                why="the size of the target is unknown to the study, and its ranges must not overlap",
                instead=f"it is a share of {compact_size(UNKNOWN_SPAN_BYTES)}; change `span` and `offset` in the study",
            )
    offset = _of_unknown(place.offset)
    if place.span is None:
        return replace(job, place=replace(place, offset=offset, span=parse_size(_span(job))))
    span = _of_unknown(place.span)
    if isinstance(place.span, str):
        span = max(min(span, UNKNOWN_SPAN_BYTES - offset), _ALIGNMENT)
    return replace(job, place=replace(place, offset=offset, span=span))


def _of_unknown(value: int | str) -> int:
    """Bytes; a share is one of `UNKNOWN_SPAN_BYTES`."""
    if isinstance(value, int):
        return value
    return int(UNKNOWN_SPAN_BYTES * float(value.rstrip("%")) / 100) // _ALIGNMENT * _ALIGNMENT


def _key(job: Job) -> tuple[str, ...]:
    """Return the key of a range: a name, or the section where it has none."""
    return job.place.files or ("", job.name, str(job.given.section.line))


def _starts(group: Sequence[Job]) -> dict[tuple[str, ...], int]:
    """Where the range of each name begins, one behind the other."""
    lengths: dict[tuple[str, ...], int] = {}
    for job in group:
        length = int(job.place.offset) + parse_size(_span(job)) * (job.jobs if not job.place.files else 1)
        lengths[_key(job)] = max(length, lengths.get(_key(job), 0))
    group[0].given.note_section(
        why="concurrent jobs share one file, or have one file each",
        instead=f"the files of the {len(group)} jobs are consecutive ranges of one file",
    )
    aligned = [-(-length // _ALIGNMENT) * _ALIGNMENT for length in lengths.values()]
    return dict(zip(lengths, itertools.accumulate([0, *aligned[:-1]]), strict=True))


def _range(job: Job, start: int) -> dict[str, Any]:
    """The job's bytes of the shared file; jobs with files of their own each get a part of their range."""
    place = job.place
    own_files = not place.files and job.jobs > 1
    offset = place.offset if isinstance(place.offset, str) else start + place.offset
    span = _span(job)
    if own_files and isinstance(place.span, int):
        span = compact_size(place.span * job.jobs)
    return {
        "span": span,
        **_offset(offset),
        **({"span_sharing": "split"} if place.split or own_files else {}),
    }


def _own(job: Job) -> dict[str, Any]:
    """The job's bytes of its own files."""
    if isinstance(job.place.span, str):
        job.given.note(
            "size",
            why="the line `filename=` is missing, and fio refuses a share of files that do not exist",
            instead="each job has a file with an equal share of the free space; for one device, add "
            "`filename=/dev/...` and import again",
        )
    return {"span": _span(job), **_offset(job.place.offset)}


def _offset(value: int | str) -> dict[str, str]:
    return {"offset": value if isinstance(value, str) else compact_size(value)} if value else {}


def _span(job: Job) -> str:
    span = job.place.span
    if isinstance(span, str):
        return span
    if span is None:
        job.given.note_section(
            why="it extends to the end of the target, whose size is unknown to the study",
            instead=f"it addresses {compact_size(UNKNOWN_SPAN_BYTES)}; change it with `--set span=...`",
        )
        span = UNKNOWN_SPAN_BYTES
    return compact_size(span)
