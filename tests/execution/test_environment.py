"""Facts of a machine, the cost of the harness, and the package as notebooks import it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from engines import FAKE, real_engine
from plans import hand_plan, null_spec

import iosonde
from iosonde.base import memory
from iosonde.base.cache import cache_directory
from iosonde.execution import environment, harness
from iosonde.execution.harness import Harness, shape_of
from iosonde.execution.harness import null_spec as harness_spec
from iosonde.execution.stop import Stop
from iosonde.results import ResultSet


def test_facts_agree_with_another_source() -> None:
    facts = environment.capture(FAKE)
    assert facts["cpu"]["threads"] == psutil.cpu_count()
    assert facts["cpu"]["cores"] == psutil.cpu_count(logical=False)
    assert facts["memory"]["total_bytes"] == psutil.virtual_memory().total
    assert abs(memory.available_bytes() - psutil.virtual_memory().available) < facts["memory"]["total_bytes"] // 4
    assert facts["memory"]["swap_bytes"] == psutil.swap_memory().total
    assert facts["kernel"]["release"] == os.uname().release
    assert facts["kernel"]["clocksource"] in facts["kernel"]["clocksources"]
    assert len(facts["machine"]["host_hash"]) == 12, "hosts are distinguished, and not named"
    assert json.dumps(socket.gethostname()) not in json.dumps(facts)


def test_the_package_loads_nothing_heavy_by_itself() -> None:
    heavy = "{'polars', 'duckdb', 'pydantic', 'rich', 'numpy', 'typer'}"
    program = f"import sys, iosonde; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"set()\n"


def test_the_public_names_exist_and_load_opens_a_result_set(tmp_path: Path) -> None:
    assert all(callable(getattr(iosonde, name)) for name in iosonde.__all__)
    ResultSet.create(tmp_path / "set", hand_plan())
    assert repr(iosonde.load(tmp_path / "set")) == f"ResultSet('{tmp_path}/set', 0 of 4 runs)"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def stop() -> Iterator[Stop]:
    wish = Stop()
    yield wish
    wish.close()


def weighed(stop: Stop, spec: dict[str, Any], **software: str) -> dict[str, Any]:
    """Costs of a load. Where the machine is busy, the engine may not end within the harness's time limits."""
    facts = environment.capture(real_engine())
    facts["software"] |= software
    for _ in range(100):
        if costs := Harness(engine=real_engine(), environment=facts, stop=stop).costs(spec):
            return costs
    raise AssertionError("it was never measured")


def on_disk(**stream: Any) -> dict[str, Any]:
    spec = null_spec("run", target={"kind": "file", "path": "/data/file", "size_bytes": 1 << 20})
    spec["workload"]["backend"] = {"kind": "sync"}
    spec["workload"]["streams"][0].update(stream)
    return spec


def remembered() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((cache_directory() / "harness").glob("*.json"))]


def test_a_shape_is_measured_once_by_a_build_and_remembered(stop: Stop) -> None:
    costs = weighed(stop, on_disk())
    cost = costs["streams"]["main"]
    assert cost["ns_per_io"] > 2
    assert cost["operations"] > 0
    (kept,) = remembered()
    assert kept["ns_per_io"] == cost["ns_per_io"]
    assert (kept["engine_sha256"], kept["cpu"]) == (costs["engine_sha256"], costs["cpu"])
    assert weighed(stop, on_disk()) == costs, "it is the same measurement, not another"
    (path,) = (cache_directory() / "harness").glob("*.json")
    path.write_text("{")
    verified = on_disk()
    verified["workload"]["verify"] = {"when": "after", "journal_directory": "/data"}
    mended = weighed(stop, verified)
    assert mended["streams"]["main"]["ns_per_io"] == remembered()[0]["ns_per_io"], "sealing is no harness"
    weighed(stop, on_disk(), engine_sha256="another")
    assert len(remembered()) == 2


def test_loads_of_a_shape_share_its_cost() -> None:
    def shapes(*streams: dict[str, Any]) -> set[str]:
        return {shape_of(on_disk(**{"queue_depth": 16, **each})["workload"]["streams"][0]) for each in streams}

    writes, mixed = ({"mix": {"read_fraction": share, "trim_fraction": 0.0}} for share in (0.0, 0.7))
    large = [{"bytes": 65536, "weight": 1.0}]
    paced = {"arrival": {"kind": "constant", "rate": 100.0}}
    same = shapes({"queue_depth": 63}, {"queue_depth": 32, "jobs": 8}, {"block_sizes": large}, paced, writes)
    assert same == {"random uniform with_replacement, queue depth 16, one operation, one size"}
    two_sizes = {"block_sizes": [{"bytes": 4096, "weight": 1.0}, *large]}
    others = [{"queue_depth": 15}, {"queue_depth": 64}, {"access": {"kind": "sequential"}}, mixed, two_sizes]
    assert len(same | shapes(*others, {"durability": {"kind": "flush", "every": 8}})) == 7


def test_the_null_spec_of_any_load_is_one_closed_loop_on_nothing() -> None:
    spec = on_disk(jobs=8, queue_depth=40, cpus=[1, 2], limit_bytes=4096, arrival={"kind": "poisson", "rate": 5.0})
    spec["workload"]["verify"] = {"when": "after", "journal_directory": "/data"}
    made = harness_spec(spec, spec["workload"]["streams"][0])
    (stream,) = made["workload"]["streams"]
    assert (stream["jobs"], stream["queue_depth"], stream["cpus"], stream["limit_bytes"]) == (1, 16, [], None)
    assert stream["arrival"] == {"kind": "closed"}
    assert made["workload"]["backend"] == {"kind": "null"}
    assert made["workload"]["target"]["kind"] == "virtual"
    assert made["workload"]["verify"] is None, "the null backend keeps nothing to check"
    assert spec["workload"]["streams"][0]["jobs"] == 8, "the load itself is left alone"


def test_nothing_is_weighed_without_a_disk_with_another_engine_or_on_a_wish_to_stop(
    stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(engine=real_engine(), environment=environment.capture(real_engine()), stop=stop)
    for backend in ("null", "simulated"):
        spec = on_disk()
        spec["workload"]["backend"] = {"kind": backend}
        assert harness.costs(spec) is None
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "hang"}))
    assert Harness(engine=FAKE, environment=environment.capture(FAKE), stop=stop).costs(on_disk()) is None
    stop.set()
    harness.learn([on_disk()])
    assert remembered() == []


def test_a_cache_that_cannot_be_written_costs_only_time(
    stop: Stop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert weighed(stop, on_disk())


def copied(io_mode: str = "buffered", kind: str = "files", jobs: int = 1) -> dict[str, Any]:
    streams = [{"name": "main", "jobs": jobs, "io_mode": io_mode}]
    return {"workload": {"kind": "block", "target": {"kind": kind}, "streams": streams}}


def test_memory_copy_is_measured_once_for_buffered_io_on_real_targets_only() -> None:
    first = harness.memory_copy_bytes_per_second(copied(), "a processor")
    assert first and harness.memory_copy_bytes_per_second(copied(), "a processor") == first
    (kept,) = (cache_directory() / "harness").glob("memory-copy-*.json")
    kept.write_text("{")
    assert harness.memory_copy_bytes_per_second(copied(), "a processor")
    assert harness.memory_copy_bytes_per_second(copied(io_mode="direct"), "a processor") is None
    assert harness.memory_copy_bytes_per_second(copied(kind="virtual"), "a processor") is None
