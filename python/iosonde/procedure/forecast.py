"""The contribution of a procedure to the plan, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.plan import JsonObject
from iosonde.study.model import Parameters


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Settings and bounds of a procedure."""

    settings: JsonObject
    """Everything that its decisions depend on besides records."""
    extremes: Sequence[Parameters]
    """The extreme parameters that it may set, as written; the case is checked with each, the largest last."""
    decided: Sequence[str]
    """Parameters that the procedure sets, so that the case does not have them."""
    max_runs: int
    """Upper bound of its runs."""
    rates_known: bool = True
    """True if the extremes bound the load on the target."""
    preparing: int = 0
    """Number of runs among them that prepare the target or are stages, whose duration differs."""
    stages: Sequence[Parameters] = ()
    """The stages after the rounds of each repeat, as written."""
    uncertain: bool = True
    """True if it may need fewer."""
    text: str
    """Its steps and bounds, for a reader of the plan."""
