"""Layers that a setup has over its devices, created by features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.core.features import contributed
from iosonde.plan import Setup, SetupPart


@dataclass(frozen=True, kw_only=True)
class BuiltLayer:
    """An active layer of a setup."""

    device: Path
    """The block device over those below."""
    below: tuple[Path, ...] = ()
    """Devices below it that the kernel does not list as such."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: commands, settings, sizes."""
    mount_options: str = ""
    """Options that mounting it needs."""

    def mounted(self, point: Path) -> None:
        """Do what needs the mounted file system."""


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Listed in `LAYERS` of a feature's `layers.py`."""

    part: type[SetupPart]
    journal_kind: str
    """Kind of the journal entry that `build` announces before its first command."""
    further_kinds: tuple[str, ...] = ()
    """Kinds of the entries that `mounted` adds."""
    check_possible: Callable[[Any], None]
    """`TargetError` if this machine cannot create a part of that type."""
    build: Callable[[Sequence[Path], Sequence[Path], Any, str], BuiltLayer]
    """Create a part over a device (or all of a setup), with its further devices, under the name of the study."""


def kinds() -> tuple[LayerKind, ...]:
    """Return the layers of all features."""
    return contributed("storage", "LAYERS", LayerKind)


def kind_of(part: SetupPart) -> LayerKind:
    """Return the kind that creates a part of a setup."""
    return next(each for each in kinds() if isinstance(part, each.part))


def check_possible(setup: Setup) -> None:
    """`TargetError` if this machine cannot create the layers of a setup."""
    for part in setup.layers:
        kind_of(part).check_possible(part)
