"""Block caches for real, inside User Mode Linux: reported values agree with the counters of both disks.

The driver counts hits, dirty and bypassed data; the engine counts what it read and wrote; and the kernel counts what
each disk read and wrote. Each number of the driver follows from the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from guest_sessions import is_free, run, study, wait_for
from simulated_disks import consent_for, disks, kill_during_measurement, mounted, wipe

from iosonde.engine.protocol import Event
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.features.block_caches import bcache, device_mapper
from iosonde.features.block_caches.setup import MODULES, BlockCacheSetup, announce
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.tools import state_of

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

MIB, BLOCK = 1 << 20, 16 << 10
SPAN = 4 * MIB
IN_FLIGHT = 40 * BLOCK
"""At most: I/Os in flight when a reading is taken, at both ends of the measurement, and blocks of metadata."""
ROUNDED = 0.051
"""bcache prints bytes with one decimal, so a number of MiB has this error at most."""
NAME = "iosonde-89abcdef"
NOTHING = {
    "registered": [],
    "superblocks": [False, False],
    "mapped": [],
    "mounted": [],
    "journal": [],
    "free": [True, True],
}
LOAD = {"span": "4MiB", "block_size": "16KiB", "access": "random", "read_fraction": 1.0, "queue_depth": 4, "ramp": 0}
ENDS = {"duration": "9s", "interval": "250ms", "limit_operations": 400}
"""The number of I/Os and not the time ends a run. Counters of bcache are read, up to 13.6 s later, from runs of 10 s and more."""
ALL_CACHED = {"cache": "bcache", "cache_sequential_cutoff": 0}
DIRTY = {"cache_mode": "writeback", "cache_state": "dirty"}
STATES: dict[str, dict[str, Any]] = {
    "writethrough": {**ALL_CACHED, "cache_state": "warm", "cache_hit_ratio": 0.7, "read_fraction": 0.5},
    "writeback": {**ALL_CACHED, **DIRTY, "cache_dirty_fraction": 0.01, "arrival": "constant", "rate": 100},
    "writearound": {**ALL_CACHED, "cache_mode": "writearound", "read_fraction": 0.5, "duration": "10min"},
    "beyond the cutoff": {"cache": "bcache", "cache_sequential_cutoff": 64 << 10, "access": "sequential"},
    "dm-cache": {"cache": "dm-cache", "cache_mode": "writeback", "read_fraction": 0.5, "block_size": "64KiB"},
    "dm-writecache": {"cache": "dm-writecache", "cache_state": "dirty", "cache_dirty_fraction": 0.01},
}


def two() -> tuple[Path, Path]:
    """Backing device and cache device."""
    backing, cache = disks()[:2]
    return backing, cache


def planned(states: dict[str, dict[str, Any]]) -> Plan:
    levels = [{"label": name, "set": values} for name, values in states.items()]
    return expand(study({**LOAD, **ENDS}, {"state": levels}), open_target(",".join(map(str, two()))))


def left() -> dict[str, Any]:
    """Parts of any cache that exist."""
    folders = [Path("/sys/class/block", device.name, "bcache") for device in two()]
    return {
        "registered": [folder.parent.name for folder in folders if folder.exists()],
        "superblocks": [bcache.read_superblock(device) is not None for device in two()],
        "mapped": [path.name for path in Path("/dev/mapper").glob("iosonde-*")],
        "mounted": [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "iosonde-" in line],
        "journal": [entry.what for entry in journal.entries()],
        "free": [is_free(device) for device in two()],
    }


def written_to_others() -> int:
    """Sectors that the kernel has written to the other disks."""
    return sum(int(Path("/sys/block", disk.name, "stat").read_text().split()[6]) for disk in disks()[2:])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Nor is another disk written."""
    before = written_to_others()
    yield
    assert left() == NOTHING
    assert written_to_others() == before


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run, and what its devices and its engine counted in the measurement."""

    record: Record
    metrics: dict[str, float]
    dirty_bytes: list[float]
    moved: dict[str, int]
    """Bytes by operation that the engine counted."""

    @property
    def cache(self) -> dict[str, Any]:
        cache: dict[str, Any] = self.record.parts["block_cache"]
        return cache

    def grew(self, name: str) -> int:
        """Increase of a reading over the measurement."""
        return int(self.cache["at_end"][name] - self.cache["at_start"][name])


class WritesBackAtOnce(Observer):
    """Lets bcache write dirty data back as soon as the first interval is over, and waits for the first of it."""

    def event(self, _: object, event: Event) -> None:
        folder = list(Path("/sys/block").glob("bcache*/bcache"))
        if event["event"] == "interval" and event["index"] == 0 and folder:
            at_first = (folder[0] / "dirty_data").read_text()
            for name, value in {"writeback_percent": "0", "writeback_delay": "0", "writeback_running": "1"}.items():
                (folder[0] / name).write_text(value)
            wait_for(lambda: at_first.startswith("0") or (folder[0] / "dirty_data").read_text() != at_first)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measured]:
    """The run of each state."""
    wipe(*two())
    place = tmp_path_factory.mktemp("caches") / "set"
    results = execute(planned(STATES), place, observer=WritesBackAtOnce(), consent=consent_for(*two()))
    values = run_metrics(results).filter(pl.col("operation") == "all")
    every = interval_metrics(results, metrics=["cache_dirty_bytes_mean"])
    dirty = every.filter(pl.col("operation") == "all", phase="measure")
    moved = results.sql(
        "SELECT run_id, operation, sum(bytes)::BIGINT AS bytes FROM intervals WHERE phase = 'measure' GROUP BY ALL"
    )
    return {
        str(record.levels["state"]): Measured(
            record=record,
            metrics=dict(values.filter(run_id=record.run_id).select("metric", "value").iter_rows()),
            dirty_bytes=dirty.filter(run_id=record.run_id).sort("interval")["value"].to_list(),
            moved=dict(moved.filter(run_id=record.run_id).select("operation", "bytes").iter_rows()),
        )
        for record in results.records()
        if not record.control
    }


def test_every_state_is_measured_and_the_cached_device_moves_what_the_engine_counts(runs: dict[str, Measured]) -> None:
    outcomes = {name: (each.record.outcome, each.record.failure) for name, each in runs.items()}
    assert outcomes == dict.fromkeys(STATES, ("complete", None))
    assert [state_of(*modules) for modules in MODULES.values()] == ["loaded"] * 3
    for state in STATES:
        for operation, name in (("read", "read_bytes"), ("write", "write_bytes")):
            counted = runs[state].moved.get(operation, 0)
            assert runs[state].grew(name) == pytest.approx(counted, abs=IN_FLIGHT), (state, operation)


def test_writethrough_writes_both_and_serves_hits_from_the_cache_device(runs: dict[str, Measured]) -> None:
    """Writes bypass a cache device that is slow on a busy machine, and then count as misses."""
    each = runs["writethrough"]
    assert each.cache["prepared"]["requested_hit_ratio"] == 0.7
    assert each.grew("backing_write_bytes") == pytest.approx(each.moved["write"], abs=IN_FLIGHT)
    assert each.grew("cache_device_write_bytes") > 0
    hits = each.metrics["cache_read_hit_ratio"] * each.grew("read_bytes")
    assert hits == pytest.approx(each.grew("cache_device_read_bytes"), abs=IN_FLIGHT)
    assert "cache_written_back_bytes" not in each.metrics


def test_dirty_data_falls_by_what_is_written_back(runs: dict[str, Measured]) -> None:
    each = runs["writeback"]
    prepared = each.cache["prepared"]
    assert prepared["dirty_bytes"] >= prepared["requested_dirty_bytes"]
    fallen, written = -each.grew("dirty_bytes"), each.grew("backing_write_bytes")
    assert written > 0
    assert fallen == pytest.approx(written, abs=2 * ROUNDED * MIB + IN_FLIGHT)
    assert each.metrics["cache_written_back_bytes"] == written
    dirty = each.dirty_bytes
    assert dirty[-1] == each.cache["at_end"]["dirty_bytes"]
    assert each.metrics["cache_dirty_bytes_mean"] == pytest.approx(sum(dirty) / len(dirty))


def test_writearound_writes_bypass_the_cache(runs: dict[str, Measured]) -> None:
    """In the one run that waits for the counters of the driver, they agree with those of engine and disks."""
    each = runs["writearound"]
    assert each.grew("backing_write_bytes") == pytest.approx(each.moved["write"], abs=IN_FLIGHT)
    assert each.metrics["cache_bypassed_bytes"] >= each.moved["write"] - 2 * ROUNDED * MIB - IN_FLIGHT
    before, after = each.cache["counters_before"], each.cache["counters_after"]
    counted = sum(after[name] - before[name] for name in ("cache_hits", "cache_misses"))
    assert counted * BLOCK <= each.moved["read"] + IN_FLIGHT


def test_sequential_reads_beyond_the_cutoff_bypass_the_cache(runs: dict[str, Measured]) -> None:
    """All but the first 64 KiB of a sequence, which starts again after each pause of 5 s."""
    each = runs["beyond the cutoff"]
    assert each.grew("backing_read_bytes") > IN_FLIGHT
    assert each.grew("cache_device_write_bytes") < each.grew("backing_read_bytes")


def test_dm_cache_keeps_written_blocks_and_serves_reads_from_them(runs: dict[str, Measured]) -> None:
    """Blocks of 64 KiB that are written whole go to the cache device, are dirty, and are written back when it is idle."""
    each, block = runs["dm-cache"], 64 << 10
    assert 0 < each.grew("promotions") * block <= SPAN
    assert each.grew("used_bytes") == each.grew("promotions") * block
    assert each.grew("dirty_bytes") + each.grew("backing_write_bytes") <= each.moved["write"] + IN_FLIGHT
    missed = each.grew("cache_misses") * block
    counted = sum(each.grew(name) for name in ("cache_hits", "cache_misses")) * block
    assert counted == pytest.approx(each.moved["read"], abs=2 * IN_FLIGHT)
    assert each.metrics["cache_read_hit_ratio"] == pytest.approx(1 - missed / counted)
    assert each.grew("backing_read_bytes") >= missed - IN_FLIGHT
    assert each.grew("cache_device_read_bytes") >= counted - missed - IN_FLIGHT


def test_dm_writecache_serves_reads_of_dirty_blocks(runs: dict[str, Measured]) -> None:
    """It counts blocks of 4 KiB."""
    each = runs["dm-writecache"]
    assert each.cache["prepared"]["requested_dirty_bytes"] <= each.cache["prepared"]["dirty_bytes"] <= SPAN
    assert each.cache["at_end"]["dirty_bytes"] == each.cache["at_start"]["dirty_bytes"]
    assert each.grew("cache_hits") * 4096 == pytest.approx(each.grew("cache_device_read_bytes"), abs=IN_FLIGHT)
    assert each.grew("cache_misses") * 4096 == pytest.approx(each.grew("backing_read_bytes"), abs=IN_FLIGHT)


def test_after_a_kill_in_a_run_cleanup_unregisters_both_devices(tmp_path: Path) -> None:
    wipe(*two())
    kept = {"cache": "bcache", "cache_mode": "writeback", "cache_state": "kept", "file_system": "ext4"}
    plan = planned({"long": {**kept, "duration": "10min", "limit_operations": 100_000_000}})
    kill_during_measurement(plan, tmp_path / "set", *two())
    at_kill = left()
    assert at_kill["registered"] == [device.name for device in two()]
    assert len(at_kill["mounted"]) == 1
    assert (at_kill["superblocks"], at_kill["free"]) == ([True, True], [False, False])
    assert {"block cache", "mount"} <= set(at_kill["journal"])
    assert "the block cache was removed" in [each.reason for each in cleanup()]


def test_disks_below_a_cache_are_wiped_whatever_their_names_lead_to_by_now() -> None:
    """Journaled names that now lead to other disks, which are not written."""
    built = device_mapper.build(*two(), BlockCacheSetup(kind="dm-writecache", mode="writeback"), NAME)
    with Path("/dev/mapper", f"{NAME}-cached").open("r+b", buffering=0) as cached:
        cached.write(b"\xa5" * 4096)
    run("dmsetup", "message", f"{NAME}-cached", "0", "flush")
    journal.removed(built.key)
    announce(built.key, "dm-writecache", NAME, *disks()[2:4])
    assert [has_content(device) for device in two()] == [True, True]
    journal.undo(built.key)
    assert [has_content(device) for device in two()] == [False, False]


def has_content(device: Path) -> bool:
    with device.open("rb") as opened:
        return any(opened.read(4096))


BCACHE = BlockCacheSetup(kind="bcache", mode="writeback")


@pytest.mark.parametrize("done", ["make-bcache", "cache registered", "backing registered"])
def test_cleanup_after_a_kill_between_the_steps_of_bcache(done: str) -> None:
    """SIGKILL leaves what the steps before it have done; cleanup finds all of it."""
    wipe(*two())
    backing, cache = two()
    key = MOUNTS / NAME / "cache"
    announce(key, "bcache", NAME, backing, cache, uuids=[])
    run(*bcache.create_command(backing, cache, bcache.identity_of(NAME)))
    registered = {"make-bcache": [], "cache registered": [cache], "backing registered": [cache, backing]}[done]
    for device in registered:
        Path("/sys/fs/bcache/register_quiet").write_text(str(device))
    assert sorted(left()["registered"]) == sorted(device.name for device in registered)
    journal.undo(key)


def test_bcache_in_use_stays_in_the_journal() -> None:
    built = bcache.build(*two(), BCACHE, NAME)
    with mounted(built.device), pytest.raises(OSError, match="still in use"):
        journal.undo(built.key)
    [entry] = journal.entries()
    journal.undo(Path(entry.path))


def test_a_detached_backing_device_is_still_ours() -> None:
    """Detaching clears the UUID of the cache set on the backing device; emptying attaches it again."""
    built = bcache.build(*two(), BCACHE, NAME)
    built.empty()
    folder = Path("/sys/class/block", built.device.name, "bcache")
    assert "[writeback]" in (folder / "cache_mode").read_text()
    (folder / "detach").write_text("1")
    wait_for(lambda: (folder / "state").read_text().strip() == "no cache")
    journal.undo(built.key)


def test_devices_of_another_cache_are_left_alone() -> None:
    """After a kill the devices may belong to somebody else's cache by now."""
    wipe(*two())
    key = MOUNTS / NAME / "cache"
    announce(key, "bcache", NAME, *two(), uuids=[])
    run(*bcache.create_command(*two(), str(uuid.uuid4())))
    journal.undo(key)
    assert left()["superblocks"] == [True, True]
    wipe(*two())
