"""Parameters of swap: an area on the target or on zram, and the kernel's settings for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.study.workload.reading import renamed
from iosonde.units import MIB, parse_size

SMALLEST_BYTES = MIB


def _read_swap(value: Any) -> Any:
    # TOML has no bare `off`, and who writes `false` means it.
    return renamed(value, {True: "target", False: "off", "on": "target", "none": "off"})


def _read_size(value: Any) -> int:
    size = parse_size(value)
    if size < SMALLEST_BYTES:
        raise ValueError("size must be at least 1 MiB")
    return size


def _read_flag(value: Any) -> Any:
    return renamed(value, {"true": True, "on": True, "false": False, "off": False})


class SwapParameters(BaseModel):
    """Parameters of swap; omitted ones leave the system as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    needs_root: ClassVar[bool] = True

    swap: Annotated[Literal["off", "target", "zram"] | None, BeforeValidator(_read_swap)] = None
    """Swap for the run: `target` (a file in a directory, or the block device itself), `zram` (compressed memory), or
    `off`. It has the highest priority and is removed after the run. Needs root."""
    swap_size: Annotated[int | None, BeforeValidator(_read_size)] = None
    """Size of the swap area (1 GiB; a block device is used as a whole unless this is set)."""
    page_cluster: Annotated[int | None, Field(ge=0, le=10)] = None
    """`vm.page-cluster`: the kernel reads up to 2 to this power pages from swap at once. Needs root."""
    zswap: Annotated[bool | None, BeforeValidator(_read_flag)] = None
    """zswap, a compressed cache in memory before the swap area: on or off. Needs root."""


SETTINGS = (SwapParameters,)
SIZES = ("swap_size",)

DEFAULT_BYTES = 1 << 30
"""Size of a swap file or zram device where none is set."""


def uses_swap(parameters: Mapping[str, Any]) -> bool:
    """Return True if a case has a swap area of its own."""
    return parameters.get("swap") in ("target", "zram")
