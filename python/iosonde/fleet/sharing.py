"""Hardware that the targets of a fleet share: those that share something are measured one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iosonde.planning import is_simulated
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.text_files import expanded

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
