"""The directory of a fleet: its list of targets, and one result set for each.

fleet.json     study, targets, what they share, what was skipped; never changed
NAME/          result set of the target of that name
failed.json    targets that failed in the last session, with the reason
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError, model_validator

from iosonde.collections.fleet import hosts, model
from iosonde.collections.fleet.model import Fleet, FleetTarget, Measurable
from iosonde.collections.library.directory import Collection, Description
from iosonde.errors import IosondeError, TargetError
from iosonde.execution.session import require_startable
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.results.files import Directory
from iosonde.results.shapes import interpreting
from iosonde.storage.safety.guard import Consent, ConsentError, InUseError
from iosonde.study.model import Study

FAILED = "failed.json"
REFUSALS_NAMED = 10


_REASONS = TypeAdapter(dict[str, str])


class FleetFile(Fleet, Description):
    """Content of `fleet.json`."""

    format: Literal[1] = 1
    study: str
    shared: Mapping[str, Sequence[str]] = {}
    """Hardware, and the names of the targets that share it."""
    skipped: Mapping[str, str] = {}
    """Targets that could not be planned, with the reason."""

    @property
    def names(self) -> list[str]:
        """Targets that were planned."""
        return [each.name for each in self.targets if each.name not in self.skipped]

    @model_validator(mode="after")
    def _known(self) -> FleetFile:
        if set(self.skipped) - {each.name for each in self.targets}:
            raise ValueError("`skipped` names a target that the fleet does not have")
        return self


class FleetDirectory(Collection[FleetFile]):
    """A fleet on disk: a result set for each target that was planned, with its name."""

    kind = "fleet"
    content = FleetFile

    def remaining(self, *, retry_failed: bool = False) -> dict[str, Path]:
        """Result sets with runs to do; `ResultsError` for one that is of another study than `fleet.json` names."""
        for name, path in self.result_sets.items():
            with interpreting([path]):
                study = ResultSet.open(path).plan.study_name
            if study != self.description.study:
                raise self.contradiction(name, f"its study is `{study}`")
        return super().remaining(retry_failed=retry_failed)

    @property
    def missing(self) -> dict[str, str]:
        """Targets without a complete run, with the reason."""
        failed = self._failed()
        found = dict(self.description.skipped)
        for name, path in self.result_sets.items():
            records = ResultSet.open(path).records()
            if not any(each.outcome == "complete" for each in records):
                failures = [each.failure.message for each in records if each.failure]
                found[name] = failed.get(name) or next(iter(failures), "no run was carried out")
        return {each.name: found[each.name] for each in self.description.targets if each.name in found}

    def _failed(self) -> dict[str, str]:
        try:
            with Directory.open(self.path) as opened:
                return _REASONS.validate_json(opened.read(FAILED))
        except (OSError, ValidationError):
            return {}  # No session has ended, or it is damaged: the records state what they can.

    def keep_failed(self, reasons: Mapping[str, str]) -> None:
        """Keep why targets failed in a session, in place of the last one."""
        with Directory.open(self.path) as opened:
            opened.write(FAILED, _REASONS.dump_json(dict(reasons), indent=1))

    def targets(self, names: Container[str]) -> list[FleetTarget]:
        """The targets with these names."""
        return [each for each in self.description.targets if each.name in names]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The plans of a fleet."""

    description: FleetFile
    plans: Mapping[str, Plan]
    refused: Mapping[str, IosondeError]
    """Targets on a device that must not be written, since it is in use: none of the fleet is measured then."""
    devices: Sequence[str]
    """Block devices of all targets, as with `--destroy`."""

    @property
    def required(self) -> list[str]:
        """Options that give consent to overwrite the devices of all targets."""
        by_target = dict.fromkeys(tuple(plan.required_options) for plan in self.plans.values())
        return [option for options in by_target for option in options]

    def on(self, host: str) -> dict[str, Plan]:
        """The plans of a host's targets; of those here, for an empty name."""
        return {
            each.name: self.plans[each.name]
            for each in self.description.targets
            if each.host == host and each.name in self.plans
        }


def plan_fleet(fleet: Fleet, study: Study, options: Mapping[str, Any]) -> Planned:
    """Plan the study for each target where it is; a target that it cannot run on is skipped with the reason.

    The error of the first target if it is every one.
    """
    found, _ = hosts.describe(fleet.hosts, fleet.targets, study, options)
    errors = {name: each for name, each in found.items() if isinstance(each, IosondeError)}
    known = {name: each for name, each in found.items() if isinstance(each, Measurable)}
    if not known:
        raise next(iter(errors.values()))
    refused = {name: error for name, error in errors.items() if isinstance(error, InUseError)}
    description = FleetFile(
        study=study.name,
        targets=fleet.targets,
        hosts=fleet.hosts,
        shared=model.shared_by({name: each.hardware for name, each in known.items()}),
        skipped={name: error.what for name, error in errors.items() if name not in refused},
    )
    return Planned(
        description=description,
        plans={name: each.plan for name, each in known.items() if each.plan},
        refused=refused,
        devices=[device for each in known.values() for device in each.devices],
    )


def create(directory: Path, planned: Planned, consent: Consent, note: Callable[[str], None]) -> FleetDirectory:
    """Create the directory with a result set for each target; nothing is run.

    Consent and guard of every target are checked first. `TargetError` names all that are refused, `ResultsError` a
    directory that is not empty.
    """
    _require_consent(planned, directory.absolute(), consent, note)
    return FleetDirectory.create(directory, planned.description, planned.plans)


def _require_consent(planned: Planned, directory: Path, consent: Consent, note: Callable[[str], None]) -> None:
    listed = planned.description.hosts
    on_hosts = {host.called: own for host in listed if (own := planned.on(host.called))}
    refused = {**planned.refused, **hosts.check(listed, on_hosts, directory, consent, note)}
    for name, plan in planned.on("").items():
        try:
            require_startable(plan, consent, note)
        except TargetError as error:
            refused[name] = error
    if not refused:
        return
    total = len(planned.plans) + len(planned.refused)
    if total == 1:
        raise next(iter(refused.values()))
    lacking = [error for error in refused.values() if isinstance(error, ConsentError)]
    options = [option for of_device in dict.fromkeys(error.options for error in lacking) for option in of_device]
    others = dict.fromkeys(error.hint for error in refused.values() if error.hint and error not in lacking)
    hints = list(others)[:REFUSALS_NAMED]
    if options:
        listed_devices = any(option.startswith("--destroy ") for option in options)
        all_listed = "; `--destroy-all-listed` names every device of the list" if listed_devices else ""
        hints.insert(0, f"to overwrite them, add {' '.join(options)}{all_listed}")
    lines = [f"{name}: {error.what}" for name, error in refused.items()]
    more = [f"and {len(lines) - REFUSALS_NAMED} more"] if len(lines) > REFUSALS_NAMED else []
    raise TargetError(
        f"{len(refused)} of {total} targets are refused, so none is measured",
        where="\n  ".join([*lines[:REFUSALS_NAMED], *more]),
        hint="; ".join(hints),
    )
