"""Kinds of targets that features add, by the prefix of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iosonde.core.features import contributed
from iosonde.storage.targets.target import Target


@dataclass(frozen=True, kw_only=True)
class ShippedTarget:
    """A target that comes with iosonde."""

    name: str
    """For `--target`."""
    title: str
    class_: str
    """The class of devices."""


@dataclass(frozen=True, kw_only=True)
class TargetKind:
    """Listed in `KINDS` of a feature's `targets.py`."""

    prefix: str
    """Text before the colon."""
    open: Callable[[str], Target]
    """The target with that name; `TargetError` if there is none."""
    shipped: Callable[[], list[ShippedTarget]] = list
    """Targets that come with iosonde."""


def target_kinds() -> Mapping[str, TargetKind]:
    """Return those of all features by their prefix."""
    return {each.prefix: each for each in contributed("targets", "KINDS", TargetKind)}
