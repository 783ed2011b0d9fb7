"""Log pages of NVMe drives, made by hand as their specifications lay them out, and as drives get them wrong."""

from __future__ import annotations

import pytest
from log_pages import data_placement, endurance_group, extended, health

from iosonde.storage.nvme import logs

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


def test_the_extended_log_counts_bytes_of_the_media() -> None:
    page = extended(written=609_651_339_018_240, read=567_611_790_770_176)
    assert logs.extended(page) == logs.Media(
        written_bytes=609_651_339_018_240, read_bytes=567_611_790_770_176, step_bytes=1
    )


@pytest.mark.parametrize("guid", [bytes(16), GUID_OF_ANOTHER, bytes.fromhex("afd514c97c6f4f9ca4f2bfea2810afc5")])
def test_a_vendor_specific_page_c0h_is_not_read_as_the_extended_log(guid: bytes) -> None:
    """The last GUID is OCP's in reverse byte order, which no drive should have."""
    with pytest.raises(logs.LogError, match="C0h is vendor-specific, not OCP's"):
        logs.extended(extended(written=1, read=1, guid=guid))


def test_data_placement_and_endurance_groups_count_in_bytes_and_in_gigabytes() -> None:
    assert logs.data_placement(data_placement(host=5, media=9)).written_bytes == 9
    counted = logs.endurance_group(endurance_group(media=12))
    assert (counted.written_bytes, counted.step_bytes) == (12 * 10**9, 10**9)


def test_a_group_without_media_counters_reports_nothing() -> None:
    with pytest.raises(logs.LogError, match="leaves out"):
        logs.endurance_group(endurance_group(media=0))


@pytest.mark.parametrize("read", [logs.health, logs.extended, logs.data_placement, logs.endurance_group])
def test_a_short_page_is_no_page(read: object) -> None:
    assert callable(read)
    with pytest.raises(logs.LogError, match="63 bytes instead of"):
        read(extended(written=1, read=1)[:63])
