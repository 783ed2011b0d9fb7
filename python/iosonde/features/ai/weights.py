"""Loading of weights: files of the user or of a published model's sizes, and how they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from iosonde.base import text_files
from iosonde.errors import StudyError, TargetError, did_you_mean
from iosonde.features.ai.load import AiLoad, request_rule
from iosonde.features.ai.models import DENSE
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.study.workload.reading import Cpus, DurationOrNone, Interval, Size, WithRules, parse_path
from iosonde.study.workload.servers import open_directory
from iosonde.study.workload.workload import Hints, Layout, Rate, Spec, taken, whole_of
from iosonde.units import MIB

if TYPE_CHECKING:
    from iosonde.storage import Target

ELEMENT_BYTES = 2
"""bfloat16."""
SHARD_BYTES = 5 * 10**9
"""Largest file, as `save_pretrained` of the library transformers divides models by default."""
_HEADER_MAX = 100_000_000
"""Largest header that the library safetensors accepts."""
_ENTRY_BYTES = 112
"""Room for one tensor in the header of a generated file."""
_ALIGNMENT = 8

Strategy = Literal["mmap", "mmap-random", "mmap-willneed", "mmap-populate", "read", "direct"]


@dataclass(frozen=True)
class WeightFile:
    """A file of weights."""

    path: str
    """Absolute; of a generated file its name."""
    bytes: int
    tensors: tuple[int, ...]
    """First byte of each tensor in the file, in ascending order."""


class AiWeightsParameters(WithRules):
    """One load of all files, by `threads` threads."""

    files: Annotated[str | None, BeforeValidator(parse_path)] = None
    """Files in the format safetensors, as a pattern such as `/models/llama/*.safetensors`; empty: files of the sizes of
    `model` are written to the target."""
    model: str = "llama3.1-8b"
    """Published model whose files are generated."""
    scale: float = Field(1.0, gt=0, le=1)
    """Size of each generated tensor over that of the model."""
    strategy: Strategy = "mmap"
    """`mmap`: tensors are copied out of a memory map, in their order; `mmap-random`: without read-ahead
    (`MADV_RANDOM`); `mmap-willneed`, `mmap-populate`: after `MADV_WILLNEED` or `MADV_POPULATE_READ`; `read`: whole
    files with `pread(2)`; `direct`: requests of direct I/O."""
    threads: int = Field(1, ge=1, le=256)
    """Threads. With `direct` each has one request in flight, otherwise each loads whole files."""
    request_size: Size = 16 * MIB
    """Largest read."""
    memory: Literal["pageable", "locked"] = "pageable"
    """Memory to read into: new for each tensor or request (`pageable`), or faulted in before the load and locked
    (`locked`), as buffers for transfers to an accelerator."""
    page_cache: Literal["drop", "keep", "warm"] = "drop"
    """Pages of the files before the load: dropped (a cold load), left, or all read once (a warm load)."""
    load_within: DurationOrNone = None
    """Time within which the weights must be loaded, for `weights_load_time_share`."""
    interval: Interval = 10**8
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (thread `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        near = did_you_mean(self.model, DENSE) or f"there are `{'`, `'.join(DENSE)}`"
        known = f"there is no model `{self.model}` whose weights can be generated; {near}"
        return [
            (self.files is None and self.model not in DENSE, known),
            request_rule(self.request_size),
            (self.strategy == "direct" and self.page_cache == "warm", "direct I/O does not use the page cache"),
        ]


class AiWeights(AiLoad[AiWeightsParameters]):
    """Loading of the weights of a model; an operation is a tensor of a memory map, or a read."""

    name = "ai_weights"
    title = "loading of weights"
    stream_name = "weights"
    parameters = AiWeightsParameters
    shown = ("model", "strategy", "threads", "request_size", "page_cache")
    places = ("files",)
    rate = Rate("reads/s", counted="reads")
    hints = Hints(
        smaller="load less with `--set scale=...`, or another `--set model=...`",
        sized_by="by the parameters `model` and `scale`",
        less_memory="use fewer `threads`, or a smaller `request_size`",
    )
    operations = ("read",)
    is_one_pass = ends_by_itself = True
    counts = ("threads",)
    subject = "strategy"
    worded = ("page_cache",)

    def fit(
        self, streams: Mapping[str, AiWeightsParameters], target: Target, *, room_bytes: int
    ) -> Mapping[str, AiWeightsParameters]:
        """Files of the user must be on the target's file system, whose devices are observed."""
        fitted = super().fit(streams, target, room_bytes=room_bytes)
        whole = whole_of(fitted)
        if whole.files is not None:
            _check_place(whole, target)
        return fitted

    def spec(self, stream: AiWeightsParameters) -> JsonObject:
        """One load of all files."""
        files = files_of(stream)
        return {
            "files": [{"path": each.path, "bytes": each.bytes, "tensors": list(each.tensors)} for each in files],
            "generate": stream.files is None,
            "strategy": stream.strategy.replace("-", "_"),
            "request_bytes": stream.request_size,
            **taken(stream, "threads", "memory", "page_cache"),
            "interval_ns": stream.interval,
        }

    def devices(self, streams: Mapping[str, AiWeightsParameters], target: Target) -> list[str]:
        """Block devices under the files."""
        whole = whole_of(streams)
        if whole.files is None:
            return super().devices(streams, target)
        directory = str(Path(files_of(whole)[0].path).parent)
        return open_directory(directory, parameter="files", hint="name files in a directory").block_devices()

    def cost(self, streams: Mapping[str, AiWeightsParameters]) -> Cost:
        """The time of one load."""
        size = sum(each.bytes for each in files_of(whole_of(streams)))
        return Cost(seconds=size / ASSUMED_BYTES_PER_SECOND, write_bytes=0)

    def identity(self, stream: AiWeightsParameters) -> str:
        """The model and its scale."""
        return f"{stream.model}|{stream.scale}"

    def sizes_of_files(self, stream: AiWeightsParameters) -> Sequence[int]:
        """Those of the generated files."""
        return [] if stream.files else [each.bytes for each in files_of(stream)]

    def buffer_bytes(self, streams: Mapping[str, AiWeightsParameters]) -> int:
        """One buffer for each thread."""
        whole = whole_of(streams)
        return whole.threads * whole.request_size

    def layout(self, streams: Mapping[str, AiWeightsParameters]) -> Layout:
        """Files of the user are never written."""
        return "never" if whole_of(streams).files else "missing"

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The threads of the load."""
        return [self.stream_of(jobs=workload["threads"], is_direct=workload["strategy"] == "direct")]

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """Files are generated in the target, or those that the case names."""
        if workload["generate"] == (case.get("files") is not None):
            return "the spec generates files, and the case names some, or the opposite"
        return ""

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `cold loads of weights`."""
        state = {"drop": "cold", "warm": "warm"}.get(str(case.get("page_cache")))
        return {**({"page_cache": state} if state else {}), self.subject: "loads of weights"}


def files_of(parameters: AiWeightsParameters) -> Sequence[WeightFile]:
    """The files of a load, in their order."""
    if parameters.files is None:
        return generated(parameters.model, parameters.scale)
    pattern = Path(parameters.files)
    paths = sorted({path.resolve() for path in pattern.parent.glob(pattern.name) if path.is_file()})
    if not paths:
        raise _unusable(parameters.files, "no file matches")
    return [_existing(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


@lru_cache(maxsize=16)
def generated(model: str, scale: float) -> Sequence[WeightFile]:
    """Files with the tensors of a model, as few as there are with at most `SHARD_BYTES` each at full size."""
    shards: list[list[int]] = [[]]
    for elements in DENSE[model].tensors():
        size = max(_ALIGNMENT, round(elements * ELEMENT_BYTES * scale) // _ALIGNMENT * _ALIGNMENT)
        if shards[-1] and sum(shards[-1]) + size > SHARD_BYTES * scale:
            shards.append([])
        shards[-1].append(size)
    files = []
    for number, sizes in enumerate(shards, start=1):
        start = -(-(8 + _ENTRY_BYTES * len(sizes)) // _ALIGNMENT) * _ALIGNMENT
        tensors = []
        for size in sizes:
            tensors.append(start)
            start += size
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        files.append(WeightFile(name, start, tuple(tensors)))
    return files


@lru_cache(maxsize=4096)
def _existing(path: str, size: int, _changed_ns: int) -> WeightFile:
    """Read the header of a file: <https://github.com/huggingface/safetensors>, section Format."""
    try:
        with os.fdopen(text_files.open_regular(Path(path)), "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_HEADER_MAX, size - 8):
                raise _unusable(path, f"its first 8 bytes give a header of {length:,} bytes")
            header = json.loads(file.read(length))
        ranges = sorted(tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__")
        starts = tuple(8 + length + int(begin) for begin, end in ranges if end > begin)
        ends = max((int(end) for _, end in ranges), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unusable(path, getattr(error, "strerror", None) or f"its header cannot be read ({error})") from None
    if not starts or 8 + length + ends != size or starts[0] < 8 + length:
        raise _unusable(path, f"its header describes {len(starts)} tensors, {8 + length + ends:,} of {size:,} bytes")
    return WeightFile(path, size, starts)


def _unusable(path: str, reason: str) -> StudyError:
    return StudyError(
        f"cannot load `{path}`: {reason}",
        where="by the parameter `files`",
        hint="name complete files in the format safetensors, such as `--set 'files=/models/llama/*.safetensors'`",
    )


def _check_place(whole: AiWeightsParameters, target: Target) -> None:
    if target.backend() is not None:
        raise TargetError(
            f"`{target.name}` is simulated, and has no files",
            where="by the parameter `files`",
            hint="leave out `files`, or name the directory of the files as the target",
        )
    elsewhere = [each.path for each in files_of(whole) if Path(each.path).stat().st_dev != target.file_system()]
    if elsewhere:
        raise TargetError(
            f"`{elsewhere[0]}` is not on the file system of the target `{target.name}`, whose devices are observed",
            where="by the parameter `files`",
            hint=f"name its directory as the target: `--target {Path(elsewhere[0]).parent}`",
        )
