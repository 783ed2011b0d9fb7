"""Comparison of volumes under load alone and together: one limit for all of them, or separate limits.

`compare` is a generator that requests stages and receives one series for each loaded volume. The order of the stages is
each volume, all of them, repeated; then all with a quarter of the queue depth. Volumes with separate limits keep their
rates. The harness, the CPU and a device below all of them also lower rates that they share, so a shared limit is named
only if the sum is as constant as a rule, does not depend on the queue depth, and the harness was not the limit. Of more
than two volumes, a few may share a limit: then each one is left out in turn, which must raise the rates of the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from iosonde.errors import StudyError
from iosonde.features.rate_limits.identify import FAST_BYTES, FAST_OPERATIONS
from iosonde.features.rate_limits.known_limits import Estimate, Parameter
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage
from iosonde.features.rate_limits.stages import CONTINUE, carried_out, invalid, series_of, stream_of, times_of
from iosonde.features.rate_limits.walk import COUNTED, FailedError, OutOfTimeError, StoppedError, last_segment, same
from iosonde.plan import Case, Run, target_of
from iosonde.planning.procedure.observations import Conclusion, Forecast, Observation, Observations, RunGenerator
from iosonde.study.model import Part, Study
from iosonde.study.workload.block import BLOCK
from iosonde.units import format_duration

Verdict = Literal["shared", "separate", "undecided"]
_LOWER = 0.05
"""Smallest share of the sum that is lost under a shared limit."""

Stages = Generator[Stage, Sequence[Series], "Level"]


class Bounds(BaseModel):
    """Bounds of a comparison, as a plan has them."""

    model_config = ConfigDict(frozen=True)

    probe_s: float
    """Length of a stage."""
    drain_s: float
    """Longest length, where the rate drops in a stage."""
    total_s: float
    """Time of all stages together, after which no further one starts."""
    repeats: int = 2
    queue_depth: int = 64


@dataclass(frozen=True, kw_only=True)
class Level:
    """Rates at the end of a stage, in operations per second."""

    rates: tuple[float, ...]
    """Of each loaded volume."""
    sum: Segment
    is_harness_limited: bool


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Conclusion of a comparison."""

    verdict: Verdict
    reason: str = ""
    """Reason for which it is undecided."""
    load: Load
    alone: tuple[Parameter, ...] = ()
    """Rate of each volume while the others are idle."""
    together: tuple[Parameter, ...] = ()
    """Rate of each volume while all are loaded."""
    sum: Parameter | None = None
    """Sum of the rates while all are loaded."""
    failure: str = ""

    @property
    def is_further_limit(self) -> bool:
        """True if all together exceed each one alone, so that the shared limit is not that of a single volume."""
        return self.sum is not None and self.sum.low > (1 + STEP) * max(each.value for each in self.alone)


@dataclass
class _Comparison:
    load: Load
    bounds: Bounds
    used_s: float = 0.0

    def level(self, name: str, volumes: tuple[int, ...], load: Load | None = None) -> Stages:
        """Load volumes until their rates do not drop any more."""
        length = self.bounds.probe_s
        while True:
            if self.used_s + length > self.bounds.total_s:
                raise OutOfTimeError(name)
            series = yield Stage(name=name, load=load or self.load, seconds=length, volumes=volumes)
            self.used_s += sum(series[0].seconds)
            whole = _sum(series)
            last = last_segment(whole)
            long_enough = last.seconds >= whole.loaded_s / 2 and last.rate * last.seconds >= COUNTED / 2
            if long_enough or length >= self.bounds.drain_s:
                return _level(series, last)
            length = min(2 * length, self.bounds.drain_s)

    def groups(
        self, alone: Sequence[Sequence[Level]], together: Sequence[Level]
    ) -> Generator[Stage, Sequence[Series], list[set[int]]]:
        """Leave out each volume in turn, and sort the volumes into groups that take rates from each other.

        Without a volume of a shared limit, the others have its rate, up to their own limits. A volume has to rise by
        half of its share of that.
        """
        most = [max(each.rates[volume] for each in together) for volume in range(len(alone))]
        groups = [{volume} for volume in range(len(alone))]
        for left_out in range(len(alone)):
            others = [volume for volume in range(len(alone)) if volume != left_out]
            level = yield from self.level(f"without{left_out + 1}", tuple(others))
            share = most[left_out] / sum(most[each] for each in others)
            for each, rate in zip(others, level.rates, strict=True):
                expected = min(share, _mean(alone[each]) / most[each] - 1)
                if rate > (1 + max(STEP, expected / 2)) * most[each]:
                    joined = [group for group in groups if group & {each, left_out}]
                    groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        return groups


def compare(load: Load, bounds: Bounds, volumes: int) -> Generator[Stage, Sequence[Series], Sharing]:
    """Request stages, and conclude from their rates."""
    stages = _Comparison(load=load, bounds=bounds)
    everyone = tuple(range(volumes))
    alone: list[list[Level]] = [[] for _ in everyone]
    together: list[Level] = []
    quarter: Level | None = None
    try:
        for number in range(1, bounds.repeats + 1):
            for volume, found in enumerate(alone):
                found.append((yield from stages.level(f"volume{volume + 1}-{number}", (volume,))))
            together.append((yield from stages.level(f"all-{number}", everyone)))
        if _lost(alone, together) >= _LOWER:
            less = replace(load, queue_depth=max(1, load.queue_depth // 4))
            quarter = yield from stages.level("all-depth", everyone, less)
        verdict, reason = _verdict(load, alone, together, quarter)
        if verdict == "shared" and volumes > 2:
            groups = yield from stages.groups(alone, together)
            if len(groups) > 1:
                verdict, reason = "undecided", _partly(groups)
    except (OutOfTimeError, StoppedError) as end:
        why = "the time bound was reached before" if isinstance(end, OutOfTimeError) else "the study was stopped in"
        reason = f"{why} the stage `{end}`"
        return Sharing(verdict="undecided", reason=reason, load=load)
    return Sharing(
        verdict=verdict,
        reason=reason,
        load=load,
        alone=tuple(_parameter([each.sum.rate for each in found], found) for found in alone),
        together=tuple(_parameter([each.rates[volume] for each in together], together) for volume in everyone),
        sum=_parameter([each.sum.rate for each in together], together),
    )


def _verdict(
    load: Load, alone: Sequence[Sequence[Level]], together: Sequence[Level], quarter: Level | None
) -> tuple[Verdict, str]:
    changing = max(_range([each.sum.rate for each in found]) for found in (*alone, together))
    kept = [level.rates[volume] / _mean(alone[volume]) for level in together for volume in range(len(alone))]
    if min(kept) >= 1 - STEP and changing <= 2 * STEP:
        return "separate", ""
    if changing > STEP:
        return "undecided", f"the rate of the same load differs by {100 * changing:.1f} % between repeats"
    lost = _lost(alone, together)
    if quarter is None:
        return "undecided", f"together the volumes lose only {100 * lost:.1f} % of their rates"
    if any(each.is_harness_limited for each in (*together, quarter)):
        return "undecided", "the harness was the limit while all volumes were loaded"
    varying = [each.sum.spread for each in together if not each.sum.is_constant]
    if varying:
        return "undecided", (
            f"together the volumes lose {100 * lost:.0f} % of their rates, but the sum varies by "
            f"{100 * max(varying):.1f} %, as that of a device or a CPU that all use"
        )
    if not same(quarter.sum.rate, _mean(together)):
        return "undecided", "the sum depends on the queue depth, as that of a device that all use"
    rate = _mean(together)
    if rate > FAST_OPERATIONS or rate * load.block_size > FAST_BYTES:
        return "undecided", "the sum is constant, but so high that a controller or a link may be the limit"
    return "shared", ""


def _lost(alone: Sequence[Sequence[Level]], together: Sequence[Level]) -> float:
    """Share of the sum of all rates that is lost while all volumes are loaded."""
    return 1 - _mean(together) / sum(map(_mean, alone))


def _level(series: Sequence[Series], last: Segment) -> Level:
    counts = [float(each.operations[np.cumsum(each.seconds) > last.start_s].sum()) for each in series]
    return Level(
        rates=tuple(last.rate * count / max(sum(counts), 1e-9) for count in counts),
        sum=last,
        is_harness_limited=any(each.is_harness_limited for each in series),
    )


def _sum(series: Sequence[Series]) -> Series:
    reads, writes = (
        tuple(map(sum, zip(*(getattr(each, name) for each in series), strict=True))) for name in ("reads", "writes")
    )
    return replace(series[0], reads=reads, writes=writes)


def _partly(groups: Sequence[set[int]]) -> str:
    several = sorted(sorted(each) for each in groups if len(each) > 1)
    if not several:
        return "leaving out each volume in turn raises no other rate"
    named = " and among ".join(", ".join(str(volume + 1) for volume in each) for each in several)
    return f"leaving out each volume in turn raises other rates only among volumes {named}; compare such groups alone"


def _mean(levels: Sequence[Level]) -> float:
    return math.fsum(each.sum.rate for each in levels) / len(levels)


def _range(values: Sequence[float]) -> float:
    """Range of values, as a share of the largest."""
    return (max(values) - min(values)) / max(*values, 1e-9)


def _parameter(rates: Sequence[float], levels: Sequence[Level]) -> Parameter:
    """Mean of repeats, with an interval that holds each of them with its error."""
    errors = [each.sum.error * rate / max(each.sum.rate, 1e-9) for each, rate in zip(levels, rates, strict=True)]
    return Parameter(
        value=math.fsum(rates) / len(rates),
        low=min(rate - error for rate, error in zip(rates, errors, strict=True)),
        high=max(rate + error for rate, error in zip(rates, errors, strict=True)),
        estimates=tuple(Estimate(method=f"repeat {number}", value=rate) for number, rate in enumerate(rates, start=1)),
    )


NAME = "compare_volumes"


class Written(BaseModel):
    """Settings as a study writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    probe: str = "5s"
    """Length of a stage."""
    drain: str = "3min"
    """Longest length of a stage in which the rate drops."""
    total: str = "1h"
    """Bound of all stages together."""
    repeats: int = Field(2, ge=2, le=10)
    """Number of repeats."""


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
        bounds = _resolved(part, study)
        total, probe = (format_duration(round(seconds * 10**9)) for seconds in (bounds.total_s, bounds.probe_s))
        most_runs = int(bounds.total_s / bounds.probe_s) + 1
        longest = {"duration": f"{bounds.total_s:g}s", "ramp": 0, "queue_depth": bounds.queue_depth}
        return Forecast(
            settings=bounds.model_dump(),
            extremes=[longest],
            decided=["queue_depth", "duration", "interval", "active"],
            max_runs=most_runs,
            preparing=most_runs - 1,
            rates_known=False,
            text=f"compares the rates of volumes alone and together in at most {total}: {bounds.repeats} stages "
            f"of {probe} or more for each and for all, one more for all, and one without each of 3 or more volumes",
        )

    def runs(self, case: Case, observations: Observations) -> RunGenerator:
        """One run for each stage."""
        assert case.procedure, "a case with a procedure"
        bounds = Bounds(**case.procedure.settings)
        workload = case.procedure.spec["workload"]
        target = target_of(workload)
        is_virtual = target["kind"] == "virtual"
        volumes = workload["backend"]["array"]["drives"] if is_virtual else 1 + len(target["beside"])
        volume_bytes = target["size_bytes"] // (volumes if is_virtual else 1)
        load = Load(
            block_size=int(case.parameters["block_size"]),
            read_fraction=float(case.parameters["read_fraction"]),
            queue_depth=bounds.queue_depth,
        )
        ended: list[str] = []
        loaded: list[tuple[tuple[int, ...], tuple[Series, ...]]] = []

        def answer(run: Run, observation: Observation, stage: Stage) -> Sequence[Series]:
            ended.append(run.case_id)
            series = tuple(
                series_of(observation, stage, None, is_virtual=is_virtual, stream=stream_of(volume))
                for volume in stage.volumes
            )
            loaded.append((stage.volumes, series))
            return series

        is_stopped = False
        try:
            stages = compare(load, bounds, volumes)
            found, is_stopped = yield from carried_out(case, stages, answer, volume_bytes=volume_bytes)
        except FailedError as failed:
            found = Sharing(verdict="undecided", reason=str(failed), load=load, failure=str(failed))
        return SharingConclusion(
            case_id=case.case_id,
            reached=not found.failure and not is_stopped,
            reason=CONTINUE if is_stopped else found.reason,
            value=found.sum.value if found.sum else None,
            found=found,
            stages=tuple(ended),
            loaded=tuple(loaded),
        )


def _resolved(part: Part, study: Study) -> Bounds:
    """Read the settings; `StudyError` where they are invalid."""
    assert part.procedure, "a part with a procedure"
    try:
        read = Written.model_validate(part.procedure.settings)
        times = times_of(read, "probe", "drain", "total")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise invalid(NAME, Written, f"`{'.'.join(map(str, problem['loc']))}`: {problem['msg']}") from None
    except ValueError as error:
        raise invalid(NAME, Written, str(error)) from None
    written = {"files": "shared", "queue_depth": 64, **study.measurement, **part.measurement}
    queue_depth = BLOCK.read_value("queue_depth", written["queue_depth"])
    if not isinstance(queue_depth, int) or queue_depth < 4:
        raise StudyError(
            f"`{NAME}` requires a single `queue_depth` of at least 4: a quarter of it is tried as well",
            hint=f"got {written['queue_depth']}",
        )
    if written["files"] != "per_device":
        raise StudyError(f'`{NAME}` requires `files = "per_device"`', hint=f"got `{written['files']}`")
    return Bounds(**times, repeats=read.repeats, queue_depth=queue_depth)
