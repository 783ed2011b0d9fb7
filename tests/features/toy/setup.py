"""The parameter `toy_mark`, and the part of a setup that it becomes."""

from __future__ import annotations

from pydantic import BaseModel, Field

from iosonde.plan import SetupPart
from iosonde.study.setup_extension import SetupExtension


class ToySetup(SetupPart):
    """A mark over the device."""

    part = "toy_mark"
    mark: int = Field(serialization_alias="toy_mark")

    def text(self, devices: int) -> str:
        """`a mark of 7`."""
        return f"a mark of {self.mark}"


class ToyParameters(BaseModel):
    """Parameters of a case."""

    toy_mark: int | None = Field(None, description="Number that the toy writes over the device.")


PARTS = (ToySetup,)
EXTENSIONS = (
    SetupExtension(
        parameters=ToyParameters,
        resolve=lambda given: ToySetup(mark=given["toy_mark"]) if given.get("toy_mark") is not None else None,
        rules=lambda setup: [
            (
                bool((toy := setup.layer(ToySetup)) and toy.mark < 0),
                "`toy_mark` must be at least 0",
                "choose a larger one",
            )
        ],
    ),
)
