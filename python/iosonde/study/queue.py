"""Settings of the block queues under the target, as a study may set them: the kernel's parameters of a block device."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.units import parse_size


def _read_kib(value: Any) -> int:
    size = parse_size(value)
    if size < 0 or size % 1024:
        raise ValueError("must be a multiple of 1 KiB")
    return size


class QueueParameters(BaseModel):
    """Parameters in `/sys/block/DEVICE/queue`; omitted ones leave the system as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    io_scheduler: Annotated[str | None, Field(pattern=r"^[a-z][a-z0-9-]*$")] = Field(
        None, description="I/O scheduler of the target's block devices, such as `none` or `mq-deadline`. Needs root."
    )
    read_ahead: Annotated[int | None, BeforeValidator(_read_kib)] = Field(
        None, description="Read-ahead of the page cache, in multiples of 1 KiB. Needs root."
    )
    nr_requests: Annotated[int | None, Field(ge=1, le=65536)] = Field(
        None, description="Requests that the block queue holds. Needs root."
    )
    max_request: Annotated[int | None, BeforeValidator(_read_kib)] = Field(
        None, description="Largest request that the block layer passes on, in multiples of 1 KiB. Needs root."
    )
    nomerges: Annotated[int | None, Field(ge=0, le=2)] = Field(
        None, description="Merging of requests: 0 all, 1 simple ones, 2 none. Needs root."
    )
    rq_affinity: Annotated[int | None, Field(ge=0, le=2)] = Field(
        None, description="CPU that completes a request: 0 any, 1 the group's, 2 the submitter's. Needs root."
    )


NAMES = tuple(QueueParameters.model_fields)
SIZES = ("read_ahead", "max_request")
