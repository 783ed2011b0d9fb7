"""What the drives under a run tell of themselves: of their media, their wear and their temperature.

Read from each drive before the engine starts and after it has ended, beside the kernel's counters of the same moments:
so that what reached the media can be set against what the drive was handed, and what the drive counts of that against
what the kernel counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.execution.device_totals import counters
from iosonde.storage import block_stack
from iosonde.storage.nvme import counters as nvme


class Drives:
    """The drives at the bottom of a run's block devices, from here to `end`."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._begin = {device: _now(device) for device in block_stack.drives(spec["observe"]["block_devices"])}

    def end(self) -> list[dict[str, Any]]:
        """For each drive `begin` and `end`, what it told (`target/nvme/counters.py`), and what it was handed between.

        `read_bytes` and `write_bytes` are the kernel's, of the whole drive; missing where the kernel does not tell.
        """
        return [_between(device, begin, _now(device)) for device, begin in self._begin.items()]


def _now(device: str) -> tuple[dict[str, Any], dict[str, int]]:
    return nvme.now(block_stack.name_of(device)), counters(device)


def _between(
    device: str, begin: tuple[dict[str, Any], dict[str, int]], end: tuple[dict[str, Any], dict[str, int]]
) -> dict[str, Any]:
    (told_first, handed_first), (told_last, handed_last) = begin, end
    handed: dict[str, Any] = {
        name: handed_last[name] - handed_first[name]
        for name in ("read_bytes", "write_bytes")
        if name in handed_first and name in handed_last
    }
    return {
        "device": device,
        "name": block_stack.name_of(device),
        **handed,
        "begin": told_first,
        "end": told_last,
    }
