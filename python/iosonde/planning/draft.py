"""Cases with the streams that run in them, fitted to what they run on, and the device state that each has.

The state is the one that the study declares, or what target and profile allow, in SNIA's terms: *fresh* after a purge,
*preconditioned* once the range was written, *steady* once the rate of writes has settled. A small active range on a
purged drive never gets there: the spare blocks absorb its writes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.plan import MOST_CASES, Capacity, Case, Cost, DeviceState, LeftOut, Purge, Setup
from iosonde.study.effective import read_level, streams_of, whole_case
from iosonde.study.load import CONTROL
from iosonde.study.model import UNTIL, Level, Parameters, Part, Scalar, Study
from iosonde.study.setup import SIZES as SETUP_SIZES
from iosonde.study.setup import check_workload, given_parameters, kernel_settings
from iosonde.study.setup import resolve as resolve_setup
from iosonde.study.workload.block.backends import VIRTUAL_DRIVES
from iosonde.study.workload.block.parameters import BlockParameters
from iosonde.study.workload.workload import Workload
from iosonde.units import compact_duration, compact_size, format_bytes, format_duration

if TYPE_CHECKING:
    from iosonde.planning.procedure.observations import Forecast
    from iosonde.storage import Target


T = TypeVar("T")


class SetupTargets:
    """The target as the workload sees it, with each setup of a study."""

    def __init__(self, target: Target) -> None:
        self.base = target
        self._made: dict[Setup | None, Target] = {None: target}

    def on(self, setup: Setup | None) -> Target:
        """With that setup; `TargetError` where the target cannot have it."""
        # The frequency of its recreation does not change it.
        key = setup and setup.model_copy(update={"fresh": "study"})
        if key not in self._made:
            assert key, "the target without a setup is known"
            self._made[key] = self.base.with_setup(key)
        return self._made[key]


class UnknownTarget:
    """A stand-in for a target, with unlimited room: for a study without one."""

    kind = "directory"

    def backend(self) -> None:
        """None: the workload chooses."""

    def free_bytes(self) -> int:
        return 1 << 60

    def direct_unit(self) -> None:
        """None: unknown."""

    def osd_bytes(self) -> None:
        """None: unknown."""

    def capacity(self) -> Capacity:
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        return ["format", "sanitize", "trim", "overwrite"]

    def device_count(self) -> int:
        return 256

    def with_setup(self, setup: Setup) -> UnknownTarget:
        return self


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A case and the streams that run in it."""

    case: Case
    number: int
    workload: Workload
    streams: Mapping[str, Any]
    """Their parameters. With a procedure, those of the largest load that it may try."""
    others: Sequence[Mapping[str, Any]] = ()
    """Those of everything else that its procedure may try."""
    following: Sequence[Mapping[str, Any]] = ()
    """Those of what follows its rounds."""
    kind: str = ""
    """The kind of its procedure, if it has one."""
    forecast: Forecast | None = None

    @property
    def max_runs(self) -> int:
        """Maximum number of runs of its procedure."""
        return self.forecast.max_runs if self.forecast else 0

    @property
    def most_measured(self) -> int:
        """Those of them that take as long as the case does."""
        return self.forecast.max_runs - self.forecast.preparing if self.forecast else 0

    @property
    def is_planned(self) -> bool:
        """True if the plan lists its first repeats."""
        return self.forecast is None or self.kind == UNTIL

    def varies(self, name: str) -> bool:
        """Return True if a parameter takes several values: as a factor, or by the procedure."""
        return name in self.case.levels or (self.forecast is not None and name in self.forecast.decided)


def drafts_of(study: Study, stages: SetupTargets, *, left_out: list[LeftOut] | None = None) -> list[Draft]:
    """Every case, the control first; their numbers are those of the runs.

    Cases of optional parts that the target cannot have go to `left_out`, if that is given.
    """
    _check_count(study)
    cases = [(part, levels) for part in study.parts for levels in _combinations(part, study.workload_of(part))]
    if not cases:
        raise StudyError(
            f"the study `{study.name}` has no cases",
            hint="every combination of levels is excluded: check `exclude` and `--set`",
        )
    drafts = []
    for number, (part, levels) in enumerate(cases, start=1):
        try:
            drafts.append(_draft(study, part, levels, number, stages))
        except TargetError as error:
            if left_out is None or not part.optional:
                raise
            left_out.append(left_out_for(error, case_id_of(study, part, levels), part.name))
    if study.control:
        control = Part(name=CONTROL, measurement=study.control.measurement)
        drafts.insert(0, _draft(study, control, {}, 0, stages))
    _check_distinct(drafts)
    return drafts


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Items with the same key together, in the order in which the keys come first."""
    groups: dict[Hashable, list[T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _combinations(part: Part, workload: Workload) -> Iterator[dict[str, Scalar | Level]]:
    """The product of the factors' levels in order, without what is excluded."""
    for levels in itertools.product(*part.factors.values()):
        combination = dict(zip(part.factors, levels, strict=True))
        read = {name: read_level(name, level, workload) for name, level in combination.items()}
        if not any(excluded.items() <= read.items() for excluded in part.exclude):
            yield combination


def _check_count(study: Study) -> None:
    """Raise for more combinations than can be planned and reported, before any of them exists."""
    counts = {part.name: math.prod(map(len, part.factors.values())) for part in study.parts}
    if sum(counts.values()) > MOST_CASES:
        largest = max(study.parts, key=lambda part: counts[part.name])
        product = " x ".join(f"{len(levels):,} of `{name}`" for name, levels in largest.factors.items())
        raise StudyError(
            f"a study must have at most {MOST_CASES:,} combinations of levels, got {sum(counts.values()):,}",
            where=f"in the part `{largest.name}`: {product}",
            hint="use fewer levels, or split the study",
        )


def _draft(
    study: Study,
    part: Part,
    levels: Mapping[str, Scalar | Level],
    number: int,
    stages: SetupTargets,
) -> Draft:
    workload = study.workload_of(part)
    case_id = case_id_of(study, part, levels)
    try:
        whole = whole_case(study, part, levels)
        setup = resolve_setup(whole, devices=stages.base.device_count())
        settings = kernel_settings(whole)
        target = stages.on(setup)
        room_bytes = target.free_bytes()
        kind, forecast = _forecast(part, study, is_control=number == 0)
        if setup:
            _check_setup(setup, kind, workload)
        extremes, following = (
            [_fitted(workload, streams_of(study, part, levels, chosen), target, room_bytes) for chosen in each]
            for each in ((forecast.extremes, forecast.stages) if forecast else ([{}], []))
        )
        streams = extremes[-1]
        _check_procedure(part, workload, streams, kind)
    except IosondeError as error:
        raise in_case(error, case_id, study) from None
    decided = forecast.decided if forecast else ()
    device_state, reason = attained(study, part, extremes, target)
    case = Case(
        case_id=case_id,
        part=part.name,
        control=number == 0,
        levels={name: read_level(name, level, workload) for name, level in levels.items()},
        parameters={
            **{name: value for name, value in _parameters(workload, streams).items() if name not in decided},
            **(part.rounds.criteria if part.rounds else {}),
            **({**given_parameters(whole), **setup.parameters} if setup else {}),
            **settings,
        },
        setup=setup,
        device_state=device_state,
        device_state_reason=reason,
        cost=_most([workload.cost(each) for each in extremes], forecast),
    )
    return Draft(
        case=case,
        number=number,
        workload=workload,
        streams=streams,
        others=(*extremes[:-1], *following),
        following=following,
        kind=kind,
        forecast=forecast,
    )


def case_id_of(study: Study, part: Part, levels: Mapping[str, Scalar | Level]) -> str:
    """Name of a case: its part and levels."""
    named = (f"{name}={level_text(study.workload_of(part), name, level)}" for name, level in levels.items())
    return "/".join([part.name, *named])


def left_out_for(error: IosondeError, case_id: str, part: str) -> LeftOut:
    """A case that cannot be carried out, with the reason."""
    return LeftOut(case_id=case_id, part=part, reason=error.what, hint=error.hint)


def _most(extremes: Sequence[Cost], forecast: Forecast | None) -> Cost:
    """The most that any of them takes."""
    written = [cost.write_bytes for cost in extremes]
    writes = any(size != 0 for size in written)
    is_known = None not in written and (forecast is None or forecast.rates_known)
    return Cost(
        seconds=max(cost.seconds for cost in extremes),
        write_bytes=max(size or 0 for size in written) if is_known or not writes else None,
    )


def _check_procedure(part: Part, workload: Workload, streams: Mapping[str, Any], kind: str) -> None:
    """Require rounds for prepared loads, since other runs come in an order that leaves no state as it was; and a length
    of rounds by which steady state can be judged, whether they are runs or parts of one."""
    prepared = [each for each in streams.values() if workload.prepares(each)]
    if kind != "rounds" and prepared:
        raise StudyError(
            "`purge`, `fill` and `precondition` require a part with `rounds`",
            hint="write `[parts.rounds]` with `max_rounds = 1` for a single run after each preparation",
        )
    if kind != "rounds" or not part.rounds:
        return
    if part.rounds.until_steady and not all(getattr(each, "round_length", None) for each in streams.values()):
        raise StudyError(
            "`until_steady` requires `round_length`: a run is judged by rounds of this length",
            hint='set `round_length = "60s"` in the measurement, a multiple of `interval`',
        )
    for stream in streams.values():
        own = getattr(stream, "round_length", None)
        length = own or (stream.duration if part.rounds.sought else None)
        if isinstance(length, int) and length < part.rounds.min_length:
            name, least = "round_length" if own else "duration", format_duration(part.rounds.min_length)
            raise StudyError(
                f"rounds must be at least {least} long to be judged for steady state; got {format_duration(length)}",
                where=f"by the parameter `{name}`",
                hint=f"increase `{name}`, or lower `min_length` of the part's rounds",
            )
    # Steps of preparation write the files of one stream.
    if len(streams) > 1 and any(each.files == "per_job" and (each.fill or each.precondition) for each in prepared):
        raise StudyError(
            '`fill` and `precondition` with `files = "per_job"` require a single stream',
            hint='leave out `streams`, or let them share one file with `files = "shared"`',
        )


def _check_setup(setup: Setup, kind: str, workload: Workload) -> None:
    """Refuse a setup that would be created again before each round of a target that is prepared once, and a workload
    that cannot be on it: only object daemons write to devices of BlueStore; files of others would be in memory."""
    if setup.fresh == "run" and kind == "rounds":
        raise StudyError(
            '`fresh = "run"` would discard the device state before every round',
            hint="set `fresh` to `case`: every case then has a setup of its own",
        )
    check_workload(setup, workload)
    if setup.is_bluestore and not workload.is_on_osds:
        raise StudyError(
            f'`file_system = "bluestore"` requires a workload on Ceph object daemons; got `{workload.name}`',
            hint="choose another `file_system`, or `none`",
        )


def _forecast(part: Part, study: Study, *, is_control: bool) -> tuple[str, Forecast | None]:
    from iosonde.planning.procedure import kind_of, kinds

    kind = kind_of(part)
    if not kind and study.repeats_until and not is_control:
        kind = UNTIL
    return kind, kinds()[kind].forecast(part, study) if kind else None


def _fitted(
    workload: Workload, streams: Mapping[str, Parameters], target: Target, room_bytes: int
) -> Mapping[str, Any]:
    built = {name: workload.build(parameters) for name, parameters in streams.items()}
    return workload.fit(built, target, room_bytes=room_bytes)


def in_case(error: IosondeError, case_id: str, study: Study) -> IosondeError:
    """The same error, with the case that it was found in."""
    where = "\n  ".join(part for part in (error.where, f"in case `{case_id}` of the study `{study.name}`") if part)
    return type(error)(error.what, where=where, hint=error.hint)


def _parameters(workload: Workload, streams: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter once, or once for each stream where they differ."""
    if len(streams) == 1:
        return dict(next(iter(streams.values())))
    parameters: dict[str, Any] = {}
    names = dict.fromkeys(name for stream in streams.values() for name, _ in stream)
    for name in names:
        values = {stream: getattr(parameter, name) for stream, parameter in streams.items()}
        first = next(iter(values.values()))
        if all(value == first for value in values.values()):
            parameters[name] = first
        else:
            parameters |= {f"{stream}.{name}": value for stream, value in values.items()}
    return parameters


def level_text(workload: Workload, factor: str, level: Scalar | Level) -> str:
    """A level as in the name of a case."""
    if isinstance(level, Level):
        return level.label.replace("/", "-")
    parameter = factor.rpartition(".")[2]
    if isinstance(level, bool):
        return str(level).lower()
    if isinstance(level, int) and parameter in (*workload.sizes, *SETUP_SIZES):
        return compact_size(level)
    if isinstance(level, int) and parameter in workload.durations:
        return compact_duration(level)
    return f"{level:g}" if isinstance(level, float) else str(level).replace("/", "-")


def _check_distinct(drafts: Sequence[Draft]) -> None:
    ids = [draft.case.case_id for draft in drafts]
    twice = next((case_id for index, case_id in enumerate(ids) if case_id in ids[:index]), None)
    if twice:
        raise StudyError(f"two cases are called `{twice}`", hint="give their levels different labels")


SMALLEST_RANGE = 0.75
"""Share of the capacity that a purged drive's active range needs: SNIA tests clients at 75 % and 100 %."""


SPANS_TO_STEADY = 2
"""Without preconditioning, a run that writes less than this many times its range cannot reach steady state."""


def attained(study: Study, part: Part, loads: Sequence[Mapping[str, Any]], target: Target) -> tuple[DeviceState, str]:
    """The state for all `loads` of a case when it is measured, and the reason for another one than the declared one.

    `not_applicable` where they write nothing, or nothing is stored.
    """
    streams = [stream for load in loads for stream in load.values()]
    blocks = [stream for stream in streams if isinstance(stream, BlockParameters)]
    given = target.backend()
    is_virtual_drive = given is not None and given["kind"] in VIRTUAL_DRIVES
    is_stored = is_virtual_drive or (given is None and not any(stream.is_virtual for stream in blocks))
    if not is_stored or (blocks and not any(stream.writes for stream in blocks)):
        return "not_applicable", ""
    declared = part.device_state or study.device_state or "unknown"
    if declared == "unknown":
        return "unknown", ""
    if not blocks or not part.rounds:
        return "unknown", "nothing prepares the device before these runs"
    if not is_virtual_drive and target.direct_unit() is not None and target.kind != "device":
        return "unknown", "the files occupy part of a device, and the state of its other blocks is unknown"
    return _prepared(declared, part, blocks[0], target)


def _prepared(declared: DeviceState, part: Part, stream: BlockParameters, target: Target) -> tuple[DeviceState, str]:
    assert part.rounds, "only rounds are prepared"
    is_purged = stream.purge not in ("none", "unneeded")
    range_bytes, capacity_bytes = stream.active_range_bytes, target.capacity().bytes
    if declared == "fresh":
        return ("fresh", "") if is_purged else ("unknown", "the device is not purged")
    if is_purged and is_small_range(range_bytes, stream.fill, capacity_bytes):
        share = f"{100 * range_bytes / capacity_bytes:.0f} % of the purged {format_bytes(capacity_bytes)}"
        return (
            "fresh",
            f"the active range of {format_bytes(range_bytes)} is {share}, whose spare blocks absorb its writes",
        )
    is_written = bool(stream.precondition or stream.fill)
    limit = stream.byte_limit
    if not is_written and limit is not None and limit < SPANS_TO_STEADY * range_bytes:
        return "fresh", f"at most {limit / range_bytes:.1f} times the active range is written"
    is_judged = part.rounds.sought or stream.round_length is not None
    if declared == "steady" and not is_judged:
        return "preconditioned" if is_written else "unknown", "there are too few rounds to judge"
    return declared, ""


def is_small_range(range_bytes: int, fill: float, capacity_bytes: int) -> bool:
    """Return whether the spare blocks of a purged device absorb what is written to an active range.

    A range that was filled to a percentage is measured by what was filled: the free part is meant to be free.
    """
    return range_bytes * (100 / fill if fill else 1) < SMALLEST_RANGE * capacity_bytes


def notes_on_states(cases: Sequence[Case]) -> list[str]:
    """One note for each reason why cases measure another state than the study declares."""
    reasons = Counter((each.device_state, each.device_state_reason) for each in cases if each.device_state_reason)
    return [
        f"the declared device state cannot be reached in {number} case{'s' * (number != 1)}, recorded as `{state}`: "
        + reason
        for (state, reason), number in reasons.items()
    ]
