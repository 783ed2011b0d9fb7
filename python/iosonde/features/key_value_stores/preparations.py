"""Surroundings of a run on a store: the shim of its library while the engine runs, and the state of its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from iosonde.execution.context import RunContext
from iosonde.features.key_value_stores import shim
from iosonde.features.key_value_stores.database_state import Databases


@contextmanager
def with_shim(context: RunContext) -> Iterator[RunContext]:
    """The shim that an engine with such a store loads, compiled if necessary; none where it cannot be compiled.

    Without it the engine reads RocksDB through the C interface, which the record names
    (`result.store.build.interface`), and refuses a read cache; it refuses WiredTiger.
    """
    store = context.workload.get("store")
    described = shim.SHIMS.get(store["kind"]) if store and context.workload["kind"] == "kv" else None
    with ExitStack() as closing:
        if store and described:
            with suppress(shim.UnavailableError):
                opened = closing.enter_context(shim.opened(described, store.get("library")))
                context = replace(context, shims={described.store: opened})
        yield context


ENCLOSURES = (with_shim,)
STATES = (Databases,)
