"""Kernel threads that work for an array, and the warning about one that used all CPU time of a core."""

from __future__ import annotations

from typing import Any

from iosonde.features.arrays.instruments import thread_warnings
from iosonde.features.arrays.threads import from_evidence

RAID_5 = {"devices": [{"name": "md127", "kind": "md", "md_level": "raid5", "under": ["nvme0n1"]}]}


def evidence(**percent: int) -> dict[str, Any]:
    """CPU time of kernel threads as percent of one core."""
    threads = [{"name": name, "threads": 1, "cpu_ns": cpu, "busiest_cpu_ns": cpu} for name, cpu in percent.items()]
    return {"kernel": {"wall_ns": 100, "threads": threads}}


STALLED = evidence(**{"md127_raid5": 97, "kworker-raid5wq": 150, "md126_raid1": 99, "kworker-kblockd": 1})


def test_a_thread_of_the_array_is_named_and_those_of_other_arrays_are_not_its() -> None:
    assert from_evidence(RAID_5, STALLED) == {
        "array_thread": "md127_raid5",
        "array_thread_share": 0.97,
        "array_cpu_ns": 247,
    }
    [warning] = thread_warnings(RAID_5, STALLED)
    assert (warning.code, warning.message) == ("array_thread_saturated", "`md127_raid5` used 97 % of one core")


def test_an_array_with_time_left_and_a_target_without_an_array_have_no_warning() -> None:
    assert list(thread_warnings(RAID_5, evidence(md127_raid5=94))) == []
    assert list(thread_warnings({"devices": [{"name": "nvme0n1"}]}, STALLED)) == []
    assert list(thread_warnings(RAID_5, {})) == []


def test_btrfs_has_workers_and_threads_of_its_own_name() -> None:
    threads = evidence(**{"kworker-btrfs-endio": 40, "btrfs-transaction": 10, "kworker-events": 90})
    found = from_evidence({"file_system": {"kind": "btrfs"}}, threads)
    assert (found["array_thread"], found["array_thread_share"], found["array_cpu_ns"]) == ("btrfs-transaction", 0.1, 50)
