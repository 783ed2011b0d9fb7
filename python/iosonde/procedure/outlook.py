"""What can be said of a procedure before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.plan import JsonObject
from iosonde.study.model import Parameters


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The part of a plan that a kind of procedure contributes."""

    settings: JsonObject
    """What its course needs to know."""
    extremes: Sequence[Parameters]
    """Parameters at the ends of what it may try, as written; the case is checked with each, the largest last."""
    decided: Sequence[str]
    """Parameters that the procedure decides, and the case therefore does not have."""
    most_runs: int
    """The bound that it never exceeds."""
    rates_known: bool = True
    """Whether the extremes bound what is asked of the target."""
    preparing: int = 0
    """How many of them prepare the target or are stages, which take other time than the case does."""
    stages: Sequence[Parameters] = ()
    """What follows the rounds of each repeat, as written."""
    uncertain: bool = True
    """Whether it may take fewer."""
    text: str
    """What it does and how far it goes, for a reader of the plan."""
