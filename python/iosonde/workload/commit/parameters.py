"""The parameters of a load of single-row commits."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from iosonde.workload.oltp.fields import OltpFields
from iosonde.workload.reading import Size


class CommitParameters(OltpFields):
    """Clients, each with one connection and one transaction at a time."""

    clients: int = Field(1, ge=1, le=10_000, description="Connections, each with a commit in flight.")
    operation: Literal["insert", "update"] = Field(
        "insert", description="Each transaction inserts a row, or updates the client's own row."
    )
    payload: Size = Field(100, description="Bytes of a row's payload, 1 B to 8000 B.")

    def population(self) -> dict[str, Any]:
        """No rows are loaded."""
        return {"workload": "commit"}

    def _rules(self) -> list[tuple[bool, str]]:
        return [*super()._rules(), (self.payload > 8000, "`payload` is at most 8000 B")]
