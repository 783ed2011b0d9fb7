"""What every part of a plan is based on: frozen models and the types of their values."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

JsonObject = dict[str, Any]
Scalar = str | int | float | bool


class Frozen(BaseModel):
    """A model that cannot change and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
