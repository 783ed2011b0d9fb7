"""Facts and metrics of these loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from iosonde.features.ai.kv_cache import AiKvCacheParameters
from iosonde.metrics.metric import Metric, over
from iosonde.results.column import NUMBER, U64, facts
from iosonde.results.schema import Record


class AiFacts:
    """The parts of a record about these loads; empty without one."""

    def __init__(self, record: Record) -> None:
        self.ai: Mapping[str, Any] = (record.result or {}).get("ai") or {}
        self.parameters = record.parameters if self.ai else {}
        self.kv: Mapping[str, Any] = self.ai.get("kv_cache") or {}
        self._devices = record.target.get("devices") or [{}]

    @property
    def scale(self) -> float:
        """Size of the files over that of the model; 1 for files of the user."""
        return 1.0 if self.parameters.get("files") else float(self.parameters.get("scale") or 1.0)

    @property
    def cache(self) -> AiKvCacheParameters | None:
        """Parameters of a KV cache."""
        return AiKvCacheParameters.model_construct(**self.parameters) if self.kv else None

    @property
    def endurance_bytes(self) -> float | None:
        """Bytes that may be written to the drive under the target; None if not known, or without a KV cache."""
        return self.cache.endurance_bytes(self._devices[0].get("size_bytes")) if self.cache else None


COLUMNS = facts(
    AiFacts,
    ("file_bytes", U64, "bytes of the files", "ai.file_bytes"),
    ("loaded_bytes", U64, "bytes of weights that were read, or copied from a memory map", "ai.loaded_bytes"),
    ("whole_bytes", U64, "bytes of the weights of the whole model",
        lambda run: round(run.ai["file_bytes"] / run.scale) if run.ai.get("loaded_bytes") is not None else None),
    ("load_within_ns", U64, "time within which the weights must be loaded, ns",
        lambda run: run.parameters.get("load_within")),
    ("reads", U64, "reads of vector queries, without those served from memory", "ai.reads"),
    *(
        (f"kv_{name}", U64, f"KV cache: {words}", f"kv.{name}")
        for name, words in (
            ("requests", "requests that were looked up"),
            ("arrived", "requests that arrived in the measurement"),
            ("unfinished", "of these, requests not loaded when it ended"),
            ("loaded_requests", "requests for which blocks were loaded"),
            ("loaded_blocks", "blocks of these that were loaded"),
            ("load_ns", "time from arrival to the last block of these requests, summed, ns"),
            ("lookups", "blocks of requests in the trace"),
            ("dram_hits", "of these, hits in memory"),
            ("storage_hits", "hits in storage"),
            ("common_hits", "hits of the block that all requests have first"),
            ("late_hits", "hits in storage that were looked up before they were stored, and those after them"),
            ("stores", "blocks to store"),
            ("evictions", "blocks to remove"),
            ("read_blocks", "blocks read"),
            ("written_blocks", "blocks written"),
            ("removed_blocks", "blocks removed"),
            ("trace_ns", "time of the trace at its own speed, ns"),
        )
    ),
    ("kv_block_bytes", U64, "KV cache: bytes of a block", "cache.block_bytes"),
    ("kv_full_block_bytes", NUMBER, "KV cache: bytes of a block of the model, before `scale`",
        "cache.full_block_bytes"),
    ("kv_token_bytes", NUMBER, "KV cache: bytes of a token of the model", "cache.token_bytes"),
    ("kv_endurance_bytes", NUMBER, "KV cache: bytes that may be written to the drive", "endurance_bytes"),
    prefix="ai_", words="AI load: ",
)  # fmt: skip
"""Columns of `runs` about these loads."""

_IS_WEIGHTS = pl.col("workload") == "ai_weights"
_KV_LOADED_BYTES = pl.col("ai_kv_loaded_blocks") * pl.col("ai_kv_block_bytes")
_KV_HITS = pl.col("ai_kv_dram_hits") + pl.col("ai_kv_storage_hits")
_KV_PER_DAY = over(pl.col("ai_kv_stores") * pl.col("ai_kv_full_block_bytes") * 86_400e9, "ai_kv_trace_ns")
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
    Metric("kv_load_rate", "Load rate of cached prefixes", "B/s", "higher", "store",
        "bytes of loaded blocks / time from the arrival of their requests to the last block",
        over(_KV_LOADED_BYTES, "ai_kv_load_ns") * 1e9),
    Metric("kv_break_even", "Break-even prefill speed", "1/s", "higher", "store",
        "load rate of cached prefixes / bytes of a token: with a slower prefill, loading beats recomputation",
        over(_KV_LOADED_BYTES / pl.col("ai_kv_token_bytes"), "ai_kv_load_ns") * 1e9, counted="tokens/s"),
    Metric("kv_hit_fraction", "Hit ratio of the KV cache", "", "higher", "store",
        "hits of a request's prefix in any tier / blocks of requests", over(_KV_HITS, "ai_kv_lookups")),
    Metric("kv_storage_hit_fraction", "Hit ratio of the KV cache in storage", "", "higher", "store",
        "hits of a request's prefix in storage / blocks of requests", "ai_kv_storage_hits / ai_kv_lookups"),
    Metric("kv_common_hit_fraction", "Hit ratio of the common block", "", "neither", "store",
        "hits of the block that all requests have first / blocks of requests", "ai_kv_common_hits / ai_kv_lookups"),
    Metric("kv_late_fraction", "Hits not yet stored", "", "lower", "store",
        "hits in storage that were looked up before they were stored, and those after them / these and blocks read",
        over("ai_kv_late_hits", pl.col("ai_kv_late_hits") + pl.col("ai_kv_read_blocks"))),
    Metric("kv_unfinished_fraction", "Requests not loaded in time", "", "lower", "store",
        "requests not loaded when the measurement ended / requests that arrived in it",
        "ai_kv_unfinished / ai_kv_arrived"),
    Metric("kv_writes_per_read", "Blocks written per block read", "", "lower", "store",
        "blocks to store / hits in storage", "ai_kv_stores / ai_kv_storage_hits"),
    Metric("kv_write_bytes_per_day", "Bytes written per day", "B", "lower", "store",
        "blocks to store x bytes of a block before `scale` / days at the speed of the trace", _KV_PER_DAY),
    Metric("kv_drive_life_years", "Drive life", "", "higher", "store",
        "bytes that may be written to the drive / bytes written per year",
        over("ai_kv_endurance_bytes", _KV_PER_DAY * 365), counted="years"),
)  # fmt: skip
"""Metrics of these loads, in the order of docs/metrics.md."""
