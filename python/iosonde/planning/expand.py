"""From a study and a target to a plan: every case, every run in its order, every default, and what it all costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iosonde.plan import Case, Plan, Procedure, Run
from iosonde.planning import device_state
from iosonde.planning.costs import RUN_OVERHEAD_SECONDS, laid_out_bytes, preparation_cost, total_cost
from iosonde.planning.draft import Draft, drafts_of
from iosonde.planning.feasible import check_direct, check_memory, check_room
from iosonde.planning.files import beside_each_other, destroyed, files_of
from iosonde.planning.order import run_order, seed_of_run
from iosonde.planning.setup_targets import SetupTargets, UnknownTarget
from iosonde.study.effective import effective
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.storage import Target


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
    stages = SetupTargets(target)
    drafts = drafts_of(whole, stages)
    check_memory(drafts, whole)
    for group in beside_each_other(drafts):
        place = stages.on(group[0].case.setup)
        check_room(group, files_of(group), place)
        check_direct(group, place)
    order = run_order(whole, drafts)
    runs = _runs(whole, order, stages)
    cases = [_with_procedure(draft, whole, stages) for draft in drafts]
    layout_bytes = laid_out_bytes(drafts, order)
    return Plan(
        study=whole.model_dump(mode="json"),
        study_name=whole.name,
        profile=profile,
        target=target.name,
        seed=whole.seed,
        repeats=whole.repeats,
        cases=cases,
        runs=runs,
        destroys=destroyed(drafts, stages, keep=keep),
        layout_bytes=layout_bytes,
        cost=total_cost(drafts, cases, runs, layout_bytes),
        settings=dict(settings or {}),
        keep=keep,
        notes=[*target.notes(), *device_state.notes(cases)],
        required_options=target.asks(),
        created_name=target.own,
    )


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """How large a study is, whatever the target."""

    cases: int
    runs: int
    """With those of the control, and as many as procedures can take."""
    seconds: float
    """Ramps, measurements and starts, without layout."""
    bounded: bool = False
    """Whether runs and time are an upper bound, because procedures decide how many there are."""
    devices: int = 1
    """Largest number of devices that a case uses."""
    creates_setups: bool = False
    """Whether cases need arrays, file systems or loop devices, which only root can create."""
    limits_memory: bool = False
    """Whether runs are limited in memory, which needs a control group: root, or one that was delegated."""
    stores: tuple[str, ...] = ()
    """Key-value stores that cases use."""


def study_size(study: Study, *, profile: str) -> StudySize:
    """How large a study is with a profile, without the work of planning it."""
    whole = effective(study, profile=profile, settings={})
    drafts = drafts_of(whole, SetupTargets(UnknownTarget()))
    order = run_order(whole, drafts)
    decided = [draft for draft in drafts for _ in range(draft.most_measured)]
    staged = [draft.workload.cost(streams).seconds for draft in drafts for streams in draft.following] * whole.repeats
    measured = [*(draft.case.cost.seconds for draft in [*order, *decided]), *staged]
    seconds = sum(measured) + RUN_OVERHEAD_SECONDS * len(measured)
    return StudySize(
        cases=sum(not draft.case.control for draft in drafts),
        runs=len(order) + sum(draft.max_runs for draft in drafts),
        seconds=seconds,
        bounded=any(draft.forecast and draft.forecast.uncertain for draft in drafts),
        devices=max(draft.case.setup.devices if draft.case.setup else 1 for draft in drafts),
        creates_setups=any(draft.case.setup and not draft.case.setup.is_plain for draft in drafts),
        limits_memory=any(_values(drafts, "memory_limit")),
        stores=tuple(sorted({str(store) for store in _values(drafts, "store")})),
    )


def _values(drafts: Sequence[Draft], parameter: str) -> Iterator[Any]:
    """The values of a parameter of all streams."""
    for draft in drafts:
        for name, value in draft.case.parameters.items():
            if name.rpartition(".")[2] == parameter:
                yield value


def _runs(study: Study, drafts: Sequence[Draft], stages: SetupTargets[Target]) -> list[Run]:
    repeats: dict[int, int] = {}
    runs = []
    for order, draft in enumerate(drafts):
        repeat = repeats[draft.number] = repeats.get(draft.number, 0) + 1
        run_id = f"c{draft.number:04}-r{repeat}"
        target = stages.on(draft.case.setup)
        spec = draft.workload.resolve(
            draft.streams, target, seed=seed_of_run(study.seed, draft.case.case_id, repeat), run_id=run_id
        )
        runs.append(Run(run_id=run_id, case_id=draft.case.case_id, repeat=repeat, order=order, spec=spec))
    return runs


def _with_procedure(draft: Draft, study: Study, stages: SetupTargets[Target]) -> Case:
    """The case as the plan has it; its procedure with the spec that the specs of its runs are made from."""
    if not draft.forecast:
        return draft.case
    seed = seed_of_run(study.seed, draft.case.case_id, 0)
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
