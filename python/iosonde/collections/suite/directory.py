"""The directory of a suite: its description and one result set for each study and target.

suite.json           the suite, its targets, what was skipped; never changed
01-NAME/             result set of both targets, or of the only one
02-NAME-a/, -b/      result sets of a study whose targets cannot alternate
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from iosonde.collections.library.directory import Collection, Description
from iosonde.collections.suite.planning import MOST_STUDIES, Entry, Planned, Role, Suite, shared_by_targets
from iosonde.execution.session import require_startable
from iosonde.results import ResultSet
from iosonde.storage import open_target

if TYPE_CHECKING:
    from iosonde.plan import Plan
    from iosonde.storage.safety.guard import Consent


class SuiteFile(Description):
    """Content of `suite.json`."""

    format: Literal[1] = 1
    suite: Suite
    target: str
    against: str | None
    shared: str = ""
    """A device that both targets use, or that one is simulated, as a sentence; empty if neither."""
    skipped: Mapping[str, str] = Field(max_length=MOST_STUDIES)
    """Entries that could not be planned, with the reason."""
    alternating: Mapping[str, bool] = Field(max_length=MOST_STUDIES)
    """Remaining entries: True for one result set with both targets."""

    @property
    def result_sets(self) -> dict[str, dict[Role, str]]:
        """Directories of the result sets of each planned entry, by target, in the order of execution."""
        found: dict[str, dict[Role, str]] = {}
        for number, entry in enumerate(self.suite.entries, 1):
            stem = f"{number:02}-{entry.name}"
            if entry.name in self.alternating:
                if self.against is None or entry.log_device:
                    found[entry.name] = {"a": stem}
                elif self.alternating[entry.name]:
                    found[entry.name] = {"both": stem}
                else:
                    found[entry.name] = {"a": f"{stem}-a", "b": f"{stem}-b"}
        return found

    @property
    def names(self) -> list[str]:
        return [name for by_role in self.result_sets.values() for name in by_role.values()]

    @model_validator(mode="after")
    def _known(self) -> SuiteFile:
        names = {entry.name for entry in self.suite.entries}
        unknown = sorted({*self.skipped, *self.alternating} - names)
        if unknown:
            raise ValueError("`skipped` or `alternating` names an entry that the suite does not have")
        return self


class SuiteDirectory(Collection[SuiteFile]):
    """A suite on disk."""

    kind = "suite"
    content = SuiteFile

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the directory of a suite; `ResultsError` if it is none or damaged.

        So is a result set that contradicts the description, which decides which values are quoted, under which title
        and of which target: a received suite may have been edited.
        """
        found = super().open(directory)
        for entry in found.description.suite.entries:
            for role, path in found.of_entry(entry.name).items():
                if problem := _problem(entry, role, found.description, ResultSet.open(path).plan):
                    raise found.contradiction(path.name, problem)
        return found

    @property
    def targets(self) -> list[str]:
        return [each for each in (self.description.target, self.description.against) if each]

    def of_entry(self, entry_name: str) -> dict[Role, Path]:
        """Directories of the result sets of an entry, by target."""
        names = self.description.result_sets.get(entry_name, {})
        return {role: self.path / name for role, name in names.items()}


def create(
    directory: Path,
    suite: Suite,
    planned: Sequence[Planned],
    target: str,
    against: str | None,
    consent: Consent,
    *,
    mix_simulated: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> SuiteDirectory:
    """Create the directory of a suite with a result set for each plan; nothing is run.

    Consent is checked for every study first: the last one is not refused after hours. `TargetError` where it is not
    sufficient, `ResultsError` if the directory exists and is not empty.
    """
    for each in planned:
        for plan in each.plans.values():
            require_startable(plan, consent, note)
    description = SuiteFile(
        suite=suite,
        target=open_target(target).name,
        against=open_target(against).name if against else None,
        shared=shared_by_targets(suite, target, against, mix_simulated=mix_simulated),
        skipped={each.entry.name: each.skipped for each in planned if each.skipped},
        alternating={each.entry.name: "both" in each.plans for each in planned if each.plans},
    )
    names = description.result_sets
    plans = {names[each.entry.name][role]: plan for each in planned for role, plan in each.plans.items()}
    return SuiteDirectory.create(directory, description, plans)


def _problem(entry: Entry, role: Role, description: SuiteFile, plan: Plan) -> str:
    """Return the first difference between the plan of a result set and the description; empty if they agree."""
    targets = [arm.target for arm in plan.arms] or [plan.target]
    by_role: dict[Role, list[str | None]] = {
        "a": [description.target],
        "b": [description.against],
        "both": [description.target, description.against],
    }
    expected = by_role[role]
    if plan.study_name != entry.study:
        return f"its study is `{plan.study_name}`, and the suite has `{entry.study}`"
    if entry.parts and {part["name"] for part in plan.study["parts"]} != set(entry.parts):
        return "it has other parts of the study than the suite"
    if entry.log_device and plan.settings.get("log_target") != description.against:
        return f"its log is on `{plan.settings.get('log_target')}`, and the suite has `{description.against}`"
    if targets != expected:
        measured = " and ".join(f"`{each}`" for each in targets)
        named = " and ".join(f"`{each}`" for each in expected)
        return f"it is of {measured}, and the suite of {named}"
    missing = sorted(set(entry.settings) - set(plan.settings))
    return f"its plan has no setting `{missing[0]}`, and the suite has" if missing else ""
