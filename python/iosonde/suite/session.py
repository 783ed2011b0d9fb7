"""The directory of a suite: its description and one result set for each study and target.

    suite.json           the suite, its targets, what was skipped; never changed
    01-NAME/             result set of both targets, or of the only one
    02-NAME-a/, -b/      result sets of a study whose targets cannot alternate

Every result set exists with its plan before the first run, and whatever has no record is still to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError, model_validator

from iosonde.errors import ResultsError
from iosonde.execution.session import require_startable, resume
from iosonde.procedure.schedule import Schedule
from iosonde.results import ResultSet
from iosonde.results.files import Directory, new_directory
from iosonde.results.interpreting import interpreting
from iosonde.storage import open_target
from iosonde.suite.planning import FILE, MOST_STUDIES, Entry, Planned, Role, Strict, Suite, shared_by_targets

if TYPE_CHECKING:
    from iosonde.execution import Observer
    from iosonde.plan import Plan
    from iosonde.storage.safety.consent import Consent


class SuiteFile(Strict):
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

    @model_validator(mode="after")
    def _known(self) -> SuiteFile:
        names = {entry.name for entry in self.suite.entries}
        unknown = sorted({*self.skipped, *self.alternating} - names)
        if unknown:
            raise ValueError("`skipped` or `alternating` names an entry that the suite does not have")
        return self


@dataclass(frozen=True, kw_only=True)
class SuiteDirectory:
    """A suite on disk."""

    path: Path
    description: SuiteFile

    @property
    def targets(self) -> list[str]:
        return [each for each in (self.description.target, self.description.against) if each]

    def result_sets(self, entry_name: str) -> dict[Role, Path]:
        """Directories of the result sets of an entry, by target."""
        names = [entry.name for entry in self.description.suite.entries]
        if entry_name not in self.description.alternating:
            return {}
        roles: Sequence[Role] = ("a",)
        of_both = (
            self.description.against is not None
            and not self.description.suite.entries[names.index(entry_name)].log_device
        )
        if of_both:
            roles = ("both",) if self.description.alternating[entry_name] else ("a", "b")
        stem = f"{names.index(entry_name) + 1:02}-{entry_name}"
        single = len(roles) == 1
        return {role: self.path / (stem if single else f"{stem}-{role}") for role in roles}

    def all_result_sets(self) -> Iterator[Path]:
        """Every result set, in the order of execution."""
        for entry in self.description.suite.entries:
            yield from self.result_sets(entry.name).values()


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
    found = SuiteDirectory(path=directory.absolute(), description=description)
    try:
        with new_directory(found.path, last=FILE) as place, Directory.open(place) as opened:
            for each in planned:
                places = found.result_sets(each.entry.name)
                for role, plan in each.plans.items():
                    (place / places[role].name).mkdir()
                    ResultSet.create(place / places[role].name, plan)
            # Last: a directory with this file has every result set.
            opened.write(FILE, description.model_dump_json(indent=1).encode())
    except OSError as error:
        raise ResultsError(
            f"cannot create the suite `{directory}`: {error.strerror}",
            hint="name another directory with `--output DIR`",
        ) from error
    return found


def open_directory(directory: Path) -> SuiteDirectory:
    """Open the directory of a suite; `ResultsError` if it is none or damaged."""
    path = directory.absolute()
    try:
        with Directory.open(path) as opened:
            description = SuiteFile.model_validate_json(opened.read(FILE))
            found = SuiteDirectory(path=path, description=description)
            _refuse_links(found, opened)
            _refuse_other_plans(found)
    except OSError as error:
        raise ResultsError(
            f"`{directory}` is not the directory of a suite: {error.strerror}", hint="`iosonde suite` creates one"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        raise ResultsError(
            f"`{directory / FILE}` is damaged: {first['msg']}",
            where=f"at `{place}`" if place else "",
            hint="the result sets next to it can be read one by one with `iosonde report`",
        ) from error
    return found


def _refuse_links(suite: SuiteDirectory, directory: Directory) -> None:
    """Raise `ResultsError` for a result set that is a link: reports are written into it, also in a received suite."""
    for path in suite.all_result_sets():
        try:
            is_own = directory.is_directory(path.name)
        except FileNotFoundError:
            is_own = False
        if not is_own:
            raise ResultsError(
                f"`{path}` is missing or not a directory",
                where=f"in the suite `{suite.path}`",
                hint="a suite has its result sets in its own directory; read others with `iosonde report DIR`",
            )


def _refuse_other_plans(suite: SuiteDirectory) -> None:
    """Raise `ResultsError` for a result set that contradicts `suite.json`: a received suite may have been edited.

    The description decides which values are quoted, under which title and of which target.
    """
    for entry in suite.description.suite.entries:
        for role, path in suite.result_sets(entry.name).items():
            problem = _problem(entry, role, suite.description, ResultSet.open(path).plan)
            if problem:
                raise ResultsError(
                    f"`{FILE}` does not describe the result set `{path.name}`: {problem}",
                    where=f"in the suite `{suite.path}`",
                    hint="one of them was edited; the result sets can be read one by one with `iosonde report`",
                )


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


def remaining(suite: SuiteDirectory, *, retry_failed: bool = False) -> list[Path]:
    """Result sets with runs to do, in the order of execution."""
    found = []
    for path in suite.all_result_sets():
        with interpreting([path]):
            if Schedule(ResultSet.open(path), retry_failed=retry_failed).next_run():
                found.append(path)
    return found


def run_next(
    path: Path,
    *,
    observer: Observer | None,
    consent: Consent,
    retry_failed: bool = False,
    time_limit_s: float | None = None,
) -> ResultSet:
    """Carry out the missing runs of one result set of a suite."""
    return resume(path, observer=observer, retry_failed=retry_failed, time_limit_s=time_limit_s, consent=consent)
