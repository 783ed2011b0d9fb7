"""What a procedure comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The end of a procedure. Kinds that have more to say have a conclusion of their own."""

    case_id: str
    reached: bool
    """Whether it came to what it was for."""
    reason: str = ""
    """Why not."""
    value: float | None = None
    """The number that it was to find, if it found one."""
