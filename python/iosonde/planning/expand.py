"""From a study and a target to a plan: every case, every run in its order, every default, and what it all costs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Case, Cost, Destroys, LeftOut, Plan, Procedure, Run
from iosonde.planning.arms import Against, Side, shared_storage, sides_of
from iosonde.planning.draft import Draft, SetupTargets, UnknownTarget, drafts_of, grouped, notes_on_states
from iosonde.planning.feasible import (
    check_machine,
    check_target,
    destroyed,
    files_of,
    laid_out_again,
    possible_drafts,
)
from iosonde.planning.procedure import preparation
from iosonde.planning.procedure.observations import seed_of
from iosonde.storage import open_target
from iosonde.study.effective import effective, until_precise
from iosonde.study.model import UNTIL, Study
from iosonde.study.servers.foreign import kinds, parse
from iosonde.study.setup import PRIVILEGED
from iosonde.study.workload import workloads
from iosonde.study.workload.block.backends import BACKENDS

if TYPE_CHECKING:
    from iosonde.storage import Target

T = TypeVar("T")


def expand(
    study: Study,
    target: Target,
    *,
    profile: str = "standard",
    repeats: int | Literal["until"] | None = None,
    settings: Mapping[str, str] | None = None,
    seed: int | None = None,
    keep: bool = False,
    against: Against | None = None,
) -> Plan:
    """Plan a study on a target, or an A/B comparison with `against`; nothing is written.

    Raises an error for anything that the target or this machine cannot do.
    """
    whole = effective(study, profile=profile, settings=settings or {})
    if repeats == UNTIL:
        whole = whole.model_copy(update=until_precise(whole.until, profile))
    elif repeats:
        whole = whole.model_copy(update={"repeats": repeats, "repeats_until": False})
    whole = whole.model_copy(update={"seed": whole.seed if seed is None else seed})
    left_out: list[LeftOut] = []
    side = Side(study=whole, settings=settings or {}, stages=SetupTargets(target))
    if against:
        sides = sides_of(study, side, against, left_out, profile=profile)
        return _plan(sides, paired_order(whole, *(each.drafts for each in sides)), left_out, profile=profile, keep=keep)
    side = replace(side, drafts=possible_drafts(whole, side.stages, left_out))
    return _plan([side], run_order(whole, side.drafts), left_out, profile=profile, keep=keep)


def _plan(
    sides: Sequence[Side], order: Sequence[Draft], left_out: Sequence[LeftOut], *, profile: str, keep: bool
) -> Plan:
    whole = sides[0].study
    planned = [draft for side in sides for draft in side.drafts]
    drafts = laid_out_again(planned)
    numbered = {draft.number: draft for draft in drafts}
    order = [numbered[draft.number] for draft in order]
    check_machine(drafts, whole)
    stages_of = {draft.number: side.stages for side in sides for draft in side.drafts}
    shared = {id(side.stages): side.stages for side in sides}
    groups = [(each, [d for d in drafts if stages_of[d.number] is each]) for each in shared.values()]
    of_features = dict.fromkeys(each for stages, group in groups for each in check_target(group, stages, whole))
    runs = _runs(whole, order, stages_of)
    cases = [_with_procedure(draft, whole, stages_of[draft.number]) for draft in drafts]
    layout_bytes = sum(
        laid_out_bytes(group, [d for d in order if stages_of[d.number] is stages]) for stages, group in groups
    )
    targets = [stages.base for stages, _ in groups]
    return Plan(
        study=whole.model_dump(mode="json"),
        study_name=whole.name,
        profile=profile,
        target=sides[0].stages.base.name,
        seed=whole.seed,
        repeats=whole.repeats,
        cases=cases,
        runs=runs,
        left_out=list(left_out),
        destroys=[
            *(each for stages, group in groups for each in destroyed(group, stages, keep=keep)),
            *of_features,
            *_databases(cases, runs),
        ],
        layout_bytes=layout_bytes,
        cost=total_cost(
            drafts, cases, runs, layout_bytes, most_operations=max(each.most_operations() for each in targets)
        ),
        settings=dict(sides[0].settings),
        keep=keep,
        arms=[side.arm(other) for side, other in (sides, sides[::-1])] if len(sides) == 2 else [],
        notes=[
            *(note for target in targets for note in target.notes()),
            *filter(None, (shared_storage(targets[0], target) for target in targets[1:])),
            *notes_on_states(cases),
            *dict.fromkeys(note for draft in drafts for note in draft.workload.notes(draft.streams)),
            *_laid_out_again(planned, drafts),
            *_notes_on(left_out),
        ],
        required_options=[option for target in targets for option in target.asks()],
        created_name=sides[0].stages.base.own,
    )


def _laid_out_again(planned: Sequence[Draft], drafts: Sequence[Draft]) -> Iterator[str]:
    """The cases with `layout = "always"` instead of `missing`."""
    again = [draft.case.case_id for before, draft in zip(planned, drafts, strict=True) if draft is not before]
    if again:
        more = f" and {len(again) - 1} other {'case' if len(again) == 2 else 'cases'} lay" if again[1:] else " lays"
        yield (
            f"`{again[0]}`{more} out all files before each run, because other cases write data of another kind, or "
            "without verification"
        )


def require_feasible(plan: Plan) -> None:
    """Check a plan of another machine as `expand` would here; nothing is written.

    Raises an error for anything that the target or this machine cannot do, such as room, memory and direct I/O.
    """
    sides = [(plan.study, plan.target)] if not plan.arms else [(arm.study, arm.target) for arm in plan.arms]
    wanted = {case.case_id.removeprefix(f"{case.arm}/") for case in plan.cases}
    for content, name in sides:
        study, stages = Study.model_validate(content), SetupTargets(open_target(name))
        drafts = [draft for draft in drafts_of(study, stages, left_out=[]) if draft.case.case_id in wanted]
        check_machine(drafts, study)
        list(check_target(drafts, stages, study))


def _notes_on(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """One note for each reason."""
    for reason in dict.fromkeys(each.reason for each in left_out):
        first, *others = [each.case_id for each in left_out if each.reason == reason]
        more = f" and {len(others)} other {'case' if len(others) == 1 else 'cases'} are" if others else " is"
        yield f"`{first}`{more} left out: {reason}"


SESSION_SECONDS = 5.5
"""Start of a session, and its report at the end: imports, the plan, checks, figures."""


RUN_OVERHEAD_SECONDS = 0.15
"""Overhead of a run besides ramp and measurement: start, open, drain, record."""


SIMULATED_OVERHEAD_SECONDS = 0.05
"""The same on a simulated drive, which has no page cache, device counters or temperature."""


SIMULATED_SHARE = 0.1
"""Seconds in which a second of a simulated drive's time is computed: about 1 µs per I/O, so 100,000 IOPS."""

SIMULATED_OPERATION_SECONDS = 1e-6
"""The same for one I/O, where a rate limit bounds their number."""


def elapsed_s(case: Case) -> float:
    """Return the time that a run of a case takes, overhead included: its cost is in the time of a simulated drive."""
    if _has_virtual_time(case):
        return case.cost.seconds * SIMULATED_SHARE + SIMULATED_OVERHEAD_SECONDS
    return case.cost.seconds + RUN_OVERHEAD_SECONDS


def _has_virtual_time(case: Case) -> bool:
    backend = BACKENDS.get(str(case.parameters.get("backend")))
    return backend is not None and backend.has_virtual_time


def total_cost(
    drafts: Sequence[Draft], whole: Sequence[Case], runs: Sequence[Run], layout_bytes: int, *, most_operations: float
) -> Cost:
    """Everything together: runs, what procedures can require, preparation and layout."""
    cases = {draft.case.case_id: draft.case for draft in drafts}
    decided = [draft.case for draft in drafts for _ in range(draft.most_measured)]
    prepared = [(case.procedure.preparation, _has_virtual_time(case)) for case in whole if case.procedure]
    measured = [cases[run.case_id] for run in runs] + decided
    written = [case.cost.write_bytes for case in measured] + [cost.write_bytes for cost, _ in prepared]
    seconds = SESSION_SECONDS + sum(map(elapsed_s, measured)) + layout_bytes / ASSUMED_BYTES_PER_SECOND
    share = min(SIMULATED_SHARE, most_operations * SIMULATED_OPERATION_SECONDS)
    seconds += sum(cost.seconds * (share if is_virtual else 1) for cost, is_virtual in prepared)
    return Cost(
        seconds=round(seconds, 3),
        write_bytes=None if None in written else sum(size or 0 for size in written) + layout_bytes,
    )


def laid_out_bytes(drafts: Sequence[Draft], order: Sequence[Draft]) -> int:
    """Missing files are written once per setup, others at every run."""
    always = 0
    missing: dict[tuple[Any, ...], list[Draft]] = {}
    for number, draft in enumerate([*order, *(each for each in drafts for _ in range(each.max_runs))]):
        layout = draft.workload.layout(draft.streams)
        if layout == "always":
            always += sum(draft.workload.files(draft.streams).values())
        elif layout == "missing":
            is_own = draft.case.setup is not None and draft.case.setup.fresh == "run"
            missing.setdefault((*draft.case.setup_key, number if is_own else None), []).append(draft)
    return always + sum(sum(files_of(group).values()) for group in missing.values())


def preparation_cost(draft: Draft, study: Study) -> Cost:
    """Return the cost of preparation and of stages after the rounds, in all repeats."""
    if draft.kind != "rounds" and not draft.following:
        return Cost(seconds=0, write_bytes=0)
    prepared = [preparation.cost(draft.streams)] if draft.kind == "rounds" else []
    each = [*prepared, *map(draft.workload.cost, draft.following)]
    written = None if any(cost.write_bytes is None for cost in each) else sum(cost.write_bytes or 0 for cost in each)
    return Cost(
        seconds=sum(cost.seconds for cost in each) * study.repeats,
        write_bytes=None if written is None else written * study.repeats,
    )


def run_order(study: Study, drafts: Sequence[Draft]) -> list[Draft]:
    """The runs in their order, the control among them at even distances.

    Runs on the same setup follow each other, for it is dear to make; the setups come in a random order too. Cases with
    a procedure are not among them: theirs is decided when it comes to it (`procedure/__init__.py`).
    """
    measured = [draft for draft in drafts if not draft.case.control and draft.is_planned]
    groups = grouped(measured, lambda draft: _kept_together(draft.case))
    if study.shuffle:
        random.Random(f"{study.seed}/setups").shuffle(groups)
    # Every case once before any comes again, each time in another order.
    blocks = [
        [draft for repeat in range(study.repeats) for draft in _shuffled(group, study, repeat)] for group in groups
    ]
    if not study.control:
        return list(itertools.chain.from_iterable(blocks))
    # A control within a group would cost two setups more, so it is between groups where there are several.
    if len(blocks) == 1:
        every, [runs] = study.control.every, blocks
        blocks = [runs[begin : begin + every] for begin in range(0, len(runs), every)]
    return [drafts[0], *itertools.chain.from_iterable([*block, drafts[0]] for block in blocks)]


def paired_order(study: Study, first: Sequence[Draft], second: Sequence[Draft]) -> list[Draft]:
    """Every pair once before any comes again, in another order each time; the control pair at even distances."""
    pairs = list(zip(first, second, strict=True))
    control = next((pair for pair in pairs if pair[0].case.control), None)
    measured = [pair for pair in pairs if not pair[0].case.control]
    ordered = [
        pair if coin.random() < 0.5 else (pair[1], pair[0])
        for repeat in range(study.repeats)
        for coin in [random.Random(f"{study.seed}/{repeat}/arms")]
        for pair in _shuffled(measured, study, repeat)
    ]
    blocks: list[tuple[Draft, Draft]] = ordered
    if control and study.control:
        blocks = [control]
        for start in range(0, len(ordered), study.control.every):
            blocks += [*ordered[start : start + study.control.every], control]
    return [draft for pair in blocks for draft in pair]


def _kept_together(case: Case) -> tuple[str, ...]:
    """Runs with the same follow each other; what is created for each run need not be."""
    return () if case.setup and case.setup.fresh == "run" else case.setup_key


def _shuffled(cases: Sequence[T], study: Study, repeat: int) -> list[T]:
    ordered = list(cases)
    if study.shuffle:
        random.Random(f"{study.seed}/{repeat}").shuffle(ordered)
    return ordered


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """Size of a study, independent of the target."""

    cases: int
    runs: int
    """With those of the control, and as many as procedures can take."""
    seconds: float
    """The session, ramps, measurements and starts, without layout, on a target that is not simulated."""
    bounded: bool = False
    """True if runs and time are upper bounds, because procedures decide the number of runs."""
    ramps_vary: bool = False
    """True if time is an upper bound, because ramps end at steady state."""
    devices: int = 1
    """Largest number of devices that a case uses."""
    needs_root: bool = False
    """True if cases need arrays, file systems or loop devices, or change settings of the machine."""
    limits_memory: bool = False
    """True if runs have a memory limit, which requires a control group: root, or a delegated one."""
    installed: tuple[str, ...] = ()
    """Libraries of stores and servers that cases use."""


def study_size(study: Study, *, profile: str) -> StudySize:
    """Size of a study with a profile, computed without planning it."""
    whole = effective(study, profile=profile, settings={})
    drafts = drafts_of(whole, SetupTargets(cast("Target", UnknownTarget())))
    order = run_order(whole, drafts)
    decided = [draft for draft in drafts for _ in range(draft.most_measured)]
    staged = [draft.workload.cost(streams).seconds for draft in drafts for streams in draft.following] * whole.repeats
    measured = [*(draft.case.cost.seconds for draft in [*order, *decided]), *staged]
    seconds = SESSION_SECONDS + sum(measured) + RUN_OVERHEAD_SECONDS * len(measured)
    return StudySize(
        cases=sum(not draft.case.control for draft in drafts),
        runs=len(order) + sum(draft.max_runs for draft in drafts),
        seconds=seconds,
        bounded=any(draft.forecast and draft.forecast.uncertain for draft in drafts),
        ramps_vary="steady" in _values(drafts, "ramp_until"),
        devices=max(draft.case.setup.devices if draft.case.setup else 1 for draft in drafts),
        needs_root=any(draft.case.setup and not draft.case.setup.is_plain for draft in drafts)
        or any(value not in (None, "off") for name in PRIVILEGED for value in _values(drafts, name)),
        limits_memory=any(_values(drafts, "memory_limit")),
        installed=_installed(drafts),
    )


def _values(drafts: Sequence[Draft], parameter: str) -> Iterator[Any]:
    """The values of a parameter of all streams."""
    for draft in drafts:
        for name, value in draft.case.parameters.items():
            if name.rpartition(".")[2] == parameter:
                yield value


def _installed(drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Libraries and servers that cases use."""
    found: list[str] = []
    for workload in workloads().values():
        used = {*map(str, _values(drafts, workload.subject))}
        found += (name for name, each in workload.products.items() if each.is_installed and name in used)
    return tuple(dict.fromkeys(found))


def _databases(cases: Sequence[Case], runs: Sequence[Run]) -> list[Destroys]:
    """Databases that are created on servers of the user; their names are part of the consent."""
    urls = {case.case_id: case.parameters.get("server_url") for case in cases}
    found = {}
    for run in runs:
        if url := urls[run.case_id]:
            kind = kinds()[parse(str(url)).kind]
            name = kind.database_of(run.spec["workload"])
            what = f"creates the {kind.noun} `{name}` and drops it at the end (allow it with `--confirm {name}`)"
            found[name] = Destroys(path=str(url), what=what)
    return list(found.values())


def _runs(study: Study, drafts: Sequence[Draft], stages_of: Mapping[int, SetupTargets]) -> list[Run]:
    repeats: dict[int, int] = {}
    runs = []
    for order, draft in enumerate(drafts):
        repeat = repeats[draft.number] = repeats.get(draft.number, 0) + 1
        run_id = f"c{draft.number:04}-r{repeat}"
        target = stages_of[draft.number].on(draft.case.setup)
        seed = seed_of(study.seed, f"{draft.case.case_id}/{repeat}")
        spec = draft.workload.resolve(draft.streams, target, seed=seed, run_id=run_id)
        runs.append(Run(run_id=run_id, case_id=draft.case.case_id, repeat=repeat, order=order, spec=spec))
    return runs


def _with_procedure(draft: Draft, study: Study, stages: SetupTargets) -> Case:
    """The case as the plan has it; its procedure with the spec that the specs of its runs are made from."""
    if not draft.forecast:
        return draft.case
    seed = seed_of(study.seed, f"{draft.case.case_id}/0")
    procedure = Procedure(
        kind=draft.kind,
        settings=dict(draft.forecast.settings),
        max_runs=draft.forecast.max_runs,
        text=draft.forecast.text,
        spec=draft.workload.resolve(
            draft.streams, stages.on(draft.case.setup), seed=seed, run_id=f"c{draft.number:04}"
        ),
        preparing=draft.forecast.preparing,
        preparation=preparation_cost(draft, study),
    )
    return draft.case.model_copy(update={"procedure": procedure})
