"""Kinds of targets that features add, by the prefix of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.core.features import contributed
from iosonde.plan import JsonObject, Plan
from iosonde.storage.targets.target import Target


@dataclass(frozen=True)
class TargetState:
    """Data of a target that iosonde itself keeps between the runs of a study: here none, as of files and devices."""

    plan: Plan
    """The runs on this target."""
    directory: Path
    """That of the result set."""

    def create(self) -> None:
        """Create the place of the data, unless it remains from before an interruption."""

    def remove(self) -> None:
        """Remove it after the last run."""

    def begin(self, setup: str, *, is_fresh: bool) -> dict[str, Any]:
        """Start without data, unless those of this setup exist and may be used; return facts for the record."""
        return {}

    def purge(self) -> None:
        """Discard the data: the next run starts without."""

    def with_state(self, spec: JsonObject) -> JsonObject:
        """The spec with the place of the data."""
        return spec


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
    state: Callable[[Plan, Path], TargetState] = TargetState


def target_kinds() -> Mapping[str, TargetKind]:
    """Return those of all features by their prefix."""
    return {each.prefix: each for each in contributed("storage", "TARGETS", TargetKind)}


def kind_of(target: str) -> TargetKind | None:
    """Return the kind of the target with this name; None if it is of no feature."""
    return target_kinds().get(target.partition(":")[0])


def state_of(plan: Plan, directory: Path) -> TargetState:
    """Return the state of a plan's target, for a result set in this directory."""
    kind = kind_of(plan.target)
    return kind.state(plan, directory) if kind else TargetState(plan, directory)
