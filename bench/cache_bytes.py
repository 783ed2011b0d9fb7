"""Compare bytes of extstore and of swap as counted by the server, its control group and the device.

usage: bench/cache_bytes.py DIRECTORY [--seconds 10] [--value 262144]

As root, on a directory of a disk with 3 GiB of free space. memcached runs on an ext4 file system on a loop device of
its own, so the counters of the device have only this run's I/O. Two runs: extstore, whose values are read and written
through the page cache, and swap, with memory for half of the items and `page_cluster = 0`.

Prints three counts of the same bytes and their ratios to the server's:

- server: `extstore_bytes_read` and `extstore_bytes_written` of memcached; for swap the kernel's `pswpin` and `pswpout`;
- group: bytes that the server's control group read and wrote (`blkio`, `io.stat`);
- device: bytes of the loop device.

Reads and swap are compared over the measurement; writes of extstore over the whole run, because the kernel writes them
back later. Read-ahead is 4 KiB, since it reads beyond the values. Exits with 1 if a ratio differs from 1 by more than
3 %, or if there is no count, and states why where that is known:

- cgroup v1 charges writes of the page cache and of swap to the kernel's own threads, so the group has none;
- memcached counts bytes of objects, and the page cache reads whole pages: with values of N bytes about 4096 / N more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

AIM = 0.03

STUDY = """
name = "bytes"
title = "Bytes"
question = "Do the counts agree?"
workload = "kv"
repeats = 1

[measurement]
store = "memcached"
file_system = "ext4"
setup_size = "1536MiB"
value_compression_ratio = 1.0
ramp = "2s"
duration = "{seconds}s"
interval = "500ms"
{measurement}

[[parts]]

[profiles.standard]
"""

EXTSTORE = """
tier = "extstore"
read_ahead = "4KiB"
cache_memory = "64MiB"
memory_limit = "96MiB"
extstore_size = "896MiB"
records = {records}
value_size = {value}
load_rate = {rate}
jobs = 4

[measurement.memcached]
threads = 2
ext_page_size = 16
ext_wbuf_size = 8
ext_threads = 4
ext_item_age = 0
ext_max_sleep = 1000
slab_automove_freeratio = 0.2
slab_automove_window = 3
"""

SWAP = """
cache_memory = "176MiB"
memory_limit = "72MiB"
swap = "target"
swap_size = "512MiB"
page_cluster = 0
records = 28000
value_size = 4096
jobs = 4
memcached = { threads = 2 }
"""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Three counts of the same bytes."""

    what: str
    server: int
    group: int | None
    device: int
    why: str = ""

    def line(self) -> str:
        """With the ratios to the server's count."""
        group = "not counted" if self.group is None else f"{self.group:,}"
        ratios = [None if each is None else each / self.server for each in (self.group, self.device)]
        shown = ["-" if each is None else f"{each:.3f}" for each in ratios]
        return f"| {self.what} | {self.server:,} | {group} | {self.device:,} | {shown[0]} | {shown[1]} |"

    def agrees(self) -> bool:
        """Return True if group and device are within the aim of the server's count."""
        return all(each is not None and abs(each / self.server - 1) <= AIM for each in (self.group, self.device))


def measured(place: Path, measurement: str, seconds: int) -> tuple[Record, ResultSet]:
    """One run on a file system of its own."""
    text = STUDY.format(measurement=measurement, seconds=seconds)
    output = place / "results"
    execute(expand(parse(text, name="bytes.toml"), open_target(str(place))), output)
    results = ResultSet.open(output)
    [record] = results.records()
    if record.outcome != "complete":
        raise SystemExit(f"the run failed: {record.failure}")
    return record, results


def grown(record: Record, name: str) -> int | None:
    """Increase of a counter over the measurement."""
    assert record.server
    start, end = (record.server[f"statistics_at_{edge}"] for edge in ("start", "end"))
    return int(end[name]) - int(start[name]) if name in start and name in end else None


def of_device(results: ResultSet, name: str) -> int:
    """Bytes of the loop device over the measurement."""
    rows = results.sql(f"SELECT sum({name}) AS n FROM usage WHERE phase = 'measure' AND device LIKE '7:%'")
    return int(rows["n"][0] or 0)


def whole_run(record: Record, name: str) -> int:
    """Bytes of the loop device over the whole run, everything written back."""
    return sum(int(each[name]) for each in record.device_totals or [] if str(each["device"]).startswith("7:"))


def group_writes(record: Record) -> int | None:
    """Bytes that the group wrote to the loop device over the whole run; None where version 1 does not charge them.

    Version 2 charges the same bytes a second time at the device below the loop device.
    """
    assert record.server
    devices: list[dict[str, Any]] = (record.server["group"] or {}).get("devices") or []
    written = sum(int(each["write_bytes"]) for each in devices if str(each["device"]).startswith("7:"))
    return written or None


def extstore(seconds: int, value: int, directory: Path) -> list[Counts]:
    """Reads in the measurement, writes in the whole run."""
    records = (512 << 20) // value
    with tempfile.TemporaryDirectory(dir=directory) as place:
        Path(place).chmod(0o755)
        text = EXTSTORE.format(records=records, value=value, rate=max(1, records // 10))
        record, results = measured(Path(place), text, seconds)
        assert record.server
        return [
            Counts(
                what=f"extstore reads, values of {value} B",
                server=grown(record, "extstore_bytes_read") or 0,
                group=grown(record, "group_read_bytes"),
                device=of_device(results, "read_bytes"),
            ),
            Counts(
                what="extstore writes, whole run",
                server=int(record.server["statistics_at_end"]["extstore_bytes_written"]),
                group=group_writes(record),
                device=whole_run(record, "write_bytes"),
            ),
        ]


def swap(seconds: int, directory: Path) -> list[Counts]:
    """Pages in both directions in the measurement."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        Path(place).chmod(0o755)
        record, results = measured(Path(place), SWAP, seconds)
        faults = grown(record, "server_major_faults") or 0
        print(f"major faults of the server's group x page size: {faults * os.sysconf('SC_PAGE_SIZE'):,} B\n")
        return [
            Counts(
                what=f"swap-{way}",
                server=grown(record, f"server_swap_{way}_bytes") or 0,
                group=grown(record, f"group_{name}_bytes") or None,
                device=of_device(results, f"{name}_bytes"),
            )
            for way, name in (("in", "read"), ("out", "write"))
        ]


def main() -> int:
    """Print the counts and compare them with the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--value", type=int, default=1 << 18)
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("run it as root: memory limits, swap and loop devices need it")
    found = [*swap(given.seconds, given.directory), *extstore(given.seconds, given.value, given.directory)]
    print("| bytes | server | control group | device | group / server | device / server |\n|---|---|---|---|---|---|")
    print("\n".join(each.line() for each in found))
    if any(each.group is None for each in found):
        print("\nnot counted: cgroup v1 charges writes of the page cache and of swap to the kernel's own threads")
    print(f"\nload average {os.getloadavg()[0]:.1f}; aim: within {AIM:.0%}")
    return 0 if all(each.agrees() for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
