"""Ingest of training data: the loads of published training benchmarks, scaled down.

Record : batch : compute time are those of the model; `scale` shrinks the data set only. Nothing decodes samples.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field, model_validator

from iosonde.errors import did_you_mean
from iosonde.features.ai.load import AiLoad, request_rule, steady
from iosonde.plan import Cost, JsonObject
from iosonde.study.workload.reading import Cpus, Duration, DurationOrZero, Interval, Size, SizeOrZero, WithRules
from iosonde.study.workload.workload import Hints, Rate, Spec, taken, whole_of
from iosonde.units import MIB, format_duration

Loader = Literal["samples", "interleaved"]

SIZES_MAX = 1000
"""Different sizes of samples."""
SMALLEST_SAMPLE = 0.1
"""Smallest sample over the mean; the largest is as far above it."""
FILES_LEAST = 512
"""A scaled data set keeps this many files, as long as their samples can be fewer."""
STEPS_LEAST = 10
"""Steps of computing alone that a measurement must last."""


@dataclass(frozen=True)
class TrainingModel:
    """A published training load; source: <https://github.com/mlcommons/storage>, `configs/dlio/workload`."""

    loader: Loader
    files: int
    samples_per_file: int
    record_size: int
    record_deviation: int
    batch: int
    read_threads: int
    compute_ms: Mapping[str, float]
    """Time that a step computes, by accelerator, the first being the default."""
    prefetch: int = 2


MODELS = {
    "unet3d": TrainingModel("samples", 168, 1, 146_600_628, 68_341_808, 7, 4, {"h100": 323, "a100": 636, "b200": 162}),
    "resnet50": TrainingModel("interleaved", 1024, 1251, 114_660, 0, 400, 8, {"h100": 224, "a100": 435}),
    "cosmoflow": TrainingModel("interleaved", 524_288, 1, 2_828_486, 71_311, 1, 4, {"h100": 3.5, "a100": 5.51}),
    "retinanet": TrainingModel("samples", 1_170_301, 1, 322_957, 0, 24, 8, {"b200": 47.55}),
    # A sample: 48 of 200 columns of a row group, which has 6,144 rows of 761 bytes. A step: three of 16,384 rows each.
    "dlrm": TrainingModel("samples", 1024, 768, 6144 * 761 * 48 // 200, 0, 8, 4, {"b200": 3 * 0.375}),
    "flux": TrainingModel("samples", 4296, 288, 2_164_832, 0, 48, 8, {"b200": 1350}),
}


OF_MODEL: Any = None
"""Default of parameters that come from the model."""


class AiIngestParameters(WithRules):
    """Accelerators that train a model. Parameters that are not given are those of `model`."""

    model: str = "resnet50"
    """Published training load: `unet3d`, `resnet50`, `cosmoflow`, `retinanet`, `dlrm` or `flux`."""
    accelerator: str = Field(OF_MODEL)
    """Accelerator whose compute time is taken: `h100`, `a100` or `b200`; empty: the first published."""
    accelerators: int = Field(1, ge=1, le=1024)
    """Number of accelerators, each with its own readers and its share of the data set."""
    scale: float = Field(1.0, gt=0, le=1)
    """Size of the data set over the published one."""
    files: int = Field(OF_MODEL, ge=1, le=2_000_000)
    """Files of the data set, instead of `scale`."""
    samples_per_file: int = Field(OF_MODEL, ge=1, le=10_000_000)
    """Samples of a file, instead of `scale`."""
    record_size: Size = Field(OF_MODEL)
    """Mean size of a sample."""
    record_deviation: SizeOrZero = Field(OF_MODEL)
    """Standard deviation of the size of a sample."""
    loader: Loader = Field(OF_MODEL)
    """`samples`: each thread reads whole batches, and opens and closes the file of each sample (PyTorch);
    `interleaved`: each thread reads whole files into one queue (TFRecord)."""
    batch: int = Field(OF_MODEL, ge=1, le=1_000_000)
    """Samples of a step."""
    read_threads: int = Field(OF_MODEL, ge=1, le=256)
    """Threads of an accelerator that read."""
    prefetch: int = Field(OF_MODEL, ge=1, le=1024)
    """Batches that are read ahead; with `samples` rounded up to a multiple of `read_threads`."""
    compute_time: Duration = Field(OF_MODEL)
    """Time that an accelerator computes in a step."""
    barrier: bool = True
    """All accelerators wait for one another after each step, as they do to exchange gradients."""
    request_size: Size = Field(OF_MODEL)
    """Largest read; empty: 1 MiB with `samples`, 256 KiB with `interleaved`."""
    io_mode: Literal["direct", "buffered"] = "direct"
    """Direct I/O, which the page cache does not serve, or reads through the page cache."""
    page_cache: Literal["drop", "keep", "warm"] = "drop"
    """Pages of the files before the load: dropped, left, or all read once."""
    ramp: DurationOrZero = 2 * 10**9
    """Load before the measurement."""
    duration: Duration = 20 * 10**9
    """Length of the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (threads of accelerator `i` on the `i`-th), as a list or `0-3`; empty: any."""

    @model_validator(mode="before")
    @classmethod
    def _of_model(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the parameters of the model."""
        name = str(given.get("model", "resnet50"))
        if name not in MODELS:
            near = did_you_mean(name, MODELS) or f"there are `{'`, `'.join(MODELS)}`"
            raise ValueError(f"there is no training load `{name}`; {near}")
        model = MODELS[name]
        accelerator = str(given.get("accelerator") or next(iter(model.compute_ms)))
        if accelerator not in model.compute_ms and "compute_time" not in given:
            known = f"`{'`, `'.join(model.compute_ms)}`"
            raise ValueError(f"no compute time of `{name}` is published for `{accelerator}`; use one of {known}")
        files, samples = _scaled(model, _share(given.get("scale")))
        own = {field: value for field, value in vars(model).items() if field != "compute_ms"}
        own |= {"accelerator": accelerator, "files": files, "samples_per_file": samples}
        own["compute_time"] = f"{model.compute_ms.get(accelerator)}ms"
        own["request_size"] = MIB if given.get("loader", model.loader) == "samples" else MIB // 4
        return own | given

    def _rules(self) -> list[tuple[bool, str]]:
        is_interleaved = self.loader == "interleaved"
        what, items = ("files", self.files) if is_interleaved else ("samples", self.files * self.samples_per_file)
        needed = self.accelerators * (self.read_threads if is_interleaved else 1)
        need = "1 accelerator needs" if self.accelerators == 1 else f"{self.accelerators} accelerators need"
        few = f"{need} {needed:,} {what}, got {items:,}; use a larger `scale`"
        short = f"`duration` must be at least {STEPS_LEAST} steps of {format_duration(self.compute_time)}"
        return [
            request_rule(self.request_size),
            (self.io_mode == "direct" and self.page_cache == "warm", "direct I/O does not use the page cache"),
            (items < needed, few),
            (self.duration < STEPS_LEAST * self.compute_time, short),
        ]


def _share(scale: Any) -> float:
    """A scale as written; 1 for one that its own field refuses."""
    try:
        return float(scale) if 0 < float(scale) <= 1 else 1.0
    except (TypeError, ValueError):
        return 1.0


def _scaled(model: TrainingModel, scale: float) -> tuple[int, int]:
    """Files and samples per file: fewer files first, then fewer samples, so that each reader has files of its own."""
    samples = max(1, round(model.files * model.samples_per_file * scale))
    files = max(min(FILES_LEAST, model.files), round(samples / model.samples_per_file))
    return (files, round(samples / files)) if samples > files else (samples, 1)


@lru_cache(maxsize=64)
def sample_sizes(samples: int, mean: int, deviation: int) -> Sequence[int]:
    """Sizes of samples in bytes, which repeat: quantiles of a normal distribution, in a random order."""
    if not deviation:
        return [mean]
    count = min(samples, SIZES_MAX)
    most = (1 - SMALLEST_SAMPLE) * mean / deviation
    normal = NormalDist()
    scores = (normal.inv_cdf((number + 0.5) / count) for number in range(count))
    sizes = [round(mean + deviation * min(max(score, -most), most)) for score in scores]
    random.Random(count).shuffle(sizes)
    return sizes


class AiIngest(AiLoad[AiIngestParameters]):
    """Ingest of training data; an operation is the read of a sample, or of a part of a file."""

    name = "ai_ingest"
    title = "ingest of training data"
    stream_name = "ingest"
    parameters = AiIngestParameters
    shown = ("model", "accelerator", "accelerators", "batch", "record_size", "compute_time", "io_mode", "duration")
    is_paced = True
    counts = ("accelerators",)
    scalable = whole_numbers = ("accelerators",)
    rate = Rate("reads/s", counted="reads")
    hints = Hints(
        smaller="use a smaller data set with `--set scale=...`",
        sized_by="by the parameters `model` and `scale`, or `files`, `samples_per_file` and `record_size`",
        less_memory="use fewer `accelerators` or `read_threads`, or a smaller `request_size`",
    )
    operations = ("read",)
    subject = "model"
    worded = stated = ("model", "accelerator")

    def spec(self, stream: AiIngestParameters) -> JsonObject:
        """All accelerators on one data set."""
        return {
            **taken(stream, "files", "samples_per_file", "loader", "io_mode", "accelerators", "batch", "read_threads"),
            **taken(stream, "prefetch", "barrier", "page_cache"),
            "sample_bytes": list(_sizes(stream)),
            "request_bytes": stream.request_size,
            "compute_ns": stream.compute_time,
            **steady(stream.ramp, stream.duration, stream.interval),
        }

    def cost(self, streams: Mapping[str, AiIngestParameters]) -> Cost:
        """Ramp and measurement; nothing is written."""
        whole = whole_of(streams)
        return Cost(seconds=(whole.ramp + whole.duration) / 10**9, write_bytes=0)

    def identity(self, stream: AiIngestParameters) -> str:
        """Number and sizes of files and samples."""
        return f"{stream.files}|{stream.samples_per_file}|{stream.record_size}|{stream.record_deviation}"

    def sizes_of_files(self, stream: AiIngestParameters) -> Sequence[int]:
        """Sums of the sizes of samples that follow one another."""
        samples = cycle(_sizes(stream))
        return [sum(islice(samples, stream.samples_per_file)) for _ in range(stream.files)]

    def buffer_bytes(self, streams: Mapping[str, AiIngestParameters]) -> int:
        """One buffer for each reader."""
        whole = whole_of(streams)
        return whole.accelerators * whole.read_threads * whole.request_size

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The accelerators, each with a read in flight in each of its readers."""
        stream = self.stream_of(jobs=workload["accelerators"], is_direct=workload["io_mode"] == "direct")
        return [{**stream, "name": "accelerators", "queue_depth": workload["read_threads"]}]

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `ingest of resnet50 (h100)`."""
        model, accelerator = case.get("model"), case.get("accelerator")
        return {"model": f"ingest of {model}{f' ({accelerator})' if accelerator else ''}" if model else "ingest"}


def _sizes(stream: AiIngestParameters) -> Sequence[int]:
    return sample_sizes(stream.files * stream.samples_per_file, stream.record_size, stream.record_deviation)
