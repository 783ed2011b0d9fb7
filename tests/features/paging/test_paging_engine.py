"""The engine's paging workload by itself: a mapped file, and one that fails under it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

from iosonde import protocol

pytestmark = pytest.mark.engine

MIB = 1 << 20


def spec(path: Path, *, limit_operations: int | None = 1000) -> dict[str, Any]:
    stream = {
        "name": "main", "jobs": 1, "pattern": {"kind": "uniform"}, "read_fraction": 1.0,
        "limit_operations": limit_operations, "cpus": [],
    }  # fmt: skip
    workload = {
        "kind": "paging", "target": {"kind": "file", "path": str(path), "size_bytes": 8 * MIB}, "advice": "random",
        "huge_pages": False, "compressible_fraction": 0.0, "content_seed": 1, "page_cache": "drop", "streams": [stream],
        "ramp": {"duration_ns": 0, "bytes": None}, "duration_ns": 60_000_000_000, "interval_ns": 100_000_000,
        "verify_after": True,
    }  # fmt: skip
    return {
        "protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": workload, "observe": {"block_devices": []},
    }  # fmt: skip


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_mapped_file_is_laid_out_read_and_verified(tmp_path: Path) -> None:
    asked = json.dumps(spec(tmp_path / "data"))
    for written in (8 * MIB, 0):
        done = subprocess.run([real_engine()], input=asked, capture_output=True, text=True, check=True)
        result = events(done.stdout)[-1]
        assert result["event"] == "result"
        assert result["layout"] == {"written_bytes": written, "kept_bytes": 8 * MIB - written}
        facts = result["paging"]
        assert facts["verified_pages"] == facts["pages"] == 8 * MIB // facts["page_bytes"]
        assert (facts["corrupted"], facts["wrong_pages"]) == (0, 0)
        assert facts["minor_faults"] + facts["major_faults"] > 0


def test_other_contents_in_the_file_are_reported(tmp_path: Path) -> None:
    asked = spec(tmp_path / "data")
    subprocess.run([real_engine()], input=json.dumps(asked), capture_output=True, text=True, check=True)
    with (tmp_path / "data").open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"x" * 4096)
    done = subprocess.run([real_engine()], input=json.dumps(asked), capture_output=True, text=True, check=True)
    found = events(done.stdout)
    assert found[-1]["paging"]["wrong_pages"] == 1
    assert found[-1]["paging"]["first_wrong_page"] == 5
    assert "wrong_pages" in [each["code"] for each in found if each["event"] == "warning"]


def test_a_file_that_is_truncated_under_the_mapping_ends_the_run_with_an_error(tmp_path: Path) -> None:
    engine = subprocess.Popen([real_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert engine.stdin is not None and engine.stdout is not None
    engine.stdin.write(json.dumps(spec(tmp_path / "data", limit_operations=None)) + "\n")
    engine.stdin.flush()
    for line in engine.stdout:
        if json.loads(line)["event"] == "interval":
            break
    with (tmp_path / "data").open("r+b") as file:
        file.truncate(0)
    rest = events(engine.stdout.read())
    assert engine.wait() == 1
    assert (rest[-1]["event"], rest[-1]["code"]) == ("error", "io_error")
    assert "SIGBUS" in rest[-1]["message"]
    engine.stdin.close()
