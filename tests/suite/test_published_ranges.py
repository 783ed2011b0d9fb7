"""The published ranges of shipped suites are those of the tables of the publications."""

from __future__ import annotations

import re
from itertools import product

import polars as pl
import pytest

from iosonde.collections.suite.planning import Value, load
from iosonde.data import reference_file, shipped_suites

pytestmark = pytest.mark.unit


def table(name: str) -> pl.DataFrame:
    return pl.read_csv(reference_file(f"{name}.csv"))


def values(suite: str) -> dict[str, Value]:
    """Values of a suite with what is published, by application and title."""
    return {
        f"{entry.name}: {value.title}": value
        for entry in load(suite).entries
        for value in entry.values
        if value.published
    }


def range_of(ratios: list[float]) -> tuple[float, float]:
    return min(ratios), max(ratios)


def rates(load: str) -> list[float]:
    """Published rates of db_bench at the RAID levels that are consistent with their latencies."""
    rows = table("han2021_fig6to7_dbbench").filter((pl.col("workload") == load) & (pl.col("is_consistent") == "yes"))
    return list(rows["million_ops_s"])


def optane_over_flash(operation: str) -> list[float]:
    """Of NVMe flash and Optane with direct I/O, sequential and random."""
    rows = table("han2021_table1_single_device").filter((pl.col("op") == operation) & (pl.col("io_path") == "direct"))
    found = {(row["device"].split(" (")[0], row["pattern"]): row["bandwidth_mb_s"] for row in rows.to_dicts()}
    patterns = ("sequential", "random")
    return [found["Optane SSD", pattern] / found["flash NVMe SSD", pattern] for pattern in patterns]


def test_ranges_of_han2021_are_those_of_its_figures() -> None:
    published = {name: value.published_range for name, value in values("han2021").items()}
    tpmc = table("han2021_fig8_tpcc")["tpmC"]
    alike = range_of([one / other for one, other in product(rates("readrandom"), repeat=2)])
    expected = {
        "device: direct reads, 64 jobs": range_of(optane_over_flash("read")),
        "device: direct writes, 64 jobs": range_of(optane_over_flash("write")),
        "rocksdb: filling in random order": (1, max(rates("fillrandom")) / min(rates("fillrandom"))),
        "rocksdb: filling in key order": (1, max(rates("fillseq")) / min(rates("fillseq"))),
        "rocksdb: random reads": alike,
        "rocksdb: sequential reads": (1, max(rates("readseq")) / min(rates("readseq"))),
        "tpcc: TPC-C": (1, max(tpmc) / min(tpmc)),
    }
    assert published == {name: pytest.approx(ends, abs=0.006) for name, ends in expected.items()}


def test_ranges_of_symas2018_are_those_of_its_table() -> None:
    walls = table("symas2018_load").pivot("storage", index=["engine", "filesystem", "journal"], values="wall_s")
    found = {
        engine: range_of([row["Flash"] / row["Optane"] for row in walls.to_dicts() if row["engine"] == engine])
        for engine in ("LMDB", "RocksDB")
    }
    published = {name: value.published_range for name, value in values("symas2018").items()}
    assert published == {
        "stores: LMDB: loading in key order": pytest.approx(found["LMDB"], abs=0.006),
        "stores: RocksDB: loading in key order": pytest.approx(found["RocksDB"], abs=0.006),
        "stores: LMDB: writes while reading, 4 readers": (1, 3.5),  # In the text of the publication, not in the table.
    }


JO2024 = {
    "write-stress: mean read latency": "WPT",
    "act: highest passing load": "Aerospike ACT",
    "postgresql: TPC-C, 16 terminals": "TPC-C on PostgreSQL, data device",
    "postgresql-log: TPC-C, 16 terminals": "PostgreSQL log device",
    "rocksdb-writer: reading while writing, 4 threads": "RocksDB read-while-writing, data device",
    "rocksdb-log: overwrites, not synced, 4 threads": "RocksDB log device",
    "ceph: 4 KiB objects, queue depth 16": "Ceph rados bench",
    "cache: memcached with extstore: gets, 4 jobs": "Fatcache get throughput",
    "cache: RocksDB's read cache: mean read latency, 4 jobs": "RocksDB persistent read cache",
    "cache: bcache: random reads": "Bcache random read",
    "pagerank: edges per second, 2 jobs": "FlashX PageRank",
    "swap: latency of major faults, 1 job": "PMbench swap",
    "swap: memcached: mean latency of gets, 4 jobs": "memcached under swap",
}
"""Workload of the publication of each value."""


def test_ranges_of_jo2024_are_those_of_its_applications() -> None:
    published = {name: value.published_range for name, value in values("jo2024").items()}
    expected = {}
    rows = dict(table("jo2024_applications").select("workload", "result").iter_rows())
    for name, workload in JO2024.items():
        numbers = sorted(float(each) for each in re.findall(r"([0-9.]+)x", rows.pop(workload)))
        is_up_to = workload in ("TPC-C on PostgreSQL, data device", "RocksDB read-while-writing, data device")
        if is_up_to or workload == "memcached under swap" or not numbers:
            numbers = [1, *numbers]
        expected[name] = (numbers[0], numbers[-1])
    assert published == expected
    assert len(rows) == 1, "all but the user-level driver, which is compared on one device by `jo2024-driver`"


@pytest.mark.parametrize("suite", shipped_suites())
def test_text_and_range_of_a_published_value_agree(suite: str) -> None:
    for name, value in values(suite).items():
        assert value.published_range, name
        words = value.published.split(" (")[0]
        numbers = [float(each) for each in re.findall(r"[0-9]+(?:\.[0-9]+)?", words)]
        low, high = value.published_range
        ends = [1, *numbers] if "up to" in words else numbers or [1]
        assert (ends[0], ends[-1]) == (low, high), name
