"""Checkpoints of a training job and restores: parameters, the spec, and what a run takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

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
    """Ranks that write here, the first ones of the job, each in a thread."""
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
            (self.ranks > most, f"`{self.model}` has {most} ranks, and `ranks` is {self.ranks}"),
            request_rule(self.request_size),
        ]


@lru_cache(maxsize=16)
def files_of(model: str, scale: float, ranks: int) -> Sequence[Sequence[File]]:
    """The files of the first ranks, with scaled tensors."""
    return [
        [(name, tuple(max(1, round(size * scale)) for size in tensors)) for name, tensors in MODELS[model].files(rank)]
        for rank in range(ranks)
    ]


def _files(stream: AiCheckpointParameters) -> Sequence[Sequence[File]]:
    return files_of(stream.model, stream.scale, stream.ranks)


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
    subject = "checkpoint_count"
    worded = stated = ("mode",)

    def spec(self, stream: AiCheckpointParameters) -> JsonObject:
        """Checkpoints of the first ranks."""
        ranks = [[{"name": name, "tensors": list(tensors)} for name, tensors in files] for files in _files(stream)]
        return {
            "ranks": ranks,
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

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `buffered checkpoints`."""
        mode = {"mode": str(case["mode"])} if case.get("mode") else {}
        return {**mode, self.subject: "checkpoints"}
