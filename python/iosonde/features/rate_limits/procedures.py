"""The procedure `identify_limits`: runs for the stages of an identification, and series from their records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from iosonde.errors import StudyError
from iosonde.features.rate_limits import sharing
from iosonde.features.rate_limits.identify import identify
from iosonde.features.rate_limits.known_limits import Identification
from iosonde.features.rate_limits.record import RateLimits
from iosonde.features.rate_limits.series import Series, Stage
from iosonde.features.rate_limits.stages import CONTINUE, carried_out, invalid, series_of, times_of
from iosonde.features.rate_limits.walk import FailedError, Settings
from iosonde.plan import Case, Run, target_of
from iosonde.planning.procedure.observations import Conclusion, Forecast, Observation, Observations, RunGenerator
from iosonde.study.model import Part, Study
from iosonde.study.workload.block import BLOCK
from iosonde.units import format_bytes, format_duration, parse_size

NAME = "identify_limits"
_MOST_RUNS = 400
_SECOND = 1_000_000_000


class Written(BaseModel):
    """Settings as a study writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    probe: str = "5s"
    """Length of a short stage."""
    drain: str = "170s"
    """Longest time to drain one bucket."""
    rest: str = "2min"
    """Longest rest; `0s`: none."""
    total: str = "1h"
    """Bound of all stages together."""
    largest: str = "1MiB"
    """Largest block size."""
    operations: Literal["reads", "writes", "both"] = "both"
    """Which limits to identify."""


@dataclass(frozen=True, kw_only=True)
class LimitsConclusion(Conclusion):
    """Conclusion of an identification."""

    found: Identification
    stages: tuple[tuple[str, Series], ...]
    """The case of each stage, and its series."""
    target: Mapping[str, Any] = field(default_factory=dict)
    """Target and its surroundings, as the records describe them."""
    surroundings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> Collection[str]:
        return [case_id for case_id, _ in self.stages]


def resolved(written: Mapping[str, Any], *, smallest: int, queue_depth: int) -> Settings:
    """Read the settings; `StudyError` where they are invalid."""
    try:
        read = Written.model_validate(written)
        largest = parse_size(read.largest)
        times = times_of(read, "probe", "drain", "rest", "total")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = f"`{'.'.join(map(str, problem['loc']))}`"
        is_unknown = problem["type"] == "extra_forbidden"
        raise invalid(
            NAME, Written, f"{name} is not a setting of it" if is_unknown else f"{name}: {problem['msg']}"
        ) from None
    except ValueError as error:
        raise invalid(NAME, Written, str(error)) from None
    if largest < 4 * smallest:
        raise StudyError(
            "`largest` must be at least 4 times `block_size`",
            hint=f"got {read.largest} and {format_bytes(smallest)}: what a limit counts shows over block sizes",
        )
    if not 4 <= queue_depth <= 4096:
        raise StudyError(
            f"`{NAME}` requires a `queue_depth` from 4 to 4,096: a quarter of it is tried as well",
            hint=f"got {queue_depth}",
        )
    return Settings(
        **times,
        smallest=smallest,
        largest=largest,
        queue_depth=queue_depth,
        reads=read.operations != "writes",
        writes=read.operations != "reads",
    )


def _settings(part: Part, study: Study) -> Settings:
    assert part.procedure, "a part with a procedure"
    written = {"block_size": "4KiB", "queue_depth": 64, **study.measurement, **part.measurement}
    values = {name: BLOCK.read_value(name, written[name]) for name in ("block_size", "queue_depth")}
    for name, value in values.items():
        if not isinstance(value, int):
            raise StudyError(f"`{NAME}` requires a single `{name}`", hint=f"got {written[name]}")
    return resolved(part.procedure.settings, smallest=values["block_size"], queue_depth=values["queue_depth"])


class _Kind:
    INTERLEAVED = False

    def forecast(self, part: Part, study: Study) -> Forecast:
        """Return the bounds: runs depend on what is found, their time does not exceed `total`."""
        settings = _settings(part, study)
        fractions = [1.0] * settings.reads + [0.0] * settings.writes
        extremes = [
            {"block_size": size, "read_fraction": fraction, "queue_depth": settings.queue_depth, "ramp": 0}
            for fraction in fractions
            for size in (settings.smallest, settings.largest)
        ]
        total = {"duration": f"{settings.total_s:g}s", "ramp": 0, "read_fraction": fractions[-1]}
        return Forecast(
            settings=settings.model_dump(exclude={"touch_span"}),
            extremes=extremes,
            stages=[total],
            decided=["block_size", "read_fraction", "queue_depth", "access", "active", "duration", "interval"],
            max_runs=_MOST_RUNS,
            preparing=_MOST_RUNS,
            rates_known=False,
            text=_text(settings),
        )

    def runs(self, case: Case, observations: Observations) -> RunGenerator:
        """One run for each stage of the identification."""
        assert case.procedure, "a case with a procedure"
        kind = target_of(case.procedure.spec["workload"])["kind"]
        # A file was written before its first stage, in whole or in part.
        touch_span = int(case.parameters["span"]) if kind in ("device", "virtual") else 0
        settings = Settings(**case.procedure.settings, touch_span=touch_span)
        observed: list[Observation] = []
        known: list[tuple[str, Series]] = []

        def answer(run: Run, observation: Observation, stage: Stage) -> Series:
            before = observed[-1] if observed else None
            observed.append(observation)
            series = series_of(observation, stage, before, is_virtual=kind == "virtual")
            known.append((run.case_id, series))
            return series

        try:
            found, _ = yield from carried_out(case, identify(settings), answer)
        except FailedError as failed:
            found = Identification(verdict="undecided", reason=str(failed), failure=str(failed))
        surroundings = observed[-1].record.of(RateLimits) if observed else None
        return LimitsConclusion(
            case_id=case.case_id,
            reached=not found.failure and not found.stopped_at,
            reason=CONTINUE if found.stopped_at else found.reason,
            value=found.rules[0].rate.value if found.rules else None,
            found=found,
            stages=tuple(known),
            target=observed[-1].record.target if observed else {},
            surroundings=surroundings.context if surroundings else {},
        )


KINDS = ((NAME, _Kind()), (sharing.NAME, sharing.Kind()))


def _of_plan(settings: type[BaseModel]) -> type[BaseModel]:
    """Settings as a plan has them: all, but for the one that follows from the target."""
    given: dict[str, Any] = {name: (each.annotation, ...) for name, each in settings.model_fields.items()}
    given.pop("touch_span", None)
    return create_model(settings.__name__, **given)


SETTINGS = ((NAME, _of_plan(Settings)), (sharing.NAME, _of_plan(sharing.Bounds)))


def _text(settings: Settings) -> str:
    """Time of each stage, in words."""
    total, drain, rest, probe = (
        format_duration(round(seconds * _SECOND))
        for seconds in (settings.total_s, settings.drain_s, settings.rest_s, settings.probe_s)
    )
    rests = f"refill and bucket size: rests of up to {rest} each"
    skipped = "refill and bucket size: not measured, because no rest is allowed"
    return (
        f"identifies rate limits in at most {total}: first accesses on devices: 9 stages of 1 s; "
        f"sustained rate and burst: a drain of up to {drain} for each limit; what is counted: up to 20 stages of "
        f"{probe} or more with blocks of {settings.smallest // 1024} to {settings.largest // 1024} KiB; "
        f"{rests if settings.rest_s >= 1 else skipped}"
    )
