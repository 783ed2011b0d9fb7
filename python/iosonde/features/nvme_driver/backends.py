"""The backend `nvme_user` and its parameters."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from iosonde.study.workload.reading import Duration
from iosonde.study.workload.workload import Backend

NAME = "nvme_user"


class DriverParameters(BaseModel):
    """Parameters of the user-level driver."""

    data_pointers: Literal["prp", "sgl"] = "prp"
    """`nvme_user`: describe data by PRP entries, or by scatter-gather lists if supported."""
    interrupts: bool = False
    """`nvme_user`: wait for an interrupt instead of polling."""
    command_timeout: Duration = 30_000_000_000
    """`nvme_user`: abort a command after this time, and reset the controller after the same time again."""


BACKENDS = (
    Backend(
        name=NAME,
        title="the user-level NVMe driver",
        parameters=DriverParameters,
        options={"data_pointers": "data_pointers", "interrupts": "interrupts", "command_timeout": "timeout_ns"},
        direct_only=True,
        is_counted=False,
    ),
)
