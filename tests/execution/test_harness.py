"""Harness cost: measured once, remembered, and never in the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE, real_engine
from plans import null_spec

from iosonde.cache import cache_directory
from iosonde.execution import environment
from iosonde.execution.harness import Harness, shape_of
from iosonde.execution.harness import null_spec as harness_spec
from iosonde.execution.stop import Stop


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def stop() -> Iterator[Stop]:
    wish = Stop()
    yield wish
    wish.close()


@pytest.fixture
def harness(stop: Stop) -> Harness:
    engine = real_engine()
    return Harness(engine=engine, environment=environment.capture(engine), stop=stop)


def on_disk(**stream: Any) -> dict[str, Any]:
    """A spec that goes to a file, for which a cost is wanted."""
    spec = null_spec("run", target={"kind": "file", "path": "/data/file", "size_bytes": 1 << 20})
    spec["workload"]["backend"] = {"kind": "sync"}
    spec["workload"]["streams"][0].update(stream)
    return spec


def remembered() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((cache_directory() / "harness").glob("*.json"))]


def test_a_shape_is_measured_once_and_remembered(harness: Harness, stop: Stop) -> None:
    costs = harness.costs(on_disk())
    assert costs
    cost = costs["streams"]["main"]
    assert 2 < cost["ns_per_io"] < 5000
    assert cost["operations"] > 1000
    (kept,) = remembered()
    assert kept["ns_per_io"] == cost["ns_per_io"]
    assert (kept["engine_sha256"], kept["cpu"]) == (costs["engine_sha256"], costs["cpu"])
    engine = real_engine()
    again = Harness(engine=engine, environment=environment.capture(engine), stop=stop)
    assert again.costs(on_disk()) == costs, "it is the same measurement, not another"


def test_another_build_of_the_engine_is_measured_again(harness: Harness, stop: Stop) -> None:
    harness.costs(on_disk())
    engine = real_engine()
    facts = environment.capture(engine)
    facts["software"]["engine_sha256"] = "another"
    Harness(engine=engine, environment=facts, stop=stop).costs(on_disk())
    assert len(remembered()) == 2


def test_loads_of_a_shape_share_its_cost() -> None:
    same = [
        {"queue_depth": 16},
        {"queue_depth": 63},
        {"queue_depth": 32, "jobs": 8},
        {"queue_depth": 16, "block_sizes": [{"bytes": 65536, "weight": 1.0}]},
        {"queue_depth": 16, "arrival": {"kind": "constant", "rate": 100.0}},
        {"queue_depth": 16, "mix": {"read_fraction": 0.0, "trim_fraction": 0.0}},
    ]
    shapes = {shape_of(on_disk(**each)["workload"]["streams"][0]) for each in same}
    assert shapes == {"random uniform with_replacement, queue depth 16, one operation, one size"}
    others = [
        {"queue_depth": 15},
        {"queue_depth": 64},
        {"access": {"kind": "sequential"}, "queue_depth": 16},
        {"mix": {"read_fraction": 0.7, "trim_fraction": 0.0}, "queue_depth": 16},
        {"block_sizes": [{"bytes": 4096, "weight": 1.0}, {"bytes": 8192, "weight": 1.0}], "queue_depth": 16},
        {"durability": {"kind": "flush", "every": 8}, "queue_depth": 16},
    ]
    assert len(shapes | {shape_of(on_disk(**each)["workload"]["streams"][0]) for each in others}) == 7


def test_the_null_spec_of_any_load_is_one_closed_loop_on_nothing() -> None:
    spec = on_disk(jobs=8, queue_depth=40, cpus=[1, 2], limit_bytes=4096, arrival={"kind": "poisson", "rate": 5.0})
    made = harness_spec(spec, spec["workload"]["streams"][0])
    (stream,) = made["workload"]["streams"]
    assert (stream["jobs"], stream["queue_depth"], stream["cpus"], stream["limit_bytes"]) == (1, 16, [], None)
    assert stream["arrival"] == {"kind": "closed"}
    assert made["workload"]["backend"] == {"kind": "null"}
    assert made["workload"]["target"]["kind"] == "virtual"
    assert spec["workload"]["streams"][0]["jobs"] == 8, "the load itself is left alone"


def test_a_load_that_is_verified_is_weighed_without(harness: Harness) -> None:
    """Sealing and checking is the study's wish and not the harness; the null backend keeps nothing to check."""
    spec = on_disk()
    spec["workload"]["verify"] = {"when": "after", "journal_directory": "/data"}
    assert harness_spec(spec, spec["workload"]["streams"][0])["workload"]["verify"] is None
    assert harness.costs(spec) is not None


@pytest.mark.parametrize("backend", ["null", "simulated"])
def test_where_no_disk_is_measured_nothing_is_weighed(harness: Harness, backend: str) -> None:
    spec = on_disk()
    spec["workload"]["backend"] = {"kind": backend}
    assert harness.costs(spec) is None
    assert remembered() == []


def test_an_engine_that_is_not_ours_is_left_alone(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "hang"}))
    other = Harness(engine=FAKE, environment=environment.capture(FAKE), stop=stop)
    assert other.costs(on_disk()) is None


def test_a_cost_that_was_damaged_is_measured_again(harness: Harness, stop: Stop) -> None:
    harness.costs(on_disk())
    (path,) = (cache_directory() / "harness").glob("*.json")
    path.write_text("{")
    engine = real_engine()
    costs = Harness(engine=engine, environment=environment.capture(engine), stop=stop).costs(on_disk())
    assert costs
    assert costs["streams"]["main"]["ns_per_io"] > 0
    assert remembered()[0]["ns_per_io"] > 0


def test_a_cache_that_cannot_be_written_costs_only_time(
    stop: Stop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    engine = real_engine()
    assert Harness(engine=engine, environment=environment.capture(engine), stop=stop).costs(on_disk())


def test_a_wish_to_stop_ends_it(harness: Harness, stop: Stop) -> None:
    stop.set()
    harness.learn([on_disk()])
    assert remembered() == []
