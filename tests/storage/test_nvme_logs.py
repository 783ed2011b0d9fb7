"""Log pages of NVMe drives and the media counters in them, and each reason why there are none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from log_pages import FakeDrive, data_placement, endurance_group, extended, health

from iosonde.storage.nvme import admin, counters, logs
from iosonde.storage.nvme.admin import Drive

Ask = Callable[[FakeDrive], dict[str, Any]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Read counters from a fake drive in place of a real one."""
    monkeypatch.setattr(counters, "_found", {})

    def answer(drive: FakeDrive) -> dict[str, Any]:
        monkeypatch.setattr(admin, "opened", drive.opened)
        return counters.now("nvme0n1")

    return answer


def test_a_drive_with_the_extended_log_reports_everything(ask: Ask) -> None:
    reported = ask(FakeDrive({0x02: health(units_written=9), 0xC0: extended(written=7, read=5)}.get))
    assert reported["data_units_written"] == 9
    assert reported["media"] == {"log": "ocp", "written_bytes": 7, "read_bytes": 5, "step_bytes": 1}
    assert "not_reported" not in reported


def test_without_it_the_logs_of_the_endurance_group_are_read_by_its_number(ask: Ask) -> None:
    drive = FakeDrive({0x02: health(), 0x22: data_placement(host=1, media=2)}.get, group=3)
    assert ask(drive)["media"]["log"] == "fdp"
    assert (0x22, 3) in drive.asked
    pages = {0x02: health(), 0x09: endurance_group(media=2)}
    counters._found.clear()
    assert ask(FakeDrive(pages.get, group=3))["media"]["written_bytes"] == 2 * 10**9
    counters._found.clear()
    assert "media" not in ask(FakeDrive(pages.get, group=0)), "it is in no group"


def test_a_missing_log_is_requested_once(ask: Ask) -> None:
    """Each time would be an entry in the drive's error log, which some watch."""
    drive = FakeDrive({0x02: health(used=4)}.get)
    first, second = ask(drive), ask(drive)
    assert first == second
    assert first["percentage_used"] == 4
    assert first["not_reported"] == "`nvme0n1` has no log page with media writes (OCP's C0h, 22h, 09h)"
    assert [identifier for identifier, _ in drive.asked] == [0x02, 0xC0, 0x02]


def test_a_vendor_specific_page_is_reported(ask: Ask) -> None:
    reported = ask(FakeDrive({0x02: health(), 0xC0: extended(written=1, guid=bytes(16))}.get))
    assert reported["not_reported"] == "`nvme0n1`: its log page C0h is vendor-specific, not OCP's"


def test_devices_that_are_no_nvme_drive_or_cannot_be_opened_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counters.now("loop0") == {"not_reported": "`loop0` is not an NVMe drive"}
    assert counters.now("nvme0n1p1") == {"not_reported": "`nvme0n1p1` is not an NVMe drive"}

    @contextmanager
    def refused(_device: Path) -> Iterator[Drive]:
        raise PermissionError(errno.EACCES, "Permission denied")
        yield

    monkeypatch.setattr(admin, "opened", refused)
    assert counters.now("nvme0n1") == {"not_reported": "`nvme0n1` does not allow this user to read its log pages"}


def test_a_drive_that_fails_is_no_drive_without_the_log(ask: Ask) -> None:
    class Failing(FakeDrive):
        def log_page(self, identifier: int, size_bytes: int, *, specific: int = 0) -> bytes:
            if identifier == 0xC0:
                raise admin.StatusError(0x02, 0x4006)  # Internal error.
            return super().log_page(identifier, size_bytes, specific=specific)

    reported = ask(Failing({0x02: health()}.get))
    assert reported == {"not_reported": "`nvme0n1`: the drive answered its command 0x02 with status 0x4006"}
    assert counters._found == {}, "next time it may answer"


GUID_OF_ANOTHER = bytes(range(16))


def test_health_is_parsed_at_its_offsets() -> None:
    page = health(kelvin=300, spare=98, used=3, units_read=7, units_written=1 << 70, hours=8760, media_errors=2)
    assert logs.health(page) == logs.Health(
        temperature_celsius=27,
        available_spare_percent=98,
        percentage_used=3,
        critical_warning=0,
        data_units_read=7,
        data_units_written=1 << 70,
        power_on_hours=8760,
        media_errors=2,
    )


def test_media_counters_are_in_bytes_and_in_gigabytes() -> None:
    assert logs.extended(extended(written=609_651_339_018_240, read=567_611_790_770_176)) == logs.Media(
        written_bytes=609_651_339_018_240, read_bytes=567_611_790_770_176, step_bytes=1
    )
    assert logs.data_placement(data_placement(host=5, media=9)).written_bytes == 9
    counted = logs.endurance_group(endurance_group(media=12))
    assert (counted.written_bytes, counted.step_bytes) == (12 * 10**9, 10**9)
    with pytest.raises(logs.LogError, match="leaves out"):
        logs.endurance_group(endurance_group(media=0))


@pytest.mark.parametrize("guid", [bytes(16), GUID_OF_ANOTHER, bytes.fromhex("afd514c97c6f4f9ca4f2bfea2810afc5")])
def test_a_vendor_specific_page_c0h_is_not_read_as_the_extended_log(guid: bytes) -> None:
    """The last GUID is OCP's in reverse byte order, which no drive should have."""
    with pytest.raises(logs.LogError, match="C0h is vendor-specific, not OCP's"):
        logs.extended(extended(written=1, read=1, guid=guid))


@pytest.mark.parametrize("read", [logs.health, logs.extended, logs.data_placement, logs.endurance_group])
def test_a_short_page_is_no_page(read: object) -> None:
    assert callable(read)
    with pytest.raises(logs.LogError, match="63 bytes instead of"):
        read(extended(written=1, read=1)[:63])
