"""NVMe log pages by hand, and a drive that answers with them: the edge behind which a real one would be."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from iosonde.storage.nvme import Drive, StatusError

OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
NO_SUCH_LOG = 0x4109
"""Invalid Log Page, do not retry."""


def _page(size: int, *fields: tuple[int, bytes]) -> bytes:
    page = bytearray(size)
    for offset, value in fields:
        page[offset : offset + len(value)] = value
    return bytes(page)


def _counter(value: int) -> bytes:
    return value.to_bytes(16, "little")


def health(*, kelvin: int = 310, spare: int = 100, used: int = 1, **counters: int) -> bytes:
    """SMART / Health Information, 02h; counters are `units_read`, `units_written`, `hours` and `media_errors`."""
    places = {"units_read": 32, "units_written": 48, "hours": 128, "media_errors": 160}
    fields = [(places[name], _counter(value)) for name, value in counters.items()]
    return _page(512, (1, struct.pack("<H", kelvin)), (3, bytes([spare])), (5, bytes([used])), *fields)


def extended(*, written: int, read: int = 0, guid: bytes = OCP_GUID) -> bytes:
    """SMART / Health Information Extended, C0h."""
    return _page(512, (0, _counter(written)), (16, _counter(read)), (494, struct.pack("<H", 3)), (496, guid))


def data_placement(*, host: int, media: int) -> bytes:
    """FDP Statistics, 22h."""
    return _page(64, (0, _counter(host)), (16, _counter(media)))


def endurance_group(*, media: int) -> bytes:
    """Endurance Group Information, 09h; `media` in thousands of millions of bytes."""
    return _page(512, (80, _counter(media)))


class FakeDrive(Drive):
    """Answers for log pages with what `pages` makes of their number, and like a drive without it where that has none."""

    def __init__(self, pages: Callable[[int], bytes | None], *, group: int = 0) -> None:
        super().__init__(descriptor=-1, namespace=1)
        self.asked: list[tuple[int, int]] = []
        self._pages = pages
        self._group = group

    def log_page(self, identifier: int, size_bytes: int, *, specific: int = 0) -> bytes:
        self.asked.append((identifier, specific))
        page = self._pages(identifier)
        if page is None:
            raise StatusError(0x02, NO_SUCH_LOG)
        return page[:size_bytes]

    def identify_namespace(self) -> bytes:
        return _page(4096, (102, struct.pack("<H", self._group)))

    @contextmanager
    def opened(self, _name: str) -> Iterator[Drive]:
        """In place of `nvme.opened`."""
        yield self
