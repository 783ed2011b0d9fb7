"""From a suite and its targets to the plans of its studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from iosonde.errors import IosondeError, StudyError
from iosonde.plan import Plan
from iosonde.plan.commands import has_commands
from iosonde.planning import Against, expand, load
from iosonde.procedure import kind_of
from iosonde.storage import open_target
from iosonde.study.effective import effective
from iosonde.suite.model import Entry, Suite

if TYPE_CHECKING:
    from iosonde.study.model import Study

Role = Literal["both", "a", "b"]
"""Which targets a result set is of: both in alternation, or one of them."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One study of a suite on its targets."""

    entry: Entry
    plans: Mapping[Role, Plan]
    """One plan of both targets in alternation, or one for each; empty if the study cannot run here."""
    skipped: str = ""
    """Why it cannot run here."""

    @property
    def seconds(self) -> float:
        """Estimated time of all runs."""
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
) -> list[Planned]:
    """Plan every study of a suite.

    A study that cannot run on these targets, or without a program or right that is missing here, is skipped with the
    reason. `StudyError` if that is every study. `settings` are for every study that has the parameter.
    """
    chosen = profile or suite.profile
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
    study = load(entry.study)
    profile = profile if profile in study.profiles else "standard"

    def one(name: str, other: str | None) -> Plan:
        plan = expand(
            study,
            open_target(name),
            profile=profile,
            repeats=repeats or entry.repeats,
            settings={**entry.settings, **settings},
            seed=seed,
            against=Against(target=open_target(other)) if other else None,
        )
        if has_commands(plan):
            raise StudyError(f"the study `{study.name}` has external commands, which a suite does not allow")
        return plan

    try:
        if against is None:
            return Planned(entry=entry, plans={"a": one(target, None)})
        if depends_on_results(study, profile, settings={**entry.settings, **settings}):
            return Planned(entry=entry, plans={"a": one(target, None), "b": one(against, None)})
        return Planned(entry=entry, plans={"both": one(target, against)})
    except IosondeError as error:
        return Planned(entry=entry, plans={}, skipped=error.what)


def depends_on_results(study: Study, profile: str, *, settings: Mapping[str, str]) -> bool:
    """Whether later runs of the study depend on earlier ones, so that two targets cannot alternate."""
    whole = effective(study, profile=profile, settings=settings)
    return whole.repeats_until or any(kind_of(part) for part in whole.parts)


def total_seconds(planned: Sequence[Planned]) -> float:
    """Estimated time of a whole suite."""
    return sum(each.seconds for each in planned)
