"""One section of a job file -> the parameters of one stream, and what could not be said.

Each function takes one aspect of the load. Values are as a study has them (text with units). What depends on the
sections that run beside this one (files, layout, what they must agree on) is left to `arrange`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from iosonde.errors import StudyError
from iosonde.interop.fio import engines, units
from iosonde.interop.fio.given import Given
from iosonde.interop.fio.options import Fate
from iosonde.units import compact_duration, compact_size
from iosonde.workload import block

MOST_SIZES_OF_A_RANGE = 64
"""A `bsrange` with more multiples than these is thinned out."""

UNBOUNDED_DURATION_NS = 10 * 10**9
"""How long a job is measured whose end the job file leaves to the size of a target that it does not know."""

MOST_COMPRESSIBLE = 32
"""The highest `compression_ratio`."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which bytes of which files a job addresses."""

    files: tuple[str, ...]
    """Names as the job file has them; empty: each of the jobs has a file of its own."""
    offset: int
    span: int | str | None
    """Bytes, a share as `20%`, or None where only the target knows."""
    split: bool
    """Each of the jobs has its own part of `span`."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A section, converted."""

    name: str
    title: str
    given: Given
    begins_part: bool
    stream: dict[str, Any]
    """Parameters of the stream."""
    run: dict[str, Any]
    """Parameters of the whole run, on which jobs of a part must agree."""
    jobs: int
    place: Place
    start_ns: int
    """How long after the others it starts."""
    duration_ns: int
    """How long it runs at most; 0 where only its bytes end it."""
    needs_data: bool
    """It reads, or overwrites what must be there."""
    unverifiable: str = ""
    """Why what it writes cannot be verified, as a clause; empty where it can."""


@dataclass(frozen=True, kw_only=True)
class _Direction:
    """What `rw` says."""

    access: str
    operations: tuple[str, ...]
    hop: int


_DIRECTIONS = {
    "read": ("read",),
    "write": ("write",),
    "trim": ("trim",),
    "rw": ("read", "write"),
    "readwrite": ("read", "write"),
    "trimwrite": ("trim", "write"),
}
_PLACES = ("read", "write", "trim")
"""In which order the values after commas count."""


def convert(given: Given) -> Job | None:
    """A section's load; None, and a note, where it is none that iosonde measures."""
    engine = _engine(given)
    if engine.backend is None:
        given.note_section(
            why=f"`ioengine={_engine_name(given)}` is no block I/O: {engine.differs}", instead="it is left out"
        )
        return None
    if "read_iolog" in given:
        given.note(
            "read_iolog", why="the load is in the trace, and traces are not replayed", instead="the section is left out"
        )
        return None
    _note_dropped(given)
    direction = _direction(given)
    jobs = given.number("numjobs", 1)
    place = _place(given, jobs)
    stream = {
        **_access(given, direction, jobs, place),
        **_mix(given, direction),
        **_block_size(given, direction),
        **_concurrency(given, engine, jobs),
        **_io_mode(given),
        **_durability(given, direction),
        **_limits(given, jobs, place),
        **_payload(given, direction),
        **_cpus(given, jobs),
    }
    stream |= _arrival(given, direction, stream, jobs)
    unverifiable = _unverifiable(given, direction, stream)
    return Job(
        name=given.text("name") if _names_itself(given) else given.section.name,
        title=given.text("description"),
        given=given,
        begins_part=given.flag("stonewall") or _waits(given),
        stream=_checked(given, stream),
        run={
            **_backend(given, engine, stream),
            **_ramp(given, stream),
            **_page_cache(given),
            **_verification(given, direction, unverifiable),
        },
        jobs=jobs,
        place=place,
        start_ns=_start_ns(given),
        duration_ns=_duration_ns(given, stream),
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


def _waits(given: Given) -> bool:
    if "wait_for" in given:
        given.note(
            "wait_for", why="a job cannot wait for a single other one", instead="it waits for all before it: a new part"
        )
    return "wait_for" in given


# Engine


def _engine_name(given: Given) -> str:
    return given.text("ioengine", "psync").partition(":")[0]


def _engine(given: Given) -> engines.Engine:
    engine = engines.find(_engine_name(given))
    if engine is None:
        given.fail(
            "ioengine",
            f"fio has no engine `{_engine_name(given)}`",
            hint="for I/O on files and devices there are `io_uring`, `libaio` and `psync`",
        )
    if engine.backend and engine.differs:
        given.note("ioengine", why="iosonde has no such engine", instead=engine.differs)
    return engine


def _backend(given: Given, engine: engines.Engine, stream: dict[str, Any]) -> dict[str, Any]:
    """fio registers neither files nor buffers unless it is told to."""
    if engine.backend != "uring":
        if given.flag("hipri"):
            given.note("hipri", why=f"the backend `{engine.backend}` does not poll", instead="completions interrupt")
        return {"backend": engine.backend}
    polled = given.flag("hipri")
    if polled and stream["io_mode"] == "buffered":
        given.note("hipri", why="completions can be polled for with direct I/O only", instead="completions interrupt")
    return {
        "backend": "uring",
        "registered_files": given.flag("registerfiles"),
        "registered_buffers": given.flag("fixedbufs"),
        "submission_polling": given.flag("sqthread_poll"),
        "completion_polling": polled and stream["io_mode"] == "direct",
    }


def _concurrency(given: Given, engine: engines.Engine, jobs: int) -> dict[str, Any]:
    depth = given.number("iodepth", 1)
    if engine.backend == "sync" and depth > 1:
        given.note(
            "iodepth",
            why=f"`ioengine={_engine_name(given)}` does one I/O at a time, in fio too",
            instead="`queue_depth` is 1",
        )
        depth = 1
    return {"jobs": jobs, "queue_depth": depth}


# What is done


def _direction(given: Given) -> _Direction:
    kind, _, modifier = given.text("rw", "read").partition(":")
    is_random = kind.startswith("rand")
    operations = _DIRECTIONS.get(kind.removeprefix("rand"))
    if operations is None:
        given.fail("rw", f"`{given.setting('rw')}` is not known", hint=f"it is one of {_KINDS}")
    hop = _hop(given, modifier, is_random=is_random) if modifier else 0
    access = "random" if is_random else "strided" if hop else "sequential"
    return _Direction(access=access, operations=operations, hop=hop)


_KINDS = "`read`, `write`, `trim`, `rw`, `trimwrite`, or one of them after `rand`"


def _hop(given: Given, modifier: str, *, is_random: bool) -> int:
    """Bytes left out after each I/O of a sequential load."""
    if is_random:
        if modifier != "1":
            given.note("rw", why="every I/O has a random offset of its own", instead="the number after `:` is ignored")
        return 0
    if modifier.startswith("-"):
        given.note("rw", why="a stream cannot go backwards", instead="it goes forwards, block after block")
        return 0
    hop = given.read("rw", lambda _: units.size(modifier, kb_base=given.kb_base))
    if hop:
        given.note(
            "rw",
            why="at the end of the range, fio begins again at its start",
            instead="the stride begins again one block further",
        )
    return hop


def _access(given: Given, direction: _Direction, jobs: int, place: Place) -> dict[str, Any]:
    if direction.access == "random":
        return {"access": "random", **_random(given, direction)}
    if jobs > 1 and place.files and not place.split:
        given.note(
            "numjobs",
            why="fio's jobs all begin at the same offset",
            instead="jobs that share a range begin evenly spaced in it",
        )
    if direction.access == "strided":
        return {"access": "strided", "stride": compact_size(_sizes(given, direction)[0][0] + direction.hop)}
    return {"access": "sequential"}


def _random(given: Given, direction: _Direction) -> dict[str, Any]:
    distribution = _distribution(given)
    if distribution != "uniform" or given.flag("norandommap"):
        return {"coverage": "with_replacement", **({} if distribution == "uniform" else {"distribution": distribution})}
    if len(_sizes(given, direction)) > 1:
        given.note_section(
            why="visiting each block once needs a single block size",
            instead="offsets are drawn independently, as with `norandommap`",
        )
        return {"coverage": "with_replacement"}
    return {"coverage": "each_once"}


def _distribution(given: Given) -> str:
    text = given.text("random_distribution", "random").partition(",")[0]
    kind, _, numbers = text.partition(":")
    match kind:
        case "random":
            return "uniform"
        case "zipf":
            return f"zipfian:{numbers.partition(':')[0]}"
        case "zoned":
            zones = given.read("random_distribution", lambda _: _zones(numbers))
            if len(zones) == 2:
                hot = max(zones, key=lambda zone: zone[0] / zone[1])
                return f"hot_cold:{hot[1] / 100:g}:{hot[0] / 100:g}"
    given.note(
        "random_distribution",
        why="`distribution` knows `uniform`, `zipfian` and two zones (`hot_cold`)",
        instead="offsets are uniform",
    )
    return "uniform"


def _zones(text: str) -> list[tuple[float, float]]:
    """Percent of the accesses and of the range."""
    parts = [part.partition("/") for part in text.split(":")]
    accesses = units.shares([units.share(access) for access, _, _ in parts])
    ranges = units.shares([units.share(size) if size else None for _, _, size in parts])
    zones = list(zip(accesses, ranges, strict=True))
    if not all(access > 0 and size > 0 for access, size in zones):
        raise ValueError("each zone has a share of accesses and range")
    return zones


def _mix(given: Given, direction: _Direction) -> dict[str, Any]:
    operations = direction.operations
    if operations == ("read", "write"):
        return {"read_fraction": round(_read_percent(given) / 100, 6)}
    if operations == ("trim", "write"):
        given.note(
            "rw",
            why="fio writes each block that it has trimmed",
            instead="trims and writes alternate at random, with offsets of their own",
        )
        return {"read_fraction": 0.0, "trim_fraction": 0.5}
    return {
        "read_fraction": float(operations == ("read",)),
        **({"trim_fraction": 1.0} if operations == ("trim",) else {}),
    }


def _read_percent(given: Given) -> float:
    name = given.last_of("rwmixread", "rwmixwrite")
    percent = given.read(name, units.share) if name else 50.0
    return 100 - percent if name == "rwmixwrite" else percent


# Block sizes


def _block_size(given: Given, direction: _Direction) -> dict[str, Any]:
    sizes = _sizes(given, direction)
    if len(sizes) == 1:
        return {"block_size": compact_size(sizes[0][0])}
    return {"block_size": ":".join(f"{compact_size(size)}/{weight:.6g}" for size, weight in sizes)}


def _sizes(given: Given, direction: _Direction) -> list[tuple[int, float]]:
    """Sizes and weights of all operations together."""
    each = {operation: _sizes_of(given, operation) for operation in direction.operations}
    first = next(iter(each.values()))
    if all(sizes == first for sizes in each.values()):
        return first
    name = str(given.last_of("bssplit") or given.last_of("bs", "bsrange"))
    given.note(
        name,
        why="reads and writes of one stream have the same block sizes",
        instead="each I/O is of one of all these sizes, in their proportion",
    )
    return _mixed(each, _shares_of(given, direction))


def _sizes_of(given: Given, operation: str) -> list[tuple[int, float]]:
    position = _PLACES.index(operation)
    name = given.last_of("bssplit") or given.last_of("bs", "bsrange")
    if name is None or not (text := given.triple(name)[position]):
        return [(4096, 1.0)]
    match name:
        case "bssplit":
            return given.read(name, lambda _: _split(text, given.kb_base))
        case "bsrange":
            return _range(given, text)
        case _:
            return [(given.read(name, lambda _: units.size(text, kb_base=given.kb_base)), 1.0)]


def _split(text: str, kb_base: int) -> list[tuple[int, float]]:
    """`4k/60:64k/40`; parts without a share divide what remains of 100."""
    parts = [part.split("/") for part in text.split(":")]
    weights = units.shares([units.share(part[1]) if len(part) > 1 and part[1] else None for part in parts])
    sizes = [units.size(part[0], kb_base=kb_base) for part in parts]
    return [(size, weight) for size, weight in zip(sizes, weights, strict=True) if weight > 0]


def _range(given: Given, text: str) -> list[tuple[int, float]]:
    """fio draws a size evenly and rounds it to a multiple of the smallest."""
    low, high = given.read("bsrange", lambda _: units.span(text, kb_base=given.kb_base))
    if not low:
        given.fail("bsrange", f"`{given.setting('bsrange')}` begins at 0", hint="a block has at least 512 bytes")
    multiples = range(low, high + 1, low)
    if len(multiples) <= MOST_SIZES_OF_A_RANGE:
        return [(size, 1.0) for size in multiples]
    given.note(
        "bsrange",
        why=f"it stands for {len(multiples)} sizes",
        instead=f"{MOST_SIZES_OF_A_RANGE} of them are used, evenly chosen",
    )
    step = (len(multiples) - 1) / (MOST_SIZES_OF_A_RANGE - 1)
    return [(multiples[round(index * step)], 1.0) for index in range(MOST_SIZES_OF_A_RANGE)]


def _mixed(each: dict[str, list[tuple[int, float]]], shares: dict[str, float]) -> list[tuple[int, float]]:
    weights: dict[int, float] = {}
    for operation, sizes in each.items():
        total = sum(weight for _, weight in sizes)
        for size, weight in sizes:
            weights[size] = weights.get(size, 0.0) + shares[operation] * weight / total
    return [(size, 100 * weight) for size, weight in sorted(weights.items()) if weight > 0]


def _shares_of(given: Given, direction: _Direction) -> dict[str, float]:
    """What part of the I/Os each operation is."""
    if direction.operations == ("read", "write"):
        read = _read_percent(given) / 100
        return {"read": read, "write": 1 - read}
    return dict.fromkeys(direction.operations, 1 / len(direction.operations))


# How


def _io_mode(given: Given) -> dict[str, Any]:
    name = given.last_of("direct", "buffered", "atomic")
    is_direct = name is not None and given.flag(name) != (name == "buffered")
    if name == "atomic" and is_direct:
        given.note("atomic", why="atomic writes are not asked for", instead="writes are plain direct I/O")
    return {"io_mode": "direct" if is_direct else "buffered"}


def _durability(given: Given, direction: _Direction) -> dict[str, Any]:
    if "write" not in direction.operations:
        return {}
    kind = given.text("sync", "none").lower()
    flush = {name: given.number(name, 0) for name in ("fsync", "fdatasync")}
    if kind not in ("0", "none"):
        for name in (name for name, every in flush.items() if every):
            given.note(
                name, why="there is one kind of durability in a stream", instead="each write is durable (`sync`)"
            )
        if kind != "dsync":
            given.note("sync", why="`O_SYNC` is not used", instead="`O_DSYNC` is: data and its size are durable")
        return {"durability": "dsync"}
    name = "fsync" if flush["fsync"] else "fdatasync"
    if not flush[name]:
        return {}
    if flush["fsync"]:
        given.note("fsync", why="`fsync` is not used", instead="`fdatasync` is, as often")
    return {"durability": f"flush:{flush[name]}"}


def _payload(given: Given, direction: _Direction) -> dict[str, Any]:
    if "write" not in direction.operations:
        return {}
    if given.flag("zero_buffers"):
        return {"payload": "zeros"}
    return {**_compression(given), **_duplicates(given, direction)}


def _compression(given: Given) -> dict[str, Any]:
    percent = given.read("buffer_compress_percentage", units.share) if "buffer_compress_percentage" in given else 0
    if not percent:
        return {}
    ratio = MOST_COMPRESSIBLE if percent >= 100 else 100 / (100 - percent)
    if ratio > MOST_COMPRESSIBLE or percent >= 100:
        given.note(
            "buffer_compress_percentage",
            why=f"`compression_ratio` goes up to {MOST_COMPRESSIBLE}",
            instead="it is that",
        )
    return {"compression_ratio": round(min(ratio, MOST_COMPRESSIBLE), 3)}


def _duplicates(given: Given, direction: _Direction) -> dict[str, Any]:
    percent = given.read("dedupe_percentage", units.share) if "dedupe_percentage" in given else 0
    if percent and any(size % 4096 for size, _ in _sizes(given, direction)):
        given.note(
            "dedupe_percentage",
            why="duplicates are blocks of 4 KiB, and not every I/O is a multiple of that",
            instead="no block is a duplicate on purpose",
        )
        return {}
    return {"duplicate_fraction": min(percent, 99) / 100} if percent else {}


def _unverifiable(given: Given, direction: _Direction, stream: dict[str, Any]) -> str:
    if "trim" in direction.operations:
        return "nobody can tell what a trimmed block should hold"
    if stream.get("payload") == "zeros" or stream.get("duplicate_fraction"):
        return "every sector says where it belongs, so there are no zeros and no duplicates"
    if any(size % 512 for size, _ in _sizes(given, direction)):
        return "whole sectors of 512 B are verified, and not every I/O is a multiple of that"
    return ""


def _verification(given: Given, direction: _Direction, unverifiable: str) -> dict[str, Any]:
    if given.raw("verify") in ("", "0", "null"):
        return {}
    if not given.flag("do_verify", default=True):
        given.note(
            "do_verify",
            why="fio then writes data that a later job can verify",
            instead='nothing is verified; with `verify = "after"` iosonde does it after this very load',
        )
        return {}
    if unverifiable:
        given.note("verify", why=unverifiable, instead="the load is the same without the check")
        return {}
    return {"verify": "during" if direction.operations == ("read",) else "after"}


def _cpus(given: Given, jobs: int) -> dict[str, Any]:
    name = given.last_of("cpus_allowed", "cpumask")
    if name is None:
        return {}
    cpus = given.read(name, units.cpu_list) if name == "cpus_allowed" else units.cpus_of_mask(given.size(name))
    if len(cpus) > 1 and given.text("cpus_allowed_policy", "shared") != "split":
        given.note(
            name, why="fio lets every job run on any of these CPUs", instead="job `i` is pinned to the `i`-th of them"
        )
    return {"cpus": cpus}


def _page_cache(given: Given) -> dict[str, Any]:
    if given.flag("pre_read"):
        return {"page_cache": "warm"}
    return {"page_cache": "drop" if given.flag("invalidate", True) else "keep"}


# When


def _arrival(given: Given, direction: _Direction, stream: dict[str, Any], jobs: int) -> dict[str, Any]:
    name = given.last_of("rate_iops") or given.last_of("rate")
    rates = _rates(given, name, direction) if name else {}
    wanted = [rate for rate in rates.values() if rate]
    if name is None or not wanted:
        return {}
    if len(wanted) < len(rates):
        given.note(
            name,
            why="only one of reads and writes has a rate, and a stream has one rate for all",
            instead="the stream runs in a closed loop, as fast as it can",
        )
        return {}
    given.note(
        name,
        why="fio lets what is in flight come back before it waits for the next, and measures from the submission",
        instead="the rate is kept in open loop, and response latency counts from the intended start",
    )
    process = given.text("rate_process", "linear")
    total = sum(wanted)
    share = {"read_fraction": rates["read"] / total} if {*rates} == {"read", "write"} else {}
    return {"arrival": "poisson" if process == "poisson" else "constant", "rate": round(total * jobs, 6), **share}


def _rates(given: Given, name: str, direction: _Direction) -> dict[str, float]:
    """I/Os per second and job of each operation; 0 where it has no rate."""
    texts = given.triple(name)
    rates = {}
    for operation in direction.operations:
        text = texts[_PLACES.index(operation)]
        rate = float(given.read(name, lambda _: units.size(text, kb_base=given.kb_base)) if text else 0)  # noqa: B023
        rates[operation] = rate if name == "rate_iops" else rate / _mean_size(_sizes_of(given, operation))
    return rates


def _mean_size(sizes: list[tuple[int, float]]) -> float:
    return sum(size * weight for size, weight in sizes) / sum(weight for _, weight in sizes)


def _limited(stream: dict[str, Any]) -> bool:
    return "limit_bytes" in stream or "limit_operations" in stream


def _duration_ns(given: Given, stream: dict[str, Any]) -> int:
    duration = given.time_ns("runtime")
    if duration or _limited(stream):
        return duration
    given.note_section(
        why="it ends with the target, whose size the study does not know",
        instead=f"it is measured for {compact_duration(UNBOUNDED_DURATION_NS)}, or as `--set duration=...` says",
    )
    return UNBOUNDED_DURATION_NS


def _start_ns(given: Given) -> int:
    ends = [end for end in given.text("startdelay").split("-") if end]
    if len(ends) > 1:
        given.note("startdelay", why="a stream starts at one time", instead="it starts at the earliest of the range")
    return given.read("startdelay", lambda _: units.time_ns(ends[0], unit="s")) if ends else 0


def _ramp(given: Given, stream: dict[str, Any]) -> dict[str, Any]:
    ramp = given.time_ns("ramp_time")
    if ramp and _limited(stream):
        given.note(
            "ramp_time", why="fio counts what the ramp moves towards `size`", instead="only the measurement is counted"
        )
    interval = given.time_ns("log_avg_msec", unit="ms")
    return {
        "ramp": compact_duration(ramp),
        **({"interval": compact_duration(interval)} if interval >= 10**8 else {}),
    }


# Where, and how much


def _place(given: Given, jobs: int) -> Place:
    span = _span(given)
    offset = _offset(given)
    files = _files(given)
    increment = given.text("offset_increment")
    if jobs == 1 or not increment or increment == "0":
        return Place(files=files, offset=offset, span=span, split=False)
    if increment.endswith("%") or not files or isinstance(span, str):
        given.note(
            "offset_increment",
            why="ranges can be told apart in one file of known size only",
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
                name, why="a study holds no paths", instead="`--target` names the file or directory when it is run"
            )
    names = tuple(name for name in re.split(r"(?<!\\):", given.raw("filename")) if name)
    if len(names) > 1:
        given.note("filename", why="a job has one file", instead=f"one range stands for the {len(names)} files")
    if names:
        return (":".join(names),)
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
        return given.size("size") if whole is None else min(given.size("size"), whole - _offset(given))
    if not text:
        return whole
    percent = given.read("size", units.share)
    return int(whole * percent / 100) if whole is not None else f"{percent:g}%"


def _file_bytes(given: Given, count: int) -> int | None:
    """What `filesize` says of all files of a job."""
    if "filesize" not in given:
        return None
    ends = re.split("[-:]", given.text("filesize"))
    if len(ends) > 1:
        given.note("filesize", why="a file has one size", instead="it has the largest of the range")
    return count * max(given.read("filesize", lambda _: units.size(end, kb_base=given.kb_base)) for end in ends)  # noqa: B023


def _offset(given: Given) -> int:
    text = given.text("offset")
    if not text.endswith("%"):
        return given.size("offset") if text else 0
    whole = _file_bytes(given, given.number("nrfiles", 1))
    if whole is None:
        given.note("offset", why="the size of the target is not known", instead="the range begins at its start")
        return 0
    return int(whole * given.read("offset", units.share) / 100) // 4096 * 4096


def _limits(given: Given, jobs: int, place: Place) -> dict[str, Any]:
    """What ends the job besides time, of all its jobs together."""
    if given.flag("time_based") and given.time_ns("runtime"):
        return {}
    loops = given.number("loops", 1)
    limits: dict[str, Any] = {}
    limit = _bytes_to_do(given)
    if limit:
        # What is trimmed and then written counts once.
        passes = 2 if "trimwrite" in given.text("rw") else 1
        limits["limit_bytes"] = compact_size(limit * passes * loops * jobs)
    count = given.number("number_ios", 0)
    if count:
        limits["limit_operations"] = count * loops * jobs
    return limits


def _bytes_to_do(given: Given) -> int | None:
    """Of one job and one loop; None where only the target knows."""
    if "io_size" in given and not given.text("io_size").endswith("%"):
        return given.size("io_size")
    span = _span(given)
    if not isinstance(span, int):
        return None
    if "io_size" in given:
        return int(span * given.read("io_size", units.share) / 100)
    return span


def _checked(given: Given, stream: dict[str, Any]) -> dict[str, Any]:
    """What iosonde cannot do is said now, of the section that asks for it."""
    for name, value in stream.items():
        try:
            block.read_value(name, value)
        except StudyError as error:
            raise StudyError(error.what, where=_where(given), hint=error.hint) from None
    return stream


def _where(given: Given) -> str:
    return f"asked for by section `[{given.section.name}]`, line {given.section.line} of `{given.section.file}`"
