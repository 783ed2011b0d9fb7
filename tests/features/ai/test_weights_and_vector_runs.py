"""Loads of weights and vector queries as runs of a study: results on known devices, system calls, and what remains."""

from __future__ import annotations

import ctypes
import json
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from study_texts import study_text

from iosonde.engine import protocol
from iosonde.execution.session import execute
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent

MIB = 1 << 20
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
WEIGHTS = study_text(
    "ai_weights",
    "scale = 1e-3",
    """[parts.factors]
loader = [
  { label = "mmap", set = { strategy = "mmap" } },
  { label = "populate", set = { strategy = "mmap-populate", memory = "locked" } },
  { label = "read", set = { strategy = "read", threads = 4 } },
  { label = "direct", set = { strategy = "direct", threads = 8, request_size = "1MiB" } },
]""",
)
VECTOR = study_text("ai_vector", 'index_size = "64MiB"\nduration = "1s"\nramp = "0s"\ninterval = "100ms"', "")


def carried_out(study: str, target: str, place: Path, *, consent: Consent | None = None, **settings: str) -> ResultSet:
    plan = expand(parse(study), open_target(target), settings=settings)
    results = execute(plan, place / "results", consent=consent or Consent())
    assert journal.entries() == []
    assert [record.failure for record in results.records()] == [None] * len(plan.runs)
    return results


def values(results: ResultSet, case: str = "") -> dict[str, float]:
    rows = run_metrics(results).filter(pl.col("operation") == "all", pl.col("case_id").str.contains(case))
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.engine
def test_a_limit_on_locked_memory_is_named(tmp_path: Path) -> None:
    """Without the capability that exempts root from the limit."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65_536, 65_536))
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)

    (tmp_path / "data").mkdir()
    plan = expand(parse(WEIGHTS), open_target(str(tmp_path / "data")))
    spec = next(run.spec for run in plan.runs if run.spec["workload"]["memory"] == "locked")
    spec["workload"]["target"]["path"] = str(tmp_path / "data")
    done = subprocess.run([real_engine()], input=json.dumps(spec), capture_output=True, text=True, preexec_fn=limit)
    error = json.loads(done.stdout.splitlines()[-1])
    assert (error["event"], error["code"]) == ("error", "unsupported")
    assert ("cannot lock" in error["message"], "ulimit -l" in error["hint"]) == (True, True)


@pytest.mark.engine
def test_every_strategy_loads_all_weights_from_a_cold_cache_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    results = carried_out(WEIGHTS, str(tmp_path / "data"), tmp_path)
    records = list(results.records())
    assert [record.outcome for record in records] == ["complete"] * 4
    assert list((tmp_path / "data").iterdir()) == []
    for record in records:
        assert record.result and record.verdict
        assert record.result["evidence"]["page_cache"]["before_bytes"] == 0
        assert not {"cold_start", "span_fits_memory"} & {each.code for each in record.warnings}
        found = values(results, record.case_id)
        assert found["weights_load_rate"] == pytest.approx(
            16_060_522_496 * 1e-3 / found["weights_load_seconds"], rel=0.02
        )
        assert found["weights_load_seconds"] > 0
    # Threads that find nothing to load wait for the others: CPU time is over the whole load.
    jobs = [job["usage"]["wall_ns"] for record in records for job in record.result["jobs"]]  # type: ignore[index]
    assert min(jobs) > 0


@pytest.mark.engine
def test_on_a_volume_of_known_bandwidth_weights_take_their_bytes_over_it(tmp_path: Path) -> None:
    """A gp2 volume of 100 GiB has 128 MiB/s."""
    study = re.sub(r".*\"(mmap|populate)\".*\n", "", WEIGHTS)
    results = carried_out(study, "sim:gp2-100g", tmp_path, scale="0.05")
    for case in ("read", "direct"):
        assert values(results, f"loader={case}")["weights_load_rate"] == pytest.approx(128 * MIB, rel=0.03)


@pytest.mark.engine
def test_a_query_on_a_simulated_drive_takes_its_hops(tmp_path: Path) -> None:
    """A simulated Optane drive serves a read in a time that hardly depends on those beside it."""
    one = values(carried_out(VECTOR, "sim:p900", tmp_path / "one", hops="1", beam_width="1"))
    chain = values(carried_out(VECTOR, "sim:p900", tmp_path / "chain", hops="30", beam_width="1"))
    assert chain["reads_per_query"] == 30
    assert one["queries_per_sec"] == pytest.approx(30 * chain["queries_per_sec"], rel=0.01)
    half = values(carried_out(VECTOR, "sim:p900", tmp_path / "half", hops="30", beam_width="1", cached_fraction="0.5"))
    assert half["reads_per_query"] == pytest.approx(15, rel=0.05)
    assert half["queries_per_sec"] == pytest.approx(2 * chain["queries_per_sec"], rel=0.05)


def last_event(workload: dict[str, Any], *wrapper: str) -> dict[str, Any]:
    """The last event of the engine, which runs within another program."""
    spec = {
        "protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": workload, "observe": {"block_devices": []},
    }  # fmt: skip
    command = [*wrapper, real_engine()]
    done = subprocess.run(command, input=json.dumps(spec), capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def calls_of(workload: dict[str, Any], place: Path) -> list[str]:
    """The system calls of the threads of a load on its files, without those before the load."""
    log = place / "strace.log"
    traced = "trace=mmap,madvise,pread64,pwrite64,io_uring_enter,fadvise64"
    last = last_event(workload, "strace", "-f", "-y", "-s", "0", "-e", traced, "-o", str(log))
    assert last["event"] == "result", last
    lines = log.read_text().splitlines()
    last_drop = max(number for number, line in enumerate(lines) if "POSIX_FADV_DONTNEED" in line)
    return lines[last_drop + 1 :]


def weights(place: Path, strategy: str) -> dict[str, Any]:
    target = {"kind": "directory", "path": str(place)}
    files = [{"path": "one.safetensors", "bytes": 3 * MIB, "tensors": [4096, MIB]}]
    return {
        "kind": "ai_weights", "target": target, "files": files, "generate": True, "strategy": strategy,
        "request_bytes": MIB, "threads": 1, "memory": "pageable", "page_cache": "drop", "interval_ns": 100_000_000,
    }  # fmt: skip


@pytest.mark.system
@pytest.mark.needs("strace")
def test_a_load_and_a_query_make_the_declared_system_calls(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for strategy in ("read", "direct"):
        reads = [line for line in calls_of(weights(target, strategy), tmp_path) if "pread64" in line]
        assert [re.search(r", (\d+), (\d+)\) = (\d+)", line).groups() for line in reads] == [  # type: ignore[union-attr]
            (str(MIB), str(offset * MIB), str(MIB)) for offset in range(3)
        ], strategy
    for strategy, advice in (
        ("mmap", None),
        ("mmap_random", "MADV_RANDOM"),
        ("mmap_willneed", "MADV_WILLNEED"),
        ("mmap_populate", "MADV_POPULATE_READ|0x16"),
    ):
        calls = calls_of(weights(target, strategy), tmp_path)
        assert sum("one.safetensors" in line and "MAP_SHARED" in line for line in calls) == 1
        assert not [line for line in calls if "pread64" in line]
        if advice:
            assert any(re.search(advice, line) for line in calls), (strategy, calls)
    vector = {
        "kind": "ai_vector", "target": {"kind": "directory", "path": str(target)}, "index_bytes": MIB,
        "concurrency": 1, "hops": 3, "beam_width": 4, "read_bytes": [4096, 4096], "cached_fraction": 0.0,
        "ramp": {"duration_ns": 0, "bytes": None}, "duration_ns": 100_000_000, "interval_ns": 100_000_000,
    }  # fmt: skip
    entered = [line for line in calls_of(vector, tmp_path) if "io_uring_enter" in line and "resumed" not in line]
    submitted = [
        each.groups() for line in entered if (each := re.search(r"(\d+), (\d+), IORING_ENTER_GETEVENTS", line))
    ]
    assert submitted
    assert {each for each in submitted if each[0] != "0"} == {("4", "4")}, "a beam is submitted at once and awaited"
