"""Facts about paging in a record: classification of accesses, swapped bytes, contents of pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iosonde.results.column import NUMBER, U64, Column, DType
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class PagingFacts:
    """The parts of a record about paging; empty without them."""

    def __init__(self, record: Record) -> None:
        self.paging: Json = (record.result or {}).get("paging") or {}


def _row(name: str, dtype: DType, text: str, value: Callable[[PagingFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.of(PagingFacts)))


COLUMNS = (
    _row("page_bytes", U64, "Paging: size of a page, bytes", lambda facts: facts.paging.get("page_bytes")),
    _row(
        "fault_threshold_ns",
        U64,
        "Paging: accesses that took at least this long were classified by the kernel's fault counters, ns",
        lambda facts: facts.paging.get("threshold_ns"),
    ),
    _row(
        "measuring_cost_ns",
        NUMBER,
        "Paging: cost of measuring an access that hits, ns",
        lambda facts: facts.paging.get("measuring_cost_ns"),
    ),
    _row(
        "classification_cost_ns",
        NUMBER,
        "Paging: cost of classifying a slow access, which is not part of its latency, ns",
        lambda facts: facts.paging.get("classification_cost_ns"),
    ),
    _row(
        "thread_minor_faults",
        U64,
        "Paging: minor faults of the threads from the start of the load to its end",
        lambda facts: facts.paging.get("minor_faults"),
    ),
    _row(
        "thread_major_faults",
        U64,
        "Paging: major faults of the threads from the start of the load to its end",
        lambda facts: facts.paging.get("major_faults"),
    ),
    _row(
        "unattributed_faults",
        U64,
        "Paging: faults of these that belong to no measured access",
        lambda facts: _sum(facts.paging, "unattributed_minor_faults", "unattributed_major_faults"),
    ),
    _row(
        "pages_checked",
        U64,
        "Paging: accesses whose page was checked, and pages compared in full",
        lambda facts: _sum(facts.paging, "checked", "verified_pages"),
    ),
    _row(
        "pages_wrong",
        U64,
        "Paging: checks that found a page without the contents that were written to it; a page counts each time",
        lambda facts: _sum(facts.paging, "corrupted", "stale", "wrong_pages"),
    ),
    _row(
        "swap_in_bytes",
        U64,
        "Paging: bytes that the machine read from swap in the measurement",
        lambda facts: _swapped(facts.paging, "vmstat.pswpin"),
    ),
    _row(
        "swap_out_bytes",
        U64,
        "Paging: bytes that the machine wrote to swap in the measurement",
        lambda facts: _swapped(facts.paging, "vmstat.pswpout"),
    ),
)
"""Columns of `runs` about paging."""


def _sum(paging: Json, *names: str) -> int | None:
    return sum(int(paging[name]) for name in names) if paging else None


def _swapped(paging: Json, counter: str) -> int | None:
    """Return the bytes of a counter of pages, over the measurement."""
    before, after = paging.get("statistics_at_start") or {}, paging.get("statistics_at_end") or {}
    if counter not in before or counter not in after:
        return None
    return max(0, int(after[counter]) - int(before[counter])) * int(paging["page_bytes"])
