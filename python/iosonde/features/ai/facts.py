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
        self.parameters = record.parameters if self.ai else {}

    @property
    def scale(self) -> float:
        """Size of the files over that of the model; 1 for files of the user."""
        return 1.0 if self.parameters.get("files") else float(self.parameters.get("scale") or 1.0)


COLUMNS = facts(
    AiFacts,
    ("file_bytes", U64, "bytes of the files", "ai.file_bytes"),
    ("loaded_bytes", U64, "bytes of weights that were read, or copied from a memory map", "ai.loaded_bytes"),
    ("whole_bytes", U64, "bytes of the weights of the whole model",
        lambda run: round(run.ai["file_bytes"] / run.scale) if run.ai.get("loaded_bytes") is not None else None),
    ("load_within_ns", U64, "time within which the weights must be loaded, ns",
        lambda run: run.parameters.get("load_within")),
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
    Metric("weights_load_time_share", "Time to load the whole model, over its limit", "", "lower", "store",
        "seconds * bytes of the whole model / bytes of the files / `load_within`",
        pl.when(_IS_WEIGHTS).then(
            1e9 * pl.col("seconds") * over("ai_whole_bytes", "ai_file_bytes") / pl.col("ai_load_within_ns"))),
    Metric("queries_per_sec", "Queries per second", "1/s", "higher", "store",
        "queries / seconds", pl.when(_IS_VECTOR).then(over("count", "seconds")), counted="queries/s"),
    Metric("reads_per_query", "Reads per query", "", "neither", "store",
        "reads of vector queries, without those served from memory / queries",
        pl.when(_IS_VECTOR).then(over("ai_reads", "count"))),
)  # fmt: skip
"""Metrics of these loads, in the order of docs/metrics.md."""
