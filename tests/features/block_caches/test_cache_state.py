"""The state of a block cache before a run, with a fake cache and a fake engine; and what the instrument records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.execution.instruments.instrument import Reading
from iosonde.execution.preparation import Workbench
from iosonde.execution.setups import ReadyTarget
from iosonde.features.block_caches import facts as facts_of_cache
from iosonde.features.block_caches import instruments, preparations
from iosonde.features.block_caches.block_cache import BlockCache
from iosonde.features.block_caches.preparations import prepare
from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.plan import Setup
from iosonde.results.run_facts.run import values
from iosonde.storage.safety.consent import NO_CONSENT

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
        monkeypatch.setattr(preparations, "implementation", lambda kind: self)
        monkeypatch.setattr(preparations, "sample", lambda built: dict(self.counts, dirty_bytes=self.dirty))
        layer = BlockCacheSetup(kind="bcache", mode="writeback", **setup)
        self.case = SimpleNamespace(setup=Setup(parts={layer.part: layer.model_dump()}))
        self.run = SimpleNamespace(spec=SPEC, model_copy=lambda update: SimpleNamespace(**update))
        self.bench = Workbench(
            setups=SimpleNamespace(ended=lambda run, complete: self.done.append("layout recorded")),  # type: ignore[arg-type]
            drive=self.drive,
            consent=NO_CONSENT,
            stop=SimpleNamespace(is_set=lambda: False),  # type: ignore[arg-type]
            note=lambda text: None,
        )

    def empty(self, built: BlockCache) -> None:
        self.done.append("emptied")

    def hold_dirty(self, built: BlockCache, *, held: bool) -> None:
        self.done.append("held" if held else "released")

    def drive(self, ready: Any, spec: dict[str, Any]) -> Any:
        self.specs.append(spec)
        self.done.append("layout" if spec["workload"]["layout"] != "never" else "step")
        reads = 10 * MIB
        self.counts["read_bytes"] += reads
        self.counts["backing_read_bytes"] += round(reads * (1 - next(self.hit_ratios, 1.0)))
        self.dirty = min(self.dirty + 6 * MIB, 30 * MIB)
        return SimpleNamespace(failure=self.failure)

    def prepare(self) -> tuple[Any, ReadyTarget]:
        building = SimpleNamespace(layer=lambda kind: CACHE)
        ready = ReadyTarget(target=None, building=building)  # type: ignore[arg-type]
        return prepare(self.run, self.case, ready, self.bench)  # type: ignore[arg-type]


def test_a_cold_cache_is_emptied_after_the_target_was_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laying out writes through the cache, so emptying it before would not leave it cold."""
    fake = Fake(monkeypatch, state="cold")
    run, ready = fake.prepare()
    assert fake.done == ["layout", "layout recorded", "emptied"]
    assert run.spec["workload"]["layout"] == "never"
    assert ready.facts["cache_prepared"] == {"state": "cold"}


def test_a_warm_cache_is_loaded_until_its_hit_ratio_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, state="warm", hit_ratio=0.9)
    _, ready = fake.prepare()
    assert fake.done == ["layout", "layout recorded", "emptied", "step", "step", "step"]
    assert ready.facts["cache_prepared"] == {"state": "warm", "requested_hit_ratio": 0.9, "hit_ratio": 0.95, "steps": 3}
    seeds = [spec["seed"] for spec in fake.specs]
    assert len(set(seeds)) == len(seeds) and 7 not in seeds[1:]


def test_a_cache_that_gets_no_warmer_is_measured_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, state="warm", hit_ratio=0.9)
    fake.hit_ratios = iter([0.0, *[0.3] * 20])
    _, ready = fake.prepare()
    prepared = ready.facts["cache_prepared"]
    assert (prepared["hit_ratio"], prepared["steps"]) == (0.3, 1 + preparations.PATIENCE)
    [warning] = instruments.warnings(Prepared.model_validate(prepared))
    assert warning.code == "cache_not_warm" and "0.30 before the run, not 0.90" in warning.message


def test_a_dirty_cache_does_not_write_back_while_it_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, state="dirty", dirty_fraction=0.2)
    _, ready = fake.prepare()
    assert fake.done[2:] == ["emptied", "held", "step", "step", "step"], "released when the engine starts"
    assert ready.facts["cache_prepared"]["dirty_bytes"] >= 20 * MIB
    assert fake.specs[-1]["workload"]["streams"][0]["mix"]["read_fraction"] == 0.0
    assert list(instruments.warnings(Prepared.model_validate(ready.facts["cache_prepared"]))) == []


def test_writing_back_resumes_when_the_preparation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, state="dirty", dirty_fraction=0.2)
    fake.run.spec = {**SPEC, "workload": {**SPEC["workload"], "layout": "never"}}
    fake.failure = SimpleNamespace(message="I/O error", context="", hint="")
    with pytest.raises(TargetError, match="could not be prepared: I/O error"):
        fake.prepare()
    assert fake.done == ["emptied", "held", "step", "released"]


def context(cache: BlockCache | None = CACHE, *, seconds: int = 30, prepared: Any = None) -> Any:
    facts = {"cache_prepared": prepared}
    return SimpleNamespace(
        ready=ReadyTarget(target=None, building=SimpleNamespace(layer=lambda kind: cache), facts=facts),  # type: ignore[arg-type]
        run=SimpleNamespace(run_id="c0001-r1", spec={"workload": {"duration_ns": seconds * 1_000_000_000}}),
    )


def interval(phase: str, index: int) -> Any:
    return {"event": "interval", "phase": phase, "index": index, "end_ns": index * 1000}


def test_the_instrument_records_the_measurement_and_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        {"read_bytes": 100 * n, "backing_read_bytes": 10 * n, "dirty_bytes": n * MIB, "congested": n % 2}
        for n in range(6)
    ]
    remaining = iter(samples)
    settled: list[int] = []
    monkeypatch.setattr(instruments, "sample", lambda built: next(remaining))
    monkeypatch.setattr(
        instruments, "implementation", lambda kind: SimpleNamespace(settle=lambda built: settled.append(1))
    )
    instrument = instruments.BlockCache(context())
    instrument.start()
    for event in (interval("ramp", 0), interval("measure", 0), interval("measure", 1)):
        instrument.event(event)
    reading = instrument.stop(None)  # type: ignore[arg-type]
    cache = read_by(reading)
    assert (cache.at_start, cache.at_end) == (samples[1], samples[3])
    assert (cache.counters_before, cache.counters_after) == (samples[0], samples[4])
    assert (cache.dirty_bytes_mean, cache.congested_share) == (2.5 * MIB, 0.5)
    assert len(settled) == 2
    assert reading.store_statistics is not None
    assert set(reading.store_statistics["statistic"]) == {f"block_cache.{name}" for name in samples[0]}
    facts = recorded(cache)
    assert (facts["block_cache_reads"], facts["block_cache_read_hits"]) == (200, 180)
    assert facts["block_cache_dirty_bytes_start"] == MIB


def read_by(reading: Reading) -> BlockCacheReading:
    """Return the only part that an instrument has recorded."""
    [part] = reading.parts
    assert isinstance(part, BlockCacheReading)
    return part


def recorded(cache: BlockCacheReading | None) -> dict[str, Any]:
    """Return the columns of `runs` about a block cache."""
    return values(SimpleNamespace(of=lambda kind: cache), facts_of_cache.COLUMNS)  # type: ignore[arg-type]


def phase(name: str, edge: str, *, written: int = 0) -> Any:
    return {"event": "phase", "phase": name, "edge": edge, "at_ns": 0, "bytes": written}


def test_what_a_run_lays_out_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept cache is not prepared, so the run itself lays out its target, through the cache."""
    remaining = iter([{"write_bytes": count} for count in (0, 1000, 1005, 1005)])
    monkeypatch.setattr(instruments, "sample", lambda built: next(remaining))
    instrument = instruments.BlockCache(context(seconds=2))
    instrument.start()
    for event in (phase("layout", "begin"), phase("layout", "end", written=900), phase("measure", "begin")):
        instrument.event(event)
    instrument.event(interval("measure", 0))
    cache = read_by(instrument.stop(None))  # type: ignore[arg-type]
    assert (cache.at_start, cache.at_end) == ({"write_bytes": 1000}, {"write_bytes": 1005})


@pytest.mark.parametrize("is_started", [True, False])
def test_a_dirty_cache_writes_back_once_the_engine_starts(monkeypatch: pytest.MonkeyPatch, is_started: bool) -> None:
    """It is dirty when the load starts, and not held forever if the engine cannot be started."""
    changes: list[bool] = []
    fake = SimpleNamespace(hold_dirty=lambda built, *, held: changes.append(held), settle=lambda built: None)
    monkeypatch.setattr(instruments, "implementation", lambda kind: fake)
    monkeypatch.setattr(instruments, "sample", lambda built: {})
    instrument = instruments.BlockCache(context(seconds=2, prepared={"state": "dirty"}))
    instrument.start()
    assert changes == []
    if is_started:
        instrument.engine_started(1)
        assert changes == [False]
    instrument.close()
    assert changes == [False]


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
