"""Facts and metrics of these loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from iosonde.metrics.metric import Metric, over
from iosonde.results.column import U64, facts
from iosonde.results.schema import Record


class AiFacts:
    """The parts of a record about these loads; empty without one."""

    def __init__(self, record: Record) -> None:
        self.ai: Mapping[str, Any] = (record.result or {}).get("ai") or {}


COLUMNS = facts(
    AiFacts,
    ("file_bytes", U64, "bytes of the files", "ai.file_bytes"),
    ("loaded_bytes", U64, "bytes of weights that were read, or copied from a memory map", "ai.loaded_bytes"),
    ("reads", U64, "reads of vector queries, without those served from memory", "ai.reads"),
    prefix="ai_", words="AI load: ",
)  # fmt: skip
"""Columns of `runs` about these loads."""

_IS_WEIGHTS = pl.col("workload") == "ai_weights"
_IS_VECTOR = pl.col("workload") == "ai_vector"

METRICS = (
    Metric("weights_load_seconds", "Time to load weights", "s", "lower", "store",
        "from the first read to the end of the last, of all files",
        pl.when(_IS_WEIGHTS).then(pl.col("seconds"))),
    Metric("weights_load_rate", "Weights loaded per second", "B/s", "higher", "store",
        "bytes of weights / seconds", pl.when(_IS_WEIGHTS).then(over("ai_loaded_bytes", "seconds"))),
    Metric("reads_per_query", "Reads per query", "", "neither", "store",
        "reads of vector queries, without those served from memory / queries",
        pl.when(_IS_VECTOR).then(over("ai_reads", "count"))),
)  # fmt: skip
"""Metrics of these loads, in the order of docs/metrics.md."""
