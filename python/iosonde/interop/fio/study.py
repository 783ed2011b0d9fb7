"""Jobs -> a study file, checked like any other, and what it does not carry over.

fio runs all sections at once; `stonewall` waits for those before it and begins a new part here. A study has one target:
jobs with files of their own get files of their own again; where names are shared, or some have a name and some have
none, each name becomes a range of one file.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iosonde.errors import StudyError
from iosonde.interop.fio import command_line, jobfile
from iosonde.interop.fio.convert import Job, convert
from iosonde.interop.fio.given import Given, Note
from iosonde.study.load import CONTROL
from iosonde.units import compact_duration, compact_size, parse_duration, parse_size

UNKNOWN_SPAN_BYTES = 1 << 30
"""The range of a job whose size the job file leaves to the target."""

_LONGEST_NAME = 100
"""Characters of a name of a part or stream; files are named after it."""

_ALIGNMENT = 1 << 20
"""Ranges begin at multiples of this, which any block size of direct I/O divides that can be used at all."""


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
    found: dict[Note, None] = {}
    jobs = _jobs([Given(section, found) for section in sections])
    if not jobs:
        raise _nothing(origin, sections, found)
    study = _study(name, origin, jobs)
    notes = _in_order(found)
    text = _toml(study, origin=origin, notes=notes)
    _check(text, origin)
    return Imported(name=study["name"], text=text, notes=notes)


def _in_order(notes: Iterable[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: (note.file, note.line))


def _jobs(sections: Sequence[Given]) -> list[Job]:
    """The loads; where a section is left out, the next one waits for those before it in its place."""
    jobs: list[Job] = []
    waits = False
    for given in sections:
        job = convert(given)
        if "wait_for" in given.settings:
            given.note(
                "wait_for", "a job cannot wait for a single other job; it waits for all earlier jobs: a new part"
            )
        waits = waits or "wait_for" in given.settings or given.get("stonewall", False)
        if job:
            jobs.append(replace(job, begins_part=waits))
            waits = False
    return jobs


def _nothing(origin: str, sections: Sequence[jobfile.Section], notes: Iterable[Note]) -> StudyError:
    if not sections:
        return StudyError(
            f"{origin} has no jobs", hint="a job starts with its name, such as `[reader]` or `--name=reader`"
        )
    return StudyError(
        f"{origin} has no load that iosonde measures",
        where="\n  ".join(str(note) for note in _in_order(notes) if note.text.endswith("left out")),
        hint="iosonde does I/O on files and block devices; see docs/fio.md, Engines",
    )


def _study(name: str, origin: str, jobs: Sequence[Job]) -> dict[str, Any]:
    groups: list[list[Job]] = []
    for job in _with_contents_of_files(jobs):
        if job.begins_part or not groups:
            groups.append([])
        groups[-1].append(job)
    taken = {CONTROL}
    parts = [_part(_without_idle_start(group), _distinct(_title(group), taken)) for group in groups]
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
    name = part["name"]
    by = {"series": "stream", "facet": "operation"} if "streams" in part else {"series": "operation"}
    return [
        {"kind": "percentiles", "title": f"{name}: latency", "part": name, **by},
        {"kind": "timeseries", "title": f"{name}: IOPS over time", "part": name, "y": "iops", **by},
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


# Parts


_CONTENTS = ("payload", "compression_ratio", "duplicate_fraction", "duplicate_size")


def _with_contents_of_files(jobs: Sequence[Job]) -> list[Job]:
    """The jobs; one that only reads a file of an earlier job reads that job's kind of data.

    All others have their own, and the plan lays files out again where kinds differ.
    """
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    found = []
    for job in jobs:
        files = job.place.files
        if job.stream["read_fraction"] == 1 and files in known:
            own = {name: value for name, value in job.stream.items() if name not in _CONTENTS}
            job = replace(job, stream=own | known[files])
        elif files and job.stream.get("trim_fraction") != 1:
            known[files] = {name: job.stream[name] for name in _CONTENTS if name in job.stream}
        found.append(job)
    return found


def _without_idle_start(group: Sequence[Job]) -> Sequence[Job]:
    """fio waits until the first job starts; there is nothing to measure meanwhile."""
    idle_ns = min(job.start_ns for job in group)
    for job in group if idle_ns else ():
        job.given.note(
            "startdelay",
            f"no job runs in the first {compact_duration(idle_ns)}; the measurement starts with the first job",
        )
    return [replace(job, start_ns=job.start_ns - idle_ns) for job in group]


def _part(group: Sequence[Job], name: str) -> dict[str, Any]:
    """A part of the study as its file has it."""
    places = _places(group)
    run = {"duration": _duration(group)} | _agreed(group)
    run["layout"] = _layout(group, run)
    if _have_own_files(group):
        run["files"] = "per_job"
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


_WRITTEN_AS = {
    "ramp": "ramp_time",
    "interval": "log_avg_msec",
    "page_cache": "invalidate",
    "backend": "ioengine",
    "verify": "verify",
    "registered_files": "registerfiles",
    "registered_buffers": "fixedbufs",
    "submission_polling": "sqthread_poll",
    "completion_polling": "hipri",
}
_PREFERRED = {
    "page_cache": ("warm", "drop", "keep"),
    "backend": ("uring", "sync", "null"),
    "verify": ("after", "during"),
}
"""Rule for the value of the run where jobs differ."""


def _agreed(group: Sequence[Job]) -> dict[str, Any]:
    """One value for all; who wanted another is noted."""
    agreed: dict[str, Any] = {}
    for name in dict.fromkeys(name for job in group for name in job.run):
        value = agreed[name] = _one_of(name, [job.run[name] for job in group if name in job.run])
        for job in (job for job in group if job.run.get(name, value) != value):
            text = f"jobs that run together need the same `{name}`, and another has `{value}`; "
            text += f"`{name}` is `{value}` for all of them"
            option = "pre_read" if name == "page_cache" and job.run[name] == "warm" else _WRITTEN_AS[name]
            if option in job.given.settings:
                job.given.note(option, text)
            else:
                job.given.note_section(text)
    reason = next((job.unverifiable for job in group if job.unverifiable), "")
    if not reason and len({job.stream["io_mode"] for job in group}) > 1:
        reason = "jobs that run together use the page cache and bypass it"
    if reason and agreed.pop("verify", None):
        for job in (job for job in group if "verify" in job.run):
            job.given.note(
                "verify", f"a concurrent job cannot be verified: {reason}; the load is the same without the check"
            )
    if agreed["backend"] == "sync" or "uring" not in {job.run["backend"] for job in group}:
        for name in ("registered_files", "registered_buffers", "submission_polling", "completion_polling"):
            agreed.pop(name, None)
    return agreed


def _one_of(name: str, wanted: Sequence[Any]) -> Any:
    if name in ("ramp", "interval"):
        return max(wanted, key=parse_duration)
    return min(wanted, key=_PREFERRED[name].index) if name in _PREFERRED else all(wanted)


def _duration(group: Sequence[Job]) -> str:
    """Until the last of those that time ends."""
    end_ns = max((job.start_ns + job.duration_ns for job in group if job.duration_ns), default=0)
    if not end_ns:
        return "none"
    for job in (job for job in group if not job.duration_ns):
        job.given.note_section(
            f"it has no `runtime`, and concurrent jobs end after {compact_duration(end_ns)}; it ends then at the latest"
        )
    return compact_duration(end_ns)


def _active(job: Job, group: Sequence[Job]) -> dict[str, str]:
    """When the job runs, if not from begin to end."""
    if len(group) == 1:
        return {}
    end_ns = job.start_ns + job.duration_ns if job.duration_ns else 0
    ends_earlier = any(end_ns and other.start_ns + other.duration_ns > end_ns for other in group)
    if not job.start_ns and not ends_earlier:
        return {}
    return {"active": f"{compact_duration(job.start_ns)}-{compact_duration(end_ns) if ends_earlier else ''}"}


def _layout(group: Sequence[Job], run: Mapping[str, Any]) -> str:
    """fio writes files before it reads them, and not before it writes them; what is verified must be known."""
    needed = any(job.needs_data for job in group) or "verify" in run
    kinds = {tuple(job.stream.get(name) for name in _CONTENTS) for job in group}
    if needed and len(kinds) > 1 and not _have_own_files(group):
        for job in (job for job in group if job.needs_data and any(name in job.stream for name in _CONTENTS)):
            job.given.note_section(
                "concurrent jobs with different kinds of data share one file; it is laid out with incompressible data"
            )
    return "missing" if needed else "never"


# Files


def _have_own_files(group: Sequence[Job]) -> bool:
    is_single = len(group) == 1 and group[0].jobs == 1
    return not is_single and not any(job.place.files for job in group)


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
                "the size of the target is unknown to the study, and its ranges must not overlap; it is a share of "
                f"{compact_size(UNKNOWN_SPAN_BYTES)}; change `span` and `offset` in the study",
            )
    offset = _of_unknown(place.offset)
    span = parse_size(_span(job)) if place.span is None else _of_unknown(place.span)
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
        "concurrent jobs share one file, or have one file each; the files of the "
        f"{len(group)} jobs are consecutive ranges of one file"
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
    sharing = {"span_sharing": "split"} if place.split or own_files else {}
    return {"span": span, **_offset(offset), **sharing}


def _own(job: Job) -> dict[str, Any]:
    """The job's bytes of its own files."""
    if isinstance(job.place.span, str):
        job.given.note(
            "size",
            "the line `filename=` is missing, and fio refuses a share of files that do not exist; each job has a file "
            "with an equal share of the free space; for one device, add `filename=/dev/...` and import again",
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
            "it extends to the end of the target, whose size is unknown to the study; it addresses "
            f"{compact_size(UNKNOWN_SPAN_BYTES)}; change it with `--set span=...`"
        )
        span = UNKNOWN_SPAN_BYTES
    return compact_size(span)


# The study file


def _toml(study: Mapping[str, Any], *, origin: str, notes: Sequence[Note]) -> str:
    """The file's text, with what was not carried over as comments at its top."""
    lines = [f"# Converted from {_printable(origin)} by `iosonde import fio`."]
    if notes:
        lines += ["#", "# Not carried over unchanged (place, option: reason; replacement):"]
        lines += map(_printable, wrapped(notes, width=118, indent="# - ", further="#   "))
    else:
        lines.append("# Everything in it is carried over.")
    lines.append("")
    lines += _assignments({name: value for name, value in study.items() if not isinstance(value, (list, dict))})
    for part in study["parts"]:
        lines += ["", "[[parts]]", *_assignments({name: part[name] for name in ("name", "title")})]
        lines += ["", "[parts.measurement]", *_assignments(part["measurement"])]
        for stream in part.get("streams", []):
            lines += ["", "[[parts.streams]]", *_assignments({"name": stream["name"]})]
            lines += ["", "[parts.streams.set]", *_assignments(stream["set"])]
    for name, profile in study["profiles"].items():
        lines += ["", f"[profiles.{name}]", *_assignments(profile)]
    for view in study["views"]:
        lines += ["", "[[views]]", *_assignments(view)]
    return "\n".join(lines) + "\n"


def wrapped(notes: Iterable[Note], *, width: int, indent: str, further: str) -> list[str]:
    """Notes as lines of text; continued lines of a note start with `further`."""
    wrapper = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
    return [line for note in notes for line in wrapper.wrap(str(note))]


def _printable(text: str) -> str:
    """Without characters that end a comment or are invalid in one."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _assignments(values: Mapping[str, Any]) -> list[str]:
    """JSON's notation of text, numbers, lists of numbers, true and false is TOML's too."""
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
