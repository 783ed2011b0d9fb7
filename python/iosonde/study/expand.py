"""From a study and a target to a plan: every case, every run in its order, every default, and what it all costs."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iosonde import workload
from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.study.check import CONTROL
from iosonde.study.effective import effective, read_level
from iosonde.study.model import Level, Parameters, Part, Scalar, Study
from iosonde.study.plan import (
    ASSUMED_BYTES_PER_SECOND,
    Capacity,
    Case,
    Cost,
    Destroys,
    Plan,
    Procedure,
    Purge,
    Run,
    Setup,
)
from iosonde.study.setup import SIZES as SETUP_SIZES
from iosonde.study.setup import settle as settle_setup
from iosonde.study.setup import without as without_setup
from iosonde.units import compact_duration, compact_size, format_bytes
from iosonde.workload import block
from iosonde.workload.interface import Room, Workload

if TYPE_CHECKING:
    from iosonde.procedure import Outlook
    from iosonde.target import Target

Place = TypeVar("Place", "Target", "_Nowhere")

MEMORY_SHARE = 0.75
"""Most of the machine's memory that I/O buffers may take."""

RUN_OVERHEAD_SECONDS = 0.2
"""What a run takes besides ramp and measurement: start, open, drain, record."""


def expand(
    study: Study,
    target: Target,
    *,
    profile: str = "standard",
    repeats: int | None = None,
    settings: Mapping[str, str] | None = None,
    seed: int | None = None,
    keep: bool = False,
) -> Plan:
    """What the study will do on that target. Nothing is written, and what could not be done raises now."""
    whole = effective(study, profile=profile, settings=settings or {})
    whole = whole.model_copy(update={"repeats": repeats or whole.repeats, "seed": whole.seed if seed is None else seed})
    stages = _Stages(target)
    drafts = _drafts(whole, stages)
    _check_memory(drafts, whole)
    for group in _together(drafts):
        place = stages.on(group[0].case.setup)
        _check_room(group, _files(group), place)
        _check_direct(group, place)
    order = _order(whole, drafts)
    runs = _runs(whole, order, stages)
    cases = [_with_procedure(draft, whole, stages) for draft in drafts]
    layout_bytes = _layout_bytes(drafts, order)
    return Plan(
        study=whole.model_dump(mode="json"),
        study_name=whole.name,
        profile=profile,
        target=target.name,
        seed=whole.seed,
        repeats=whole.repeats,
        cases=cases,
        runs=runs,
        destroys=_destroys(drafts, stages, keep=keep),
        layout_bytes=layout_bytes,
        cost=_total_cost(drafts, cases, runs, layout_bytes),
        settings=dict(settings or {}),
        keep=keep,
        notes=target.notes(),
        asks=target.asks(),
        own=target.own,
    )


@dataclass(frozen=True, kw_only=True)
class Outline:
    """How large a study is, whatever the target."""

    cases: int
    runs: int
    """With those of the control, and as many as procedures can take."""
    seconds: float
    """Ramps, measurements and starts, without layout."""
    bounded: bool = False
    """Whether runs and time are an upper bound, because procedures decide how many there are."""


def outline(study: Study, *, profile: str) -> Outline:
    """How large a study is with a profile, without the work of planning it."""
    whole = effective(study, profile=profile, settings={})
    drafts = _drafts(whole, _Stages(_Nowhere()))
    order = _order(whole, drafts)
    decided = [draft for draft in drafts for _ in range(_most_measured(draft))]
    staged = [draft.of.cost(streams).seconds for draft in drafts for streams in draft.following] * whole.repeats
    measured = [*(draft.case.cost.seconds for draft in [*order, *decided]), *staged]
    seconds = sum(measured) + RUN_OVERHEAD_SECONDS * len(measured)
    return Outline(
        cases=sum(not draft.case.control for draft in drafts),
        runs=len(order) + sum(map(_most_runs, drafts)),
        seconds=seconds,
        bounded=any(draft.outlook and draft.outlook.uncertain for draft in drafts),
    )


class _Nowhere:
    """Stands for a target with all the room there could be, where none is named yet."""

    def backend(self) -> None:
        """The workload chooses."""

    def free_bytes(self) -> int:
        """An exbibyte."""
        return 1 << 60

    def direct_unit(self) -> None:
        """Nobody knows yet."""

    def capacity(self) -> Capacity:
        """All of it."""
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        """Every means."""
        return ["format", "trim", "overwrite"]

    def device_count(self) -> int:
        """As many as any case may ask for."""
        return 256

    def with_setup(self, setup: Setup) -> _Nowhere:
        """There is room for everything."""
        return self


class _Stages(Generic[Place]):
    """The target as the workload sees it, with each setup that a study asks for."""

    def __init__(self, target: Place) -> None:
        self.base: Place = target
        self._made: dict[Setup | None, Place] = {None: target}

    def on(self, setup: Setup | None) -> Place:
        """With that setup; `TargetError` where the target cannot have it."""
        # How often it is made anew changes nothing about it.
        key = setup and setup.model_copy(update={"fresh": "study"})
        if key not in self._made:
            assert key, "the target itself is there from the beginning"
            self._made[key] = self.base.with_setup(key)
        return self._made[key]


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A case and the streams that run in it."""

    case: Case
    number: int
    of: Workload
    streams: Mapping[str, Any]
    """Their parameters. With a procedure, those of the largest load that it may try."""
    others: Sequence[Mapping[str, Any]] = ()
    """Those of everything else that its procedure may try."""
    following: Sequence[Mapping[str, Any]] = ()
    """Those of what follows its rounds."""
    kind: str = ""
    """The kind of its procedure, if it has one."""
    outlook: Outlook | None = None

    def varies(self, name: str) -> bool:
        """Whether a parameter takes several values: as a factor, or by the procedure."""
        return name in self.case.levels or (self.outlook is not None and name in self.outlook.decided)


def _drafts(study: Study, stages: _Stages[Any]) -> list[_Draft]:
    """Every case, the control first; their numbers are those of the runs."""
    cases = [(part, levels) for part in study.parts for levels in _combinations(part, workload.of(study.workload))]
    if not cases:
        raise StudyError(
            f"the study `{study.name}` has no cases",
            hint="every combination of levels is excluded: look at `exclude`, and at what `--set` leaves",
        )
    drafts = [_draft(study, part, levels, number, stages) for number, (part, levels) in enumerate(cases, start=1)]
    if study.control:
        control = Part(name=CONTROL, measurement=study.control.measurement)
        drafts.insert(0, _draft(study, control, {}, 0, stages))
    _check_distinct(drafts)
    return drafts


def _combinations(part: Part, of: Workload) -> Iterator[dict[str, Scalar | Level]]:
    """The product of the factors' levels in order, without what is excluded."""
    for levels in itertools.product(*part.factors.values()):
        combination = dict(zip(part.factors, levels, strict=True))
        read = {name: read_level(name, level, of) for name, level in combination.items()}
        if not any(excluded.items() <= read.items() for excluded in part.exclude):
            yield combination


def _draft(
    study: Study,
    part: Part,
    levels: Mapping[str, Scalar | Level],
    number: int,
    stages: _Stages[Any],
) -> _Draft:
    of = workload.of(study.workload)
    case_id = "/".join([part.name, *(f"{name}={_level_text(of, name, level)}" for name, level in levels.items())])
    try:
        setup = settle_setup(_whole_case(study, part, levels), devices=stages.base.device_count())
        target: Room = stages.on(setup)
        room_bytes = target.free_bytes()
        kind, outlook = _outlook(part, study)
        _check_fresh(setup, kind)
        extremes, following = (
            [_settled(of, _streams(study, part, levels, chosen), target, room_bytes) for chosen in each]
            for each in ((outlook.extremes, outlook.stages) if outlook else ([{}], []))
        )
    except IosondeError as error:
        raise _in_case(error, case_id, study) from None
    streams = extremes[-1]
    _check_prepared(of, streams, kind, case_id, study)
    if kind == "rounds":
        _check_judged(part, streams, case_id, study)
        _check_filled(of, streams, case_id, study)
    decided = outlook.decided if outlook else ()
    case = Case(
        case_id=case_id,
        part=part.name,
        control=number == 0,
        levels={name: read_level(name, level, of) for name, level in levels.items()},
        parameters={
            **{name: value for name, value in _parameters(of, streams).items() if name not in decided},
            **(setup.model_dump() if setup else {}),
        },
        setup=setup,
        cost=_cost([of.cost(each) for each in extremes], outlook),
    )
    return _Draft(
        case=case,
        number=number,
        of=of,
        streams=streams,
        others=(*extremes[:-1], *following),
        following=following,
        kind=kind,
        outlook=outlook,
    )


def _cost(extremes: Sequence[Cost], outlook: Outlook | None) -> Cost:
    """The most that any of them takes."""
    written = [cost.write_bytes for cost in extremes]
    writes = any(size != 0 for size in written)
    is_known = None not in written and (outlook is None or outlook.rates_known)
    return Cost(
        seconds=max(cost.seconds for cost in extremes),
        write_bytes=max(size or 0 for size in written) if is_known or not writes else None,
    )


def _check_prepared(of: Workload, streams: Mapping[str, Any], kind: str, case_id: str, study: Study) -> None:
    """What is prepared for is a procedure, since other runs come in an order that leaves no state as it was."""
    if kind != "rounds" and any(of.prepares(stream) for stream in streams.values()):
        error = StudyError(
            "`purge`, `fill` and `precondition` are for parts with `rounds`",
            hint="write `[parts.rounds]` with `most = 1` for a single run after each preparation",
        )
        raise _in_case(error, case_id, study)


def _check_filled(of: Workload, streams: Mapping[str, Any], case_id: str, study: Study) -> None:
    """Steps of preparation write the files of one stream."""
    prepared = [each for each in streams.values() if of.prepares(each)]
    if len(streams) > 1 and any(each.files == "per_job" and (each.fill or each.precondition) for each in prepared):
        error = StudyError(
            "`fill` and `precondition` of files for each job are for a single stream",
            hint='leave out `streams`, or let them share one file with `files = "shared"`',
        )
        raise _in_case(error, case_id, study)


def _check_judged(part: Part, streams: Mapping[str, Any], case_id: str, study: Study) -> None:
    """What ends once it is steady has rounds by which that is seen."""
    if (
        part.rounds
        and part.rounds.until_steady
        and not all(getattr(each, "round_length", None) for each in streams.values())
    ):
        error = StudyError(
            "`until_steady` needs a `round_length`: by these rounds of its own a run is judged",
            hint='set `round_length = "60s"` in the measurement, a multiple of `interval`',
        )
        raise _in_case(error, case_id, study)


def _check_fresh(setup: Setup | None, kind: str) -> None:
    """What is prepared once must not be made anew before every run."""
    if setup and setup.fresh == "run" and kind == "rounds":
        raise StudyError(
            '`fresh = "run"` would undo before every round what the rounds build on',
            hint="set `fresh` to `case`: every case then has a setup of its own",
        )


def _outlook(part: Part, study: Study) -> tuple[str, Outlook | None]:
    from iosonde.procedure import KINDS, kind_of

    kind = kind_of(part)
    return kind, KINDS[kind].outlook(part, study) if kind else None


def _settled(of: Workload, streams: Mapping[str, Parameters], target: Room, room_bytes: int) -> Mapping[str, Any]:
    built = {name: of.build(parameters) for name, parameters in streams.items()}
    return of.settle(built, target, room_bytes=room_bytes)


def _in_case(error: IosondeError, case_id: str, study: Study) -> IosondeError:
    where = "\n  ".join(part for part in (error.where, f"in case `{case_id}` of the study `{study.name}`") if part)
    return type(error)(error.what, where=where, hint=error.hint)


def _streams(
    study: Study, part: Part, levels: Mapping[str, Scalar | Level], decided: Parameters
) -> dict[str, Parameters]:
    """Parameters of each stream, as written, in the order in which later ones win; last what a procedure decides."""
    chosen = {**_chosen(workload.of(study.workload), levels), **decided}
    streams = {stream.name: stream.set for stream in part.streams} or {"main": {}}
    layers = {
        stream: {
            **study.measurement,
            **_plain(part.measurement),
            **own,
            **_of_stream(part.measurement, stream),
            **_plain(chosen),
            **_of_stream(chosen, stream),
        }
        for stream, own in streams.items()
    }
    return {stream: without_setup(parameters) for stream, parameters in layers.items()}


def _whole_case(study: Study, part: Part, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Parameters that belong to no stream, as written, in the order in which later ones win."""
    return {**study.measurement, **_plain(part.measurement), **_plain(_chosen(workload.of(study.workload), levels))}


def _chosen(of: Workload, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """What a combination of levels sets."""
    chosen: Parameters = {}
    for name, level in levels.items():
        chosen |= level.set if isinstance(level, Level) else {name: _as_written(of, name, level)}
    return chosen


def _as_written(of: Workload, factor: str, level: Scalar) -> Scalar:
    """A level that was read is plain nanoseconds, which a study may not write."""
    return f"{level}ns" if factor.rpartition(".")[2] in of.DURATIONS and isinstance(level, int) else level


def _plain(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if "." not in name}


def _of_stream(parameters: Parameters, stream: str) -> Parameters:
    prefix = f"{stream}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def _parameters(of: Workload, streams: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter once, or once for each stream where they differ."""
    parameters: dict[str, Any] = {}
    for name in of.PARAMETERS.model_fields:
        values = {stream: getattr(parameter, name) for stream, parameter in streams.items()}
        first = next(iter(values.values()))
        if all(value == first for value in values.values()):
            parameters[name] = first
        else:
            parameters |= {f"{stream}.{name}": value for stream, value in values.items()}
    return parameters


def _level_text(of: Workload, factor: str, level: Scalar | Level) -> str:
    """A level as it stands in the name of a case."""
    if isinstance(level, Level):
        return level.label.replace("/", "-")
    parameter = factor.rpartition(".")[2]
    if isinstance(level, bool):
        return str(level).lower()
    if isinstance(level, int) and parameter in (*of.SIZES, *SETUP_SIZES):
        return compact_size(level)
    if isinstance(level, int) and parameter in of.DURATIONS:
        return compact_duration(level)
    return f"{level:g}" if isinstance(level, float) else str(level).replace("/", "-")


def _check_distinct(drafts: Sequence[_Draft]) -> None:
    ids = [draft.case.case_id for draft in drafts]
    twice = next((case_id for index, case_id in enumerate(ids) if case_id in ids[:index]), None)
    if twice:
        raise StudyError(f"two cases are called `{twice}`", hint="give their levels labels that differ")


def _files(drafts: Sequence[_Draft]) -> dict[str, int]:
    """The files that lie there when all cases have run, with their largest size."""
    files: dict[str, int] = {}
    for draft in drafts:
        for name, size_bytes in draft.of.files(draft.streams).items():
            files[name] = max(size_bytes, files.get(name, 0))
    return files


def _together(drafts: Sequence[_Draft]) -> list[list[_Draft]]:
    """Cases whose files lie beside each other."""
    groups: dict[tuple[str, ...], list[_Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.stands_on, []).append(draft)
    return list(groups.values())


def _by_setup(drafts: Sequence[_Draft]) -> dict[Setup | None, list[_Draft]]:
    """Cases that are measured on the same thing."""
    groups: dict[Setup | None, list[_Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.setup, []).append(draft)
    return groups


def _destroys(drafts: Sequence[_Draft], stages: _Stages[Target], *, keep: bool) -> list[Destroys]:
    """What each setup makes and removes, each thing once, with the most that is ever in it."""
    found: dict[str, Destroys] = {}
    for setup, group in _by_setup(drafts).items():
        size_bytes = sum(_files(group).values())
        if stages.on(setup).kind == "device" and any(draft.case.parameters.get("purge") == "format" for draft in group):
            size_bytes = stages.on(setup).free_bytes()
        if size_bytes or stages.on(setup) is not stages.base:
            for each in stages.on(setup).destroys(size_bytes, keep=keep):
                found.setdefault(f"{each.path}: {each.what}", each)
    return list(found.values())


def _check_room(drafts: Sequence[_Draft], files: Mapping[str, int], target: Target) -> None:
    is_virtual = target.backend() is not None
    needed = max(draft.of.addressed_bytes(draft.streams) for draft in drafts) if is_virtual else sum(files.values())
    largest = max(drafts, key=lambda draft: sum(draft.of.files(draft.streams).values()))
    try:
        target.check(needed, [], "buffered")
    except TargetError as error:
        where = f"{largest.of.room_by(len(files))}, as in case `{largest.case.case_id}`"
        hint = error.hint.replace(block.SMALLER, largest.of.SMALLER)
        raise TargetError(error.what, where=where, hint=hint) from None


def _check_memory(drafts: Sequence[_Draft], study: Study) -> None:
    """Blocks in flight all have a buffer, which the kernel would otherwise make room for by killing somebody."""
    memory_bytes = _memory_bytes()
    hungry = max(drafts, key=_buffer_bytes)
    needed = _buffer_bytes(hungry)
    if needed > memory_bytes * MEMORY_SHARE:
        error = StudyError(
            f"{format_bytes(needed)} of I/O buffers are too much for {format_bytes(memory_bytes)} of memory",
            hint="leave out the largest blocks, the deepest queues or the most jobs, with `--set block_size=...`, "
            "`--set queue_depth=...` or `--set jobs=...`",
        )
        raise _in_case(error, hungry.case.case_id, study)


def _buffer_bytes(draft: _Draft) -> int:
    return max(draft.of.buffer_bytes(streams) for streams in (draft.streams, *draft.others))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_direct(drafts: Sequence[_Draft], target: Target) -> None:
    """Direct I/O can do all its sizes here; else the first case that it cannot do is named, and what it could."""
    wanted: dict[tuple[str, int], _Draft] = {}
    for draft in drafts:
        for stream in (stream for streams in (*draft.others, draft.streams) for stream in streams.values()):
            for parameter, sizes in draft.of.must_align(stream).items():
                wanted |= {(parameter, size): draft for size in sizes if (parameter, size) not in wanted}
    refused = {place: error for place in wanted if (error := _refused(place[1], target))}
    if not refused:
        return
    (parameter, size), error = next(iter(refused.items()))
    possible = [
        compact_size(each)
        for (name, each), draft in wanted.items()
        if name == parameter and draft.varies(name) and (name, each) not in refused
    ]
    hint = f"leave out what cannot be done: `--set {parameter}={','.join(possible)}`" if possible else error.hint
    where = f"{error.where}\n  in case `{wanted[parameter, size].case.case_id}`, by the parameter `{parameter}`"
    raise TargetError(error.what, where=where, hint=hint)


def _refused(size_bytes: int, target: Target) -> TargetError | None:
    try:
        target.check(0, [size_bytes], "direct")
    except TargetError as error:
        return error
    return None


def _runs(study: Study, drafts: Sequence[_Draft], stages: _Stages[Target]) -> list[Run]:
    repeats: dict[int, int] = {}
    runs = []
    for order, draft in enumerate(drafts):
        repeat = repeats[draft.number] = repeats.get(draft.number, 0) + 1
        run_id = f"c{draft.number:04}-r{repeat}"
        target = stages.on(draft.case.setup)
        spec = draft.of.resolve(
            draft.streams, target, seed=_seed(study.seed, draft.case.case_id, repeat), run_id=run_id
        )
        runs.append(Run(run_id=run_id, case_id=draft.case.case_id, repeat=repeat, order=order, spec=spec))
    return runs


def _with_procedure(draft: _Draft, study: Study, stages: _Stages[Target]) -> Case:
    """The case as the plan has it; its procedure with the spec that the specs of its runs are made from."""
    if not draft.outlook:
        return draft.case
    seed = _seed(study.seed, draft.case.case_id, 0)
    procedure = Procedure(
        kind=draft.kind,
        settings=dict(draft.outlook.settings),
        most_runs=draft.outlook.most_runs,
        text=draft.outlook.text,
        spec=draft.of.resolve(draft.streams, stages.on(draft.case.setup), seed=seed, run_id=f"c{draft.number:04}"),
        preparing=draft.outlook.preparing,
        preparation=_preparation(draft, study),
    )
    return draft.case.model_copy(update={"procedure": procedure})


def _preparation(draft: _Draft, study: Study) -> Cost:
    from iosonde.procedure import preparation

    each = [preparation.cost(draft.streams), *map(draft.of.cost, draft.following)]
    written = None if any(cost.write_bytes is None for cost in each) else sum(cost.write_bytes or 0 for cost in each)
    return Cost(
        seconds=sum(cost.seconds for cost in each) * study.repeats,
        write_bytes=None if written is None else written * study.repeats,
    )


def _most_runs(draft: _Draft) -> int:
    return draft.outlook.most_runs if draft.outlook else 0


def _most_measured(draft: _Draft) -> int:
    """Those that take as long as the case does."""
    return draft.outlook.most_runs - draft.outlook.preparing if draft.outlook else 0


def _order(study: Study, drafts: Sequence[_Draft]) -> list[_Draft]:
    """The runs in their order, the control among them at even distances.

    Runs on the same setup follow each other, for it is dear to make; the setups come in a random order too. Cases with
    a procedure are not among them: theirs is decided when it comes to it (`run/agenda.py`).
    """
    measured = [draft for draft in drafts if not draft.case.control and not draft.outlook]
    groups: dict[tuple[str, ...], list[_Draft]] = {}
    for draft in measured:
        groups.setdefault(_kept_together(draft.case), []).append(draft)
    keys = list(groups)
    if study.shuffle:
        random.Random(f"{study.seed}/setups").shuffle(keys)
    if not study.control:
        return [draft for key in keys for draft in _interleaved(groups[key], study)]
    every = study.control.every
    if len(keys) > 1:
        # A control within a group would cost two setups more: it stands between groups.
        blocks = [list(_interleaved(groups[key], study)) for key in keys]
    else:
        runs = [draft for key in keys for draft in _interleaved(groups[key], study)]
        blocks = [runs[begin : begin + every] for begin in range(0, len(runs), every)]
    return [drafts[0], *itertools.chain.from_iterable([*block, drafts[0]] for block in blocks)]


def _kept_together(case: Case) -> tuple[str, ...]:
    """Runs with the same follow each other; what is made for every run anew need not be."""
    return () if case.setup and case.setup.fresh == "run" else case.stands_on


def _interleaved(drafts: Sequence[_Draft], study: Study) -> Iterator[_Draft]:
    """Every case once before any comes again, each time in another order."""
    for repeat in range(study.repeats):
        yield from _shuffled(drafts, study, repeat)


def _shuffled(drafts: Sequence[_Draft], study: Study, repeat: int) -> list[_Draft]:
    ordered = list(drafts)
    if study.shuffle:
        random.Random(f"{study.seed}/{repeat}").shuffle(ordered)
    return ordered


def _seed(seed: int, case_id: str, repeat: int) -> int:
    """Another seed for each run; below 2^53, so that every reader of JSON has it exactly."""
    digest = hashlib.sha256(f"{seed}/{case_id}/{repeat}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def _layout_bytes(drafts: Sequence[_Draft], order: Sequence[_Draft]) -> int:
    """What is missing is written once to whatever is made, and what is always written at every run."""
    always = 0
    missing: dict[tuple[Any, ...], list[_Draft]] = {}
    for number, draft in enumerate([*order, *(each for each in drafts for _ in range(_most_runs(each)))]):
        layout = draft.of.layout(draft.streams)
        if layout == "always":
            always += sum(draft.of.files(draft.streams).values())
        elif layout == "missing":
            is_own = draft.case.setup is not None and draft.case.setup.fresh == "run"
            missing.setdefault((*draft.case.stands_on, number if is_own else None), []).append(draft)
    return always + sum(sum(_files(group).values()) for group in missing.values())


def _total_cost(drafts: Sequence[_Draft], whole: Sequence[Case], runs: Sequence[Run], layout_bytes: int) -> Cost:
    costs = {draft.case.case_id: draft.case.cost for draft in drafts}
    decided = [draft.case.cost for draft in drafts for _ in range(_most_measured(draft))]
    prepared = [case.procedure.preparation for case in whole if case.procedure]
    measured = [costs[run.case_id] for run in runs] + decided
    each = [*measured, *prepared]
    written = [cost.write_bytes for cost in each]
    seconds = sum(cost.seconds for cost in each) + RUN_OVERHEAD_SECONDS * len(measured)
    return Cost(
        seconds=round(seconds + layout_bytes / ASSUMED_BYTES_PER_SECOND, 3),
        write_bytes=None if None in written else sum(size or 0 for size in written) + layout_bytes,
    )
