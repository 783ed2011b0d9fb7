"""A/B comparison within one session: the cases of both arms, and an order in which they alternate.

Both arms are measured close in time, pair by pair, so what changes slowly (temperature, fill level, neighbours) affects
both alike and cancels in the ratio of a pair. The order within each pair is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from iosonde.errors import StudyError, TargetError
from iosonde.plan import Arm, ArmName, LeftOut
from iosonde.planning.draft import Draft, SetupTargets, level_text
from iosonde.planning.feasible import check_arms, possible_drafts
from iosonde.storage.block_layer import block_stack
from iosonde.study.effective import effective
from iosonde.study.model import Study

if TYPE_CHECKING:
    from iosonde.storage import Target


@dataclass(frozen=True, kw_only=True)
class Against:
    """Settings of arm `b` that differ."""

    target: Target | None = None
    """None: the target of arm `a`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """On top of the settings of arm `a`."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One arm before its runs are ordered; a study without arms has one side."""

    name: ArmName = ""
    study: Study
    settings: Mapping[str, str]
    stages: SetupTargets
    drafts: Sequence[Draft] = ()

    def arm(self, other: Side) -> Arm:
        target = self.stages.base
        names = [name for name in {**self.settings, **other.settings} if self._value(name) != other._value(name)]
        different = [f"{name}={self._value(name)}" for name in names]
        where = [] if target is other.stages.base else [target.name]
        return Arm(
            name=self.name,
            label=f"{self.name}: {', '.join([*where, *different]) or target.name}",
            target=target.name,
            settings=dict(self.settings),
            study=self.study.model_dump(mode="json"),
            created_name=target.own,
        )

    def _value(self, name: str) -> str:
        """A setting of this arm as text: as given, or as the study has it in its first case."""
        case = self.drafts[-1].case
        found = case.parameters.get(name, case.levels.get(name))
        return self.settings.get(name) or (level_text(self.drafts[-1].workload, name, found) if found else "default")


def sides_of(
    study: Study, first: Side, against: Against, left_out: list[LeftOut], *, profile: str
) -> tuple[Side, Side]:
    """Both arms of a comparison, of which arm `a` has no cases yet.

    Cases of optional parts that are impossible in either arm go to `left_out`.
    """
    whole, target = first.study, first.stages.base
    other = target if against.target is None or against.target.name == target.name else against.target
    check_targets(target, other)
    combined = {**first.settings, **against.settings}
    kept = {name: getattr(whole, name) for name in ("repeats", "repeats_until", "until", "seed")}
    second = Side(
        study=effective(study, profile=profile, settings=combined).model_copy(update=kept),
        settings=combined,
        stages=first.stages if other is target else SetupTargets(other),
    )
    drafts, others = _possible_pairs(first, second, left_out)
    _check_pairs(drafts, others, whole)
    if other is target:
        check_arms(drafts, others, target)
    numbers = [draft.number for draft in drafts]
    offset = max(numbers) + (1 if 0 in numbers else 0)  # The control has the number 0.
    drafts, others = _named(drafts, drafts, "a", 0), _named(others, drafts, "b", offset)
    if other is target:
        # Two different setups on one target take turns, so each is created for every run.
        pairs = list(zip(drafts, others, strict=True))
        drafts = [a if a.case.setup == b.case.setup else _fresh(a) for a, b in pairs]
        others = [b if a.case.setup == b.case.setup else _fresh(b) for a, b in pairs]
    return replace(first, name="a", drafts=drafts), replace(second, name="b", drafts=others)


def _possible_pairs(a: Side, b: Side, left_out: list[LeftOut]) -> tuple[list[Draft], list[Draft]]:
    """The drafts of both arms, without those whose twin is impossible."""
    mine: list[LeftOut] = []
    other: list[LeftOut] = []
    first, second = possible_drafts(a.study, a.stages, mine), possible_drafts(b.study, b.stages, other)
    impossible = {each.case_id: each for each in [*other, *mine]}
    left_out += impossible.values()
    if not left_out or len(first) + len(mine) != len(second) + len(other):
        return first, second
    # A factor that the arms differ in gives their cases different names, but the same numbers.
    both = {draft.number for draft in first} & {draft.number for draft in second}
    if not both:
        each = left_out[0]
        raise TargetError(each.reason, where=f"in case `{each.case_id}`, like all others", hint=each.hint)
    return [each for each in first if each.number in both], [each for each in second if each.number in both]


def _named(drafts: Sequence[Draft], twins: Sequence[Draft], name: ArmName, offset: int) -> list[Draft]:
    """Give the cases of an arm ids and run numbers of their own, and the levels of their twins in arm `a`."""
    return [
        replace(
            draft,
            number=draft.number + offset,
            case=draft.case.model_copy(
                update={
                    "case_id": f"{name}/{twin.case.case_id.removeprefix('a/')}",
                    "levels": twin.case.levels,
                    "arm": name,
                }
            ),
        )
        for draft, twin in zip(drafts, twins, strict=True)
    ]


def _fresh(draft: Draft) -> Draft:
    if draft.case.setup is None:
        return draft
    setup = draft.case.setup.model_copy(update={"fresh": "run"})
    parameters = {**draft.case.parameters, **setup.model_dump()}
    return replace(draft, case=draft.case.model_copy(update={"setup": setup, "parameters": parameters}))


def _check_pairs(first: Sequence[Draft], second: Sequence[Draft], study: Study) -> None:
    if any(draft.forecast for draft in (*first, *second)):
        raise StudyError(
            f"the study `{study.name}` cannot be interleaved: later runs of a part depend on earlier results",
            where='a search, rounds until steady, a derived parameter, or `repeats = "until"`',
            hint="run it once on each system, and compare the result sets with `iosonde compare`",
        )
    if [draft.case.part for draft in first] != [draft.case.part for draft in second]:
        raise StudyError(
            f"both arms must have the same cases; got {len(first)} and {len(second)} cases",
            where="by the settings of `--against-set`",
            hint="for a factor of the study, name one level for each arm: `--set queue_depth=1 "
            "--against-set queue_depth=8`",
        )


def check_targets(target: Target, other: Target) -> None:
    """Raise `TargetError` if results on the two targets cannot be compared; the same target twice can."""
    if target.name == other.name:
        return
    if is_simulated(target) != is_simulated(other):
        raise TargetError(
            f"`{target.name}` and `{other.name}` cannot be compared: one is simulated and one is measured",
            hint="name two devices, or two simulated devices",
        )
    shared = set(target.numbers_by_name().values()) & set(other.numbers_by_name().values())
    if shared:
        raise TargetError(
            f"`{target.name}` and `{other.name}` share the block device {sorted(shared)[0]}",
            hint="name different devices, or leave out `--against` to compare two settings of one device",
        )


def is_simulated(target: Target) -> bool:
    """Return True if results on the target are not of a device."""
    return target.is_model or target.kind == "null"


def shared_storage(target: Target, other: Target) -> str:
    """Return shared devices of two targets, as a sentence; empty if there are none, or if the targets are the same."""
    if target.name == other.name:
        return ""
    if share_file_system(target, other):
        return f"`{target.name}` and `{other.name}` are on the same file system: this does not compare devices"
    mine, theirs = (block_stack.drives(each.block_devices()) for each in (target, other))
    names = ", ".join(f"`{block_stack.name_of(number)}`" for number in mine if number in theirs)
    return f"both targets use {names}: this compares file systems or partitions, not devices" if names else ""


def share_file_system(target: Target, other: Target) -> bool:
    """Return True if both are parts of one file system."""
    return target.file_system() is not None and target.file_system() == other.file_system()
