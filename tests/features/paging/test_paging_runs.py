"""Paging against the real kernel: swap on a file and on a device, memory limits, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from observers import AtFirstInterval
from study_texts import study_text

from iosonde.execution.session import execute
from iosonde.features.swap_areas import area, settings
from iosonde.features.swap_areas.record import SwapReading
from iosonde.features.swap_areas.settings import Changed
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.loop_devices import LoopDevice

pytestmark = [pytest.mark.system, pytest.mark.alone]

MIB = 1 << 20

STUDY = study_text(
    "paging",
    """
size = "96MiB"
memory_limit = "64MiB"
swap = "target"
swap_size = "128MiB"
read_fraction = 0.5
ramp = "100ms"
duration = "60s"
interval = "100ms"
limit_operations = 20000
""",
)


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


def test_pages_are_swapped_out_and_in_unchanged(tmp_path: Path) -> None:
    setting = settings.FILES["page_cluster"]
    before = setting.read_text()
    record = carried_out(tmp_path, verify_after="true", page_cluster="0")
    assert setting.read_text() == before
    facts = (record.result or {})["paging"]
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
    metrics = run_metrics(ResultSet.open(tmp_path / "results"))
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


def test_a_block_device_becomes_swap_with_consent_and_is_clean_afterwards(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(512 * MIB)  # Other processes may swap to it too.
    device = LoopDevice(image)
    try:
        path = str(device.path)
        record = carried_out(tmp_path, target=path, consent=Consent(destroy=(path,)), size="160MiB")
        swap = record.of(SwapReading)
        assert swap is not None and swap.area is not None
        assert (swap.area.kind, swap.area.path) == ("device", path)
        assert (record.result or {})["paging"]["major_faults"] > 0
        written_sectors = int(Path("/sys/block", device.path.name, "stat").read_text().split()[6])
        assert written_sectors * 512 > 80 * MIB
        with device.path.open("rb") as contents:
            assert b"SWAPSPACE2" not in contents.read(1 << 16)
    finally:
        device.close()


@pytest.mark.parametrize("settings", [{"swap": "off"}, {"swap_size": "24MiB"}], ids=["no swap", "little swap"])
def test_memory_that_is_too_small_is_a_failed_run_with_its_cause(settings: dict[str, str], tmp_path: Path) -> None:
    """How much of the swap is in use by then depends on the speed of the device."""
    record = carried_out(tmp_path, **settings)
    assert record.failure is not None
    assert record.failure.code == "out_of_memory"
    assert "at its memory limit of 64 MiB" in record.failure.message
    assert ("of 24 MiB swap used" in record.failure.message) == ("swap_size" in settings)


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
