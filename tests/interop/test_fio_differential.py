"""fio and the engine do the same for every option that is imported: their system calls are compared.

One fio runs all jobs, one after the other; the engine runs the specs of their import. strace shows offsets, sizes, directions,
order, threads, flags and times of both. Times are compared from below only, because other load delays both.
"""

from __future__ import annotations

import json
import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engines import real_engine

from iosonde.interop.fio import import_job_file, options
from iosonde.planning import expand, parse
from iosonde.storage import open_target

pytestmark = [pytest.mark.system, pytest.mark.needs("fio", "strace")]

TRACED = (
    "openat,read,write,pread64,pwrite64,fsync,fdatasync,fadvise64,sched_setaffinity,io_uring_setup,io_uring_register"
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A system call, as strace prints it."""

    time: float
    thread: int
    name: str
    arguments: str
    file: str

    @property
    def io(self) -> tuple[str, int, int]:
        """Operation, offset and bytes."""
        size, offset = self.arguments.split(", ")[-2:]
        return self.name, int(offset), int(size)


@dataclass(kw_only=True)
class Done:
    """Actions of one of the two programs for a job."""

    calls: list[Call]
    """All that were traced."""
    load: list[Call]
    """Of these, calls after the files were laid out."""
    files: list[Path]
    drops_cache: bool

    def ios(self) -> list[Call]:
        return [each for each in self.load if each.name in ("pread64", "pwrite64")]


# Compared properties


def order(done: Done) -> list[list[tuple[str, int, int]]]:
    """The I/Os of each thread in order."""
    threads = {call.thread for call in done.ios()}
    return sorted([call.io for call in done.ios() if call.thread == each] for each in threads)


def ios(done: Done) -> Counter[tuple[str, int, int]]:
    """The I/Os in any order."""
    return Counter(call.io for call in done.ios())


def amount(done: Done) -> tuple[int, int]:
    return len(done.ios()), sum(call.io[2] for call in done.ios())


def writes_alone(done: Done) -> list[tuple[str, int, int]]:
    return [call.io for call in done.ios() if call.name == "pwrite64"]


def reads_follow(done: Done) -> bool:
    return any(call.name == "pread64" for call in done.ios())


def shares(done: Done) -> dict[str, float]:
    """Of the operations and sizes among all I/Os."""
    counts = Counter(f"{call.name} {call.io[2]}" for call in done.ios())
    return {name: count / counts.total() for name, count in sorted(counts.items())}


def sizes(done: Done) -> dict[int, float]:
    counts = Counter(call.io[2] for call in done.ios())
    return {size: count / counts.total() for size, count in sorted(counts.items())}


def hottest_tenth(done: Done) -> float:
    """Share of the I/Os on the tenth of 256 blocks that has most of them."""
    counts = Counter(call.io[1] for call in done.ios())
    return sum(count for _, count in counts.most_common(26)) / counts.total()


def distinct(done: Done) -> float:
    return len({call.io[1] for call in done.ios()}) / len(done.ios())


def flushes(done: Done) -> list[str]:
    """Writes and flushes in order, up to the last write."""
    names = {"pwrite64": "w", "fsync": "f", "fdatasync": "f"}
    return list("".join(names.get(each.name, "") for each in done.load).rstrip("f"))


def opened(*flags: str) -> Callable[[Done], set[str]]:
    def found(done: Done) -> set[str]:
        opens = [each.arguments for each in done.load if each.name == "openat"]
        return {flag for flag in flags for each in opens if re.search(rf"\b{flag}\b", each)}

    return found


def lasts(seconds: float) -> Callable[[Done], bool]:
    """At least so long from the first call to the exit of the last thread, which other load makes longer only."""
    return lambda done: done.calls[-1].time - done.calls[0].time >= seconds


def late(done: Done) -> bool:
    """The second of two threads starts at least a second after the first call, which other load makes longer only."""
    first = {call.thread: call.time for call in reversed(done.ios())}
    return len(first) == 2 and max(first.values()) - done.calls[0].time >= 0.95


def one_after_the_other(done: Done) -> bool:
    threads = [call.thread for call in done.ios()]
    return len(set(threads)) == 2 and threads == sorted(threads, key=threads.index)


def gaps_vary(done: Done) -> bool:
    times = [call.time for call in done.ios()]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    return sum((gap - mean) ** 2 for gap in gaps) / len(gaps) > (0.4 * mean) ** 2


def cache_dropped(done: Done) -> bool:
    return done.drops_cache


def touched_twice(*names: str) -> Callable[[Done], bool]:
    """Return a condition: the file of 64 KiB was read, or written, at least twice."""
    return lambda done: (
        sum(int(each.arguments.split(", ")[2]) for each in done.calls if each.name in names) >= 2 * (64 << 10)
    )


def contents(done: Done) -> tuple[float, float]:
    """Mean compressed share of a block, and share of distinct blocks, of what the file holds."""
    data = b"".join(path.read_bytes() for path in done.files)
    blocks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    return sum(len(zlib.compress(each)) for each in blocks) / len(data), len(set(blocks)) / len(blocks)


def distinct_ios(done: Done) -> float:
    """Share of distinct I/Os of 64 KiB in what the file holds."""
    data = b"".join(path.read_bytes() for path in done.files)
    ios = [data[at : at + (64 << 10)] for at in range(0, len(data), 64 << 10)]
    return len(set(ios)) / len(ios)


def affinity(done: Done) -> set[str]:
    found = (re.search(r"\[[0-9 ]+\]", each.arguments) for each in done.calls if each.name == "sched_setaffinity")
    return {each[0] for each in found if each}


def ring(done: Done) -> set[str]:
    """Flags and registrations with which the ring was requested."""
    calls = "".join(each.arguments for each in done.calls if each.name.startswith("io_uring"))
    kinds = ("SETUP_IOPOLL", "SETUP_SQPOLL", "REGISTER_BUFFERS", "REGISTER_FILES")
    return {"ring" for _ in calls[:1]} | {kind for kind in kinds if f"IORING_{kind}" in calls}


class Case(NamedTuple):
    option: str
    lines: str
    same: Callable[[Done], Any]
    expected: Any = None
    """Expected value for both, where equality alone could be that of two failures."""
    tolerance: float = 0.0


LARGE = "size=1m"
PACED = "rate_iops=100\ntime_based"
CASES = [
    Case("rw", "rw=write", order),
    Case("rw", "rw=randread", ios),
    Case("rw", "rw=read:4k\nio_size=32k", order),
    Case("rwmixread", f"rw=rw\nrwmixread=80\n{LARGE}", shares, tolerance=0.1),
    Case("rwmixwrite", f"rw=randrw\nrwmixwrite=30\nnorandommap\n{LARGE}", shares, tolerance=0.1),
    Case("bs", "bs=8k", order),
    Case("bs", "bs=8Ki\nsize=1Mi", order),
    Case("bs", "bs=4kib", order),
    Case("bs", f"rw=randrw\nnorandommap\nbs=8k,16k\n{LARGE}", sizes, tolerance=0.15),
    Case("bsrange", f"rw=randread\nnorandommap\nbsrange=4k-10k\n{LARGE}", sizes, tolerance=0.15),
    Case("bssplit", f"rw=randread\nnorandommap\nbssplit=4k/75:16k/25\n{LARGE}", sizes, tolerance=0.1),
    Case("ioengine", "ioengine=io_uring", ring, {"ring"}),
    Case("iodepth", "iodepth=1", order),
    Case("numjobs", "rw=write\nnumjobs=3", order),
    Case("size", "size=50%\nfilesize=64k", order),
    Case("size", "size=50%%\nfilesize=64k", order),
    Case("io_size", "io_size=24k", order),
    Case("filesize", "filesize=48k\nsize=100%", order),
    Case("number_ios", "number_ios=5", order),
    Case("loops", "size=16k\nloops=2", order),
    Case("offset", "offset=16k\nsize=32k\nfilesize=64k", order),
    Case("offset_increment", "filename=NAME.x\nnumjobs=2\noffset_increment=64k", order),
    Case("filename", "filename=NAME.x\nnumjobs=2\nrw=randread", ios),
    Case("directory", "directory=.\nnumjobs=2", order),
    # With `numjobs=2` the second job of fio 3.33 does no I/O: it takes the file for one that the first has completed.
    Case("filename_format", "filename_format=NAME.x\nrw=randread", ios),
    Case("nrfiles", "filesize=16k\nnrfiles=2\nsize=32k", amount),
    Case("direct", "direct=1", opened("O_DIRECT"), {"O_DIRECT"}),
    Case("buffered", "buffered=0", opened("O_DIRECT"), {"O_DIRECT"}),
    Case("atomic", "direct=0\natomic=0", opened("O_DIRECT"), set()),
    Case("sync", "rw=write\nsync=dsync", opened("O_DSYNC"), {"O_DSYNC"}),
    Case("fsync", "rw=write\nfsync=4", flushes),
    Case("fdatasync", "rw=write\nfdatasync=4", flushes),
    Case("runtime", f"{PACED}\nruntime=500ms", lasts(0.45), True),
    Case("time_based", f"size=16k\n{PACED}\nruntime=500ms", lasts(0.45), True),
    # With a ramp longer than the run time fio 3.33 ends before the run time.
    Case("ramp_time", f"{PACED}\nruntime=500ms\nramp_time=500ms", lasts(0.95), True),
    Case(
        "startdelay",
        f"{PACED}\nruntime=1500ms\n[NAME-late]\nsize=64k\n{PACED}\nruntime=500ms\nstartdelay=1",
        late,
        True,
    ),
    Case("rate", f"rate=400k\nnumber_ios=50\n{LARGE}", lasts(0.4), True),
    Case("rate", "rw=randrw\nnorandommap\nrate=1m,512k\nbs=8k,16k\nrwmixread=70\nsize=4m", sizes, tolerance=0.1),
    Case("rate_iops", f"rate_iops=100\nnumber_ios=50\n{LARGE}", lasts(0.4), True),
    Case("rate_process", f"rate_iops=200\nrate_process=poisson\nnumber_ios=100\n{LARGE}", gaps_vary, True),
    Case("norandommap", f"rw=randread\nnorandommap\n{LARGE}", distinct, tolerance=0.08),
    Case("random_distribution", f"rw=randread\nrandom_distribution=zipf:1.2\n{LARGE}", hottest_tenth, tolerance=0.1),
    Case(
        "random_distribution",
        f"rw=randread\nrandom_distribution=zoned:90/10:10/90\n{LARGE}",
        hottest_tenth,
        tolerance=0.1,
    ),
    Case("invalidate", "invalidate=0\nrw=write", cache_dropped),
    Case("pre_read", "pre_read=1", touched_twice("read", "pread64"), True),
    Case("overwrite", "rw=write\noverwrite=1", touched_twice("write", "pwrite64"), True),
    *(
        Case(option, f"rw={rw}\nsize=4m\n{lines}", contents, tolerance=0.1)
        for rw in ("read", "write")
        for option, lines in (
            ("zero_buffers", "zero_buffers"),
            ("buffer_compress_percentage", "buffer_compress_percentage=80\nrefill_buffers"),
            ("dedupe_percentage", "dedupe_percentage=60"),
        )
    ),
    *(
        Case("dedupe_percentage", f"rw={rw}\nbs=64k\nsize=32m\ndedupe_percentage=60", distinct_ios, tolerance=0.1)
        for rw in ("read", "write")
    ),
    Case("ioengine", "ioengine=posixaio\niodepth=8", ios),
    Case("verify", "rw=write\nverify=crc32c", writes_alone),
    Case("verify", "rw=write\nverify=crc32c", reads_follow, True),
    Case("do_verify", "rw=write\nverify=crc32c\ndo_verify=0", reads_follow, False),
    Case("cpus_allowed", "cpus_allowed=0", affinity, {"[0]"}),
    Case("cpumask", "cpumask=2", affinity, {"[1]"}),
    Case("cpus_allowed_policy", "cpus_allowed=0-1\ncpus_allowed_policy=split\nnumjobs=2", affinity, {"[0]", "[1]"}),
    Case("fixedbufs", "ioengine=io_uring\nfixedbufs", ring, {"ring", "REGISTER_BUFFERS"}),
    Case("registerfiles", "ioengine=io_uring\nregisterfiles", ring, {"ring", "REGISTER_FILES"}),
    Case("sqthread_poll", "ioengine=io_uring\nsqthread_poll", ring),
    Case("stonewall", "rw=write\n[NAME-later]\nrw=write\nsize=64k\nstonewall", one_after_the_other, True),
    Case("wait_for", "rw=write\n[NAME-later]\nrw=write\nsize=64k\nwait_for=NAME", one_after_the_other, True),
    Case("create_only", "[NAME-files]\nsize=64k\ncreate_only=1", order),
]

OTHERWISE = {"log_avg_msec", "description", "name", "hipri", "kb_base"}
"""Units, names and intervals of reports, which no system call shows, and polling, which the engine requests of devices only that
have queues for it (`test_fio_import.py`)."""

JOURNAL = ".verify"


def test_every_imported_option_is_compared() -> None:
    imported = {name.partition("/")[0] for name in options.CARRIED.split()}
    assert {each.option for each in CASES} == imported - OTHERWISE


@pytest.fixture(scope="module")
def by_fio(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    directory = tmp_path_factory.mktemp("fio")
    (directory / "all.fio").write_text("".join(section(number, "stonewall\n") for number in range(len(CASES))))
    calls = traced(["fio", "all.fio"], directory)
    found = {}
    for number in range(len(CASES)):
        mine = re.compile(rf"c{number}[.-]")
        threads = {call.thread for call in calls if mine.match(call.file)}
        own = [call for call in calls if mine.match(call.file) or (not call.file and call.thread in threads)]
        load = without_layout_of_fio(own)
        files = sorted(path for path in directory.iterdir() if mine.match(path.name))
        found[f"c{number}"] = Done(calls=own, load=load, files=files, drops_cache=any(map(is_drop, load)))
    return found


def is_drop(call: Call) -> bool:
    return "POSIX_FADV_DONTNEED" in call.arguments


def without_layout_of_fio(calls: list[Call]) -> list[Call]:
    """fio lays a file out through a descriptor that cannot read, and opens it again for the load."""
    started: set[str] = set()
    found = []
    for call in calls:
        if call.name == "openat" and call.file:
            (started.discard if "O_WRONLY" in call.arguments else started.add)(call.file)
        if not call.file or call.file in started:
            found.append(call)
    return found


def without_layout_of_the_engine(calls: list[Call]) -> list[Call]:
    """The engine drops the page cache of what it laid out."""
    dropped = next((place for place, each in enumerate(calls) if is_drop(each)), -1)
    return calls[dropped + 1 :]


def section(number: int, first: str = "") -> str:
    body = f"[c{number}]\nioengine=psync\nbs=4k\nsize=64k\nfallocate=none\n{first}{CASES[number].lines}\n"
    return body.replace("NAME", f"c{number}")


def by_iosonde(number: int, directory: Path) -> Done:
    (directory / "job.fio").write_text(section(number))
    study = parse(import_job_file(directory / "job.fio", environment={}).text)
    (directory / "target").mkdir()
    done = Done(calls=[], load=[], files=[], drops_cache=False)
    for run in expand(study, open_target(str(directory / "target")), repeats=1, settings={}).runs:
        target = run.spec["workload"]["target"]
        place = Path(target["directory"]) if "directory" in target else Path(target["path"]).parent
        place.mkdir(parents=True, exist_ok=True)
        calls = traced([str(real_engine())], directory, json.dumps(run.spec))
        files = {path.name for path in place.iterdir() if path.suffix != JOURNAL}
        calls = [call for call in calls if not call.file or call.file in files]
        done.calls += calls
        done.load += without_layout_of_the_engine(calls)
        done.drops_cache |= any(map(is_drop, calls))
    done.files = sorted(path for path in place.iterdir() if path.suffix != JOURNAL)
    return done


def traced(command: list[str], directory: Path, text: str = "") -> list[Call]:
    log = directory / "strace.log"
    strace = ["strace", "-f", "-y", "-ttt", "-s", "0", "-e", f"trace={TRACED}", "-o", log]
    subprocess.run([*strace, *command], cwd=directory, input=text, text=True, capture_output=True, timeout=600)
    return read_log(log.read_text())


def read_log(text: str) -> list[Call]:
    started: dict[str, tuple[float, str]] = {}
    calls = []
    for line in text.splitlines():
        thread, time, call = line.split(None, 2)
        if call.startswith("+++ exited"):
            calls.append(Call(time=float(time), thread=int(thread), name="exit", arguments="", file=""))
            continue
        if call.endswith("<unfinished ...>"):
            started[thread] = (float(time), call.removesuffix("<unfinished ...>"))
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>", call)
        at, start = started.pop(thread) if resumed else (float(time), "")
        matched = re.match(r"(\w+)\((.*)\)\s+= -?\d+(?:<(.*)>)?", start + call[resumed.end() if resumed else 0 :])
        if matched:
            name, arguments = matched[1], matched[2].strip()
            opened_file = matched[3] if name == "openat" else None
            file = re.match(r"\d+<([^>]*)>", arguments)
            path = opened_file or (file[1] if file and not name.startswith("io_uring") else "")
            calls.append(Call(time=at, thread=int(thread), name=name, arguments=arguments, file=Path(path).name))
    return sorted(calls, key=lambda each: each.time)


def test_a_call_that_strace_prints_in_two_parts_has_all_its_arguments() -> None:
    interrupted = """\
7 1.0 read(3</tmp/c1.0.0>, <unfinished ...>
8 2.0 fsync(4</tmp/c1.1.0> <unfinished ...>
7 3.0 <... read resumed>""..., 65536) = 65536
8 4.0 <... fsync resumed>)              = 0
"""
    whole = """\
7 1.0 read(3</tmp/c1.0.0>, ""..., 65536) = 65536
8 2.0 fsync(4</tmp/c1.1.0>) = 0
"""
    in_two_parts, expected = read_log(interrupted), read_log(whole)
    assert in_two_parts == expected
    assert in_two_parts[0].arguments.split(", ")[2] == "65536"


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{n}-{each.option}" for n, each in enumerate(CASES)])
def test_fio_and_the_engine_do_the_same(number: int, by_fio: dict[str, Done], tmp_path: Path) -> None:
    each = CASES[number]
    expected, found = each.same(by_fio[f"c{number}"]), each.same(by_iosonde(number, tmp_path))
    if each.tolerance:
        assert found == pytest.approx(expected, abs=each.tolerance)
    else:
        assert found == expected
    if each.expected is not None:
        assert found == each.expected
    elif each.same is not cache_dropped:
        assert found, "something was done"
