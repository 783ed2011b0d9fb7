"""The parameters of a key-value load, checked together when a stream is created."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from iosonde.features.key_value_stores import rules
from iosonde.features.key_value_stores.fields import KvFields


class KvParameters(KvFields):
    """One stream: `jobs` threads, each with one operation at a time."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        problem = rules.problem(self)
        if problem:
            raise ValueError(problem)
        return self
