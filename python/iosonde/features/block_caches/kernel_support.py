"""Block caches available in this kernel: loaded, built in, or as modules that can be loaded."""

from __future__ import annotations

from dataclasses import dataclass

from iosonde.storage.block_layer.kernel_modules import State, state_of

MODULES = {
    "bcache": ("bcache",),
    "dm-cache": ("dm-cache", "dm-cache-smq"),
    "dm-writecache": ("dm-writecache",),
}
"""Kernel modules of each block cache."""

OPTIONS = {"bcache": "CONFIG_BCACHE", "dm-cache": "CONFIG_DM_CACHE", "dm-writecache": "CONFIG_DM_WRITECACHE"}
"""Options of the kernel's configuration."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """True if the kernel has a block cache."""

    kind: str
    state: State

    @property
    def is_available(self) -> bool:
        """Return True if it is there or can be loaded."""
        return self.state != "missing"


def support(kind: str) -> Support:
    """Return whether this kernel has a kind of block cache: all of its modules."""
    return Support(kind=kind, state=state_of(*MODULES[kind]))


def every() -> list[Support]:
    """Each kind of block cache."""
    return [support(kind) for kind in MODULES]


def advice(kind: str) -> str:
    """Return advice on where to get it."""
    modules = " and ".join(f"`{module}`" for module in MODULES[kind])
    return (
        f"use a kernel with the module {modules} ({OPTIONS[kind]}), such as Debian's `linux-image-amd64`, or "
        "`iosonde lab run`"
    )
