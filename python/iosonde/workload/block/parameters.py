"""The parameters of block I/O, checked together when a stream is created."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from iosonde.workload.block import rules
from iosonde.workload.block.fields import BlockFields


class BlockParameters(BlockFields):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        problem = rules.problem(self)
        if problem:
            raise ValueError(problem)
        return self
