"""Checkpoints of a training job and restores: parameters, the spec, and what a run takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, Literal

from pydantic import Field

from iosonde.errors import TargetError
from iosonde.features.ai.load import PAGE_BYTES, AiLoad, request_rule
from iosonde.features.ai.training import MODELS, File
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.study.workload.reading import Cpus, DurationOrNone, DurationOrZero, Interval, Size, WithRules
from iosonde.study.workload.workload import Hints, Layout, Rate, Spec, taken, whole_of
from iosonde.units import MIB


class AiCheckpointParameters(WithRules):
    """Checkpoints in a row, and restores of the last one."""

    model: Literal["8b", "70b", "405b", "1t"] = "8b"
    """Training job: `8b` (8 ranks, ZeRO 3), `70b` (64 ranks, ZeRO 3), `405b` (512 ranks, ZeRO 1) or `1t` (1,024 ranks,
    ZeRO 1)."""
    scale: float = Field(1.0, gt=0, le=1)
    """Size of each tensor over that of the model."""
    ranks: int = Field(8, ge=1, le=1024)
    """Ranks that write on a host, each in a thread: the first ones of the job, and on other hosts those that follow."""
    mode: Literal["buffered", "direct", "background"] = "buffered"
    """`buffered`: each tensor through the page cache; `direct`: direct I/O; `background`: a rank copies its state to
    memory and returns, and another thread writes it as `buffered` does."""
    sync: bool = True
    """Sync each file (fsync(2)) before it is closed; without it, files are synced after the checkpoint has returned."""
    request_size: Size = 16 * MIB
    """Largest read or write."""
    checkpoint_count: int = Field(3, ge=1, le=1000)
    """Checkpoints in a row."""
    pause: DurationOrZero = 5 * 10**9
    """Training between the return of a checkpoint and the start of the next."""
    keep: int = Field(1, ge=1, le=1000)
    """Checkpoints that are kept. An older one is removed when a new one is durable, so there is room for one more."""
    restores: int = Field(3, ge=0, le=1000)
    """Restores of the last checkpoint, each after its files were dropped from the page cache."""
    checkpoint_every: DurationOrNone = None
    """Time from one checkpoint to the next in training, for `checkpoint_stall_over_limit`."""
    stall_share: float | None = Field(None, gt=0, le=1)
    """Largest share of that time in which a checkpoint may stop training, for the same."""
    interval: Interval = 5 * 10**8
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (thread `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        most = MODELS[self.model].ranks
        return [
            (self.ranks > most, f"`ranks` must be at most {most} for `{self.model}`; got {self.ranks}"),
            request_rule(self.request_size),
        ]


@lru_cache(maxsize=16)
def files_of(model: str, scale: float, ranks: int, first: int = 0) -> Sequence[Sequence[File]]:
    """The files of ranks that follow one another, with scaled tensors."""
    return [
        [(name, tuple(max(1, round(size * scale)) for size in tensors)) for name, tensors in MODELS[model].files(rank)]
        for rank in range(first, first + ranks)
    ]


def _files(stream: AiCheckpointParameters) -> Sequence[Sequence[File]]:
    return files_of(stream.model, stream.scale, stream.ranks)


def _as_spec(ranks: Sequence[Sequence[File]]) -> list[list[JsonObject]]:
    return [[{"name": name, "tensors": list(tensors)} for name, tensors in files] for files in ranks]


def _sizes(stream: AiCheckpointParameters) -> list[int]:
    return [sum(tensors) for files in _files(stream) for _, tensors in files]


class AiCheckpoint(AiLoad[AiCheckpointParameters]):
    """Checkpoints and restores; an operation is a read or write, or the sync of a file."""

    name = "ai_checkpoint"
    title = "checkpointing"
    stream_name = "ranks"
    parameters = AiCheckpointParameters
    shown = ("model", "scale", "ranks", "mode", "checkpoint_count", "restores")
    hints = Hints(
        smaller="write less with `--set scale=...`, or fewer `ranks`",
        sized_by="by the parameters `model`, `scale`, `ranks` and `keep`",
        less_memory="use fewer `ranks`, or a smaller `request_size`",
    )
    rate = Rate("I/Os/s")
    operations = ("read", "write")
    judge = "checkpoints"
    writes = ends_by_itself = True
    counts = ("ranks",)
    subject = "checkpoint_count"
    worded = stated = ("mode",)

    def spec(self, stream: AiCheckpointParameters) -> JsonObject:
        """Checkpoints of the first ranks."""
        return {
            "ranks": _as_spec(_files(stream)),
            "checkpoints": stream.checkpoint_count,
            **taken(stream, "mode", "sync", "keep", "restores"),
            "request_bytes": stream.request_size,
            "pause_ns": stream.pause,
            "interval_ns": stream.interval,
        }

    def cost(self, streams: Mapping[str, AiCheckpointParameters]) -> Cost:
        """Checkpoints with the training between them, and restores."""
        whole = whole_of(streams)
        written, read = (count * sum(_sizes(whole)) for count in (whole.checkpoint_count, whole.restores))
        pauses = (whole.checkpoint_count - 1) * whole.pause / 10**9
        return Cost(seconds=(written + read) / ASSUMED_BYTES_PER_SECOND + pauses, write_bytes=written)

    def identity(self, stream: AiCheckpointParameters) -> str:
        """The same for all: a run removes its files, so that they never take room together."""
        return ""

    def sizes_of_files(self, stream: AiCheckpointParameters) -> Sequence[int]:
        """Those of the checkpoints that are kept, and of the one that is being written."""
        return [-(-size // PAGE_BYTES) * PAGE_BYTES for size in _sizes(stream)] * (stream.keep + 1)

    def buffer_bytes(self, streams: Mapping[str, AiCheckpointParameters]) -> int:
        """A request of each thread; a rank that copies its state has two."""
        whole = whole_of(streams)
        return whole.ranks * whole.request_size * (3 if whole.mode == "background" else 1)

    def must_align(self, stream: AiCheckpointParameters) -> dict[str, list[int]]:
        """Requests of direct I/O."""
        return {"request_size": [stream.request_size]} if stream.mode == "direct" else {}

    def layout(self, streams: Mapping[str, AiCheckpointParameters]) -> Layout:
        """Nothing is written before the first checkpoint."""
        return "never"

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """A thread for each rank, and another one that writes its state in the background."""
        threads = len(workload["ranks"]) * (2 if workload["mode"] == "background" else 1)
        stream = self.stream_of(jobs=threads, is_direct=workload["mode"] == "direct")
        return [{**stream, "durability": {"kind": "none"}}]

    def of_host(self, workload: Spec, case: Mapping[str, Any], number: int) -> Spec:
        """The ranks after those of other hosts; all begin a step at the next multiple of `pause`, or of a second."""
        stream = AiCheckpointParameters.model_construct(**case)
        first, most = number * stream.ranks, MODELS[stream.model].ranks
        if first + stream.ranks > most:
            raise TargetError(
                f"`{stream.model}` has {most} ranks; {number + 1} hosts with {stream.ranks} each have more",
                where="by the parameter `ranks`",
                hint=f"use fewer hosts, or `--set ranks={most // (number + 1)}`",
            )
        ranks = files_of(stream.model, stream.scale, stream.ranks, first)
        return {**workload, "ranks": _as_spec(ranks), "grid_ns": max(stream.pause, 10**9)}

    def result_of_hosts(self, added: JsonObject, results: Sequence[tuple[Mapping[str, Any], int]]) -> JsonObject:
        """Each step from its start on the first host to its end on the last."""
        steps = {}
        for name in ("checkpoints", "restores"):
            of_hosts = [[(step, shift_ns) for step in result["ai"].get(name, ())] for result, shift_ns in results]
            steps[name] = [_together(each) for each in zip(*of_hosts, strict=False)]
        return {**added, "ai": added["ai"] | steps}

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `buffered checkpoints`."""
        mode = {"mode": str(case["mode"])} if case.get("mode") else {}
        return {**mode, self.subject: "checkpoints"}


def _together(of_hosts: Sequence[tuple[Mapping[str, Any], int]]) -> JsonObject:
    """A step of all hosts, from that of each and the time to add to its instants."""
    begins = [step["begin_ns"] + shift_ns for step, shift_ns in of_hosts]
    late = [(step, begin_ns - min(begins)) for (step, _), begin_ns in zip(of_hosts, begins, strict=True)]
    ranks = [late_ns + rank_ns for step, late_ns in late for rank_ns in step["rank_complete_ns"]]
    cached = [step["cached_bytes"] for step, _ in late if "cached_bytes" in step]
    return {
        "begin_ns": min(begins),
        "begin_spread_ns": max(begins) - min(begins),
        **{name: max(late_ns + step[name] for step, late_ns in late) for name in ("returned_ns", "complete_ns")},
        "complete_median_ns": round(median(ranks)),
        "rank_complete_ns": sorted(ranks),
        **({"cached_bytes": sum(cached)} if len(cached) == len(late) else {}),
    }
