"""Facts about paging in a record: classification of accesses, swapped bytes, contents of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.schema import Record

Json = Mapping[str, Any]


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about paging and swap."""
    paging: Json = (record.result or {}).get("paging") or {}
    swap: Json = record.swap or {}
    area: Json = swap.get("area") or {}
    settings: Json = swap.get("settings") or {}
    memory: Json = record.memory or {}
    return {
        "page_bytes": paging.get("page_bytes"),
        "fault_threshold_ns": paging.get("threshold_ns"),
        "measuring_cost_ns": paging.get("measuring_cost_ns"),
        "classification_cost_ns": paging.get("classification_cost_ns"),
        "thread_minor_faults": paging.get("minor_faults"),
        "thread_major_faults": paging.get("major_faults"),
        "unattributed_faults": _sum(paging, "unattributed_minor_faults", "unattributed_major_faults"),
        "pages_checked": _sum(paging, "checked", "verified_pages"),
        "pages_wrong": _sum(paging, "corrupted", "stale", "wrong_pages"),
        "swap_in_bytes": _swapped(paging, "vmstat.pswpin"),
        "swap_out_bytes": _swapped(paging, "vmstat.pswpout"),
        "swap_kind": area.get("kind"),
        "swap_bytes": area.get("size_bytes"),
        "swap_priority": area.get("priority"),
        "swap_peak_bytes": memory.get("swap_peak_bytes"),
        "vm_page_cluster": settings.get("page_cluster"),
        "zswap_enabled": {"Y": True, "N": False}.get((settings.get("zswap") or {}).get("enabled", "")),
    }


def _sum(paging: Json, *names: str) -> int | None:
    return sum(int(paging[name]) for name in names) if paging else None


def _swapped(paging: Json, counter: str) -> int | None:
    """Return the bytes of a counter of pages, over the measurement."""
    before, after = paging.get("statistics_at_start") or {}, paging.get("statistics_at_end") or {}
    if counter not in before or counter not in after:
        return None
    return max(0, int(after[counter]) - int(before[counter])) * int(paging["page_bytes"])
