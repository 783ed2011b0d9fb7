"""Block caches on real drives of the lab's machine: what is reported is compared with the counters of the two drives.

The driver counts hits, dirty and bypassed data; the engine counts what it read and wrote; and the kernel counts what
each drive read and wrote. Each number of the driver follows from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from lab_guest import Report

from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.results.schema import Record

MIB = 1 << 20
BLOCK = 16 << 10
IN_FLIGHT = 40 * BLOCK
"""At most: I/Os in flight when a reading is taken, at both ends of the measurement, and blocks of metadata."""
ROUNDED = 0.051
"""bcache prints bytes with one decimal, so a number of MiB has this error at most."""
SPAN = 4 * MIB
NOTHING = {
    "registered": [],
    "superblocks": [False, False],
    "mapped": [],
    "mounted": [],
    "journal": [],
    "free": [True, True],
}
STATES = (
    *("writethrough", "writeback", "writearound", "file system"),
    *("beyond the cutoff", "congested", "dm-cache", "dm-cache, warm", "dm-writecache"),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run, and what its devices and its engine counted in the measurement."""

    record: Record
    metrics: dict[str, float]
    series: dict[str, list[float]]
    moved: dict[str, int]
    """Bytes by operation that the engine counted."""

    @property
    def cache(self) -> dict[str, Any]:
        cache: dict[str, Any] = self.record.parts["block_cache"]
        return cache

    @property
    def prepared(self) -> dict[str, Any]:
        prepared: dict[str, Any] = self.cache["prepared"]
        return prepared

    def grew(self, name: str) -> int:
        """Increase of a reading over the measurement."""
        return int(self.cache["at_end"][name] - self.cache["at_start"][name])


@pytest.fixture(scope="module")
def reported(guest_report: Report) -> dict[str, Any]:
    return guest_report.step("caches")


@pytest.fixture(scope="module")
def result_set(guest_report: Report) -> ResultSet:
    return guest_report.result_set("caches")


@pytest.fixture(scope="module")
def runs(guest_report: Report, result_set: ResultSet) -> dict[str, Measured]:
    """The run of each state."""
    return {**measured(result_set), **measured(guest_report.result_set("congested"))}


def measured(result_set: ResultSet) -> dict[str, Measured]:
    values = run_metrics(result_set).filter(pl.col("operation") == "all")
    series = interval_metrics(result_set, metrics=SERIES).filter(pl.col("operation") == "all", phase="measure")
    moved = result_set.sql(
        "SELECT run_id, operation, sum(bytes)::BIGINT AS bytes FROM intervals WHERE phase = 'measure' GROUP BY ALL"
    )
    return {
        str(record.levels["state"]): Measured(
            record=record,
            metrics=dict(values.filter(run_id=record.run_id).select("metric", "value").iter_rows()),
            series={
                str(name): group.sort("interval")["value"].to_list()
                for (name,), group in series.filter(run_id=record.run_id).group_by("metric")
            },
            moved=dict(moved.filter(run_id=record.run_id).select("operation", "bytes").iter_rows()),
        )
        for record in result_set.records()
        if not record.control
    }


SERIES = ("cache_read_hit_ratio", "cache_dirty_bytes_mean", "cache_written_back_bytes", "cache_congested_share")


def test_every_state_is_measured(runs: dict[str, Measured]) -> None:
    outcomes = {name: (run.record.outcome, run.record.failure) for name, run in runs.items()}
    assert outcomes == dict.fromkeys(STATES, ("complete", None))


@pytest.mark.parametrize("state", [name for name in STATES if name != "file system"])
def test_the_cached_device_moves_what_the_engine_counts(runs: dict[str, Measured], state: str) -> None:
    run = runs[state]
    for operation, name in (("read", "read_bytes"), ("write", "write_bytes")):
        assert run.grew(name) == pytest.approx(run.moved.get(operation, 0), abs=IN_FLIGHT)


def test_writethrough_writes_both_and_serves_hits_from_the_cache_device(runs: dict[str, Measured]) -> None:
    run = runs["writethrough"]
    assert run.prepared["hit_ratio"] >= run.prepared["requested_hit_ratio"] == 0.7
    assert run.grew("backing_write_bytes") == pytest.approx(run.moved["write"], abs=IN_FLIGHT)
    assert run.grew("cache_device_write_bytes") >= run.moved["write"] - IN_FLIGHT
    hits = run.metrics["cache_read_hit_ratio"] * run.grew("read_bytes")
    assert hits == pytest.approx(run.grew("cache_device_read_bytes"), abs=IN_FLIGHT)
    assert run.metrics["cache_read_hit_ratio"] >= 0.7
    assert "cache_written_back_bytes" not in run.metrics


def test_dirty_data_falls_by_what_is_written_back(runs: dict[str, Measured]) -> None:
    run = runs["writeback"]
    assert run.prepared["dirty_bytes"] >= run.prepared["requested_dirty_bytes"]
    assert run.cache["at_start"]["dirty_bytes"] == pytest.approx(run.prepared["dirty_bytes"], abs=IN_FLIGHT)
    fallen, written = -run.grew("dirty_bytes"), run.grew("backing_write_bytes")
    assert written > 0
    assert fallen == pytest.approx(written, abs=2 * ROUNDED * MIB + IN_FLIGHT)
    assert run.metrics["cache_written_back_bytes"] == written
    dirty = run.series["cache_dirty_bytes_mean"]
    assert dirty == sorted(dirty, reverse=True) and dirty[-1] == run.cache["at_end"]["dirty_bytes"]
    assert run.metrics["cache_dirty_bytes_mean"] == pytest.approx(sum(dirty) / len(dirty))
    assert sum(run.series["cache_written_back_bytes"]) <= written


def test_writearound_writes_bypass_the_cache(runs: dict[str, Measured]) -> None:
    """In the one run that waits for the counters of the driver, they agree with those of engine and drives."""
    run = runs["writearound"]
    assert run.grew("backing_write_bytes") == pytest.approx(run.moved["write"], abs=IN_FLIGHT)
    assert run.metrics["cache_bypassed_bytes"] == pytest.approx(run.moved["write"], abs=2 * ROUNDED * MIB + IN_FLIGHT)
    before, after = run.cache["counters_before"], run.cache["counters_after"]
    counted = sum(after[name] - before[name] for name in ("cache_hits", "cache_misses"))
    assert counted * BLOCK == pytest.approx(run.moved["read"], abs=IN_FLIGHT)
    assert run.metrics["cache_counted_hit_ratio"] == pytest.approx(run.metrics["cache_read_hit_ratio"], abs=0.05)


def test_a_file_system_on_a_cache_makes_data_dirty(runs: dict[str, Measured]) -> None:
    """Writes go to the cache device; beyond them the file system writes metadata only."""
    run = runs["file system"]
    assert run.record.target["file_system"]["kind"] == "ext4"
    assert run.grew("write_bytes") >= run.moved["write"] - IN_FLIGHT
    assert run.grew("cache_device_write_bytes") >= run.moved["write"] - IN_FLIGHT
    assert run.grew("backing_write_bytes") < run.moved["write"] / 2
    dirty = run.series["cache_dirty_bytes_mean"]
    assert 0 < dirty[-1] <= SPAN + MIB


def test_sequential_reads_beyond_the_cutoff_bypass_the_cache(runs: dict[str, Measured]) -> None:
    """1 MiB is read again and again: what is beyond the cutoff of 64 KiB comes from the backing device.

    Cached completely, it would have hits only after the first MiB. A pause of 5 s starts a new sequence, whose first
    64 KiB are cached (`check_should_bypass` in drivers/md/bcache/request.c), so on a busy machine more is cached.
    """
    run = runs["beyond the cutoff"]
    assert run.moved["read"] > 2 * MIB
    hits = run.metrics["cache_read_hit_ratio"] * run.grew("read_bytes")
    assert hits == pytest.approx(run.grew("cache_device_read_bytes"), abs=IN_FLIGHT)
    assert run.metrics["cache_read_hit_ratio"] < 0.6
    assert run.grew("backing_read_bytes") > 0.35 * run.moved["read"]
    assert run.grew("cache_device_write_bytes") < run.grew("backing_read_bytes") / 2


def test_a_congested_cache_device_is_bypassed(runs: dict[str, Measured]) -> None:
    """The cache device is the slower one there: not all of what is read from the backing device is written to it."""
    run = runs["congested"]
    share = run.series["cache_congested_share"]
    assert 0 < run.metrics["cache_congested_share"] == pytest.approx(sum(share) / len(share))
    assert run.grew("backing_read_bytes") - run.grew("cache_device_write_bytes") > IN_FLIGHT
    others = [each.metrics for each in runs.values() if "cache_congested_share" in each.metrics and each is not run]
    assert {each["cache_congested_share"] for each in others} == {0}, "no latency counts as congestion there"


def test_dm_cache_keeps_written_blocks_and_serves_reads_from_them(runs: dict[str, Measured]) -> None:
    """Writes of whole blocks of 64 KiB go to the cache device, are dirty, and are written back whenever it is idle."""
    run = runs["dm-cache"]
    block = 64 << 10
    assert SPAN / 2 < run.grew("promotions") * block <= SPAN
    assert run.grew("used_bytes") == run.grew("promotions") * block
    written = run.grew("dirty_bytes") + run.grew("backing_write_bytes")
    assert SPAN / 2 < written <= run.moved["write"] + IN_FLIGHT
    assert run.grew("cache_device_write_bytes") >= run.moved["write"] - IN_FLIGHT
    missed = run.grew("cache_misses") * block
    counted = sum(run.grew(name) for name in ("cache_hits", "cache_misses")) * block
    assert counted == pytest.approx(run.moved["read"], abs=2 * IN_FLIGHT)
    assert run.metrics["cache_read_hit_ratio"] == pytest.approx(1 - missed / counted)
    assert run.grew("backing_read_bytes") >= missed - IN_FLIGHT
    assert run.grew("cache_device_read_bytes") >= counted - missed - IN_FLIGHT


def test_dm_cache_in_writethrough_mode_serves_hits_and_has_no_dirty_data(runs: dict[str, Measured]) -> None:
    """The cache is warm before the run: reads have promoted blocks, and each write goes to the backing device."""
    run = runs["dm-cache, warm"]
    assert run.prepared["hit_ratio"] >= run.prepared["requested_hit_ratio"] == 0.5
    assert run.cache["at_start"]["used_bytes"] > 0
    assert (run.cache["at_start"]["dirty_bytes"], run.cache["at_end"]["dirty_bytes"]) == (0, 0)
    assert run.grew("backing_write_bytes") == pytest.approx(run.moved["write"], abs=IN_FLIGHT)
    missed, hits = (run.grew(name) * BLOCK for name in ("cache_misses", "cache_hits"))
    assert missed + hits == pytest.approx(run.moved["read"], abs=IN_FLIGHT)
    assert run.metrics["cache_read_hit_ratio"] == pytest.approx(hits / (missed + hits))
    assert run.metrics["cache_read_hit_ratio"] >= 0.5
    assert run.grew("cache_device_read_bytes") >= hits - IN_FLIGHT
    assert run.grew("backing_read_bytes") >= missed - IN_FLIGHT
    assert "cache_written_back_bytes" not in run.metrics


def test_dm_writecache_serves_reads_of_dirty_blocks(runs: dict[str, Measured]) -> None:
    """It counts blocks of 4 KiB."""
    run = runs["dm-writecache"]
    assert run.prepared["requested_dirty_bytes"] <= run.prepared["dirty_bytes"] <= SPAN
    assert run.cache["at_end"]["dirty_bytes"] == run.cache["at_start"]["dirty_bytes"]
    assert run.grew("cache_hits") * 4096 == pytest.approx(run.grew("cache_device_read_bytes"), abs=IN_FLIGHT)
    assert run.grew("cache_misses") * 4096 == pytest.approx(run.grew("backing_read_bytes"), abs=IN_FLIGHT)
    hits = run.metrics["cache_read_hit_ratio"] * run.moved["read"]
    assert hits == pytest.approx(run.moved["read"] - run.grew("backing_read_bytes"), abs=IN_FLIGHT)


def test_a_report_has_the_caches_in_a_table_and_over_time(result_set: ResultSet) -> None:
    [chapter] = collect([result_set]).chapters
    titles = [table.title for table in chapter.detail_tables]
    assert "Block caches" in titles
    assert sum(title.startswith("Block cache over time") for title in titles) >= 4


def test_doctor_reports_which_block_caches_the_kernel_has(reported: dict[str, Any]) -> None:
    """Each of them was then used."""
    for kind, state in (("bcache", "loaded"), ("dm-cache", "module"), ("dm-writecache", "module")):
        assert reported["doctor"][kind].startswith(f"{state}, for setups")
    assert reported["support"] == dict.fromkeys(("bcache", "dm-cache", "dm-writecache"), "loaded")


def test_after_a_kill_in_a_run_cleanup_unregisters_both_devices(reported: dict[str, Any]) -> None:
    killed = reported["killed"]
    assert killed["was_measuring"]
    assert any(name.startswith("bcache") for name in killed["at_kill"]["registered"])
    assert len(killed["at_kill"]["mounted"]) == 1
    assert killed["at_kill"]["superblocks"] == [True, True]
    assert killed["at_kill"]["free"] == [False, False]
    assert {"block cache", "mount"} <= set(killed["at_kill"]["journal"])
    assert "the block cache was removed" in killed["cleaned"]
    assert killed["left"] == NOTHING


def test_nothing_is_left_and_no_other_drive_was_written(reported: dict[str, Any]) -> None:
    assert reported["left"] == NOTHING
    assert reported["written_to_others"] == 0


def test_what_was_below_a_cache_is_wiped_whatever_its_names_lead_to_by_now(reported: dict[str, Any]) -> None:
    """`written_to_others` has the drives that have the names."""
    assert reported["renamed"] == {"had": [True, True], "has": [False, False], "left": NOTHING}
    assert reported["written_to_others"] == 0
