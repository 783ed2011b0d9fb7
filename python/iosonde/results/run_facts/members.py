"""Facts about the target under a run: size, members, and the bandwidth limits that the members share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from iosonde import pcie
from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class TargetFacts:
    """The parts of a record about the target."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def members(self) -> list[str]:
        """Members of the array; empty without one."""
        return members_of(self.record.target)


def _row(name: str, dtype: DType, text: str, value: Callable[[TargetFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.target))


COLUMNS = (
    _row(
        "target_bytes",
        U64,
        "Size of the array or device under the run, bytes; null where not reported",
        lambda target: _size(target.record.target),
    ),
    _row(
        "members",
        TEXT,
        "Members of the array under the run, named as in `usage`, separated by spaces; null without an array",
        lambda target: " ".join(target.members) or None,
    ),
    _row(
        "link_bytes_per_second",
        NUMBER,
        "Bandwidth limit of all members together, bytes/s; null where unknown",
        lambda target: _link(target.record.spec),
    ),
    _row(
        "pcie_bytes_per_second",
        NUMBER,
        "Bandwidth limit of the PCIe links that members share, per direction, bytes/s; null where they share none",
        lambda target: _pcie(target.record.target, target.members),
    ),
    _row(
        "memory_copy_bytes_per_second",
        NUMBER,
        "Memory copy bandwidth of the machine, bytes/s; null unless the load is buffered",
        lambda target: (target.record.harness or {}).get("memory_copy_bytes_per_second"),
    ),
)
"""Columns of `runs` about the target and its members."""


def members_of(target: Json) -> list[str]:
    """Return the members of the array below a target, as the table `usage` calls them.

    Of arrays on arrays those of the upper one. A btrfs over several devices has them as members; its `devices` are
    listed side by side.
    """
    devices: Sequence[Json] = target.get("devices") or []
    if target.get("simulated"):
        return [each["device"] for each in devices] if len(devices) > 1 else []
    for device in devices:
        if device.get("kind") == "md":
            under = set(device.get("under", []))
            return [each["device"] for each in devices if each.get("name") in under]
    if (target.get("file_system") or {}).get("kind") == "btrfs":
        covered = {name for device in devices for name in device.get("under", [])}
        tops = [each["device"] for each in devices if each.get("name") not in covered]
        return tops if len(tops) > 1 else []
    return []


def _size(target: Json) -> int | None:
    if "size_bytes" in target:
        return int(target["size_bytes"])
    devices = target.get("devices") or []
    size = (target.get("file_system") or {}).get("size_bytes") or (devices[0].get("size_bytes") if devices else None)
    return None if size is None else int(size)


def _pcie(target: Json, members: Sequence[str]) -> float | None:
    """Return the bandwidth limit of PCIe links that all members share, in each direction; None without any."""
    return pcie.of_all([each for each in target.get("devices") or [] if each.get("device") in members])


def _link(spec: Json) -> float | None:
    """Of simulated drives, reading and writing together."""
    array = ((spec.get("workload") or {}).get("backend") or {}).get("array") or {}
    limit = array.get("bytes_per_second")
    return None if limit is None else float(limit)
