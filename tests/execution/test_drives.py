"""Media counters on their way from the drive to the reader: real runs on a real file, with only the drive's answers made up."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from log_pages import FakeDrive, extended, health

from iosonde.execution import execute
from iosonde.execution.instruments import device_totals, drive_counters
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.nvme import admin, counters
from iosonde.storage.targets.describe import stack_of

STUDY = """
name = "media"
title = "Media"
question = "?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0
block_size = "256KiB"
span = "48MiB"
limit_bytes = "48MiB"
ramp = 0
duration = "60s"
interval = "100ms"
[[parts]]
name = "writes"
[[views]]
kind = "accounts"
title = "Media"
part = "writes"
metrics = ["device_write_amplification", "media_write_amplification"]
[profiles.standard]
"""


class Amplifying(FakeDrive):
    """Counts what the kernel hands to a real disk, and reports `times` as many bytes written to its media.

    Other processes write to that disk too: its pages and `kernel` have the counters as of one instant.
    """

    def __init__(self, device: str, times: float) -> None:
        super().__init__(self._page)
        self._device = device
        self._times = times
        self._counted: dict[str, int] = {}

    def kernel(self, device: str) -> dict[str, int]:
        """In place of `device_totals.counters`, which is read after the drive's pages."""
        return self._counted if device == self._device else device_totals.counters(device)

    def _page(self, identifier: int) -> bytes | None:
        if identifier == 0x02:  # The first one that is read.
            self._counted = device_totals.counters(self._device)
        handed = self._counted["write_bytes"]
        units = -(-handed // 512_000)
        return {
            0x02: health(units_written=units, used=7),
            0xC0: extended(written=round(handed * self._times)),
        }.get(identifier)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The only disk under the tests' directory."""
    monkeypatch.setattr(counters, "_found", {})
    [only] = block_stack.drives(stack_of(tmp_path))
    return only


def attach(drive: Amplifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "opened", drive.opened)
    monkeypatch.setattr(drive_counters, "counters", drive.kernel)


def carried_out(place: Path, results: Path) -> ResultSet:
    place.mkdir()
    return execute(expand(parse(STUDY), open_target(str(place))), results)


def findings(done: ResultSet) -> dict[str, str]:
    [chapter] = collect([done]).chapters
    return {found.sentence: found.evidence for _, each in chapter.findings for found in each}


def amplification(done: ResultSet) -> list[float]:
    return run_metrics(done).filter(pl.col("metric") == "media_write_amplification")["value"].to_list()


def test_drive_counters_are_recorded_derived_and_reported(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(Amplifying(disk, 2.5), monkeypatch)
    done = carried_out(tmp_path / "target", tmp_path / "results")
    [record] = done.records()
    assert record.outcome == "complete", record.failure
    [drive] = record.drives
    assert drive["write_bytes"] >= 48 << 20
    assert drive["start"]["percentage_used"] == drive["end"]["percentage_used"] == 7
    assert drive["end"]["media"]["log"] == "ocp"
    assert json.loads((tmp_path / "results/records/c0001-r1/record.json").read_text())["drives"] == record.drives
    assert amplification(done) == [pytest.approx(2.5, rel=0.03)]
    assert [title for title in findings(done) if title.startswith("Device write amplification: 2.")]
    [chapter] = collect([done]).chapters
    [table] = [table for table in chapter.tables if table.title == "Media"]
    assert table.heads[-2] == "Device to media"
    assert table.rows[0][-2].number == pytest.approx(2.5, rel=0.03)


@pytest.mark.needs("disk without NVMe")
def test_a_disk_without_counters_has_a_reason_in_record_and_report(disk: str, tmp_path: Path) -> None:
    done = carried_out(tmp_path / "target", tmp_path / "results")
    reason = f"`{block_stack.name_of(disk)}` is not an NVMe drive"
    [record] = done.records()
    assert record.drives[0]["start"] == record.drives[0]["end"] == {"not_reported": reason}
    assert done.runs["run_media_not_reported"].to_list() == [reason]
    assert amplification(done) == []
    assert findings(done)["Device write amplification is not known"] == reason


def test_simulated_drives_have_exact_counters(tmp_path: Path) -> None:
    """Random writes over a full drive of flash cost more at the media than the host writes."""
    done = execute(expand(parse(SIMULATED), open_target("sim:sp900,capacity=256MiB")), tmp_path / "results")
    usage = done.sql(
        "SELECT sum(media_write_bytes) / sum(write_bytes) FROM usage WHERE media_write_bytes IS NOT NULL AND phase = 'measure'"
    )
    assert amplification(done) == [pytest.approx(usage.item())]
    assert amplification(done)[0] > 1


SIMULATED: str = (
    STUDY.replace('span = "48MiB"', 'span = "90%"')
    .replace('limit_bytes = "48MiB"\n', "")
    .replace('"60s"', '"1s"')
    .replace('"256KiB"', '"4KiB"')
)
