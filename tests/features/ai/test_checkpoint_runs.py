"""Checkpoints as runs of a study: results on a volume of known bandwidth, system calls of a rank, and what remains."""

from __future__ import annotations

import json
import re
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
STUDY = study_text(
    "ai_checkpoint",
    'scale = 2e-4\npause = "0s"\ninterval = "100ms"\nrequest_size = "1MiB"',
    'factors.mode = ["buffered", "direct", "background"]',
)


def carried_out(tmp_path: Path, target: str, **settings: str) -> ResultSet:
    plan = expand(parse(STUDY), open_target(target), settings=settings)
    results = execute(plan, tmp_path / "results", consent=Consent())
    assert journal.entries() == []
    return results


def values(results: ResultSet, mode: str) -> dict[str, float]:
    rows = run_metrics(results).filter(pl.col("operation") == "all", pl.col("case_id").str.contains(f"mode={mode}"))
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.engine
def test_a_run_in_each_mode_has_times_and_a_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    results = carried_out(tmp_path, str(data), restores="1")
    records = list(results.records())
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 3
    assert all(record.verdict for record in records)
    assert list(data.iterdir()) == []
    for mode in ("buffered", "direct", "background"):
        found = values(results, mode)
        assert found["checkpoint_bytes"] == pytest.approx(112_425_623_552 * 2e-4, rel=0.01)
        assert 0 < found["checkpoint_returned_seconds"] <= found["checkpoint_durable_seconds"]
        assert found["checkpoint_durable_straggler"] >= 1
        assert found["checkpoint_restore_straggler"] >= 1
        rate = found["checkpoint_bytes"] / found["checkpoint_durable_seconds"]
        assert found["checkpoint_durable_rate"] == pytest.approx(rate)
    background = values(results, "background")
    assert background["checkpoint_returned_seconds"] < background["checkpoint_durable_seconds"]


@pytest.mark.engine
def test_on_a_volume_of_known_bandwidth_a_checkpoint_takes_its_bytes_over_it(tmp_path: Path) -> None:
    """A gp2 volume of 100 GiB has 128 MiB/s."""
    results = carried_out(tmp_path, "sim:gp2-100g", scale="2e-3")
    for mode in ("buffered", "direct"):
        found = values(results, mode)
        assert found["checkpoint_durable_rate"] == pytest.approx(128 * MIB, rel=0.03)
        assert found["checkpoint_restore_rate"] == pytest.approx(128 * MIB, rel=0.03)
        assert found["checkpoint_slowdown"] == pytest.approx(1, rel=0.05)
    assert values(results, "background")["checkpoint_durable_seconds"] > found["checkpoint_durable_seconds"]


def spec(directory: Path, mode: str, *, sync: bool) -> dict[str, Any]:
    """One rank with a file of two tensors and one of a single tensor."""
    tensors = {"model.pt": [MIB + 4096, 4096], "optim.pt": [2 * MIB]}
    workload = {
        "kind": "ai_checkpoint", "target": {"kind": "directory", "path": str(directory)},
        "ranks": [[{"name": name, "tensors": sizes} for name, sizes in tensors.items()]],
        "mode": mode, "sync": sync, "request_bytes": MIB, "checkpoints": 2, "pause_ns": 0, "keep": 1, "restores": 1,
        "interval_ns": 100_000_000,
    }  # fmt: skip
    return {
        "protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": workload, "observe": {"block_devices": []},
    }  # fmt: skip


TRACED = "openat,pwrite64,pread64,fsync,fadvise64,close,unlink,unlinkat"


def calls_of(directory: Path, mode: str, *, sync: bool) -> str:
    """The system calls of a rank on its files, one a line: `open direct model.pt`, `write 1048576`, `sync`, `close`."""
    log = directory.parent / "strace.log"
    command = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={TRACED}", "-o", log, real_engine()]
    text = json.dumps(spec(directory, mode, sync=sync))
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "result", done.stdout
    calls = []
    for line in log.read_text().splitlines():
        if not re.search(r"(model|optim)\.pt", line):
            continue
        _, name, rest = re.match(r"(\d+)\s+(\w+)\((.*)", line).groups()  # type: ignore[union-attr]
        of = "model" if "model.pt" in rest else "optim"
        match name:
            case "openat":
                created = "create" if "O_CREAT|" in rest and "O_TRUNC" in rest else "open"
                calls.append(f"{created} {'direct ' if 'O_DIRECT' in rest else ''}{of}")
            case "pwrite64" | "pread64":
                size = int(re.search(r", (\d+), \d+\)?", rest)[1])  # type: ignore[index]
                calls.append(f"{name[1:-2]} {size}")
            case "fsync" | "close":
                calls.append(name)
            case "fadvise64":
                calls.append("drop")
            case _:
                calls.append(f"remove {of}")
    return "\n".join(calls)


def written(*, direct: bool, sync: bool) -> list[str]:
    flag, last = ("direct ", [8192]) if direct else ("", [4096, 4096])
    closed = ["fsync", "close"] if sync else ["close"]
    model = [f"create {flag}model", "write 1048576", *(f"write {size}" for size in last), *closed]
    optim = [f"create {flag}optim", *["write 1048576"] * 2, *closed]
    later = [] if sync else [call for name in ("model", "optim") for call in (f"open {name}", "fsync", "close")]
    return [*model, *optim, *later, "remove model", "remove optim"]


@pytest.mark.system
@pytest.mark.needs("strace")
@pytest.mark.parametrize(("mode", "sync"), [("buffered", True), ("buffered", False), ("direct", True)])
def test_a_rank_makes_the_declared_system_calls(tmp_path: Path, mode: str, sync: bool) -> None:
    directory = tmp_path / "target"
    directory.mkdir()
    direct = mode == "direct"
    flag, last = ("direct ", [8192]) if direct else ("", [4096, 4096])
    removed = ["remove model", "remove optim"] * 2
    dropped = [call for name in ("model", "optim") for call in (f"open {name}", "drop", "close")]
    restored = [
        *(f"open {flag}model", "read 1048576", *(f"read {size}" for size in last), "close"),
        *(f"open {flag}optim", *["read 1048576"] * 2, "close"),
    ]
    expected = [*removed, *2 * written(direct=direct, sync=sync), *dropped, *restored, *removed]
    assert calls_of(directory, mode, sync=sync).splitlines() == expected
