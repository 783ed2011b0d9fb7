"""Result of a requirement, and of each run where each must meet the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from iosonde.metrics.wording import value_text
from iosonde.study.model import Requirement

Outcome = Literal["fail", "undecided", "pass"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """One run."""

    run_id: str
    started_at: str
    outcome: Outcome
    value: float | None
    margin: float | None
    reason: str
    """Reason for an undecided outcome."""
    observed: Sequence[str]
    """Other events: I/O of other processes, steal time, stalls, temperature."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One requirement in one case."""

    requirement: Requirement
    case_id: str
    outcome: Outcome
    metric: str
    """Metric of the value; empty for a share of operations."""
    limit: float
    comparison: str
    """Sign between a value that is good enough and the limit, such as `≥`."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    """Distance from the limit as a share of it; negative where the value is beyond it."""
    reason: str = ""
    """Reason for an undecided outcome; other observations of a failed one; the number of windows that passed."""
    measured_ns: int = 0
    """Length of the measurements that decide."""
    windows: Sequence[Window] = ()
    """Each run, the worst first, where every run must meet the limit."""

    def text(self, value: float | None) -> str:
        """Write a value of its metric."""
        if value is None:
            return "-"
        return value_text(self.metric, value) if self.metric else f"{100 * value:.3g} %"

    @property
    def limit_text(self) -> str:
        """The limit with its comparison."""
        return f"{self.comparison} {self.text(self.limit)}"
