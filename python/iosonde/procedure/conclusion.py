"""The result of a procedure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


class UnfinishedError(Exception):
    """Thrown into a procedure in place of its next observation: a reader asks what the runs so far show.

    A procedure that can tell returns its conclusion; others let the error pass.
    """


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The result of a procedure; kinds extend it."""

    case_id: str
    reached: bool
    """True if it succeeded."""
    reason: str = ""
    """Reason for failure; empty if it succeeded."""
    value: float | None = None
    """The value that it searched for, if it found one."""

    @property
    def steps(self) -> Collection[str]:
        """Cases whose values have no meaning but in this conclusion: other findings leave them out."""
        return ()
