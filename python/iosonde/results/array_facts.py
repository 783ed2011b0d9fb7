"""Facts about the array under a run: members, size, and the bandwidth limits that the members share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde import pcie
from iosonde.results import array_threads
from iosonde.results.schema import Record

Json = Mapping[str, Any]


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about an array."""
    members = members_of(record.target)
    evidence = (record.result or {}).get("evidence") or {}
    return {
        "target_bytes": _size(record.target),
        "members": " ".join(members) or None,
        "link_bytes_per_second": _link(record.spec),
        "pcie_bytes_per_second": _pcie(record.target, members),
        "memory_copy_bytes_per_second": (record.harness or {}).get("memory_copy_bytes_per_second"),
        **_rebuild(record.setup),
        **array_threads.from_evidence(record.target, evidence),
        "busiest_core_share": array_threads.busiest_core_share(evidence),
    }


def _rebuild(setup: Json) -> dict[str, Any]:
    """How far a rebuild came during the run, and in which time. One that ended counts as done when it was looked at."""
    before, after = setup.get("state") or {}, setup.get("state_after") or {}
    is_rebuilding = (setup.get("requested") or {}).get("array_state") == "rebuilding" and before and after
    if not is_rebuilding or before.get("sync_action", "idle") == "idle":
        return {"rebuild_share": None, "rebuild_share_seconds": None}
    done = 1.0 if after.get("sync_action") == "idle" else after.get("sync_done") or 0.0
    return {
        "rebuild_share": done - (before.get("sync_done") or 0.0),
        "rebuild_share_seconds": after["at"] - before["at"],
    }


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
    """What PCIe links let the members have together in each direction; None where they share none."""
    return pcie.of_all([each for each in target.get("devices") or [] if each.get("device") in members])


def _link(spec: Json) -> float | None:
    """Of simulated drives, reading and writing together."""
    array = ((spec.get("workload") or {}).get("backend") or {}).get("array") or {}
    limit = array.get("bytes_per_second")
    return None if limit is None else float(limit)
