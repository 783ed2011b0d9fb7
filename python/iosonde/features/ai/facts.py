"""Facts and metrics of these loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.metrics.metric import Metric, in_seconds, over
from iosonde.results.column import NUMBER, U64, facts
from iosonde.results.schema import Record


class AiFacts:
    """The parts of a record about these loads; empty without one."""

    def __init__(self, record: Record) -> None:
        self.ai: Mapping[str, Any] = (record.result or {}).get("ai") or {}
        self.checkpoints: Sequence[Mapping[str, Any]] = self.ai.get("checkpoints") or ()
        self.restores: Sequence[Mapping[str, Any]] = self.ai.get("restores") or ()

    @property
    def active_ns(self) -> int:
        """Time of all checkpoints and restores, without the training between them."""
        durable = sum(each["durable"]["slowest_ns"] for each in self.checkpoints)
        return int(durable + sum(each["loaded"]["slowest_ns"] for each in self.restores))

    @property
    def restore_cached_fraction(self) -> float | None:
        """Share of the restored bytes in the page cache before; None if unknown, and without restores."""
        known = [each for each in self.restores if "cached_bytes" in each]
        if not known or len(known) < len(self.restores):
            return None
        return float(sum(each["cached_bytes"] for each in known) / sum(each["bytes"] for each in known))


def _mean_ns(each: str, time: str, rank: str) -> Callable[[AiFacts], float | None]:
    """Return a function to the mean of a time of all checkpoints, or restores."""

    def read(facts: AiFacts) -> float | None:
        times = [one[time][f"{rank}_ns"] for one in getattr(facts, each)]
        return sum(times) / len(times) if times else None

    return read


def _durable_ns(place: int) -> Callable[[AiFacts], int | None]:
    """Return a function to the time of a checkpoint by its place, of several in a row."""
    return lambda ai: ai.checkpoints[place]["durable"]["slowest_ns"] if len(ai.checkpoints) > 1 else None


COLUMNS = facts(
    AiFacts,
    ("file_bytes", U64, "bytes of the files", "ai.file_bytes"),
    ("loaded_bytes", U64, "bytes of weights that were read, or copied from a memory map", "ai.loaded_bytes"),
    ("reads", U64, "reads of vector queries, without those served from memory", "ai.reads"),
    ("checkpoint_returned_ns", NUMBER, "mean time of a checkpoint until training continues on the slowest rank, ns",
        _mean_ns("checkpoints", "returned", "slowest")),
    ("checkpoint_durable_ns", NUMBER, "mean time of a checkpoint until the slowest rank's files are synced, ns",
        _mean_ns("checkpoints", "durable", "slowest")),
    ("checkpoint_median_ns", NUMBER, "mean time of a checkpoint until the median rank's files are synced, ns",
        _mean_ns("checkpoints", "durable", "median")),
    ("checkpoint_first_ns", U64, "time of the first of several checkpoints until its files are synced, ns",
        _durable_ns(0)),
    ("checkpoint_last_ns", U64, "time of the last of several checkpoints until its files are synced, ns",
        _durable_ns(-1)),
    ("checkpoint_restore_ns", NUMBER, "mean time of a restore on the slowest rank, ns",
        _mean_ns("restores", "loaded", "slowest")),
    ("checkpoint_restore_median_ns", NUMBER, "mean time of a restore on the median rank, ns",
        _mean_ns("restores", "loaded", "median")),
    ("checkpoint_restore_cached_fraction", NUMBER,
        "share of the restored bytes in the page cache before the restore", "restore_cached_fraction"),
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
    Metric("queries_per_sec", "Queries per second", "1/s", "higher", "store",
        "queries / seconds", pl.when(_IS_VECTOR).then(over("count", "seconds")), counted="queries/s"),
    Metric("reads_per_query", "Reads per query", "", "neither", "store",
        "reads of vector queries, without those served from memory / queries",
        pl.when(_IS_VECTOR).then(over("ai_reads", "count"))),
    *(
        Metric(f"{name}_seconds", title, "s", "lower", "store", formula, in_seconds(pl.col(f"ai_{name}_ns")))
        for name, title, formula in (
            ("checkpoint_returned", "Checkpoint time, returned",
                "mean time until training continues on the slowest rank"),
            ("checkpoint_durable", "Checkpoint time, durable",
                "mean time until the files of the slowest rank are synced"),
            ("checkpoint_first", "Checkpoint time, first in a row", "time until the files are synced"),
            ("checkpoint_last", "Checkpoint time, last in a row", "time until the files are synced"),
            ("checkpoint_restore", "Restore time", "mean time until the slowest rank has read its files"),
        )
    ),
    Metric("checkpoint_rate", "Checkpoint bandwidth", "B/s", "higher", "store",
        "bytes of a checkpoint / mean time until it is durable",
        pl.col("ai_file_bytes") / in_seconds(pl.col("ai_checkpoint_durable_ns"))),
    Metric("checkpoint_restore_rate", "Restore bandwidth", "B/s", "higher", "store",
        "bytes of a checkpoint / mean time of a restore",
        pl.col("ai_file_bytes") / in_seconds(pl.col("ai_checkpoint_restore_ns"))),
    Metric("checkpoint_straggler_ratio", "Slowest rank over the median, checkpoint", "", "lower", "store",
        "time until the files of the slowest rank are synced / the same of the median rank",
        "ai_checkpoint_durable_ns / ai_checkpoint_median_ns"),
    Metric("checkpoint_restore_straggler_ratio", "Slowest rank over the median, restore", "", "lower", "store",
        "time of a restore on the slowest rank / on the median rank",
        "ai_checkpoint_restore_ns / ai_checkpoint_restore_median_ns"),
    Metric("checkpoint_slowdown", "Last checkpoint over the first", "", "lower", "store",
        "time of the last of several checkpoints in a row / of the first",
        "ai_checkpoint_last_ns / ai_checkpoint_first_ns"),
    Metric("checkpoint_bytes", "Bytes of a checkpoint", "B", "neither", "store",
        "bytes of the files of all ranks that write here",
        pl.when(pl.col("ai_checkpoint_durable_ns").is_not_null()).then(pl.col("ai_file_bytes"))),
    Metric("checkpoint_restore_cached_fraction", "Share of a restore in the page cache", "", "neither", "store",
        "bytes of the files in the page cache before a restore / their size", "ai_checkpoint_restore_cached_fraction"),
)  # fmt: skip
"""Metrics of these loads, in the order of docs/metrics.md."""
