"""The C++ shim of RocksDB for one run: compiled if necessary, and open while the engine runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from iosonde.workload.kv import shim


@contextmanager
def rocksdb_shim(workload: Mapping[str, Any]) -> Iterator[int | None]:
    """The descriptor that an engine with RocksDB loads; None for other stores, and where the shim cannot be compiled.

    Without it the engine reads through the C interface, which the record names (`result.store.build.interface`), and
    refuses a read cache.
    """
    store = workload.get("store") or {}
    if not isinstance(store, Mapping) or store.get("kind") != "rocksdb":
        yield None
        return
    with ExitStack() as closing:
        try:
            descriptor = closing.enter_context(shim.opened(store.get("library")))
        except shim.UnavailableError:
            descriptor = None
        yield descriptor
