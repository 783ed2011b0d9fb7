"""Base of every part of a plan: frozen models and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

JsonObject = dict[str, Any]
Scalar = str | int | float | bool

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""Also the name of a record's directory."""

OwnName = Annotated[str, Field(pattern=r"^(iosonde-[0-9a-f]{8})?$")]
"""Also the name of a directory on the target."""


ArmName = Literal["", "a", "b"]
"""Arm of an A/B comparison within one session; empty in any other study."""


MOST_CASES = 20_000
"""Combinations of levels that a study may have: planning and reporting of these take seconds."""

MOST_PLANNED_CASES = 3 * MOST_CASES
"""Cases that a plan may have: those of a study twice if it compares two arms, stages and control cases."""


class Frozen(BaseModel):
    """A model that cannot change and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
