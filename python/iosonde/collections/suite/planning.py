"""A suite, which is a list of studies with settings and the values to quote from each, and its plans on its targets."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from iosonde.base import text_files
from iosonde.collections.library.directory import Strict
from iosonde.data import shipped_suites
from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.plan import Plan
from iosonde.plan.commands import has_commands
from iosonde.planning import Against, check_targets, expand, is_simulated, share_file_system, shared_storage
from iosonde.planning import load as load_study
from iosonde.planning.procedure import kind_of
from iosonde.storage import open_target
from iosonde.study.effective import applies, effective

if TYPE_CHECKING:
    from iosonde.study.model import Study


Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
MOST_STUDIES = 99
"""Directories of studies are numbered with two digits."""


class Value(Strict):
    """A value of a study that the suite quotes, for every case that fits."""

    part: str
    metric: str
    title: str
    where: Mapping[str, bool | int | float | str] = {}
    """Levels of the cases, by factor; all cases of the part if empty."""
    stream: str = ""
    """Stream of the load; each of several is a line if empty."""
    operation: str = ""
    """Kind of operation, such as `read`; all together if empty."""
    published: str = ""
    """Published finding for its devices, as text."""
    published_range: tuple[float, float] | None = None
    """The same as a range of improvements, such as 1.5 to 1.6."""
    levels: Mapping[str, tuple[str, str]] = {}
    """Of an entry with `log_device`: the factor whose levels are compared, baseline first."""

    @model_validator(mode="after")
    def _ordered(self) -> Value:
        if self.published_range and not 0 < self.published_range[0] <= self.published_range[1]:
            raise ValueError("`published_range` must be two positive numbers, the smaller first")
        if len(self.levels) > 1:
            raise ValueError("`levels` must name one factor")
        return self


class Entry(Strict):
    """One study of a suite."""

    name: Name
    """Unique within the suite."""
    study: Name
    """A study that comes with iosonde."""
    title: str
    """The application, such as `PostgreSQL, data device`."""
    settings: Mapping[str, str] = {}
    """As with `--set`."""
    repeats: int | None = Field(default=None, ge=1, le=1000)
    parts: Sequence[str] = ()
    """Parts of the study to run; all if empty."""
    log_device: bool = False
    """The targets are devices for the log: data stays on the first target, and a separate log is on the second one."""
    values: Sequence[Value]
    """None: only the answer of the study is quoted."""

    @model_validator(mode="after")
    def _levels_of_log_devices(self) -> Entry:
        if any(bool(value.levels) != self.log_device for value in self.values):
            raise ValueError(
                "values must have `levels` if the entry has `log_device`, and cannot have `levels` otherwise"
            )
        if any(value.part not in self.parts for value in self.values if self.parts):
            raise ValueError("a value refers to a part that `parts` does not list")
        return self


class Suite(Strict):
    """A whole suite."""

    name: Name
    title: str
    question: str
    source: str = ""
    """The publication that it follows."""
    profile: Literal["quick", "standard", "paper"] = "standard"
    """The profile of its studies unless another is requested."""
    entries: Annotated[Sequence[Entry], Field(min_length=1, max_length=MOST_STUDIES)]

    @model_validator(mode="after")
    def _distinct(self) -> Suite:
        names = [entry.name for entry in self.entries]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"two entries are called `{repeated[0]}`")
        return self


def load(name_or_path: str) -> Suite:
    """The suite of that name that comes with iosonde, or in that file; `StudyError` if there is none or it is wrong."""
    known = shipped_suites()
    file = known.get(name_or_path) or Path(name_or_path)
    if file.suffix != ".toml" and name_or_path not in known:
        near = difflib.get_close_matches(name_or_path, known, n=1)
        raise StudyError(
            f"there is no suite `{name_or_path}`",
            hint=(f"did you mean `{near[0]}`? " if near else "") + f"suites: {', '.join(known)}; or name a TOML file",
        )
    try:
        text = text_files.read(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StudyError(f"cannot read the suite `{name_or_path}`: {reason}") from None
    try:
        return Suite.model_validate(text_files.parse_toml(text))
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"the suite is not TOML: {error}", where=f"in `{file}`", hint="see docs/suites.md") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        message = re.sub(r"^Value error, ", "", first["msg"])
        raise StudyError(
            f"the suite is wrong: {message}",
            where=f"at `{place}` in `{file}`" if place else f"in `{file}`",
            hint="see docs/suites.md",
        ) from None


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
    known = dict.fromkeys(each for entry in suite.entries for each in load_study(entry.study).profiles)
    if chosen not in known:
        raise StudyError(
            f"no study of the suite `{suite.name}` has a profile `{chosen}`",
            where="in `--profile`",
            hint=f"there is {', '.join(f'`{each}`' for each in known)}; a study without the profile uses `standard`",
        )
    settings = settings or {}
    for name, value in settings.items():
        if not any(applies(load_study(entry.study), name) for entry in suite.entries):
            raise StudyError(
                f"no study of the suite `{suite.name}` has a factor or parameter `{name}`",
                where=f"in `--set {name}={value}`",
                hint="`iosonde show STUDY` lists those of a study",
            )
    planned = [_plan_entry(entry, target, against, chosen, settings, repeats, seed) for entry in suite.entries]
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
        name = simulated[0].name
        if not mix_simulated:
            raise TargetError(
                f"cannot compare a measured target with the simulated target `{name}`",
                hint="add `--mix-simulated` to compare a device with a model of one, in the studies of block I/O",
            )
        return f"`{name}` is simulated: its values are those of a device model, and the others are measured"
    check_targets(*targets)
    shared = shared_storage(*targets)
    if shared and share_file_system(*targets):
        raise TargetError(
            shared,
            hint="check that the file systems of both devices are mounted; to measure one target twice, name it twice",
        )
    return shared


def _plan_entry(
    entry: Entry,
    target: str,
    against: str | None,
    profile: str,
    settings: Mapping[str, str],
    repeats: int | None,
    seed: int | None,
) -> Planned:
    study = with_parts(load_study(entry.study), entry.parts)
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
        if against is None or entry.log_device:
            return Planned(entry=entry, plans={"a": one(target, None)})
        mixed = is_simulated(open_target(target)) != is_simulated(open_target(against))
        whole = effective(study, profile=profile, settings=settings)
        # Two targets cannot alternate where later runs depend on earlier ones.
        if mixed or whole.repeats_until or any(kind_of(part) for part in whole.parts):
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
    kept = {
        name: {part: each for part, each in profile.parts.items() if part in names}
        for name, profile in study.profiles.items()
    }
    changes = {
        "parts": [part for part in study.parts if part.name in names],
        "views": [view for view in study.views if view.part in names],
        "analysis": [each for each in study.analysis if each.part in names],
        "references": [each for each in study.references if each.part in (None, *names)],
        "profiles": {name: each.model_copy(update={"parts": kept[name]}) for name, each in study.profiles.items()},
    }
    return study.model_copy(update=changes)


def total_seconds(planned: Sequence[Planned]) -> float:
    """Estimated time of a whole suite."""
    return sum(each.seconds for each in planned)


def written_bytes(planned: Sequence[Planned]) -> tuple[int, bool]:
    """Bytes that a suite writes as far as they are known, and whether some studies are limited only by time.

    Of those, what they write before measuring is known.
    """
    plans = [plan for each in planned for plan in each.plans.values()]
    written = [plan.cost.write_bytes for plan in plans]
    known = [plan.layout_bytes if each is None else each for plan, each in zip(plans, written, strict=True)]
    return sum(known), None in written
