"""Hosts with the role `server`: their counters, and the time in which all hosts measured."""

from __future__ import annotations

import asyncio
from pathlib import Path

import polars as pl
import pytest
from many_hosts_plans import planned

from iosonde.errors import TargetError
from iosonde.features.many_hosts import server_host
from iosonde.features.many_hosts.servers import Servers, within

pytestmark = pytest.mark.unit

FILES = {
    "proc/stat": "cpu  100 0 50 1000 30 0 5 0 0 0\ncpu0 100 0 50 1000 30 0 5 0 0 0\n",
    "proc/diskstats": (
        " 259 0 nvme0n1 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 259 1 nvme0n1p1 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 253 0 dm-0 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        "   7 0 loop0 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 259 2 nvme1n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 259 3 nvme2c0n1 1 0 8 1 2 0 16 1 0 1 2 0 0 0 0 0 0\n"
        " 259 4 nvme2c1n1 1 0 8 1 2 0 16 1 0 1 2 0 0 0 0 0 0\n"
        " 259 5 nvme2n1 2 0 16 2 4 0 32 2 0 1 4 0 0 0 0 0 0\n"
    ),
    "proc/net/dev": (
        "Inter-| Receive | Transmit\n face |bytes\n"
        "    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"
        "  eth0: 700 7 0 1 0 0 0 0 800 8 0 2 0 0 0 0\n"
        "  eth1: 70 7 0 0 0 0 0 0 80 8 0 0 0 0 0 0\n"
    ),
    "proc/net/rpc/nfsd": "rc 0 0 9\nio 4096 8192\nth 8 0\nrpc 12 0 0 0 0\n",
    "proc/fs/nfsd/pool_stats": (
        "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n0 12 3 9 0\n1 4 0 4 0\n"
    ),
    "sys/block/nvme0n1/dev": "259:0\n",
    "sys/block/nvme1n1/dev": "259:2\n",
    "sys/block/nvme2c0n1/dev": "259:3\n",
    "sys/block/nvme2c1n1/dev": "259:4\n",
    "sys/block/nvme2n1/dev": "259:5\n",
    "sys/block/dm-0/slaves/nvme0n1/dev": "259:0\n",
    "sys/block/loop0/dev": "7:0\n",
}


@pytest.mark.parametrize(
    ("line", "waited"),
    [("16 3 13 0", 3), ("16 16 13 0", 3), ("14 17 13 0", 4), ("16 16 16 0", 0)],
    ids=["counted without idle thread", "always counted", "calls in several pieces", "always idle"],
)
def test_connections_that_found_no_idle_thread(tmp_path: Path, line: str, waited: int) -> None:
    file = tmp_path / "proc/fs/nfsd/pool_stats"
    file.parent.mkdir(parents=True)
    file.write_text(f"# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n0 {line}\n")
    assert server_host.read(tmp_path)["nfsd_without_thread"] == waited


def test_each_drive_and_interface_of_a_server_counts_once(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = server_host.read(tmp_path)
    assert found.pop("time_ns") > 0
    assert found.pop("cpu_ns") == 155 * 10**9 // 100
    assert found == {
        **{"disk_reads": 12, "disk_read_bytes": 96 * 512, "disk_read_ms": 6},
        **{"disk_writes": 24, "disk_write_bytes": 192 * 512, "disk_write_ms": 8, "busy_ms.nvme0n1": 9},
        **{"busy_ms.nvme2c0n1": 1, "busy_ms.nvme2c1n1": 1},
        **{"nic_rx_bytes": 770, "nic_rx_dropped": 1, "nic_tx_bytes": 880, "nic_tx_dropped": 2},
        **{"nfsd_read_bytes": 4096, "nfsd_write_bytes": 8192, "nfsd_calls": 12, "nfsd_threads": 8},
        **{"nfsd_arrived": 16, "nfsd_without_thread": 3},
    }


INTERVALS = pl.DataFrame(
    {
        "begin_ns": [500, 600, 600],
        "end_ns": [600, 700, 700],
        "operation": ["read", "read", "write"],
        "count": [10, 20, 4],
        "bytes": [100, 200, 40],
    }
)


def test_counters_are_cut_to_the_time_in_which_all_hosts_measured() -> None:
    """The clock of the server is 1000 ns ahead of the coordinator's, on which the measurement is from 2000 to 2200."""
    samples = [{"time_ns": at, "cpu_ns": at} for at in (2990, 3050, 3100, 3150, 3201)]
    found = within(samples, 1000, 2000, 2200, INTERVALS)
    load = {"load_operations": 5, "load_read_bytes": 50, "load_write_bytes": 0}
    assert found["at_start"] == {"time_ns": 3050, "cpu_ns": 3050, **load}
    load = {"load_operations": 22, "load_read_bytes": 200, "load_write_bytes": 20}
    assert found["at_end"] == {"time_ns": 3150, "cpu_ns": 3150, **load}
    assert within([{"time_ns": 3050}], 1000, 2000, 2200, INTERVALS) == {}, "a single sample gives no increase"


def test_dropping_the_page_cache_of_a_server_requires_a_server(tmp_path: Path) -> None:
    asyncio.run(Servers([]).check(planned(tmp_path)))
    with pytest.raises(TargetError, match="requires a host with the role `server`"):
        asyncio.run(Servers([]).check(planned(tmp_path, server_page_cache="drop")))
