"""Paging against the real kernel: swap on a file and on a device, memory limits, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from observers import AtFirstInterval

from iosonde.execution import execute
from iosonde.features.swap_areas import area, settings
from iosonde.features.swap_areas.record import SwapReading
from iosonde.features.swap_areas.settings import Changed
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.setups.loop_devices import LoopDevice

pytestmark = [pytest.mark.system, pytest.mark.alone]

MIB = 1 << 20

STUDY = """
name = "page-faults"
title = "Page faults"
question = "How long do they take?"
workload = "paging"
repeats = 1

[measurement]
size = "96MiB"
memory_limit = "64MiB"
swap = "target"
swap_size = "128MiB"
read_fraction = 0.5
ramp = "100ms"
duration = "60s"
interval = "100ms"
limit_operations = 20000

[[parts]]

[profiles.standard]
"""


@pytest.fixture(autouse=True)
def no_swap_stays_active() -> Iterator[None]:
    before = area.active()
    yield
    assert [each.path for each in area.active()] == [each.path for each in before], "no swap stays active"


def carried_out(tmp_path: Path, *, target: str = "", consent: Consent | None = None, **settings: str) -> Record:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    plan = expand(parse(STUDY), open_target(target or str(data)), settings=settings)
    results = execute(plan, tmp_path / "results", consent=consent or Consent())
    [record] = results.records()
    assert journal.entries() == []
    assert list(data.iterdir()) == []
    return record


def paging(record: Record) -> dict[str, Any]:
    assert record.result is not None, record.failure
    found: dict[str, Any] = record.result["paging"]
    return found


def test_pages_are_swapped_out_and_in_unchanged(tmp_path: Path) -> None:
    setting = settings.FILES["page_cluster"]
    before = setting.read_text()
    record = carried_out(tmp_path, verify_after="true", page_cluster="0")
    assert setting.read_text() == before
    facts = paging(record)
    assert facts["major_faults"] > 0
    assert (facts["corrupted"], facts["stale"], facts["wrong_pages"]) == (0, 0, 0)
    assert facts["verified_pages"] == facts["pages"] == 96 * MIB // 4096
    assert facts["is_locked"]
    assert record.memory is not None
    assert record.memory["oom_kills"] == 0
    swap = record.of(SwapReading)
    assert swap is not None and swap.area is not None
    assert (swap.area.kind, swap.area.size_bytes) == ("file", 128 * MIB)
    assert swap.settings.page_cluster == 0
    assert swap.changed == [Changed(setting="page_cluster", before=before.strip(), value="0")]
    assert record.verdict is not None
    results = ResultSet.open(tmp_path / "results")
    metrics = run_metrics(results)
    counts = dict(metrics.filter(pl.col("metric") == "operations").select("operation", "value").iter_rows())
    assert record.verdict.evidence["major_faults"] == pytest.approx(counts["major_fault"], rel=1e-3)
    assert counts["hit"] + counts["minor_fault"] + counts["major_fault"] == counts["all"]
    whole = dict(metrics.filter(pl.col("operation") == "all").select("metric", "value").iter_rows())
    assert whole["major_fault_fraction"] == pytest.approx(counts["major_fault"] / counts["all"])
    # Of uniform accesses to 96 MiB at most 64 MiB, less the engine's own memory, find their page resident.
    assert 1 - 64 / 96 - 0.05 < whole["major_fault_fraction"] + whole["minor_fault_fraction"] < 0.7
    assert whole["pages_wrong"] == 0
    assert whole["swap_in_bandwidth"] > 0
    assert whole["measuring_cost_ns"] > 0
    series = interval_metrics(results, metrics=["swap_in_bandwidth", "ops_per_sec"])
    assert len(series.filter(pl.col("metric") == "swap_in_bandwidth", pl.col("value") > 0)) >= 1


def test_a_block_device_becomes_swap_with_consent_and_is_clean_afterwards(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(512 * MIB)  # Other processes may swap to it too.
    device = LoopDevice(image)
    try:
        path = str(device.path)
        swapped_before, moved_before = swapped_bytes(), moved_bytes(device.path)
        record = carried_out(tmp_path, target=path, consent=Consent(destroy=(path,)), size="160MiB")
        swap = record.of(SwapReading)
        assert swap is not None and swap.area is not None
        assert (swap.area.kind, swap.area.path) == ("device", path)
        assert paging(record)["major_faults"] > 0
        swapped = [each - before for each, before in zip(swapped_bytes(), swapped_before, strict=True)]
        moved = [each - before for each, before in zip(moved_bytes(device.path), moved_before, strict=True)]
        # Besides swapping: the guard's samples, with read-ahead around each; the header and wiping.
        for by_device, by_kernel, other in zip(moved, swapped, (16 * MIB, 4 * MIB), strict=True):
            assert 0 <= by_device - by_kernel <= 0.03 * by_kernel + other
        assert swapped[1] > 80 * MIB
        with device.path.open("rb") as contents:
            assert b"SWAPSPACE2" not in contents.read(1 << 16)
    finally:
        device.close()


def swapped_bytes() -> list[int]:
    """Bytes that the kernel counts as read from and written to swap."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return [int(counters[name]) * os.sysconf("SC_PAGE_SIZE") for name in ("pswpin", "pswpout")]


def moved_bytes(device: Path) -> list[int]:
    """Bytes that the device counts as read and written."""
    fields = Path("/sys/block", device.name, "stat").read_text().split()
    return [int(fields[place]) * 512 for place in (2, 6)]


@pytest.mark.parametrize("settings", [{"swap": "off"}, {"swap_size": "8MiB"}], ids=["no swap", "a full swap area"])
def test_memory_that_is_too_small_is_a_failed_run_with_its_cause(settings: dict[str, str], tmp_path: Path) -> None:
    record = carried_out(tmp_path, **settings)
    assert record.failure is not None
    assert record.failure.code == "out_of_memory"
    assert "64 MiB is too small" in record.failure.message
    assert "swap" in settings or "provide more swap" in record.failure.hint


def test_a_killed_engine_leaves_no_swap(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()

    def kill() -> None:
        assert any(str(data) in each.path for each in area.active())
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError):  # It has exited.
                if Path(f"/proc/{child}/comm").read_text().startswith("iosonde-"):
                    os.kill(int(child), signal.SIGKILL)

    plan = expand(parse(STUDY), open_target(str(data)), settings={"duration": "600s", "limit_operations": "none"})
    [record] = execute(plan, tmp_path / "results", observer=AtFirstInterval(kill)).records()
    assert record.failure is not None
    assert record.failure.code == "killed"
    assert list(data.iterdir()) == []


def test_cleanup_turns_swap_off_after_iosonde_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    session = subprocess.Popen(
        [sys.executable, "-m", "iosonde", "run", str(study), "--target", str(data), "--set", "duration=600s",
         "--set", "limit_operations=none", "--output", str(tmp_path / "results")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not any(str(data) in each.path for each in area.active()):
        assert session.poll() is None, "the session ended before it swapped"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    session.send_signal(signal.SIGKILL)
    session.wait()
    cleaned = journal.cleanup()
    assert not any(each.failed for each in cleaned), cleaned
    assert not any(str(data) in each.path for each in area.active())
    assert list(data.iterdir()) == []
