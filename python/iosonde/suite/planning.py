"""From a suite and its targets to the plans of its studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.plan import Plan
from iosonde.plan.commands import has_commands
from iosonde.planning import Against, check_targets, expand, is_simulated, load, share_file_system, shared_storage
from iosonde.procedure import kind_of
from iosonde.storage import open_target
from iosonde.study.effective import applies, effective
from iosonde.suite.model import Entry, Suite

if TYPE_CHECKING:
    from iosonde.study.model import Study

Role = Literal["both", "a", "b"]
"""Targets of a result set: both in alternation, or one of them."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One study of a suite on its targets."""

    entry: Entry
    plans: Mapping[Role, Plan]
    """One plan of both targets in alternation, or one for each; empty if the study cannot run here."""
    skipped: str = ""
    """Reason if the study cannot run here."""
    hint: str = ""
    """Imperative that removes the reason."""

    @property
    def seconds(self) -> float:
        return sum(plan.cost.seconds for plan in self.plans.values())


def plan_suite(
    suite: Suite,
    target: str,
    against: str | None,
    *,
    profile: str | None = None,
    settings: Mapping[str, str] | None = None,
    repeats: int | None = None,
    seed: int | None = None,
    mix_simulated: bool = False,
) -> list[Planned]:
    """Plan every study of a suite.

    A study that cannot run on these targets, or without a program or right that is missing here, is skipped with the
    reason. `StudyError` if that is every study, `TargetError` if the two targets cannot be compared. `settings` are for
    every study that has the parameter. `mix_simulated` allows that one of two targets is simulated.
    """
    shared_by_targets(suite, target, against, mix_simulated=mix_simulated)
    chosen = profile or suite.profile
    known = dict.fromkeys(each for entry in suite.entries for each in load(entry.study).profiles)
    if chosen not in known:
        raise StudyError(
            f"no study of the suite `{suite.name}` has a profile `{chosen}`",
            where="in `--profile`",
            hint=f"there is {', '.join(f'`{each}`' for each in known)}; a study without the profile uses `standard`",
        )
    for name in settings or {}:
        if not any(applies(load(entry.study), name) for entry in suite.entries):
            raise StudyError(
                f"no study of the suite `{suite.name}` has a factor or parameter `{name}`",
                where=f"in `--set {name}={(settings or {})[name]}`",
                hint="`iosonde show STUDY` lists those of a study",
            )
    planned = [
        _plan_entry(entry, target, against, profile=chosen, settings=settings or {}, repeats=repeats, seed=seed)
        for entry in suite.entries
    ]
    if all(each.skipped for each in planned):
        raise StudyError(
            f"no study of the suite `{suite.name}` can run on `{target}`",
            where="\n  ".join(f"{each.entry.name}: {each.skipped}" for each in planned),
            hint="`iosonde doctor` lists what this machine lacks",
        )
    return planned


def shared_by_targets(suite: Suite, target: str, against: str | None, *, mix_simulated: bool = False) -> str:
    """Return caveats of a comparison of both targets of a suite, as a sentence; empty if there are none.

    Caveats are a device that both use, or that one target is simulated.

    `TargetError` if the targets cannot be compared, which two directories of one file system cannot: the question of a
    suite is about devices.
    """
    if against is None or all(entry.log_device for entry in suite.entries):
        return ""  # The studies of log devices check their second target themselves.
    targets = open_target(target), open_target(against)
    simulated = [each for each in targets if is_simulated(each)]
    if len(simulated) == 1:
        return _simulated_note(simulated[0].name, mix_simulated=mix_simulated)
    check_targets(*targets)
    shared = shared_storage(*targets)
    if shared and share_file_system(*targets):
        raise TargetError(
            shared,
            hint="check that the file systems of both devices are mounted; to measure one target twice, name it twice",
        )
    return shared


def _simulated_note(name: str, *, mix_simulated: bool) -> str:
    if not mix_simulated:
        raise TargetError(
            f"cannot compare a measured target with the simulated target `{name}`",
            hint="add `--mix-simulated` to compare a device with a model of one, in the studies of block I/O",
        )
    return f"`{name}` is simulated: its values are those of a device model, and the others are measured"


def _plan_entry(
    entry: Entry,
    target: str,
    against: str | None,
    *,
    profile: str,
    settings: Mapping[str, str],
    repeats: int | None,
    seed: int | None,
) -> Planned:
    study = with_parts(load(entry.study), entry.parts)
    profile = profile if profile in study.profiles else "standard"
    settings = {**entry.settings, **{name: value for name, value in settings.items() if applies(study, name)}}

    def one(name: str, other: str | None) -> Plan:
        plan = expand(
            study,
            open_target(name),
            profile=profile,
            repeats=repeats or entry.repeats,
            settings=settings,
            seed=seed,
            against=Against(target=open_target(other)) if other else None,
        )
        if has_commands(plan):
            raise StudyError(f"suites cannot run external commands, which the study `{study.name}` has")
        return plan

    try:
        if entry.log_device:
            if against is None:
                raise StudyError("a log device needs a second target: name it with `--against`")
            settings |= {"log_target": open_target(against).name}
            return Planned(entry=entry, plans={"a": one(target, None)})
        if against is None:
            return Planned(entry=entry, plans={"a": one(target, None)})
        mixed = is_simulated(open_target(target)) != is_simulated(open_target(against))
        if mixed or depends_on_results(study, profile, settings=settings):
            return Planned(entry=entry, plans={"a": one(target, None), "b": one(against, None)})
        return Planned(entry=entry, plans={"both": one(target, against)})
    except IosondeError as error:
        return Planned(entry=entry, plans={}, skipped=error.what, hint=error.hint)


def with_parts(study: Study, names: Sequence[str]) -> Study:
    """The study with these parts only, and what is shown of them; all parts if none are named."""
    if not names:
        return study
    known = [part.name for part in study.parts]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise StudyError(f"the study `{study.name}` has no part `{unknown[0]}`", hint=f"it has {', '.join(known)}")
    profiles = {
        name: profile.model_copy(
            update={"parts": {part: each for part, each in profile.parts.items() if part in names}}
        )
        for name, profile in study.profiles.items()
    }
    return study.model_copy(
        update={
            "parts": [part for part in study.parts if part.name in names],
            "views": [view for view in study.views if view.part in names],
            "analysis": [each for each in study.analysis if each.part in names],
            "references": [each for each in study.references if each.part in (None, *names)],
            "profiles": profiles,
        }
    )


def depends_on_results(study: Study, profile: str, *, settings: Mapping[str, str]) -> bool:
    """Return True if later runs of the study depend on earlier ones, so that two targets cannot alternate."""
    whole = effective(study, profile=profile, settings=settings)
    return whole.repeats_until or any(kind_of(part) for part in whole.parts)


def total_seconds(planned: Sequence[Planned]) -> float:
    """Estimated time of a whole suite."""
    return sum(each.seconds for each in planned)


def written_bytes(planned: Sequence[Planned]) -> tuple[int, bool]:
    """Bytes that a suite writes as far as they are known, and whether some studies are limited only by time.

    Of those, what they write before measuring is known.
    """
    known, unbounded = 0, False
    for plan in (plan for each in planned for plan in each.plans.values()):
        written = plan.cost.write_bytes
        known += plan.layout_bytes if written is None else written
        unbounded |= written is None
    return known, unbounded
