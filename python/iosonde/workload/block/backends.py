"""Interfaces through which block I/O is done: what each can carry out, and its part of the engine's spec.

Adding one: its row here, its name in `BlockFields.backend`, its variant in `crates/protocol/src/spec.rs`, and its arm
in `crates/block/src/transport.rs`, which probes it by a real I/O. A backend that the target or the kernel lacks fails
its runs with the code `unsupported`: rows of the report with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iosonde.workload.block.fields import BlockFields


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One of them."""

    interface: str
    """System calls or commands that carry out an I/O."""
    requires: str = ""
    """What the kernel and the target must have; empty: nothing."""
    options: tuple[str, ...] = ()
    """Parameters that its spec takes."""
    one_at_a_time: bool = False
    """Whether a job has one I/O in flight."""
    direct_only: bool = False
    """Whether it needs `io_mode = "direct"`."""
    trims: bool = True
    """Whether it can trim."""

    def problem(self, name: str, stream: BlockFields) -> str | None:
        """Why it cannot carry out a stream; None if it can."""
        if self.one_at_a_time and stream.queue_depth != 1:
            return f"the backend `{name}` does one I/O at a time in each job: `queue_depth` must be 1 (use more `jobs`)"
        if self.direct_only and stream.io_mode != "direct":
            return f'the backend `{name}` needs `io_mode = "direct"`'
        if not self.trims and stream.trim_fraction > 0:
            return f"the backend `{name}` cannot trim: `trim_fraction` must be 0"
        return None


URING_OPTIONS = ("registered_files", "registered_buffers", "submission_polling", "completion_polling")

BACKENDS: Mapping[str, Backend] = {
    "sync": Backend(interface="`pread`, `pwrite`", one_at_a_time=True),
    "preadv2": Backend(
        interface="`preadv2`, `pwritev2` with `RWF_HIPRI`",
        requires="Linux 4.6; polls only before Linux 5.19 and with poll queues",
        one_at_a_time=True,
        direct_only=True,
    ),
    "libaio": Backend(
        interface="`io_submit`, `io_getevents`", requires="contexts (`fs.aio-max-nr`)", direct_only=True, trims=False
    ),
    "uring": Backend(interface="`io_uring`", requires="Linux 5.6, and `io_uring` allowed", options=URING_OPTIONS),
    "uring_nvme": Backend(
        interface="NVMe commands through `io_uring` (`IORING_OP_URING_CMD`)",
        requires="a whole NVMe namespace as the target, Linux 5.19, root",
        options=("registered_buffers", "completion_polling"),
        direct_only=True,
    ),
    "nvme_user": Backend(
        interface="NVMe commands of the user-level driver",
        requires="an unused NVMe controller, an IOMMU, the module `vfio-pci`, root",
        options=("data_pointers", "interrupts"),
        direct_only=True,
    ),
}
"""Those that reach a real target, in the order from the simplest interface to the closest to the device."""


def spec_of(whole: BlockFields) -> dict[str, Any]:
    """The spec's `backend` of one of `BACKENDS`."""
    chosen = {name: getattr(whole, name) for name in BACKENDS[whole.backend].options}
    if whole.backend == "nvme_user":
        return {"kind": whole.backend, **chosen, "timeout_ns": whole.command_timeout}
    required = {"required": True} if whole.backend == "uring" and whole.fallback == "refuse" else {}
    return {"kind": whole.backend, **chosen, **required}


def problem(stream: BlockFields) -> str | None:
    """Why its backend cannot carry out a stream; None if it can."""
    backend = BACKENDS.get(stream.backend)
    return backend.problem(stream.backend, stream) if backend else None
