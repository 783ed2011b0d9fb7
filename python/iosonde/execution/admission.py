"""Checks of a plan before its runs: it writes only to its own target, which is the same as before, and is allowed to.

A result set may come from another person, and its plan names every path that an engine opens. So before a plan is
executed, also by `resume`, the target of each spec is computed again from the plan's target and compared.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.base.features import contributed
from iosonde.engine.protocol.option_text import unsafe_option
from iosonde.errors import TargetError
from iosonde.plan import Case, JsonObject, Plan, Run, commands, target_of
from iosonde.results.result_set import ResultSet
from iosonde.storage.opening import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.target import Files, Target, is_file_name
from iosonde.storage.targets.workspace import journal_directory
from iosonde.study.workload import described
from iosonde.study.workload.block.backends import VIRTUAL

SYSTEM_DIRECTORIES = ("/usr", "/lib", "/lib64", "/opt")
"""Directories in which only administrators install libraries."""


def check_libraries(plan: Plan, allowed: Collection[str] = ()) -> None:
    """`TargetError` if a plan to be resumed names a library outside of the system's directories that is not allowed.

    Loading a library runs its code. The plan may have come with that library, and with any other file next to it.
    """
    for spec in plan.specs():
        store = spec["workload"].get("store")
        library = store.get("library") if isinstance(store, Mapping) else None
        if isinstance(library, str) and "/" in library and library not in allowed and not _is_installed(Path(library)):
            raise TargetError(
                f"the plan loads the library `{library}`, which is not in a directory of the system",
                where="in the result set to be resumed, which may come from another person",
                hint=f"if the library is yours, allow it with `--allow-library {library}`",
            )


def _is_installed(library: Path) -> bool:
    """Return True if the path, and what it leads to, is in a directory of the system."""
    if ".." in library.parts:
        return False
    places = (library, library.resolve())
    return all(any(place.is_relative_to(each) for each in SYSTEM_DIRECTORIES) for place in places)


@dataclass
class Admission:
    """Files and libraries that the specs of a plan may name."""

    plan: Plan
    directory: Path
    """Of the result set: nothing in it is loaded as code."""
    base: Target
    _places: dict[tuple[str, ...], Target] = field(default_factory=dict)

    @classmethod
    def for_plan(cls, plan: Plan, directory: Path) -> Admission:
        """Open the plan's target, in which the plan has its own directory; `TargetError` where it cannot be used."""
        return cls(plan, directory, open_target(plan.target).called(plan.created_name))

    def check_plan(self) -> None:
        """Check every spec; `TargetError` for the first that names something else."""
        for run in self.plan.runs:
            case = self.plan.case_of(run.run_id)
            assert case, "checked when the plan was read"
            self.check(run.run_id, case, run.spec)
        for case in self.plan.adaptive:
            assert case.procedure, "an adaptive case"
            self.check(case.procedure.stem, case, case.procedure.spec)

    def check(self, run_id: str, case: Case, spec: JsonObject) -> None:
        """Check one spec of a case."""
        try:
            problem = self._problem(case, spec)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"the spec is malformed ({type(error).__name__}: {error})"
        if problem or spec.get("run_id") != run_id:
            raise _refused(f"run `{run_id}`: {problem or 'the spec is of another run'}")

    def _problem(self, case: Case, spec: JsonObject) -> str:
        workload = spec["workload"]
        if "server" in workload and (problem := self._server_problem(case, workload)):
            return problem
        if described(workload).io == "server":
            return described(workload).problem(workload, case.parameters, self._place(case))
        named, expected = workload["target"], self._expected(case, workload)
        if named != expected:
            return f"the spec's target is {_shown(named)}, the plan's target gives {_shown(expected)}"
        if (workload.get("backend") or {}).get("device") is not None:
            return "the spec names an NVMe controller"
        names = [stream["name"] for stream in workload.get("streams", ())]
        if not all(map(is_file_name, names)):
            return "a stream's name cannot be part of a file name"
        if (workload.get("backend") or {}).get("state_path") is not None:
            return "the spec names a file for the state of a simulated drive"
        journal = (workload.get("verify") or {}).get("journal_directory")
        allowed = str(journal_directory(named["path"])) if named["kind"] == "device" else None
        if journal not in (None, allowed):
            return f"the spec keeps the verification journal in `{journal}`"
        if problem := described(workload).problem(workload, case.parameters, self._place(case)):
            return problem
        return self._store_problem(workload.get("store") or {})

    def _expected(self, case: Case, workload: JsonObject) -> JsonObject:
        """Return the target that the spec should have, of the kind and size that it has."""
        named = workload["target"]
        kind, size = named["kind"], named.get("size_bytes", 0)
        if kind == "virtual":
            is_real = (workload.get("backend") or {}).get("kind") not in (None, *VIRTUAL)
            return {} if is_real else {"kind": "virtual", **({"size_bytes": size} if "size_bytes" in named else {})}
        target = self._place(case)
        own = described(workload).expected_target(workload, case.parameters, target)
        if own is not None:
            return own
        if target.backend() is not None:
            return target.spec_target("shared", size)
        files: Files = "per_job" if kind == "file_per_job" else "per_device" if "beside" in named else "shared"
        expected = target.spec_target(files, size)
        own_name = described(workload).file_name(workload) if kind == "file" and target.kind == "directory" else None
        if own_name is not None:
            expected["path"] = str(Path(expected["path"]).with_name(own_name)) if own_name else ""
        return expected

    def _server_problem(self, case: Case, workload: JsonObject) -> str:
        """A server of ours has its socket in the target's own directory; one of the user's is the one of the case."""
        address = workload["server"]["address"]
        acknowledged = ((workload.get("measurement") or {}).get("acknowledged") or {}).get("directory")
        if case.parameters.get("server_url"):
            return "the spec writes files" if acknowledged else ""
        own = Path(self._place(case).spec_target("per_job", 0)["directory"])
        path = Path(address["path"])
        kind = case.parameters["server"]
        name = rf"{re.escape(str(own))}/{kind}-[0-9a-f]{{8}}/socket/[A-Za-z0-9._-]+"
        if address["kind"] != "unix" or not re.fullmatch(name, str(path)):
            return f"the spec's server is at `{path}`, which is not in the plan's target"
        if acknowledged not in (None, str(own / f"acknowledged-{own.name[-8:]}")):
            return f"the spec writes acknowledged commits to `{acknowledged}`"
        return ""

    def _place(self, case: Case) -> Target:
        key = case.setup_key
        if key not in self._places:
            self._places[key] = self.base.with_setup(case.setup) if case.setup else self.base
        return self._places[key]

    def _store_problem(self, store: Mapping[str, Any]) -> str:
        """A store loads its library as code, and some of its options name files."""
        if problem := unsafe_option(store.get("options") or {}):
            return f"the store's {problem}"
        library = store.get("library")
        if library and "/" in library and not _is_trusted(Path(library), self.directory):
            return f"the library `{library}` is in the result set, or other users can change it"
        return ""


def _is_trusted(library: Path, directory: Path) -> bool:
    """Return True if a library of this user or root cannot be changed by others and did not come with the set."""
    if not library.is_absolute() or ".." in library.parts:
        return False
    try:
        found, path = library.stat(), library.resolve()
    except OSError:
        return True  # The engine reports that it is missing.
    owned = found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return owned and not path.is_relative_to(directory.resolve())


def _shown(target: Any) -> str:
    if not isinstance(target, Mapping) or not target:
        return "something else"
    return f"`{target.get('path') or target.get('directory') or target.get('kind')}`"


def _refused(reason: str) -> TargetError:
    return TargetError(
        "the plan of this result set names another target than its own; nothing was written",
        where=reason,
        hint="the result set was edited, perhaps with intent; to measure here, run the study again with `iosonde run`",
    )


SHOWN = 6
"""Lines of commands that a refusal shows."""


def require_commands_allowed(plan: Plan, given: str) -> None:
    """Raise `TargetError` unless the user has named the hash of a plan with external commands."""
    if not commands.has_commands(plan) or commands.is_allowed(plan, given):
        return
    shown = list(itertools.islice(commands.lines(plan), SHOWN + 1))
    listed = [*shown[:SHOWN], *(["..."] if len(shown) > SHOWN else [])]
    what = "is not that of this study with these settings, or a program has changed" if given else "is missing"
    raise TargetError(
        f"the study `{plan.study_name}` starts external commands, which can do anything that you can: the hash that "
        f"allows them {what}",
        where="\n  ".join(["it would start", *listed]),
        hint=f"if you trust these commands, add `--allow-commands {commands.commands_hash(plan)}`; `iosonde plan` "
        "prints all of them",
    )


RequiredConsent = Callable[[Plan, Target, Consent], None]
"""`TargetError` if a plan requires more consent before it starts. `CONSENT` of a feature's `run.py`."""


def require_consent(plan: Plan, target: Target, consent: Consent) -> None:
    """`TargetError` if a feature requires more consent for a plan on a target."""
    kinds: tuple[RequiredConsent, ...] = contributed("run", "CONSENT")
    for require in kinds:
        require(plan, target, consent)


def describe(target: Target) -> dict[str, Any]:
    """The target as it is now; for a target that has vanished, the error."""
    try:
        return target.describe()
    except (OSError, TargetError) as error:
        return {"name": target.name, "kind": target.kind, "problem": str(error)}


def places_of(workload: JsonObject) -> dict[str, Path]:
    """Paths of the `data`, the `log` and the `read_cache` of a workload without a server, as far as they are apart."""
    target = target_of(workload)
    data, cache = target.get("path") or target.get("directory"), target.get("read_cache") or {}
    found = {"data": data, "log": target.get("log_path"), "read_cache": cache.get("path")}
    return {name: Path(path) for name, path in found.items() if path}


def describe_log(run: Run) -> dict[str, Any]:
    """The second targets with the log and the read cache of a store, if there are any."""
    places = places_of(run.spec["workload"]).items()
    return {name: describe(open_target(str(path.parents[1]))) for name, path in places if name != "data"}


def check_same_target(plan: Plan, result_set: ResultSet, now: dict[str, Any]) -> None:
    """Raise `TargetError` if earlier records were made on another target: their results cannot be combined."""
    for record in (each for each in result_set.records() if plan.case_of(each.run_id)):
        before = _identity(record.setup.get("target", record.target))
        changed = [name for name, value in _identity(now).items() if name in before and before[name] != value]
        if changed:
            name = changed[0]
            raise TargetError(
                f"`{plan.target}` has changed: its {name} is {_identity(now)[name]}, and was "
                f"{before[name]} in run `{record.run_id}`",
                where=f"in the result set `{result_set.directory}`",
                hint="restore the former target, or start a new study with `iosonde run`",
            )


def _identity(target: dict[str, Any]) -> dict[str, str]:
    """Facts that identify a target, by name as shown in errors."""
    system, devices = target.get("file_system", {}), target.get("devices", [])
    facts = {
        "file system": system.get("kind"),
        # Device names change from boot to boot; the source identifies a target only without a device, as with NFS.
        "source": None if devices else system.get("source"),
        "device": _joined(devices, "model", "name"),
        "device's serial number (hashed)": _joined(devices, "serial_hash"),
        "device's size in bytes": _joined(devices, "size_bytes"),
    }
    return {name: f"`{value}`" for name, value in facts.items() if value}


def _joined(devices: list[dict[str, Any]], *names: str) -> str:
    """The first of these facts that each device has."""
    found = (next((str(device[name]) for name in names if device.get(name)), "") for device in devices)
    return ", ".join(filter(None, found))
