"""A host with the role `server`: it runs no load, and its counters are read while the others do.

Its Dask worker reads them, without an agent: a few files of /proc, twice a second.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from iosonde.engine.supervisor.account import nfs_server_counters
from iosonde.errors import TargetError
from iosonde.features.many_hosts.hosts import Host, gather
from iosonde.features.many_hosts.workers import START_S
from iosonde.plan import Case, Plan
from iosonde.results.schema import ServerCounters, ServerReading

if TYPE_CHECKING:
    from distributed import Worker


PERIOD_S = 0.5
MOST_SAMPLES = 10_000
SECTOR_BYTES = 512
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""Path of an NVMe namespace with native multipath."""
_VIRTUAL = ("loop", "ram", "zram", "sr", "fd", "nbd")


def can_drop() -> bool:
    """Return True if this user may drop the page cache of the machine."""
    return os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_page_cache() -> None:
    """Write dirty pages, and drop all clean ones of the machine."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


async def watch(drop: bool, dask_worker: Worker) -> None:
    """Start to read the counters, after the page cache was dropped if wanted."""
    await watched(dask_worker)  # What a lost coordinator has left.
    if drop:
        await asyncio.to_thread(drop_page_cache)
    samples: list[dict[str, int]] = []
    dask_worker.iosonde_samples = samples  # type: ignore[attr-defined]
    dask_worker.iosonde_watch = asyncio.create_task(_sample(samples))  # type: ignore[attr-defined]


async def watched(dask_worker: Worker) -> list[dict[str, int]]:
    """Stop, and return what was read."""
    task: asyncio.Task[None] | None = getattr(dask_worker, "iosonde_watch", None)
    if task is None:
        return []
    task.cancel()
    dask_worker.iosonde_watch = None  # type: ignore[attr-defined]
    samples: list[dict[str, int]] = dask_worker.iosonde_samples  # type: ignore[attr-defined]
    return [*samples, read(Path("/"))]


async def _sample(samples: list[dict[str, int]]) -> None:
    """Never more than `MOST_SAMPLES`: in a long run, and if nobody stops it, they become rarer."""
    period_s = PERIOD_S
    while True:
        samples.append(read(Path("/")))
        if len(samples) >= MOST_SAMPLES:
            del samples[1::2]
            period_s *= 2
        await asyncio.sleep(period_s)


def read(root: Path) -> dict[str, int]:
    """Counters of the machine now, by name, and the time."""
    found: dict[str, int] = {"time_ns": time.time_ns()}
    for source in (_cpu, _disks, _interfaces, _nfsd_pools):
        with suppress(OSError, ValueError, IndexError, KeyError):
            found |= source(root)
    return found | nfs_server_counters(root / "proc/net/rpc/nfsd")


def _cpu(root: Path) -> dict[str, int]:
    """All but idle time and waits for I/O (proc_stat(5)); guests are part of user time."""
    fields = [int(each) for each in (root / "proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return {"cpu_ns": (sum(fields) - fields[3] - fields[4]) * _NS_PER_TICK}


def _disks(root: Path) -> dict[str, int]:
    """Drives: devices that are neither partitions nor made of others (kernel `Documentation/admin-guide/iostats`)."""
    found = dict.fromkeys(("disk_reads", "disk_writes", "disk_read_bytes", "disk_write_bytes"), 0)
    found |= dict.fromkeys(("disk_read_ms", "disk_write_ms"), 0)
    lines = [line.split() for line in (root / "proc/diskstats").read_text(encoding="ascii").splitlines()]
    # Since Linux 6.2 an I/O counts twice with native multipath: on the path and on the device above its paths.
    over_paths = {_PATH.sub(r"\1\2", fields[2]) for fields in lines if _PATH.fullmatch(fields[2])}
    for fields in lines:
        name, counts = fields[2], [int(each) for each in fields[3:14]]
        device = root / "sys/block" / name
        if name.startswith(_VIRTUAL) or name in over_paths or not device.exists() or not any(counts):
            continue
        if any((device / "slaves").glob("*")):
            continue
        found["disk_reads"] += counts[0]
        found["disk_read_bytes"] += counts[2] * SECTOR_BYTES
        found["disk_read_ms"] += counts[3]
        found["disk_writes"] += counts[4]
        found["disk_write_bytes"] += counts[6] * SECTOR_BYTES
        found["disk_write_ms"] += counts[7]
        found[f"busy_ms.{name}"] = counts[9]
    return found


def _interfaces(root: Path) -> dict[str, int]:
    """All but loopback (proc_pid_net(5))."""
    found = dict.fromkeys(("nic_rx_bytes", "nic_rx_dropped", "nic_tx_bytes", "nic_tx_dropped"), 0)
    for line in (root / "proc/net/dev").read_text(encoding="utf-8", errors="replace").splitlines()[2:]:
        name, _, counts = line.partition(":")
        if name.strip() != "lo":
            values = [int(each) for each in counts.split()]
            for counter, value in zip(found, (values[0], values[3], values[8], values[11]), strict=True):
                found[counter] += value
    return found


def _nfsd_pools(root: Path) -> dict[str, int]:
    """Connections with data, and those for which no thread was idle (kernel `net/sunrpc/svc_xprt.c`).

    Kernels count a connection as enqueued if no thread was idle, later ones always; then it is woken less often.
    """
    lines = (root / "proc/fs/nfsd/pool_stats").read_text(encoding="ascii").splitlines()
    pools = [[int(each) for each in line.split()] for line in lines if not line.startswith("#")]
    arrived, enqueued, woken = (sum(pool[field] for pool in pools) for field in (1, 2, 3))
    ready = max(enqueued, min(arrived, enqueued + woken))
    return {"nfsd_arrived": ready, "nfsd_without_thread": max(0, ready - woken)}


def describe() -> dict[str, Any]:
    """Facts of the machine for records."""
    return {"cpus": os.cpu_count() or 1, "can_drop": can_drop()}


LOAD = ("load_operations", "load_read_bytes", "load_write_bytes")


@dataclass
class Servers:
    """Hosts with the role `server`."""

    hosts: Sequence[Host]
    _samples: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    _is_dropped: bool = False

    async def check(self, plan: Plan) -> None:
        """`TargetError` if a page cache is to be dropped without a server, or without the right to do so."""
        case = next((case for case in plan.cases if _drops(case)), None)
        if case and not self.hosts:
            raise TargetError(
                '`server_page_cache = "drop"` requires a host with the role `server`; got none',
                where=f"in case `{case.case_id}`",
                hint='add the server to the file of `--hosts ssh:FILE` with `role = "server"`',
            )
        for host in self.hosts:
            host.facts = await host.call(describe)
            if case and not host.facts["can_drop"]:
                raise TargetError(
                    f"dropping the page cache of the server `{host.name}` requires root there",
                    hint='start its worker as root, or set `server_page_cache = "keep"`',
                )

    async def start(self, case: Case) -> None:
        """Start to watch: after all hosts have prepared their files, and before the load."""
        self._samples, self._is_dropped = {}, _drops(case)
        # Writing all dirty pages of a busy server takes long.
        await gather(host.call(watch, self._is_dropped, wait_s=START_S) for host in self.hosts)

    async def stop(self, at_ns: int) -> None:
        """Stop, and keep what was read; clocks are compared at an instant of the coordinator's clock."""
        await gather(host.compare_clocks(at_ns) for host in self.hosts)
        found = await gather(host.call(watched) for host in self.hosts)
        self._samples = {host.name: samples for host, samples in zip(self.hosts, found, strict=True)}

    def reading(self, begin_ns: int, end_ns: int, intervals: pl.DataFrame) -> ServerReading | None:
        """The counters within a measurement between two instants of the coordinator's clock; None without servers."""
        if not self.hosts:
            return None
        return ServerReading(
            servers=[
                ServerCounters(
                    host=host.name,
                    machine=host.machine,
                    cpus=host.facts["cpus"],
                    cache_dropped=self._is_dropped,
                    **within(self._samples.get(host.name, []), host.clock_offset_ns, begin_ns, end_ns, intervals),
                )
                for host in self.hosts
            ]
        )


def within(
    samples: Sequence[dict[str, int]], offset_ns: int, begin_ns: int, end_ns: int, intervals: pl.DataFrame
) -> dict[str, dict[str, int]]:
    """The first and the last sample of a measurement, with what the load had completed at their times."""
    found = [each for each in samples if begin_ns <= each["time_ns"] - offset_ns <= end_ns]
    if len(found) < 2:
        return {}
    ends = {"at_start": found[0], "at_end": found[-1]}
    return {name: each | _load_at(each["time_ns"] - offset_ns - begin_ns, intervals) for name, each in ends.items()}


def _load_at(after_ns: int, intervals: pl.DataFrame) -> dict[str, int]:
    """Counters of the load at a time after its measurement started, interpolated within an interval."""
    is_read, is_write = pl.col("operation") == "read", pl.col("operation") == "write"
    sums = (
        intervals.group_by("begin_ns", "end_ns")
        .agg(
            pl.col("count").filter(is_read | is_write).sum().alias(LOAD[0]),
            pl.col("bytes").filter(is_read).sum().alias(LOAD[1]),
            pl.col("bytes").filter(is_write).sum().alias(LOAD[2]),
        )
        .sort("begin_ns")
    )
    first = int(sums["begin_ns"].item(0))
    times = [0, *(int(each) - first for each in sums["end_ns"])]
    return {name: round(float(np.interp(after_ns, times, [0, *sums[name].cum_sum().to_list()]))) for name in LOAD}


def _drops(case: Case) -> bool:
    parameters: dict[str, Any] = case.parameters
    return parameters.get("server_page_cache") == "drop"
