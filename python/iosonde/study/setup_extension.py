"""Extension of the setups of studies: parameters, the parts that they resolve to, and rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from iosonde.plan import Setup, SetupPart
from iosonde.study.workload.workload import Workload

Rule = tuple[bool, str, str]
"""A condition, the error if it is true, and a hint."""


def _no_rules(setup: Setup, workload: Workload | None = None) -> list[Rule]:
    return []


@dataclass(frozen=True, kw_only=True)
class SetupExtension:
    """Listed in `EXTENSIONS` of a feature's `setup.py`."""

    parameters: type[BaseModel]
    """Its fields are parameters of a case, each with a description; all are optional."""
    is_layout: bool = False
    """True if they describe how the devices are combined: cases that differ in them have the same workload."""
    resolve: Callable[[Mapping[str, Any]], SetupPart | None]
    """The part by the parameters that a case gives, checked; None if it asks for none."""
    rules: Callable[[Setup], list[Rule]] = _no_rules
    """Rules for parameters that depend on each other."""
    rules_with_workload: Callable[[Setup, Workload], list[Rule]] = _no_rules
    """Rules for the workload on the setup."""
