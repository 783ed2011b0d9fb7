"""Interfaces through which block I/O is done: what each can carry out.

Adding one: its row here, or in a feature; its variant in `crates/protocol/src/spec.rs`, and its arm in
`crates/block/src/transport.rs`, which probes it by a real I/O. A backend that the target or the kernel lacks fails its
runs with the code `unsupported`: rows of the report with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from iosonde.core.features import contributed
from iosonde.workload.backend import Backend


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


_OWN = (
    Backend(
        name="uring",
        options=_same("registered_files", "registered_buffers", "submission_polling", "completion_polling"),
        always_runs=True,
    ),
    Backend(name="sync", one_at_a_time=True, always_runs=True),
    Backend(name="preadv2", one_at_a_time=True, direct_only=True),
    Backend(name="libaio", direct_only=True, trims=False),
    Backend(
        name="uring_nvme",
        options=_same("registered_buffers", "completion_polling"),
        direct_only=True,
        is_counted=False,
    ),
)

BACKENDS: Mapping[str, Backend] = {each.name: each for each in (*_OWN, *contributed("backends", "BACKENDS", Backend))}
"""Those that reach a real target, by name."""
