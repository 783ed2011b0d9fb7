"""Several clients of one file system: `iosonde run --hosts`, `fio --client` and elbencho's service mode, interleaved.

    python bench/vs_clients.py [--hosts 4] [--rounds 6] [--seconds 8] [--directory DIR] [--elbencho PROGRAM]

Each host is a network namespace of this machine with an address and a CPU accounting group (cgroup v1 `cpuacct`) of its
own; the coordinator runs outside. The load of each host: direct 4 KiB random reads of existing files, one at a time.
The kernel observes all programs alike, with the tracepoint `block_bio_queue`: the 4 KiB reads that the thread of each
host queued, and the time of its first one. Needs root.

Prints a Markdown table of medians over the rounds, with the smallest and largest value.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pairs import provenance, table

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture
from iosonde.features.kernel_trace.mount import directory as tracefs
from iosonde.features.many_hosts import tls
from iosonde.results.result_set import load

NAME = "iosonde-bench"
NETWORK = "10.211.77"
FILE_BYTES = 256 << 20
BUFFER_KIB = 1 << 15
STUDY = """
name = "clients"
title = "Reads of several clients"
question = "At what rate do several clients read?"
repeats = 1
device_state = "unknown"

[measurement]
backend = "sync"
access = "random"
read_fraction = 1.0
block_size = "4KiB"
span = "256MiB"
ramp = "0s"
duration = "{seconds}s"

[[parts]]
name = "reads"
title = "Reads"

[profiles.standard]
title = "One run"
"""
SAMPLE_S = 0.1
ROLES = ("CLIENT", "SCHEDULER", "WORKER")
HEAD = ("program", "reads, reported / observed", "IOPS", "first reads within, ms", "CPU per read, µs", "CPU besides, s")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of one program in one round."""

    reported: int
    """Reads, as the program counts them."""
    observed: int
    """Reads that the kernel saw between the first and the last of the hosts."""
    seconds: float
    """From the first read that the kernel saw to the last."""
    spread_ms: float
    """Between the first reads of the first and of the last host."""
    cpu_us: float
    """CPU time of the hosts per read, while all of them read."""
    besides_s: float
    """CPU time of a host from the start of the command to its end, less that while it read."""


class Hosts:
    """Network namespaces with a bridge, and a group of CPU accounting for each."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.address = f"{NETWORK}.254"
        self.addresses = [f"{NETWORK}.{number}" for number in range(1, count + 1)]
        self._groups = [Path("/sys/fs/cgroup/cpuacct", NAME, str(number)) for number in range(1, count + 1)]

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make them, and remove them at the end."""
        with ExitStack() as stack:
            ip("link", "add", NAME, "type", "bridge")
            stack.callback(ip, "link", "delete", NAME)
            ip("address", "add", f"{self.address}/24", "dev", NAME)
            ip("link", "set", NAME, "up")
            for number, address in enumerate(self.addresses, start=1):
                space, outer = f"{NAME}-{number}", f"iob{number}"
                ip("netns", "add", space)
                stack.callback(ip, "netns", "delete", space)
                ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
                ip("link", "set", outer, "master", NAME, "up")
                ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
                ip("-n", space, "link", "set", "eth0", "up")
                ip("-n", space, "link", "set", "lo", "up")
            for group in (self._groups[0].parent, *self._groups):
                group.mkdir(exist_ok=True)
                stack.callback(group.rmdir)
            yield

    @contextmanager
    def running(self, command: Callable[[str], Sequence[str]]) -> Iterator[None]:
        """Run a program on each host, given its address, until the end of the context."""
        script = 'echo $$ >"$0"/cgroup.procs && exec "$@"'
        with ExitStack() as stack:
            for number, (address, group) in enumerate(zip(self.addresses, self._groups, strict=True), start=1):
                enter = ["ip", "netns", "exec", f"{NAME}-{number}"]
                process = subprocess.Popen(
                    ["sh", "-c", script, str(group), *enter, *command(address)],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                stack.callback(process.wait)
                stack.callback(process.terminate)
            time.sleep(3)  # Until all of them listen.
            yield

    @contextmanager
    def cpu_used(self) -> Iterator[list[tuple[float, float]]]:
        """Samples of the CPU time of all hosts in seconds, at times of `CLOCK_MONOTONIC`, while the context lasts."""
        samples, ended = [], threading.Event()

        def take() -> None:
            used_ns = sum(int((group / "cpuacct.usage").read_text()) for group in self._groups)
            samples.append((time.monotonic(), used_ns / 1e9))

        def take_all() -> None:
            while not ended.wait(SAMPLE_S):
                take()

        take()
        thread = threading.Thread(target=take_all)
        thread.start()
        try:
            yield samples
        finally:
            ended.set()
            thread.join()
            take()


class Trace:
    """Reads of 4 KiB that threads queue at block devices: the oldest ones are kept if the buffer is full."""

    def __init__(self) -> None:
        self._path = tracefs() / "instances" / NAME

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record while the context lasts; the events can be read until the next one."""
        if self._path.exists():
            self._path.rmdir()
        self._path.mkdir()
        (self._path / "trace_clock").write_text("mono")
        (self._path / "options/overwrite").write_text("0")
        (self._path / "buffer_size_kb").write_text(str(BUFFER_KIB))
        (self._path / "events/block/block_bio_queue/filter").write_text("nr_sector == 8")
        (self._path / "events/block/block_bio_queue/enable").write_text("1")
        yield
        (self._path / "tracing_on").write_text("0")

    def reads(self, hosts: int) -> dict[str, list[float]]:
        """Times of the reads, in seconds, of the threads with the most reads, one of each host."""
        event = re.compile(r"-(\d+) +\[\d+\] \S+ +([\d.]+): block_bio_queue: \S+ R\S* ")
        found: dict[str, list[float]] = {}
        with (self._path / "trace").open() as lines:
            for match in filter(None, map(event.search, lines)):
                found.setdefault(match[1], []).append(float(match[2]))
        self._path.rmdir()
        most = Counter({thread: len(times) for thread, times in found.items()}).most_common(hosts)
        return {thread: found[thread] for thread, _ in most}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Hosts and files that all programs share."""

    hosts: Hosts
    directory: Path
    seconds: int
    elbencho: str

    def observed(self, command: Sequence[str], reported: Callable[[str], int]) -> Run:
        """Run the command of a coordinator; `reported` finds the reads in its output."""
        trace = Trace()
        with trace.recording(), self.hosts.cpu_used() as samples:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.directory)
        if done.returncode:
            sys.exit(f"error: {' '.join(command)}\n{done.stdout}{done.stderr}")
        reads = sorted(trace.reads(self.hosts.count).values())
        first, all_begin = reads[0][0], reads[-1][0]
        last, all_end = max(times[-1] for times in reads), min(times[-1] for times in reads)
        within = [sample for sample in samples if all_begin <= sample[0] <= all_end]
        (begin, used_before), (end, used_after) = within[0], within[-1]
        rate = sum(sum(begin <= each < end for each in times) for times in reads) / (end - begin)
        cpus = (used_after - used_before) / (end - begin)
        total_s = samples[-1][1] - samples[0][1]
        return Run(
            reported=reported(done.stdout),
            observed=sum(map(len, reads)),
            seconds=last - first,
            spread_ms=(all_begin - first) * 1e3,
            cpu_us=cpus / rate * 1e6,
            besides_s=(total_s - cpus * (last - first)) / self.hosts.count,
        )

    def iosonde(self) -> Run:
        """A Dask scheduler and its workers. The hosts write their files first."""
        study, output = self.directory / "clients.toml", self.directory / "output"
        study.write_text(STUDY.format(seconds=self.seconds))
        shutil.rmtree(output, ignore_errors=True)
        scheduler_at = f"tls://{self.hosts.address}:8786"
        worker = [sys.executable, "-m", "iosonde.features.many_hosts.worker", scheduler_at]
        scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--protocol", "tls"]
        command = [sys.executable, "-m", "iosonde", "run", str(study), "--target", str(self.directory), "--output"]
        command += [str(output), "--hosts", scheduler_at, "--quiet"]
        server = subprocess.Popen([*scheduler, "--host", self.hosts.address], stderr=subprocess.DEVNULL)
        try:
            time.sleep(3)
            with self.hosts.running(lambda address: [*worker, f"host{address.rpartition('.')[2]}"]):
                return self.observed(command, lambda _: iosonde_reads(output))
        finally:
            server.terminate()
            server.wait()

    def fio(self) -> Run:
        """`fio --server` on each host."""
        job = self.directory / "clients.fio"
        job.write_text(
            f"[clients]\nioengine=psync\nrw=randread\nbs=4k\ndirect=1\nsize={FILE_BYTES}\nfilename={self.file}\n"
            f"time_based\nruntime={self.seconds}\n"
        )
        command = ["fio", "--output-format=json"]
        command += [part for address in self.hosts.addresses for part in (f"--client={address}", str(job))]
        with self.hosts.running(lambda address: ["fio", f"--server={address}"]):
            return self.observed(command, fio_reads)

    def elbencho_service(self) -> Run:
        """`elbencho --service` on each host; all threads read one file."""
        results = self.directory / "elbencho.csv"
        results.unlink(missing_ok=True)
        load = ["--rand", "--direct", "-b", "4k", "-t", "1", "-s", str(FILE_BYTES), "--infloop", "--timelimit"]
        command = [self.elbencho, "--hosts", ",".join(self.hosts.addresses), "-r", *load, str(self.seconds)]
        command += ["--csvfile", str(results), "--nolive", str(self.file)]
        with self.hosts.running(lambda _: [self.elbencho, "--service", "--foreground"]):
            return self.observed(command, lambda _: elbencho_reads(results))

    @property
    def file(self) -> Path:
        """A file that fio and elbencho read."""
        return self.directory / "file"


def iosonde_reads(output: Path) -> int:
    """The reads of the total."""
    found = load(output).sql("SELECT value FROM metrics WHERE metric = 'operations' AND operation = 'read'")
    return int(found.rows()[0][0])


def fio_reads(text: str) -> int:
    """The reads of all clients in fio's JSON."""
    clients = json.loads(text[text.index("{") :])["client_stats"]
    return sum(each["read"]["total_ios"] for each in clients if each["jobname"] != "All clients")


def elbencho_reads(results: Path) -> int:
    """The reads of the phase until the last thread ended, in elbencho's CSV."""
    with results.open(newline="") as lines:
        row = list(csv.DictReader(lines))[-1]
    return round(float(row["IOPS [last]"]) * float(row["time ms [last]"]) / 1e3)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def shown(values: Sequence[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def certificate(directory: Path) -> dict[str, str]:
    """A new certificate and its key in a directory, and the environment variables in which Dask finds them."""
    files = {"CA_FILE": "certificate", **{f"{role}__CERT": "certificate" for role in ROLES}}
    files |= {f"{role}__KEY": "key" for role in ROLES}
    for name, text in zip(("certificate", "key"), tls.create(), strict=True):
        (directory / f"{name}.pem").write_text(text)
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(directory / f"{file}.pem") for name, file in files.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Several clients: iosonde, fio and elbencho, interleaved.")
    parser.add_argument("--hosts", type=int, default=4, help="network namespaces that act as hosts")
    parser.add_argument("--rounds", type=int, default=6, help="runs of each program")
    parser.add_argument("--seconds", type=int, default=8, help="duration of the load")
    parser.add_argument("--directory", type=Path, default=Path(), help="file system that the hosts read")
    parser.add_argument("--elbencho", metavar="PROGRAM", help="path of elbencho, which is left out without it")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory.absolute())))
        hosts = Hosts(options.hosts)
        stack.enter_context(hosts.made())
        bench = Bench(hosts=hosts, directory=directory, seconds=options.seconds, elbencho=options.elbencho or "")
        subprocess.run(["dd", "if=/dev/urandom", f"of={bench.file}", "bs=1M", f"count={FILE_BYTES >> 20}"], check=True)
        os.sync()
        os.environ |= certificate(directory)
        programs = {"iosonde": bench.iosonde, "fio": bench.fio}
        if options.elbencho:
            programs["elbencho"] = bench.elbencho_service
        found: dict[str, list[Run]] = {name: [] for name in programs}
        for number in range(options.rounds):
            for name in sorted(programs, reverse=bool(number % 2)):
                found[name].append(programs[name]())
                print(name, found[name][-1], file=sys.stderr)
    rows = [
        [
            name,
            shown([each.reported / each.observed for each in runs], 4),
            shown([each.observed / each.seconds for each in runs], 0),
            shown([each.spread_ms for each in runs], 1),
            shown([each.cpu_us for each in runs], 1),
            shown([each.besides_s for each in runs], 2),
        ]
        for name, runs in found.items()
    ]
    print(provenance(capture(find_engine()), f"{options.hosts} hosts", f"{options.rounds} rounds"))
    print(f"\n{table(HEAD, rows)}")


if __name__ == "__main__":
    main()
