"""Interfaces through which block I/O is done: what each can carry out.

Adding one: its row here, or in a feature; its variant in `crates/protocol/src/spec.rs`, and its arm in
`crates/block/src/transport.rs`, which probes it by a real I/O. A backend that the target or the kernel lacks fails its
runs with the code `unsupported`: rows of the report with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.base.features import contributed
from iosonde.study.workload.workload import Backend


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


_OWN = (
    Backend(
        name="uring",
        title="`io_uring`",
        options=_same("registered_files", "registered_buffers", "submission_polling", "completion_polling"),
        always_runs=True,
    ),
    Backend(
        name="sync",
        title="`pread`/`pwrite` or polled `preadv2`, one at a time in each job",
        one_at_a_time=True,
        always_runs=True,
    ),
    Backend(name="preadv2", one_at_a_time=True, direct_only=True),
    Backend(name="libaio", title="Linux AIO", direct_only=True, trims=False),
    Backend(
        name="uring_nvme",
        title="NVMe commands through `io_uring`",
        options=_same("registered_buffers", "completion_polling"),
        direct_only=True,
        is_counted=False,
    ),
    Backend(name="null", title="none", target="null:1GiB", always_runs=True, is_virtual=True, stores_data=False),
    Backend(
        name="simulated",
        title="a simulated device",
        target="simulated:size=1TiB",
        options={
            "servers": "servers",
            "read_service": "read_service_ns",
            "write_service": "write_service_ns",
            "service": "service",
        },
        always_runs=True,
        is_virtual=True,
        has_virtual_time=True,
        stores_data=False,
    ),
)

BACKENDS: Mapping[str, Backend] = {
    each.name: each
    for each in sorted((*_OWN, *contributed("backends", "BACKENDS", Backend)), key=lambda backend: backend.is_virtual)
}
"""All by name, those that reach a real target first."""

VIRTUAL = tuple(name for name, each in BACKENDS.items() if each.is_virtual)
"""Backends that reach no real target."""


def requires_backend(workload: Mapping[str, Any]) -> bool:
    """Return True if a run of a spec's workload fails as unsupported without its backend."""
    given = workload.get("backend") or {}
    backend = BACKENDS.get(given.get("kind", ""))
    return bool(given.get("required") or (backend and not backend.always_runs))


ON_VIRTUAL_TIME = tuple(name for name, each in BACKENDS.items() if each.has_virtual_time)
"""Backends that simulate storage, on a virtual clock."""

VIRTUAL_DRIVES = tuple(name for name, each in BACKENDS.items() if each.is_virtual and each.stores_data)
"""Backends that have the data and the state of a drive, and no files."""
