"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

Kind = Literal[
    "headline",
    "search",
    "disturbance",
    "saturation",
    "promise",
    "peak",
    "doubling",
    "asymmetry",
    "tail",
    "flatness",
    "steady",
    "recovery",
    "reference",
    "overload",
    "drift",
    "trust",
    "unclear",
]
Strength = Literal["strong", "moderate", "weak"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence and what it stands on."""

    kind: Kind
    title: str
    """A plain sentence, without a final period."""
    evidence: str
    """Numbers with intervals, and from how many runs."""
    strength: Strength
    case_ids: tuple[str, ...] = ()
    part: str = ""


def cases_of(rows: pl.DataFrame) -> tuple[str, ...]:
    """The cases that rows speak of, each once, in their order."""
    return tuple(rows["case_id"].unique(maintain_order=True))
