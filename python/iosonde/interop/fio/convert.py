"""One section of a job file -> the parameters of one stream, and what could not be converted.

Values are as a study has them (text with units). What depends on the sections that run with this one (files, layout,
what they must agree on) is left to `arrange`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from iosonde.errors import StudyError
from iosonde.interop.fio import options
from iosonde.interop.fio.given import Given, size
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.block.parameters import MOST_DUPLICATED
from iosonde.units import compact_duration, compact_size, format_bytes

MOST_COMPRESSIBLE = 32
"""The highest `compression_ratio`."""
_MOST_SIZES_OF_A_RANGE = 64
"""A `bsrange` with more multiples than these is thinned out."""

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

Sizes = list[tuple[int, float]]
"""Block sizes with their weights."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Files of a job and their ranges."""

    files: tuple[str, ...]
    """Names as the job file has them; empty: each of the jobs has a file of its own."""
    offset: int | str
    """Bytes, or a share as `20%` where it depends on the target."""
    span: int | str | None
    """Bytes, a share as `20%`, or None where it depends on the target."""
    split: bool = False
    """Each of the jobs has its own part of `span`."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A section, converted."""

    name: str
    title: str
    given: Given
    begins_part: bool = False
    """It waits for those before it."""
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
    name = given.get("ioengine", "psync").partition(":")[0]
    engine = options.engine(name)
    if engine is None:
        hint = "use `io_uring`, `libaio` or `psync` for I/O on files and devices"
        given.fail("ioengine", f"fio has no engine `{name}`", hint=hint)
    backend, differs = engine
    if not backend:
        given.note_section(f"`ioengine={name}` is no block I/O: {differs}; it is left out")
        return None
    if differs:
        given.note("ioengine", f"iosonde has no such engine; {differs}")
    if "read_iolog" in given.settings:
        given.note("read_iolog", "the load is in a trace, and traces are not replayed; the section is left out")
        return None
    if given.get("create_only"):
        given.note(
            "create_only",
            "the section creates files and does no I/O on them; files are created as the loads need them; the section "
            "is left out",
        )
        return None
    for option, setting in given.settings.items():
        if text := options.note_on(setting):
            given.note(option, text)
    return _Load(given, name, backend).job()


class _Load:
    """The load of a section, aspect by aspect; each gives parameters, and notes on differences."""

    def __init__(self, given: Given, engine: str, backend: str) -> None:
        self.given, self.get, self.note = given, given.get, given.note
        self.engine = engine
        mode = given.last_of("direct", "buffered", "atomic")
        self.is_direct = mode is not None and self.get(mode) != (mode == "buffered")
        if self.is_direct and mode == "atomic":
            self.note("atomic", "atomic writes are not requested; writes are plain direct I/O")
        self.is_buffered_aio = engine == "libaio" and not self.is_direct
        self.backend = "sync" if self.is_buffered_aio else backend
        self.jobs: int = self.get("numjobs", 1)
        kind, _, self.modifier = self.get("rw", "read").partition(":")
        self.is_random = kind.startswith("rand")
        if kind.removeprefix("rand") not in _DIRECTIONS:
            hint = "it is one of `read`, `write`, `trim`, `rw`, `trimwrite`, or one of them after `rand`"
            given.fail("rw", f"`{given.settings['rw']}` is not known", hint=hint)
        self.operations = _DIRECTIONS[kind.removeprefix("rand")]
        self.place = self._place()

    def job(self) -> Job:
        given = self.given
        stream = {
            **self._access(),
            **self._mix(),
            "block_size": _size_text(self.sizes),
            "jobs": self.jobs,
            "queue_depth": self._queue_depth(),
            "io_mode": "direct" if self.is_direct else "buffered",
            **self._durability(),
            **self._limits(),
            **self._payload(),
            **self._cpus(),
            **self._arrival(),
        }
        for name, value in stream.items():
            try:
                BLOCK.read_value(name, value)
            except StudyError as error:
                where = f"in section `[{given.section.name}]`, line {given.section.line} of `{given.section.file}`"
                raise StudyError(error.what, where=where, hint=error.hint) from None
        unverifiable = self._why_unverifiable(stream)
        # A `name` in `[global]` would give all sections the same.
        named = "name" in given.settings and given.settings["name"].section == given.section.name
        starts = self.get("startdelay") or [0]
        if len(starts) > 1:
            self.note("startdelay", "a stream starts at one time; it starts at the earliest of the range")
        page_cache = "warm" if self.get("pre_read") else "drop" if self.get("invalidate", True) else "keep"
        return Job(
            name=self.get("name") if named else given.section.name,
            title=self.get("description", ""),
            given=given,
            stream=stream,
            run={**self._backend(), **self._ramp(stream), "page_cache": page_cache, **self._verification(unverifiable)},
            jobs=self.jobs,
            place=self.place,
            start_ns=starts[0],
            duration_ns=self.get("runtime", 0),
            needs_data="read" in self.operations or self.get("overwrite", False),
            unverifiable=unverifiable,
        )

    # Order and mix of the blocks

    def _access(self) -> dict[str, Any]:
        """Blocks and the order in which they are visited."""
        if self.is_random:
            if self.modifier not in ("", "1"):
                self.note("rw", "every I/O has a random offset of its own; the number after `:` is ignored")
            return {"access": "random", **self._random()}
        if self.jobs > 1 and self.place.files and not self.place.split:
            self.note(
                "numjobs",
                "fio's jobs all begin at the same offset; jobs that share a range begin evenly spaced in it",
            )
        if self.modifier.startswith("-"):
            self.note("rw", "a stream cannot run backwards; it runs forwards, block after block")
        elif hop := self.modifier and self.get("rw", parse=lambda _, kb_base: size(self.modifier, kb_base)):
            self.note(
                "rw",
                "at the end of the range, fio begins again at its start; the stride begins again one block further",
            )
            return {"access": "strided", "stride": compact_size(self.sizes[0][0] + hop)}
        return {"access": "sequential"}

    def _random(self) -> dict[str, Any]:
        distribution = self.get("random_distribution", "uniform")
        if not distribution:
            self.note(
                "random_distribution",
                "`distribution` supports `uniform`, `zipfian` and two zones (`hot_cold`); offsets are uniform",
            )
        if distribution not in ("", "uniform"):
            return {"coverage": "with_replacement", "distribution": distribution}
        if self.get("norandommap"):
            return {"coverage": "with_replacement"}
        if len(self.sizes) > 1:
            self.given.note_section(
                "visiting each block once needs a single block size; offsets are drawn independently, as with "
                "`norandommap`"
            )
            return {"coverage": "with_replacement"}
        return {"coverage": "each_once"}

    def _mix(self) -> dict[str, Any]:
        """Shares of reads and trims."""
        if self.operations == ("trim", "write"):
            self.note(
                "rw",
                "fio writes each block that it has trimmed; trims and writes alternate at random, with offsets of "
                "their own",
            )
        trims = {"trim_fraction": self.shares["trim"]} if "trim" in self.operations else {}
        return {"read_fraction": round(self.shares.get("read", 0.0), 6), **trims}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Share of each operation in the I/Os."""
        if self.operations != ("read", "write"):
            return dict.fromkeys(self.operations, 1 / len(self.operations))
        name = self.given.last_of("rwmixread", "rwmixwrite")
        percent = self.get(name) if name else 50.0
        read = (100 - percent if name == "rwmixwrite" else percent) / 100
        if self.rates and all(self.rates.values()):
            by_rate = self.rates["read"] / sum(self.rates.values())
            if abs(by_rate - read) > 1e-6:
                self.note(
                    name or str(self.rate_option),
                    "where reads and writes have rates, these determine the mix, in fio too; `read_fraction` is "
                    f"{by_rate:.4g}",
                )
            read = by_rate
        return {"read": read, "write": 1 - read}

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes and weights of all operations together."""
        each = {operation: self._sizes_of(operation) for operation in self.operations}
        first = next(iter(each.values()))
        if all(sizes == first for sizes in each.values()):
            return first
        self.note(
            str(self._size_option()),
            "reads and writes of one stream have the same block sizes; each I/O has one of these sizes, in their "
            "proportion",
        )
        weights: dict[int, float] = {}
        for operation, sizes in each.items():
            total = sum(weight for _, weight in sizes)
            for block, weight in sizes:
                weights[block] = weights.get(block, 0.0) + self.shares[operation] * weight / total
        return [(block, 100 * weight) for block, weight in sorted(weights.items()) if weight > 0]

    def _size_option(self) -> str | None:
        return self.given.last_of("bssplit") or self.given.last_of("bs", "bsrange")

    def _sizes_of(self, operation: str) -> Sizes:
        name = self._size_option()
        found = self.get(name)[_PLACES.index(operation)] if name else None
        if found is None:
            return [(4096, 1.0)]
        sizes: Sizes = self._multiples(*found) if name == "bsrange" else found
        return sizes

    def _multiples(self, low: int, high: int) -> Sizes:
        """fio draws a size evenly, rounds it down to a multiple of the smallest, and limits it to the largest."""
        multiples = range(low, high + 1, low)
        if len(multiples) <= _MOST_SIZES_OF_A_RANGE:
            rest = high % low / low
            return [*((block, 1.0) for block in multiples), *([(high, rest)] if rest else [])]
        self.note(
            "bsrange",
            f"it represents {len(multiples)} sizes; {_MOST_SIZES_OF_A_RANGE} of them are used, evenly chosen",
        )
        step = (len(multiples) - 1) / (_MOST_SIZES_OF_A_RANGE - 1)
        return [(multiples[round(index * step)], 1.0) for index in range(_MOST_SIZES_OF_A_RANGE)]

    # Submission

    def _queue_depth(self) -> int:
        depth: int = self.get("iodepth", 1)
        if self.backend != "sync" or depth <= 1:
            return depth
        with_mode = " with `direct=0`" if self.is_buffered_aio else ""
        self.note(
            "iodepth",
            f"`ioengine={self.engine}`{with_mode} does one I/O at a time, in fio too; `queue_depth` is 1",
        )
        return 1

    def _backend(self) -> dict[str, Any]:
        """fio registers neither files nor buffers unless an option requests it."""
        polls = self.get("hipri", False)
        if polls and self.backend != "uring":
            self.note("hipri", f"the backend `{self.backend}` does not poll; completions interrupt")
        elif polls and not self.is_direct:
            self.note("hipri", "completions can be polled for with direct I/O only; completions interrupt")
        if self.backend != "uring":
            return {"backend": self.backend}
        return {
            "backend": "uring",
            "registered_files": self.get("registerfiles", False) or self.get("sqthread_poll", False),
            "registered_buffers": self.get("fixedbufs", False),
            "submission_polling": self.get("sqthread_poll", False),
            "completion_polling": polls and self.is_direct,
        }

    def _cpus(self) -> dict[str, Any]:
        name = self.given.last_of("cpus_allowed", "cpumask")
        if name is None:
            return {}
        cpus = self.get(name)
        if len(cpus) > 1 and self.get("cpus_allowed_policy", "shared") != "split":
            self.note(name, "fio lets every job run on any of these CPUs; job `i` is pinned to the `i`-th of them")
        return {"cpus": cpus}

    # Contents, durability and verification

    def _durability(self) -> dict[str, Any]:
        """When writes are durable."""
        if "write" not in self.operations:
            return {}
        kind = self.get("sync", "none").lower()
        flushes = {name: self.get(name, 0) for name in ("fsync", "fdatasync")}
        if kind not in ("0", "none"):
            for name in (name for name, every in flushes.items() if every):
                self.note(name, "there is one kind of durability in a stream; each write is durable (`sync`)")
            if kind != "dsync":
                self.note("sync", "`O_SYNC` is not used; `O_DSYNC` is: data and its size are durable")
            return {"durability": "dsync"}
        if flushes["fsync"]:
            self.note("fsync", "`fsync` is not used; `fdatasync` is, as often")
        every = flushes["fsync"] or flushes["fdatasync"]
        return {"durability": f"flush:{every}"} if every else {}

    def _payload(self) -> dict[str, Any]:
        """Contents of writes, and of the file that is laid out for reads."""
        if self.operations == ("trim",):
            return {}
        compressed, duplicated = self.get("buffer_compress_percentage", 0), self.get("dedupe_percentage", 0)
        # fio ignores the flag beside the percentages, and has zeros for fully compressible data without duplicates.
        is_zeros = compressed >= 100 or (self.get("zero_buffers", False) and not compressed)
        if is_zeros and not duplicated:
            return {"payload": "zeros"}
        return {**self._compression(compressed % 100), **self._duplicates(duplicated)}

    def _compression(self, percent: float) -> dict[str, Any]:
        if not percent:
            return {}
        ratio = 100 / (100 - percent)
        if ratio > MOST_COMPRESSIBLE:
            self.note("buffer_compress_percentage", f"`compression_ratio` goes up to {MOST_COMPRESSIBLE}; it is that")
        return {"compression_ratio": round(min(ratio, MOST_COMPRESSIBLE), 3)}

    def _duplicates(self, percent: float) -> dict[str, Any]:
        """In fio an I/O is a copy as a whole."""
        if not percent:
            return {}
        if any(block % 4096 for block, _ in self.sizes):
            self.note(
                "dedupe_percentage",
                "duplicates are multiples of 4 KiB, and not every I/O is one; no block is a duplicate on purpose",
            )
            return {}
        largest = max(block for block, _ in self.sizes)
        if largest > MOST_DUPLICATED:
            self.note(
                "dedupe_percentage",
                f"a duplicate has at most {format_bytes(MOST_DUPLICATED)}, and I/Os are larger; parts of that size are "
                "duplicates",
            )
        return {"duplicate_fraction": percent / 100, "duplicate_size": compact_size(min(largest, MOST_DUPLICATED))}

    def _why_unverifiable(self, stream: dict[str, Any]) -> str:
        if "trim" in self.operations:
            return "the contents of trimmed blocks are undefined"
        if stream.get("payload") == "zeros" or stream.get("duplicate_fraction"):
            return "every sector contains its own address, so there are no zeros and no duplicates"
        if any(block % 512 for block, _ in self.sizes):
            return "whole sectors of 512 B are verified, and not every I/O is a multiple of that"
        return ""

    def _verification(self, unverifiable: str) -> dict[str, Any]:
        if self.given.raw("verify") in ("", "0", "null"):
            return {}
        if not self.get("do_verify", True):
            self.note(
                "do_verify",
                "fio then writes data that a later job can verify; nothing is verified; with "
                '`verify = "after"` iosonde does it after this very load',
            )
            return {}
        if unverifiable:
            self.note("verify", f"{unverifiable}; the load is the same without the check")
            return {}
        return {"verify": "during" if self.operations == ("read",) else "after"}

    # Addressed bytes

    def _place(self) -> Place:
        """The range that the jobs of the section address."""
        place = Place(files=self._files(), offset=self._offset(), span=self.span)
        increment = self.get("offset_increment", 0)
        if self.jobs == 1 or not increment:
            return place
        if isinstance(increment, str) or not place.files or isinstance(place.span, str):
            instead = (
                "all jobs address the same range" if place.files else "each job begins at `offset` of its own file"
            )
            self.note("offset_increment", f"ranges can be distinguished in one file of known size only; {instead}")
            return place
        # Ranges begin `offset_increment` after each other.
        span = increment if place.span is None else place.span
        if increment < span:
            self.note("offset_increment", "ranges of jobs do not overlap in part; all jobs address all of them")
            return replace(place, span=(self.jobs - 1) * increment + span)
        if increment > span:
            self.note(
                "offset_increment", "ranges of jobs lie without gaps; each job's range is as long as the increment"
            )
        return replace(place, span=self.jobs * increment, split=True)

    def _files(self) -> tuple[str, ...]:
        given = self.given
        by_target = "`--target` names the file or directory when it is run"
        for name in ("filename", "directory"):
            if given.raw(name):
                self.note(name, f"a study contains no paths; {by_target}")
        names = tuple(name for name in re.split(r"(?<!\\):", given.raw("filename")) if name)
        if len(names) > 1:
            self.note("filename", f"a job has one file; one range represents the {len(names)} files")
        if names:
            return (":".join(names),)
        if given.section.name.startswith("/dev/") and self.get("nrfiles", 1) == 1:
            given.note_section(f"fio takes the name of the section for its device; {by_target}")
            return (given.section.name,)
        pattern = given.raw("filename_format")
        if pattern and "$jobnum" not in pattern:
            return (pattern.replace("$jobname", given.section.name),)
        return ()

    @cached_property
    def span(self) -> int | str | None:
        """Bytes or share that one job addresses; None where it depends on the target."""
        wanted: int | str | None = self.get("size")
        if wanted is None or self.file_bytes is None:
            return self.file_bytes if wanted is None else wanted
        if isinstance(wanted, str):
            return int(self.file_bytes * _share(wanted))
        return min(wanted, self.file_bytes - int(self._offset()))

    @cached_property
    def file_bytes(self) -> int | None:
        """The meaning of `filesize` for all files of a job."""
        count = self.get("nrfiles", 1)
        if count > 1:
            self.note("nrfiles", f"a job has one file; it is as large as the {count} together")
        ends = self.get("filesize")
        if ends is None:
            return None
        if len(ends) > 1:
            self.note("filesize", "a file has one size; it has the largest of the range")
        largest: int = count * max(ends)
        return largest

    def _offset(self) -> int | str:
        offset: int | str = self.get("offset", 0)
        if isinstance(offset, int):
            return offset
        if self.file_bytes is not None:
            return int(self.file_bytes * _share(offset)) // 4096 * 4096
        return offset if _share(offset) else 0

    def _limits(self) -> dict[str, Any]:
        """Return the limits of the job besides time, of all its jobs together."""
        if self.get("time_based") and self.get("runtime"):
            return {}
        loops = self.get("loops", 1)
        # A range that is trimmed and then written counts once.
        passes = loops * (2 if self.operations == ("trim", "write") else 1)
        limits = self._limit_of_bytes(passes)
        if count := self.get("number_ios"):
            limits["limit_operations"] = count * loops * self.jobs
        return limits

    def _limit_of_bytes(self, passes: int) -> dict[str, Any]:
        """In bytes, or in multiples of the range where its size depends on the target."""
        limit = self.get("io_size", "100%")
        if isinstance(limit, str) and isinstance(self.span, int):
            limit = int(self.span * _share(limit))
        if isinstance(limit, int):
            return {"limit_bytes": compact_size(limit * passes * self.jobs)} if limit * passes * self.jobs else {}
        # Jobs with files of their own address a range each.
        spans = _share(limit) * passes * (self.jobs if self.place.files else 1)
        return {"limit_spans": round(spans, 6)} if spans else {}

    # Time

    @property
    def rate_option(self) -> str | None:
        """The option that paces the job."""
        return self.given.last_of("rate_iops") or self.given.last_of("rate")

    @cached_property
    def rates(self) -> dict[str, float]:
        """I/Os per second and job of each operation; 0 where it has no rate."""
        found: dict[str, float] = {}
        name = self.rate_option
        if name is None:
            return found
        for operation in self.operations:
            rate = float(self.get(name)[_PLACES.index(operation)] or 0)
            if name == "rate":
                sizes = self._sizes_of(operation)
                rate /= sum(block * weight for block, weight in sizes) / sum(weight for _, weight in sizes)
            found[operation] = rate
        return found

    def _arrival(self) -> dict[str, Any]:
        """Closed loop, or an open loop at a rate."""
        name = self.rate_option
        if name is None or not any(self.rates.values()):
            return {}
        if not all(self.rates.values()):
            self.note(
                name,
                "only one of reads and writes has a rate, and a stream has one rate for all; the stream runs in a "
                "closed loop, as fast as it can",
            )
            return {}
        self.note(
            name,
            "fio waits for the I/Os in flight before it pauses, and measures latency from submission; the rate is kept "
            "in open loop, and response latency counts from the intended start",
        )
        if name == "rate" and any(len(self._sizes_of(operation)) > 1 for operation in self.operations):
            self.note(
                name,
                "fio paces bytes, so that a larger block is followed by a longer pause; I/Os are paced, at the rate "
                "that gives these bytes with the mean block size",
            )
        is_poisson = self.get("rate_process", "linear") == "poisson"
        rate = round(sum(self.rates.values()) * self.jobs, 6)
        return {"arrival": "poisson" if is_poisson else "constant", "rate": rate}

    def _ramp(self, stream: dict[str, Any]) -> dict[str, Any]:
        """Load before the measurement, and the length of an interval."""
        ramp = self.get("ramp_time", 0)
        if ramp and any(name.startswith("limit_") for name in stream):
            self.note("ramp_time", "fio counts what the ramp moves towards `size`; only the measurement is counted")
        interval = self.get("log_avg_msec", 0)
        long_enough = {"interval": compact_duration(interval)} if interval >= 10**8 else {}
        return {"ramp": compact_duration(ramp), **long_enough}


def _size_text(sizes: Sizes) -> str:
    if len(sizes) == 1:
        return compact_size(sizes[0][0])
    return ":".join(f"{compact_size(block)}/{weight:.6g}" for block, weight in sizes)


def _share(text: str) -> float:
    return float(text.rstrip("%")) / 100
