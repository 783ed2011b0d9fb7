"""Parsing of NVMe log pages: wear, media writes, sanitize status.

Layouts: SMART / Health Information (02h), Endurance Group Information (09h) and FDP Statistics (22h) from the NVM
Express Base Specification as libnvme's `nvme/types.h` declares them (`nvme_smart_log`, `nvme_endurance_group_log`,
`nvme_fdp_stats_log`); SMART / Health Information Extended (C0h) from the OCP Datacenter NVMe SSD Specification, section
4.8.6, as nvme-cli's `plugins/ocp/ocp-smart-extended-log.h` declares it. All counters are little endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

DATA_UNIT_BYTES = 512_000
"""SMART counts in thousands of 512 bytes, rounded up."""

PAGE_BYTES = 512
FDP_STATISTICS_BYTES = 64

_GIGABYTE = 10**9
_ZERO_CELSIUS_KELVIN = 273

_OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
"""AFD514C97C6F4F9CA4F2BFEA2810AFC5h, in the order of its bytes in the page."""


class LogError(Exception):
    """A page with another content than its number implies."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Health information, which every drive reports."""

    temperature_celsius: int
    available_spare_percent: int
    percentage_used: int
    """Of the endurance; may go beyond 100."""
    critical_warning: int
    """Bits, 0 if all is well."""
    data_units_read: int
    """By the host, in `DATA_UNIT_BYTES`."""
    data_units_written: int
    power_on_hours: int
    media_errors: int


@dataclass(frozen=True, kw_only=True)
class Media:
    """Bytes moved at the media: for the host, for collection, and for the drive's own records."""

    written_bytes: int
    read_bytes: int | None
    """None where the log has only writes."""
    step_bytes: int
    """Unit that the log counts in."""


@dataclass(frozen=True, kw_only=True)
class Sanitize:
    """Progress of the last sanitize."""

    state: Literal["never begun", "done", "in progress", "failed", "of an unknown state"]
    progress: float
    """From 0 to 1."""


_SANITIZE_STATES: dict[int, Literal["never begun", "done", "in progress", "failed"]] = {
    0: "never begun",
    1: "done",
    2: "in progress",
    3: "failed",
    4: "done",  # And nothing deallocated.
}


def sanitize(page: bytes) -> Sanitize:
    """Sanitize Status, 81h (`nvme_sanitize_log_page`): SPROG in parts of 65536, and SSTAT."""
    _check_length(page, PAGE_BYTES)
    progress, status = struct.unpack_from("<HH", page)
    return Sanitize(state=_SANITIZE_STATES.get(status & 0b111, "of an unknown state"), progress=progress / 65536)


def health(page: bytes) -> Health:
    """SMART / Health Information, 02h."""
    _check_length(page, PAGE_BYTES)
    (kelvin,) = struct.unpack_from("<H", page, 1)
    return Health(
        critical_warning=page[0],
        temperature_celsius=kelvin - _ZERO_CELSIUS_KELVIN,
        available_spare_percent=page[3],
        percentage_used=page[5],
        data_units_read=_counter(page, 32),
        data_units_written=_counter(page, 48),
        power_on_hours=_counter(page, 128),
        media_errors=_counter(page, 160),
    )


def extended(page: bytes) -> Media:
    """SMART / Health Information Extended, C0h.

    The number is the vendor's to use, so the page must carry OCP's GUID: an older one of Microsoft's counts in other
    units in the same place. "Physical Media Units" (SMART-1 and 2) are bytes, of user and system areas alike.
    """
    _check_length(page, PAGE_BYTES)
    if page[496:512] != _OCP_GUID:
        raise LogError("its log page C0h is vendor-specific, not OCP's")
    return Media(written_bytes=_counter(page, 0), read_bytes=_counter(page, 16), step_bytes=1)


def data_placement(page: bytes) -> Media:
    """FDP Statistics, 22h: bytes written to the media of an endurance group, host and controller alike."""
    _check_length(page, FDP_STATISTICS_BYTES)
    return Media(written_bytes=_counter(page, 16), read_bytes=None, step_bytes=1)


def endurance_group(page: bytes) -> Media:
    """Endurance Group Information, 09h: media units written, in units of 10^9 bytes; 0 if not reported."""
    _check_length(page, PAGE_BYTES)
    written = _counter(page, 80)
    if not written:
        raise LogError("its log page 09h leaves out what is written to the media")
    return Media(written_bytes=written * _GIGABYTE, read_bytes=None, step_bytes=_GIGABYTE)


def _counter(page: bytes, offset: int) -> int:
    """128 bits."""
    return int.from_bytes(page[offset : offset + 16], "little")


def _check_length(page: bytes, size_bytes: int) -> None:
    if len(page) < size_bytes:
        raise LogError(f"its log page has {len(page)} bytes instead of {size_bytes}")
