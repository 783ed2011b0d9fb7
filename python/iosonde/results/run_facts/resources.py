"""Facts about the memory limit of a run, and what its devices took from before engine start to engine exit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.results.column import U64, Column

Json = Mapping[str, Any]


def _memory(name: str, text: str, prefix: str = "memory_") -> Column:
    """Return what the control group of the memory limit counted."""
    return Column(f"{prefix}{name}", U64, text, lambda run: (run.record.memory or {}).get(name))


def _moved(name: str, text: str) -> Column:
    """Return bytes of the outermost devices."""

    def value(run: Any) -> int | None:
        totals = _outermost(run.record.device_totals)
        return sum(each[name] for each in totals) if totals else None

    return Column(f"run_device_{name}", U64, text, value)


def _outermost(totals: Sequence[Json]) -> Sequence[Json]:
    """Return the devices that data and log are on; where that is not known, the one that moved most.

    Of stacked devices each counts the same bytes, so they are not added up.
    """
    outermost = [each for each in totals if each.get("outermost")]
    return outermost or sorted(totals, key=lambda each: each["read_bytes"] + each["write_bytes"])[-1:]


COLUMNS = (
    _memory(
        "swap_peak_bytes", "Peak swap of the engine's control group, bytes; with cgroup v1 a lower bound", prefix=""
    ),
    _memory("limit_bytes", "Memory limit of the engine's control group, bytes; null without one"),
    _memory("peak_bytes", "Peak memory charged to it, page cache included, bytes"),
    _memory("at_limit", "Number of times that memory was reclaimed at the limit"),
    _memory("oom_kills", "Processes in it that the kernel killed for lack of memory"),
    _moved("read_bytes", "Bytes read by the outermost device from before engine start to engine exit"),
    _moved("write_bytes", "The same for writes, until everything was durable"),
)
"""Columns of `runs` about memory and devices."""
