"""The parameters of block I/O, checked together when a stream is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import create_model, model_validator

from iosonde.workload.block import rules
from iosonde.workload.block.backends import BACKENDS
from iosonde.workload.block.fields import BlockFields

if TYPE_CHECKING:
    _Fields = BlockFields
else:
    _OF_BACKENDS = [each.parameters for each in BACKENDS.values() if each.parameters]
    _Fields = create_model("_Fields", __base__=(*_OF_BACKENDS, BlockFields))


class BlockParameters(_Fields):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        problem = rules.problem(self)
        if problem:
            raise ValueError(problem)
        return self
