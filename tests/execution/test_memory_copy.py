"""Memory copy throughput: measured once, and only where a load goes through the page cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.cache import cache_directory
from iosonde.execution import memory_copy


def spec(io_mode: str = "buffered", kind: str = "files", jobs: int = 1) -> dict[str, Any]:
    streams = [{"name": "main", "jobs": jobs, "io_mode": io_mode}]
    return {"workload": {"kind": "block", "target": {"kind": kind}, "streams": streams}}


def test_copying_is_a_ceiling_of_buffered_io_on_real_targets_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_copy, "measure", lambda threads: 1e9 * threads)
    assert memory_copy.bytes_per_second(spec(), "a processor") == 1e9
    assert memory_copy.bytes_per_second(spec(io_mode="direct"), "a processor") is None
    assert memory_copy.bytes_per_second(spec(kind="virtual"), "a processor") is None


def test_it_is_measured_once_for_each_processor_and_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory_copy, "measure", lambda threads: asked.append(threads) or 5e9)
    monkeypatch.setattr(memory_copy.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    for jobs in (1, 1, 3, 64, 64):
        assert memory_copy.bytes_per_second(spec(jobs=jobs), "another processor") == 5e9
    assert asked == [1, 3, 4]


def test_a_damaged_memory_of_it_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_copy, "measure", lambda threads: 7e9)
    memory_copy.bytes_per_second(spec(), "a third processor")
    for file in Path(cache_directory() / "harness").glob("memory-copy-*.json"):
        file.write_text("{")
    assert memory_copy.bytes_per_second(spec(), "a third processor") == 7e9


def test_every_thread_copies_its_own_block() -> None:
    """Both are copied: the sum of two threads is what counts, and no pass is lost."""
    assert memory_copy.measure(2, block_bytes=1 << 20) > 0
