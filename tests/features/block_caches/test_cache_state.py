"""The state of a block cache before a run, with a fake cache and a fake engine; and what the instrument records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.features.block_caches import facts as facts_of_cache
from iosonde.features.block_caches import run
from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.features.block_caches.run import prepare
from iosonde.features.block_caches.setup import BlockCache, BlockCacheSetup
from iosonde.plan import Setup
from iosonde.results.run_facts import values

MIB = 1 << 20
CACHE = BlockCache(
    kind="bcache",
    device=Path("/dev/bcache0"),
    backing=Path("/dev/slow"),
    cache=Path("/dev/fast"),
    key=Path("/run/iosonde/iosonde-12345678/cache"),
    identity="x",
    facts={"cache_bytes": 100 * MIB, "mode": "writeback"},
)
SPEC: dict[str, Any] = {
    "run_id": "c0001-r1",
    "seed": 7,
    "workload": {
        "kind": "block",
        "layout": "missing",
        "ramp": {"duration_ns": 5, "bytes": None},
        "duration_ns": 30,
        "interval_ns": 100_000_000,
        "target": {"kind": "device", "path": "/run/x", "size_bytes": 64 * MIB},
        "streams": [{"name": "main", "limit_bytes": 9, "limit_operations": 9, "mix": {"read_fraction": 0.7}}],
    },
}


class Fake:
    """A cache whose hit ratio and dirty data follow from the steps, and an engine that counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **setup: Any) -> None:
        self.done: list[str] = []
        self.specs: list[dict[str, Any]] = []
        self.hit_ratios = iter([0.0, 0.4, 0.8, 0.95, 1.0])
        self.dirty = 0
        self.counts = {"read_bytes": 0, "backing_read_bytes": 0}
        self.failure: Any = None
        monkeypatch.setattr(run, "sample", lambda built: dict(self.counts, dirty_bytes=self.dirty))
        layer = BlockCacheSetup(kind="bcache", mode="writeback", **setup)
        self.case = SimpleNamespace(setup=Setup(parts={layer.part: layer.model_dump()}))
        self.run = SimpleNamespace(spec=SPEC, model_copy=lambda update: SimpleNamespace(**update))
        self.session = SimpleNamespace(
            ended=lambda run, complete: self.done.append("layout recorded"),
            stop=SimpleNamespace(is_set=lambda: False),
        )
        monkeypatch.setattr("iosonde.execution.context.drive", self.drive)

    def empty(self) -> None:
        self.done.append("emptied")

    def hold_dirty(self, *, held: bool) -> None:
        self.done.append("held" if held else "released")

    def drive(self, spec: dict[str, Any], **options: Any) -> Any:
        self.specs.append(spec)
        self.done.append("layout" if spec["workload"]["layout"] != "never" else "step")
        reads = 10 * MIB
        self.counts["read_bytes"] += reads
        self.counts["backing_read_bytes"] += round(reads * (1 - next(self.hit_ratios, 1.0)))
        self.dirty = min(self.dirty + 6 * MIB, 30 * MIB)
        return SimpleNamespace(failure=self.failure)

    def prepare(self) -> RunContext:
        cache = SimpleNamespace(**vars(CACHE), empty=self.empty, hold_dirty=self.hold_dirty)
        building: Any = SimpleNamespace(layer=lambda kind: cache)
        given: Any = {"session": self.session, "run": self.run, "case": self.case, "number": 1, "target": None}
        return prepare(RunContext(building=building, **given))


def test_a_cold_cache_is_emptied_after_the_layout_and_a_warm_one_then_loaded_until_its_hit_ratio_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Laying out writes through the cache, so emptying it before would not leave it cold."""
    cold = Fake(monkeypatch, state="cold")
    context = cold.prepare()
    assert cold.done == ["layout", "layout recorded", "emptied"]
    assert context.workload["layout"] == "never"
    assert context.setup_facts["cache_prepared"] == {"state": "cold"}
    warm = Fake(monkeypatch, state="warm", hit_ratio=0.9)
    context = warm.prepare()
    assert warm.done == [*cold.done, "step", "step", "step"]
    reached = {"state": "warm", "requested_hit_ratio": 0.9, "hit_ratio": 0.95, "steps": 3}
    assert context.setup_facts["cache_prepared"] == reached
    seeds = [spec["seed"] for spec in warm.specs]
    assert len(set(seeds)) == len(seeds) and 7 not in seeds[1:]


def test_a_cache_that_gets_no_warmer_is_measured_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, state="warm", hit_ratio=0.9)
    fake.hit_ratios = iter([0.0, *[0.3] * 20])
    prepared = fake.prepare().setup_facts["cache_prepared"]
    assert (prepared["hit_ratio"], prepared["steps"]) == (0.3, 1 + run.PATIENCE)
    [warning] = run.warnings(Prepared.model_validate(prepared))
    assert warning.code == "cache_not_warm" and "0.30 before the run, not 0.90" in warning.message


def test_a_dirty_cache_writes_back_only_after_its_preparation_or_when_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake(monkeypatch, state="dirty", dirty_fraction=0.2)
    prepared = fake.prepare().setup_facts["cache_prepared"]
    assert fake.done[2:] == ["emptied", "held", "step", "step", "step"], "released when the engine starts"
    assert prepared["dirty_bytes"] >= 20 * MIB
    assert fake.specs[-1]["workload"]["streams"][0]["mix"]["read_fraction"] == 0.0
    assert list(run.warnings(Prepared.model_validate(prepared))) == []
    failing = Fake(monkeypatch, state="dirty", dirty_fraction=0.2)
    failing.run.spec = {**SPEC, "workload": {**SPEC["workload"], "layout": "never"}}
    failing.failure = SimpleNamespace(message="I/O error", context="", hint="")
    with pytest.raises(TargetError, match="could not be prepared: I/O error"):
        failing.prepare()
    assert failing.done == ["emptied", "held", "step", "released"]


def context(cache: BlockCache | None = CACHE, *, seconds: int = 30, prepared: Any = None) -> Any:
    return SimpleNamespace(
        building=SimpleNamespace(layer=lambda kind: cache),
        setup_facts={"cache_prepared": prepared},
        run=SimpleNamespace(run_id="c0001-r1"),
        workload={"duration_ns": seconds * 1_000_000_000},
    )


def interval(phase: str, index: int) -> Any:
    return {"event": "interval", "phase": phase, "index": index, "end_ns": index * 1000}


def recorded(cache: BlockCacheReading | None) -> dict[str, Any]:
    """Return the columns of `runs` about a block cache."""
    return values(SimpleNamespace(of=lambda kind: cache), facts_of_cache.COLUMNS)  # type: ignore[arg-type]


def test_what_a_run_lays_out_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept cache is not prepared, so the run itself lays out its target, through the cache."""
    remaining = iter([{"write_bytes": count} for count in (0, 1000, 1005, 1005)])
    monkeypatch.setattr(run, "sample", lambda built: next(remaining))
    instrument = run.BlockCacheCounters(context(seconds=2))
    instrument.start()
    for phase, edge, written in (("layout", "begin", 0), ("layout", "end", 900), ("measure", "begin", 0)):
        instrument.event({"event": "phase", "phase": phase, "edge": edge, "at_ns": 0, "bytes": written})  # type: ignore[arg-type]
    instrument.event(interval("measure", 0))
    [cache] = instrument.stop(None).parts  # type: ignore[arg-type]
    assert isinstance(cache, BlockCacheReading)
    assert (cache.at_start, cache.at_end) == ({"write_bytes": 1000}, {"write_bytes": 1005})


def test_a_dirty_cache_writes_back_once_the_engine_starts_or_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[bool] = []
    cache: Any = SimpleNamespace(**vars(CACHE), hold_dirty=lambda *, held: changes.append(held))
    monkeypatch.setattr(run, "sample", lambda built: {})
    for expected in ([False], [False, False]):
        instrument = run.BlockCacheCounters(context(cache, seconds=2, prepared={"state": "dirty"}))
        instrument.start()
        assert len(changes) == len(expected) - 1
        if len(expected) == 1:
            instrument.engine_started(1)
            assert changes == expected
        instrument.close()
        assert changes == expected


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"),
    [
        ("bcache", {"read_bytes": 0, "backing_read_bytes": 0}, {"read_bytes": 50, "backing_read_bytes": 20}, (30, 50)),
        ("bcache", {"read_bytes": 0, "backing_read_bytes": 0}, {"read_bytes": 50, "backing_read_bytes": 60}, (0, 50)),
        ("dm-cache", {"cache_hits": 5, "cache_misses": 5}, {"cache_hits": 15, "cache_misses": 10}, (10, 15)),
        ("dm-cache", {"cache_hits": 5, "cache_misses": 5}, {"cache_hits": 1, "cache_misses": 10}, (None, None)),
        ("bcache", {}, {}, (None, None)),
    ],
)
def test_read_hits_between_two_samples(
    kind: str, before: dict[str, int], after: dict[str, int], expected: tuple[int | None, int | None]
) -> None:
    assert facts_of_cache.read_hits(kind, before, after) == expected


def test_written_back_bytes_are_known_in_writeback_mode_only() -> None:
    sample = {"read_bytes": 1, "backing_read_bytes": 0, "backing_write_bytes": 5, "cache_device_read_bytes": 0}
    end = {**sample, "backing_write_bytes": 9}
    cache = BlockCacheReading(kind="bcache", mode="writeback", at_start=sample, at_end=end)
    assert recorded(cache)["block_cache_written_back_bytes"] == 4
    through = cache.model_copy(update={"mode": "writethrough"})
    assert recorded(through)["block_cache_written_back_bytes"] is None
    assert set(recorded(None).values()) == {None}
