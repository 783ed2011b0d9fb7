"""The list of targets of a fleet, a TOML file, and the mark of its directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from iosonde import toml_files
from iosonde.errors import StudyError, TargetError
from iosonde.ssh_hosts import SshHost
from iosonde.text_files import expanded

FILE = "fleet.json"
"""File that makes a directory that of a fleet."""
MOST_TARGETS = 10_000
HINT = "list each target: `[[targets]]` with `name` and `target`, and `host` on another machine (docs/fleet.md)"


def is_fleet(directory: Path) -> bool:
    """Return True if this is the directory of a fleet."""
    return (directory / FILE).is_file()


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FleetTarget(Strict):
    """One target."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
    """Unique: its directory of results, and its name in the report."""
    target: str
    """As with `--target`."""
    host: str = ""
    """Name of the host that has it; empty: this machine."""


class Fleet(Strict):
    """Content of the file."""

    hosts: Sequence[SshHost] = ()
    targets: Annotated[Sequence[FleetTarget], Field(min_length=1, max_length=MOST_TARGETS)]

    @model_validator(mode="after")
    def _distinct(self) -> Fleet:
        names: set[str] = set()
        for each in self.targets:
            if each.name.lower() in names:
                raise ValueError(f"two targets are called `{each.name}`")
            names.add(each.name.lower())
        hosts = [host.called for host in self.hosts]
        if len(set(hosts)) < len(hosts):
            raise ValueError("hosts must have different names")
        if any(host.role == "server" for host in self.hosts):
            raise ValueError("hosts of a fleet measure their own targets: remove `role`, which is for `--hosts`")
        for each in self.targets:
            if each.host and each.host not in hosts:
                raise ValueError(f"`{each.name}` is on the host `{each.host}`, which is not listed in `[[hosts]]`")
        return self


class ListedHosts(BaseModel):
    """The hosts of a list of targets, or of a list of hosts."""

    model_config = ConfigDict(frozen=True)
    hosts: Annotated[Sequence[SshHost], Field(min_length=1)]


def load(path: Path) -> Fleet:
    """Read the list of targets; `StudyError` if it is none."""
    return toml_files.read(Fleet, path, "list of targets", StudyError, hint=HINT)


def named_hosts(spec: str | None, required: Sequence[str], directory: Path) -> Sequence[SshHost]:
    """Return the required hosts as the command line names them (`ssh:FILE`), in the order of the file.

    The directory of a fleet may come from somebody else: who is contacted, as which user, and which program is started
    there, is up to the file that the user names.
    """
    what = f"the fleet has targets on {', '.join(f'`{each}`' for each in required)}"
    hint = f"name the list of targets or hosts that you trust: `iosonde resume {directory} --hosts ssh:FILE`"
    if not required:
        return []
    if not spec:
        raise TargetError(f"{what}, which must be named again", hint=hint)
    kind, _, name = spec.partition(":")
    if kind != "ssh":
        raise TargetError(f"`--hosts` of a fleet must be `ssh:FILE`; got `{spec}`", hint=hint)
    found = toml_files.read(ListedHosts, expanded(name), "list of hosts", TargetError, hint=hint).hosts
    if missing := set(required) - {host.called for host in found}:
        raise TargetError(f"{what}; `{name}` has no host `{min(missing)}`", hint=hint)
    return [host for host in found if host.called in required]
