"""The procedure `compare_volumes`: runs of the stages of a comparison of volumes."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from iosonde.errors import StudyError
from iosonde.features.rate_limits.series import Load, Series
from iosonde.features.rate_limits.sharing import Bounds, Sharing, compare
from iosonde.features.rate_limits.stages import CONTINUE, run_of, series_of, stopped_in, stream_of
from iosonde.plan import Case, JsonObject, Run, target_of
from iosonde.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RecordObservation,
    UnfinishedError,
)
from iosonde.study.model import Part, Study
from iosonde.units import format_duration, parse_duration
from iosonde.workload.block import BLOCK

NAME = "compare_volumes"
_SECOND = 1_000_000_000


class Written(BaseModel):
    """Settings as a study writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    probe: str = Field("5s", description="Length of a stage.")
    drain: str = Field("3min", description="Longest length of a stage in which the rate drops.")
    total: str = Field("1h", description="Bound of all stages together.")
    repeats: int = Field(2, ge=2, le=10, description="Number of repeats.")


class Resolved(TypedDict):
    """Settings in the plan."""

    probe_s: int | float
    drain_s: int | float
    total_s: int | float
    repeats: int
    queue_depth: int


@dataclass(frozen=True, kw_only=True)
class SharingConclusion(Conclusion):
    """Conclusion of a comparison of volumes."""

    found: Sharing
    stages: tuple[str, ...]
    """The case of each stage."""
    loaded: tuple[tuple[tuple[int, ...], tuple[Series, ...]], ...] = ()
    """The volumes that each stage loads, and a series of each of them."""

    @property
    def steps(self) -> Collection[str]:
        return self.stages


class Kind:
    """The procedure."""

    INTERLEAVED = False

    def forecast(self, part: Part, study: Study) -> Forecast:
        """Return the bounds: runs depend on what is found, their time does not exceed `total`."""
        settings = _resolved(part, study)
        total, probe = (format_duration(round(settings[name] * _SECOND)) for name in ("total_s", "probe_s"))
        most_runs = int(settings["total_s"] / settings["probe_s"]) + 1
        longest = {"duration": f"{settings['total_s']:g}s", "ramp": 0, "queue_depth": settings["queue_depth"]}
        return Forecast(
            settings=cast("JsonObject", settings),
            extremes=[longest],
            decided=["queue_depth", "duration", "interval", "active"],
            max_runs=most_runs,
            preparing=most_runs - 1,
            rates_known=False,
            text=f"compares the rates of volumes alone and together in at most {total}: {settings['repeats']} stages "
            f"of {probe} or more for each and for all, one more for all, and one without each of 3 or more volumes",
        )

    def runs(self, case: Case, observations: Observations) -> Generator[Run, Observation, Conclusion]:
        """One run for each stage."""
        assert case.procedure, "a case with a procedure"
        settings = cast("Resolved", case.procedure.settings)
        workload = case.procedure.spec["workload"]
        target = target_of(workload)
        is_virtual = target["kind"] == "virtual"
        volumes = workload["backend"]["array"]["drives"] if is_virtual else 1 + len(target["beside"])
        volume_bytes = target["size_bytes"] // (volumes if is_virtual else 1)
        load = Load(
            block_size=int(case.parameters["block_size"]),
            read_fraction=float(case.parameters["read_fraction"]),
            queue_depth=settings["queue_depth"],
        )
        bounds = Bounds(
            probe_s=settings["probe_s"],
            drain_s=settings["drain_s"],
            total_s=settings["total_s"],
            repeats=settings["repeats"],
        )
        is_stopped = False
        stages = compare(load, bounds, volumes)
        ended: list[str] = []
        loaded: list[tuple[tuple[int, ...], tuple[Series, ...]]] = []
        try:
            stage = next(stages)
            while True:
                run = run_of(case, stage, len(ended) + 1, volume_bytes=volume_bytes)
                observation = yield run
                assert isinstance(observation, RecordObservation), "an observation of a record"
                ended.append(run.case_id)
                series: Sequence[Series | None] = [
                    None
                    if observation.failure
                    else series_of(observation, stage, None, is_virtual=is_virtual, stream=stream_of(volume))
                    for volume in stage.volumes
                ]
                if None in series:
                    reason = observation.failure or f"no I/O of a volume completed in the stage {stage.name}"
                    found = Sharing(verdict="undecided", reason=reason, load=load, failure=reason)
                    break
                found_series = cast("Sequence[Series]", series)
                loaded.append((stage.volumes, tuple(found_series)))
                stage = stages.send(found_series)
        except StopIteration as end:
            found = end.value
        except UnfinishedError:
            found, is_stopped = stopped_in(stages, stage), True
        return SharingConclusion(
            case_id=case.case_id,
            reached=not found.failure and not is_stopped,
            reason=CONTINUE if is_stopped else found.reason,
            value=found.sum.value if found.sum else None,
            found=found,
            stages=tuple(ended),
            loaded=tuple(loaded),
        )


def _resolved(part: Part, study: Study) -> Resolved:
    """Read the settings; `StudyError` where they are invalid."""
    assert part.procedure, "a part with a procedure"
    known = f"its settings are {', '.join(f'`{name}`' for name in Written.model_fields)}"
    try:
        read = Written.model_validate(part.procedure.settings)
        seconds = {name: parse_duration(getattr(read, name)) / _SECOND for name in ("probe", "drain", "total")}
    except (ValidationError, ValueError) as error:
        what = str(error)
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False)[0]
            what = f"`{'.'.join(map(str, problem['loc']))}`: {problem['msg']}"
        raise StudyError(f"invalid settings of `{NAME}`: {what}", hint=known) from None
    if not 1 <= seconds["probe"] <= seconds["drain"] <= seconds["total"]:
        raise StudyError(
            "`probe` must be at least 1 s, at most `drain`, and `drain` at most `total`",
            hint=f"got {read.probe}, {read.drain} and {read.total}",
        )
    written = {"files": "shared", "queue_depth": 64, **study.measurement, **part.measurement}
    queue_depth = BLOCK.read_value("queue_depth", written["queue_depth"])
    if not isinstance(queue_depth, int) or queue_depth < 4:
        raise StudyError(
            f"`{NAME}` requires a single `queue_depth` of at least 4: a quarter of it is tried as well",
            hint=f"got {written['queue_depth']}",
        )
    if written["files"] != "per_device":
        raise StudyError(f'`{NAME}` requires `files = "per_device"`', hint=f"got `{written['files']}`")
    return Resolved(
        probe_s=seconds["probe"],
        drain_s=seconds["drain"],
        total_s=seconds["total"],
        repeats=read.repeats,
        queue_depth=queue_depth,
    )
