"""Facts about the stages of an I/O in a record: means and percentiles over the traced I/Os."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from iosonde.results.path_columns import COUNTS, STAGES, TIMES, TOTAL
from iosonde.results.schema import Record

BEYOND = 10
"""Samples that a percentile needs beyond it."""

_MOST = 1 << 62


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` about stages; null for runs that were not traced, and for stages not seen."""
    trace: Mapping[str, Any] = record.kernel_trace or {}
    stages: Mapping[str, Sequence[int]] = trace.get("stages") or {}
    unseen = trace.get("unseen") or {}
    values = {name: stages.get(name) or () for name in STAGES if name not in unseen}
    values[TOTAL] = [sum(each) for each in zip(*stages.values(), strict=False)]
    found: dict[str, Any] = dict.fromkeys(TIMES)
    for name, times in values.items():
        if times:
            found[f"path_{name}_ns_mean"] = sum(times) / len(times)
            found |= {f"path_{name}_ns_p{part}": _percentile(times, part) for part in (50, 99)}
    counts = {name: trace.get(name.removeprefix("path_")) for name in COUNTS}
    texts = {
        "path_reason": trace.get("reason") or None,
        "path_unseen": "; ".join(f"{stage}: {reason}" for stage, reason in unseen.items()) or None,
    }
    return {
        **texts,
        **{name: count if count is None or 0 <= count < _MOST else None for name, count in counts.items()},
        **found,
    }


def _percentile(times: Sequence[int], part: int) -> float | None:
    """Return the smallest time that this share does not exceed; None with too few samples."""
    rank = ceil(len(times) * part / 100)
    return float(sorted(times)[rank - 1]) if len(times) - rank >= BEYOND else None
