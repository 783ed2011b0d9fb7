"""Facts about the array under a run: members, size, and the bandwidth limits that the members share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from iosonde import pcie
from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.run_facts import array_threads
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class ArrayFacts:
    """The parts of a record about the target, its array, and the threads that work for it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._evidence: Json = (record.result or {}).get("evidence") or {}

    @cached_property
    def members(self) -> list[str]:
        """Members of the array; empty without one."""
        return members_of(self.record.target)

    @cached_property
    def rebuild(self) -> tuple[float, float] | None:
        """Share of a member that was rebuilt, and the seconds that it took."""
        return _rebuild(self.record.setup)

    @cached_property
    def threads(self) -> Json:
        return array_threads.from_evidence(self.record.target, self._evidence)

    @property
    def busiest_core_share(self) -> float | None:
        """Share of the measurement in which the busiest core was not idle."""
        return array_threads.busiest_core_share(self._evidence)


def _row(name: str, dtype: DType, text: str, value: Callable[[ArrayFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.array))


def _thread(name: str, dtype: DType, text: str) -> Column:
    return _row(name, dtype, text, lambda array: array.threads[name])


COLUMNS = (
    _row(
        "target_bytes",
        U64,
        "Size of the array or device under the run, bytes; null where not reported",
        lambda array: _size(array.record.target),
    ),
    _row(
        "members",
        TEXT,
        "Members of the array under the run, named as in `usage`, separated by spaces; null without an array",
        lambda array: " ".join(array.members) or None,
    ),
    _row(
        "link_bytes_per_second",
        NUMBER,
        "Bandwidth limit of all members together, bytes/s; null where unknown",
        lambda array: _link(array.record.spec),
    ),
    _row(
        "pcie_bytes_per_second",
        NUMBER,
        "Bandwidth limit of the PCIe links that members share, per direction, bytes/s; null where they share none",
        lambda array: _pcie(array.record.target, array.members),
    ),
    _row(
        "memory_copy_bytes_per_second",
        NUMBER,
        "Memory copy bandwidth of the machine, bytes/s; null unless the load is buffered",
        lambda array: (array.record.harness or {}).get("memory_copy_bytes_per_second"),
    ),
    _row(
        "rebuild_share",
        NUMBER,
        "Share of a member that was rebuilt during the run; null without a rebuild",
        lambda array: array.rebuild and array.rebuild[0],
    ),
    _row(
        "rebuild_share_seconds",
        NUMBER,
        "Seconds that rebuilding this share took",
        lambda array: array.rebuild and array.rebuild[1],
    ),
    _thread(
        "array_thread",
        TEXT,
        "Kernel thread of the array with the most CPU time, such as `md127_raid5`; null without one",
    ),
    _thread("array_thread_share", NUMBER, "CPU time of that thread during the measurement, as a share of one core"),
    _thread("array_cpu_ns", U64, "CPU time of all kernel threads of the array, ns; null without an array"),
    _thread(
        "kernel_cpu_ns",
        U64,
        "CPU time of all kernel threads during the measurement, ns; null where none is visible",
    ),
    _row(
        "busiest_core_share",
        NUMBER,
        "Share of the measurement in which the busiest core was not idle",
        lambda array: array.busiest_core_share,
    ),
)
"""Columns of `runs` about the target and its array."""


def _rebuild(setup: Json) -> tuple[float, float] | None:
    """How far a rebuild came during the run, and in which time. One that ended counts as done when it was looked at."""
    before, after = setup.get("state") or {}, setup.get("state_after") or {}
    is_rebuilding = (setup.get("requested") or {}).get("array_state") == "rebuilding" and before and after
    if not is_rebuilding or before.get("sync_action", "idle") == "idle":
        return None
    done = 1.0 if after.get("sync_action") == "idle" else after.get("sync_done") or 0.0
    return done - (before.get("sync_done") or 0.0), after["at"] - before["at"]


def members_of(target: Json) -> list[str]:
    """Return the members of the array below a target, as the table `usage` calls them.

    Of arrays on arrays those of the upper one. A btrfs over several devices has them as members; its `devices` are
    listed side by side.
    """
    if target.get("kind") == "simulated":
        drives = int((target.get("array") or {}).get("drives", 1))
        return [f"drive{number}" for number in range(drives)] if drives > 1 else []
    devices: Sequence[Json] = target.get("devices") or []
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
