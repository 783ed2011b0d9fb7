"""Cases that a simulated target cannot tell apart, because their levels differ only in the host's path to a device.

A simulated device is reached without system calls, page cache and block layer. Measuring such cases would compare a
model with itself, so each group is measured once, and a study that asks about nothing else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iosonde.errors import TargetError
from iosonde.plan import LeftOut
from iosonde.planning.draft import Draft
from iosonde.study.model import Study
from iosonde.study.setup import HOST_SETTINGS
from iosonde.workload.block.parameters import OF_HOST

if TYPE_CHECKING:
    from iosonde.storage import Target

ELSEWHERE = "name a directory or a block device as the target"


def distinct_drafts(drafts: Sequence[Draft], study: Study, target: Target) -> tuple[list[Draft], list[LeftOut]]:
    """Return one draft of each group that the target cannot tell apart, and the others as left out.

    Kept is the one with the fewest settings of the host. `TargetError` if every question of the study compares levels
    without effect.
    """
    if not target.is_model:
        return list(drafts), []
    kept: dict[str, Draft] = {}
    for draft in drafts:
        key = _key(draft)
        if key not in kept or _host_settings(draft) < _host_settings(kept[key]):
            kept[key] = draft
    chosen = [draft for draft in drafts if kept[_key(draft)] is draft]
    if len(chosen) == len(drafts):
        return chosen, []
    _check_questions(study, drafts, chosen, target)
    return chosen, list(_left_out(drafts, kept, target))


def check_arms(first: Sequence[Draft], second: Sequence[Draft], target: Target) -> None:
    """`TargetError` if the settings in which two arms differ have no effect on their simulated target."""
    if not target.is_model:
        return
    pairs = list(zip(first, second, strict=True))
    differing = sorted({name for a, b in pairs for name in _differing(a, b)})
    if differing and all(_key(a) == _key(b) for a, b in pairs):
        raise TargetError(_no_effect(differing, target), where="by the settings of `--against-set`", hint=ELSEWHERE)


def _parameters(draft: Draft) -> Iterator[tuple[str, bool, Any]]:
    """Each parameter with its value, and whether it is one of the host."""
    ignored = (*HOST_SETTINGS, *(OF_HOST if draft.workload.io == "blocks" else ()))
    for name, value in draft.case.parameters.items():
        yield name, name.rpartition(".")[2] in ignored, value


def _key(draft: Draft) -> str:
    """Text that is the same for cases of one part that a simulated target cannot tell apart."""
    effective = {name: value for name, of_host, value in _parameters(draft) if not of_host}
    return json.dumps([draft.case.part, draft.case.control, effective], sort_keys=True, default=str)


def _host_settings(draft: Draft) -> int:
    """Return the number of parameters of the host that are not at their defaults."""
    fields = draft.workload.parameters.model_fields
    return sum(
        of_host and value is not None and value != getattr(fields.get(name.rpartition(".")[2]), "default", None)
        for name, of_host, value in _parameters(draft)
    )


def _differing(draft: Draft, other: Draft) -> list[str]:
    values: Mapping[str, Any] = other.case.parameters
    return [name for name, value in draft.case.parameters.items() if values.get(name) != value]


def _check_questions(study: Study, drafts: Sequence[Draft], chosen: Sequence[Draft], target: Target) -> None:
    """Refuse a study if every question compares levels and only one of them remains."""
    parts = {draft.case.part for draft in drafts}
    asked = [each for each in study.analysis if each.part in parts]
    lost = [
        each.over
        for each in asked
        if len(_levels(drafts, each.part, each.over)) > 1 == len(_levels(chosen, each.part, each.over))
    ]
    if lost and len(lost) == len(asked):
        factors = " and ".join(f"`{name}`" for name in dict.fromkeys(lost))
        raise TargetError(
            f"the study `{study.name}` compares levels of {factors}, which have no effect on `{target.name}`",
            hint=f"{ELSEWHERE}; a simulated drive is a model without the host's I/O path",
        )


def _levels(drafts: Sequence[Draft], part: str, factor: str) -> set[str]:
    levels = [draft.case.levels for draft in drafts if draft.case.part == part and not draft.case.control]
    return {str(each[factor]) for each in levels if factor in each}


def _left_out(drafts: Sequence[Draft], kept: Mapping[str, Draft], target: Target) -> Iterator[LeftOut]:
    for draft in drafts:
        twin = kept[_key(draft)]
        if twin is not draft:
            levels = twin.case.levels
            factors = [name for name, level in draft.case.levels.items() if levels.get(name) != level]
            reason = _no_effect(factors, target)
            yield LeftOut(case_id=draft.case.case_id, part=draft.case.part, reason=reason, hint=ELSEWHERE)


def _no_effect(names: Sequence[str], target: Target) -> str:
    verb = "has" if len(names) == 1 else "have"
    listed = " and ".join(f"`{name}`" for name in names)
    return f"{listed} {verb} no effect on `{target.name}`: it is a model without the host's I/O path"
