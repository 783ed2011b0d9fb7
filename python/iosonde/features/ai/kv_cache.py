"""A KV cache on storage: blocks of keys and values that an inference server loads instead of computing them again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from iosonde.errors import StudyError, did_you_mean
from iosonde.features.ai import kv_trace
from iosonde.features.ai.load import PAGE_BYTES, REQUEST_BYTES_MAX, AiLoad
from iosonde.features.ai.models import DENSE
from iosonde.plan import Cost, JsonObject
from iosonde.study.workload.reading import Cpus, DurationOrNone, Interval, Size, SizeOrZero, WithRules, parse_path
from iosonde.study.workload.workload import Hints, Layout, Rate, Spec, taken, whole_of

if TYPE_CHECKING:
    from iosonde.storage import Target

SHAPES = {
    **{name: (model.layers, 2 * model.kv_heads * model.head_dim) for name, model in DENSE.items()},
    "gpt-oss-120b": (36, 2 * 8 * 64),
    "gpt-oss-20b": (24, 2 * 8 * 64),
    "deepseek-v3": (61, 512 + 64),
    "deepseek-r1": (61, 512 + 64),
}
"""Layers of a model, and elements per token and layer: keys and values of all KV heads, or of multi-head latent
attention (MLA) the latent vector and the rotary part; source: `config.json` of the model on Hugging Face."""

_ENDURANCE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(TBW|DWPD)", re.ASCII | re.IGNORECASE)
WARRANTY_YEARS = 5
"""Time in which a drive may be written so many times a day (DWPD)."""


def _parse_endurance(value: Any) -> str | None:
    if value in (None, "", "none"):
        return None
    if not isinstance(value, str) or not _ENDURANCE.fullmatch(value.strip()):
        raise ValueError("write the endurance as `600TBW` or `1DWPD`, or `none` if it is not known")
    return value.strip()


class AiKvCacheParameters(WithRules):
    """Requests of a trace at its own times: hits are loaded by `threads`, other blocks are stored by `writers`."""

    model: str = "llama3.1-8b"
    """Published model, which decides the bytes of a token."""
    layers: int | None = Field(None, ge=1)
    """Layers, instead of the model's."""
    layer_elements: int | None = Field(None, ge=1)
    """Elements per token and layer, instead of the model's: 2 x KV heads x head dimension, or of multi-head latent
    attention its rank + the rotary dimension."""
    element_size: float = Field(2.0, gt=0, le=8)
    """Bytes of an element: 2 for fp16 and bf16, 1 for fp8."""
    tensor_parallel: int = Field(1, ge=1, le=1024)
    """Ranks that share a model, of which each has files of its own: one of them is measured."""
    block_tokens: int = Field(512, ge=1, le=1 << 20)
    """Tokens of a block, as in the trace."""
    scale: float = Field(1.0, gt=0, le=1)
    """Size of a block on the target over that of the model; the capacity in blocks stays."""
    trace: Annotated[str | None, BeforeValidator(parse_path)] = None
    """JSON lines or Parquet file with `timestamp` (ms), `input_length` (tokens) and `hash_ids` (blocks), as published
    by Mooncake, named with `--set trace=FILE`; empty: requests drawn from `traffic`."""
    traffic: Literal["conversation-like", "synthetic-like"] = "conversation-like"
    """Model of requests, fitted to the traces of Mooncake of that name."""
    requests: int = Field(12_000, ge=1, le=10_000_000)
    """Requests drawn from the model."""
    traffic_seed: int = Field(1, ge=0)
    """Seed of the model."""
    warm_requests: int = Field(0, ge=0)
    """Requests that fill the cache before the measurement, without their times."""
    speed: float = Field(1.0, gt=0, le=1e6)
    """Multiple of the speed of the trace; 2 is twice as fast."""
    capacity: Size = 640 << 30
    """Size of the cache on storage, before `scale`."""
    dram: SizeOrZero = 0
    """Size of an LRU cache in memory above it, before `scale`: its hits cause no I/O."""
    layout: Literal["hashed", "flat", "renamed", "slots"] = "hashed"
    """`hashed`, `renamed`: a file for each block in two levels of directories, written under a temporary name and
    renamed (LMCache with GPUDirect Storage; vLLM); `flat`: a file for each block in one directory (LMCache on a local
    disk); `slots`: one preallocated file."""
    durability: Literal["none", "fsync"] = "none"
    """`fsync`: each block is durable when it is stored."""
    io_mode: Literal["direct", "buffered"] = "direct"
    """Direct I/O, or through the page cache."""
    threads: int = Field(4, ge=1, le=1024)
    """Threads that look up and load blocks."""
    writers: int = Field(4, ge=1, le=1024)
    """Threads that store blocks."""
    batch: Literal["serial", "parallel"] = "parallel"
    """Blocks of one request: one after another in one thread, or divided among all threads."""
    duration: DurationOrNone = None
    """Length of the measurement at most; it ends with the trace."""
    endurance: Annotated[str | None, BeforeValidator(_parse_endurance)] = None
    """Endurance of the drive, as `600TBW` (terabytes written) or `1DWPD` (drive writes per day for five years)."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (thread `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        near = did_you_mean(self.model, SHAPES) or f"there are `{'`, `'.join(SHAPES)}`"
        is_given = self.layers is not None and self.layer_elements is not None
        unknown = f"there is no model `{self.model}` (others need `layers` and `layer_elements`); {near}"
        if not is_given and self.model not in SHAPES:
            return [(True, unknown)]
        return [
            (self.block_bytes > REQUEST_BYTES_MAX, "a block must have at most 1 GiB: set a smaller `scale`"),
            (self.capacity_blocks < 1, "`capacity` must hold at least one block"),
            (self.trace is None and self.warm_requests >= self.requests, "`warm_requests` must be below `requests`"),
        ]

    @property
    def token_bytes(self) -> float:
        """Bytes of a token's keys and values on one rank."""
        layers, elements = SHAPES.get(self.model, (0, 0))
        whole = (self.layers or layers) * (self.layer_elements or elements) * self.element_size
        return whole / self.tensor_parallel

    @property
    def full_block_bytes(self) -> float:
        """Bytes of a block of the model."""
        return self.token_bytes * self.block_tokens

    @property
    def block_bytes(self) -> int:
        """Bytes of a block on the target, whole pages."""
        return max(1, round(self.full_block_bytes * self.scale / PAGE_BYTES)) * PAGE_BYTES

    @property
    def capacity_blocks(self) -> int:
        """Blocks of the cache on storage."""
        return int(self.capacity / self.full_block_bytes)

    @property
    def file_bytes(self) -> int:
        """Bytes that the blocks take on the target at most."""
        return self.capacity_blocks * self.block_bytes

    def requests_of(self) -> kv_trace.Trace:
        """The requests, converted; `StudyError` for an invalid trace."""
        if self.trace is None:
            return kv_trace.drawn(self.traffic, self.requests, self.traffic_seed)
        found = kv_trace.converted(self.trace, self.block_tokens)
        if self.warm_requests >= found.rows:
            few = f"the trace has {found.rows} requests; `warm_requests` must be below that"
            raise StudyError(few, where=f"in `{self.trace}`", hint="set fewer `warm_requests`, or name a longer trace")
        return found

    def endurance_bytes(self, drive_bytes: int | None) -> float | None:
        """Bytes that may be written to a drive of this size; None if that is not known."""
        matched = _ENDURANCE.fullmatch(self.endurance or "")
        if matched is None:
            return None
        if matched[2].upper() == "TBW":
            return float(matched[1]) * 1e12
        return float(matched[1]) * drive_bytes * 365 * WARRANTY_YEARS if drive_bytes else None


class AiKvCache(AiLoad[AiKvCacheParameters]):
    """Loads and stores of blocks; an operation is the load of a block."""

    name = "ai_kv_cache"
    title = "a KV cache"
    stream_name = "kv"
    parameters = AiKvCacheParameters
    shown = ("model", "layout", "io_mode", "threads", "batch", "capacity", "speed", "duration")
    places = ("trace",)
    rate = Rate("blocks/s", counted="loads of blocks")
    hints = Hints(
        smaller="use smaller blocks with `--set scale=...`, or a smaller `capacity`",
        sized_by="by the parameters `capacity` and `scale`",
        less_memory="use fewer `threads` and `writers`, or a smaller `scale`",
    )
    operations = ("read",)
    writes = ends_by_itself = True
    counts = ("threads", "writers")
    subject = "traffic"

    def spec(self, stream: AiKvCacheParameters) -> JsonObject:
        """Requests of one trace on one cache."""
        requests = stream.requests_of()
        return {
            "trace": {"path": requests.path, "rows": requests.rows, "digest": requests.digest},
            "block_bytes": stream.block_bytes,
            "capacity_blocks": stream.capacity_blocks,
            "dram_blocks": int(stream.dram / stream.full_block_bytes),
            "sync": stream.durability == "fsync",
            "is_direct": stream.io_mode == "direct",
            "is_parallel": stream.batch == "parallel",
            **taken(stream, "layout", "threads", "writers", "warm_requests", "speed"),
            "duration_ns": stream.duration,
            "interval_ns": stream.interval,
        }

    def cost(self, streams: Mapping[str, AiKvCacheParameters]) -> Cost:
        """The time of the trace; each block of its requests is written at most once."""
        whole = whole_of(streams)
        seconds, blocks = whole.requests_of().blocks_until(whole.warm_requests, whole.duration, whole.speed)
        return Cost(seconds=seconds, write_bytes=blocks * whole.block_bytes)

    def identity(self, stream: AiKvCacheParameters) -> str:
        """Capacity and size of a block; a run removes the blocks of another layout."""
        return f"{stream.capacity_blocks}|{stream.block_bytes}"

    def sizes_of_files(self, stream: AiKvCacheParameters) -> Sequence[int]:
        """All blocks together."""
        return [stream.file_bytes]

    def buffer_bytes(self, streams: Mapping[str, AiKvCacheParameters]) -> int:
        """One block for each thread."""
        whole = whole_of(streams)
        return (whole.threads + whole.writers) * whole.block_bytes

    def layout(self, streams: Mapping[str, AiKvCacheParameters]) -> Layout:
        """Blocks of the requests before the measurement are written for each run."""
        return "always"

    def must_align(self, stream: AiKvCacheParameters) -> dict[str, list[int]]:
        """Blocks, with direct I/O."""
        return {"scale": [stream.block_bytes]} if stream.io_mode == "direct" else {}

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """Threads that load, and threads that store."""
        durability = {"kind": "flush" if workload["sync"] else "none"}
        more = {"durability": durability, "arrival": {"kind": "trace", "speed": workload["speed"]}}
        jobs = {"loads": workload["threads"], "stores": workload["writers"]}
        streams = {name: self.stream_of(jobs=count, is_direct=workload["is_direct"]) for name, count in jobs.items()}
        return [{**stream, **more, "name": name} for name, stream in streams.items()]

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """Converted traces are in the cache directory; one that is missing there is converted again."""
        converted = Path(workload["trace"]["path"])
        if converted.parent != kv_trace.directory():
            return "the spec names a trace outside of the cache directory"
        if not converted.exists():
            given = AiKvCacheParameters.model_construct(**case)
            if given.requests_of().path != str(converted):
                changed, where = "the trace is not the one that was planned", f"in `{given.trace or given.traffic}`"
                raise StudyError(changed, where=where, hint="restore the trace, or run the study again")
        return ""

    def result_of_hosts(self, added: JsonObject, results: Sequence[tuple[Mapping[str, Any], int]]) -> JsonObject:
        """Each host follows the whole trace, in the same time."""
        kv_cache = added["ai"]["kv_cache"] | {"trace_ns": results[0][0]["ai"]["kv_cache"]["trace_ns"]}
        return {**added, "ai": added["ai"] | {"kv_cache": kv_cache}}

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `KV cache of llama3.1-8b`."""
        return {"traffic": f"KV cache of {case.get('model', 'a model')}"}
