"""The targets of a fleet: their list, a TOML file, the mark of its directory, and the hardware that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from iosonde.base import text_files
from iosonde.base.ssh_hosts import SshHost
from iosonde.base.text_files import expanded
from iosonde.collections.library.directory import Strict
from iosonde.errors import StudyError, TargetError
from iosonde.plan import Plan
from iosonde.planning import is_simulated
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of

UNKNOWN = "no visible drive"
"""Of file systems whose drives `/sys` does not show, such as NFS: they may be on the same server."""


def hardware_of(target: str) -> frozenset[str]:
    """Return the drives of a target and the hardware above them; nothing of a simulated one."""
    opened = open_target(target)
    if is_simulated(opened):
        return frozenset()
    drives = block_stack.drives(opened.block_devices())
    return frozenset(part for each in drives for part in block_stack.path_to_processor(each)) or frozenset([UNKNOWN])


def devices_of(target: str) -> list[str]:
    """Return the block devices among the parts of a target."""
    names = [name.strip() for name in target.split(",")]
    return [name for name in names if number_of(expanded(name).absolute())]


def shared_by(hardware: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """Return what several targets share, with their names; what the same targets share is named together."""
    users: dict[str, list[str]] = {}
    for name, parts in hardware.items():
        for part in parts:
            users.setdefault(part, []).append(name)
    together: dict[tuple[str, ...], list[str]] = {}
    for part in sorted(users):
        if len(users[part]) > 1:
            together.setdefault(tuple(users[part]), []).append(part)
    return {", ".join(parts): list(names) for names, parts in together.items()}


def sentences(shared: Mapping[str, Sequence[str]]) -> list[str]:
    """State what is shared, and that those targets are measured one after the other."""
    return [f"{_listed(names)} share {what} and are measured one after the other" for what, names in shared.items()]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} and {len(names) - 2} more targets"


MOST_TARGETS = 10_000
HINT = "list each target: `[[targets]]` with `name` and `target`, and `host` on another machine (docs/fleet.md)"


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


@dataclass(frozen=True, kw_only=True)
class Measurable:
    """A target that can be measured, with its plan."""

    hardware: frozenset[str]
    devices: Sequence[str]
    """As with `--destroy`."""
    plan: Plan | None
    """None without a study."""


class ListedHosts(BaseModel):
    """The hosts of a list of targets, or of a list of hosts."""

    model_config = ConfigDict(frozen=True)
    hosts: Annotated[Sequence[SshHost], Field(min_length=1)]


def load(path: Path) -> Fleet:
    """Read the list of targets; `StudyError` if it is none."""
    return text_files.read_toml(Fleet, path, "list of targets", StudyError, hint=HINT)


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
    found = text_files.read_toml(ListedHosts, expanded(name), "list of hosts", TargetError, hint=hint).hosts
    if missing := set(required) - {host.called for host in found}:
        raise TargetError(f"{what}; `{name}` has no host `{min(missing)}`", hint=hint)
    return [host for host in found if host.called in required]
