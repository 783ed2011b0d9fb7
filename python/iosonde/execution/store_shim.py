"""The shim of a store's library for one run: compiled if necessary, and open while the engine runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from iosonde.workload.kv import shim


@contextmanager
def store_shim(workload: Mapping[str, Any]) -> Iterator[int | None]:
    """The descriptor that an engine with such a store loads; None for others, and where the shim cannot be compiled.

    Without it the engine reads RocksDB through the C interface, which the record names
    (`result.store.build.interface`), and refuses a read cache; it refuses WiredTiger.
    """
    store = workload.get("store") or {}
    described = shim.SHIMS.get(store.get("kind", "")) if isinstance(store, Mapping) else None
    if described is None:
        yield None
        return
    with ExitStack() as closing:
        try:
            descriptor = closing.enter_context(shim.opened(described, store.get("library")))
        except shim.UnavailableError:
            descriptor = None
        yield descriptor
