"""Facts and metrics of these loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import polars as pl

from iosonde.features.ai.kv_cache import AiKvCacheParameters
from iosonde.metrics.metric import Metric, in_seconds, over
from iosonde.results.column import NUMBER, U64, facts
from iosonde.results.schema import Record


class AiFacts:
    """The parts of a record about these loads; empty without one."""

    def __init__(self, record: Record) -> None:
        self.ai: Mapping[str, Any] = (record.result or {}).get("ai") or {}
        self.accelerators: Sequence[Mapping[str, int]] = self.ai.get("accelerators") or ()
        self.workload: Mapping[str, Any] = record.spec["workload"]
        self.checkpoints: Sequence[Mapping[str, Any]] = self.ai.get("checkpoints") or ()
        self.restores: Sequence[Mapping[str, Any]] = self.ai.get("restores") or ()
        self.parameters = record.parameters if self.ai else {}
        self.kv: Mapping[str, Any] = self.ai.get("kv_cache") or {}
        self._record = record

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
        """Bytes that may be written to the drive under the target; None if not known, of several hosts, or without a KV
        cache.
        """
        if self.cache is None or "host" in (self._record.result or {})["jobs"][0]:
            return None
        drives = self._record.target.get("devices") or [{}]
        return self.cache.endurance_bytes(drives[0].get("size_bytes"))

    @property
    def queries(self) -> int | None:
        """Vector queries in the whole measurement of each host, as their reads are."""
        jobs = (self._record.result or {}).get("jobs") or ()
        return sum(job["operations"] for job in jobs) if "reads" in self.ai else None

    @property
    def demand(self) -> float | None:
        """Bytes per second at which no accelerator waits for data."""
        if not self.accelerators:
            return None
        sizes = self.workload["sample_bytes"]
        step_bytes = len(self.accelerators) * self.workload["batch"] * sum(sizes) / len(sizes)
        return float(step_bytes / self.workload["compute_ns"] * 1e9)

    @property
    def active_ns(self) -> int:
        """Time of all checkpoints and restores, without the training between them."""
        return sum(int(each["complete_ns"]) for each in (*self.checkpoints, *self.restores))

    @property
    def slowdown(self) -> float | None:
        """Time of the last of several checkpoints over that of the first."""
        times = [each["complete_ns"] for each in self.checkpoints]
        return times[-1] / times[0] if len(times) > 1 else None

    @property
    def stall_limit_ns(self) -> float | None:
        """Limit of the user on the time for which a checkpoint stops training, times the scale."""
        every_ns, share = self.parameters.get("checkpoint_every"), self.parameters.get("stall_share")
        return every_ns * share * self.scale if every_ns and share else None

    @property
    def restore_cached_fraction(self) -> float | None:
        """Largest share of a restore in the page cache before it; None if unknown, and without restores."""
        known = [each["cached_bytes"] for each in self.restores if "cached_bytes" in each]
        return max(known) / self.ai["file_bytes"] if known else None


_TIMES = (
    ("returned", "until training continues on the slowest rank", "checkpoints", "returned_ns"),
    ("durable", "until the files of the slowest rank are synced", "checkpoints", "complete_ns"),
    ("durable_median", "until the files of the median rank are synced", "checkpoints", "complete_median_ns"),
    ("restore", "of a restore until the slowest rank has read its files", "restores", "complete_ns"),
    ("restore_median", "of a restore until the median rank has read its files", "restores", "complete_median_ns"),
)
"""Times of checkpoints and restores: name, meaning, and where the record has them."""


def _mean_ns(steps: str, time: str) -> Callable[[AiFacts], float | None]:
    def read(facts: AiFacts) -> float | None:
        times = [each[time] for each in getattr(facts, steps)]
        return sum(times) / len(times) if times else None

    return read


def _of_accelerators(name: str, combined: Callable[[list[int]], float]) -> Callable[[AiFacts], int | None]:
    """Return a function that combines a number of all accelerators."""

    def read(run: AiFacts) -> int | None:
        return int(combined([each[name] for each in run.accelerators])) if run.accelerators else None

    return read


COLUMNS = facts(
    AiFacts,
    ("file_bytes", U64, "bytes of the files", "ai.file_bytes"),
    ("loaded_bytes", U64, "bytes of weights that were read, or copied from a memory map", "ai.loaded_bytes"),
    ("whole_bytes", U64, "bytes of the weights of the whole model",
        lambda run: round(run.ai["file_bytes"] / run.scale) if run.ai.get("loaded_bytes") is not None else None),
    ("load_within_ns", U64, "time within which the weights must be loaded, ns",
        lambda run: run.parameters.get("load_within")),
    ("reads", U64, "reads of vector queries, without those served from memory", "ai.reads"),
    ("queries", U64, "vector queries that these reads are of", "queries"),
    *((f"checkpoint_{name}_ns", NUMBER, f"mean time {text}, ns", _mean_ns(*where)) for name, text, *where in _TIMES),
    ("checkpoint_slowdown", NUMBER, "time of the last of several checkpoints over that of the first", "slowdown"),
    ("checkpoint_cached_fraction", NUMBER, "largest share of a restore in the page cache before it",
        "restore_cached_fraction"),
    ("stall_limit_ns", NUMBER, "time that a checkpoint of this scale may stop training, ns", "stall_limit_ns"),
    ("steps", U64, "steps of all accelerators, each without its first", _of_accelerators("steps", sum)),
    ("running_ns", U64, "time of these steps", _of_accelerators("running_ns", sum)),
    ("compute_ns", U64, "part of it in which accelerators computed", _of_accelerators("compute_ns", sum)),
    ("data_wait_ns", U64, "part of it in which they waited for batches", _of_accelerators("data_wait_ns", sum)),
    ("barrier_wait_ns", U64, "part of it in which they waited for one another",
        _of_accelerators("barrier_wait_ns", sum)),
    ("data_wait_ns_max", U64, "longest time in which one waited for batches", _of_accelerators("data_wait_ns", max)),
    ("data_wait_ns_median", U64, "the same of the median one", _of_accelerators("data_wait_ns", median)),
    ("step_compute_ns", U64, "time that a step computes", "workload.compute_ns"),
    ("demand", NUMBER, "bytes per second at which no accelerator waits", "demand"),
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
_AT_MOST_ONE_STEP = over("ai_step_compute_ns", pl.col("seconds") * 1e9)

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
        pl.when(_IS_VECTOR).then(over("ai_reads", "ai_queries"))),
    *(
        Metric(f"checkpoint_{name}_seconds", f"Checkpoint time, {name}", "s", "lower", "store", f"mean time {text}",
            in_seconds(pl.col(f"ai_checkpoint_{name}_ns")))
        for name, text, *_ in _TIMES if "median" not in name
    ),
    *(
        Metric(f"checkpoint_{name}_rate", f"Checkpoint bandwidth, {name}", "B/s", "higher", "store",
            f"bytes of a checkpoint / `checkpoint_{name}_seconds`",
            1e9 * over("ai_file_bytes", f"ai_checkpoint_{name}_ns"))
        for name in ("durable", "restore")
    ),
    *(
        Metric(f"checkpoint_{name}_straggler", f"Slowest rank over the median, {name}", "", "lower", "store",
            f"`checkpoint_{name}_seconds` / the same of the median rank",
            f"ai_checkpoint_{name}_ns / ai_checkpoint_{name}_median_ns")
        for name in ("durable", "restore")
    ),
    Metric("checkpoint_slowdown", "Last checkpoint over the first", "", "lower", "store",
        "time of the last of several checkpoints in a row / of the first", "ai_checkpoint_slowdown"),
    Metric("checkpoint_stall_over_limit", "Time that a checkpoint stops training, over its limit", "", "lower", "store",
        "`checkpoint_returned_seconds` / `scale` / (`checkpoint_every` * `stall_share`)",
        "ai_checkpoint_returned_ns / ai_stall_limit_ns"),
    Metric("checkpoint_bytes", "Bytes of a checkpoint", "B", "neither", "store",
        "bytes of the files of all ranks that write here",
        pl.when(pl.col("ai_checkpoint_durable_ns").is_not_null()).then(pl.col("ai_file_bytes"))),
    Metric("checkpoint_cached_fraction", "Share of a restore in the page cache", "", "neither", "store",
        "largest share of a restore's files in the page cache before it", "ai_checkpoint_cached_fraction"),
    Metric("accelerator_utilization", "Utilization of the accelerators", "", "higher", "store",
        "compute time / time of all accelerators, without their first steps; without a complete step that of one",
        pl.when(pl.col("ai_steps").is_not_null()).then(
            pl.when(pl.col("ai_steps") > 0).then(over("ai_compute_ns", "ai_running_ns")).otherwise(_AT_MOST_ONE_STEP)),
        is_compared=True),
    Metric("accelerator_data_wait_share", "Time in which accelerators wait for data", "", "lower", "store",
        "time of waiting for batches / time of all accelerators", "ai_data_wait_ns / ai_running_ns"),
    Metric("accelerator_barrier_wait_share", "Time in which accelerators wait for one another", "", "lower", "store",
        "time of waiting at barriers / time of all accelerators", "ai_barrier_wait_ns / ai_running_ns"),
    Metric("accelerator_straggling", "Data wait of the slowest accelerator", "", "lower", "store",
        "longest wait for batches / that of the median accelerator", "ai_data_wait_ns_max / ai_data_wait_ns_median"),
    Metric("accelerator_demand", "Bandwidth that the accelerators need", "B/s", "neither", "store",
        "batch × sample size / compute time, of all accelerators", "ai_demand"),
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
