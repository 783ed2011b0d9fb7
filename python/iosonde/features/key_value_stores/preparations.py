"""Surroundings of a run on a store: the shim of its library while the engine runs, and the state of its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from iosonde.execution.setups import ReadyTarget
from iosonde.features.key_value_stores import shim
from iosonde.features.key_value_stores.database_state import Databases
from iosonde.plan import JsonObject
from iosonde.storage.safety.consent import Consent


@contextmanager
def with_shim(spec: JsonObject, ready: ReadyTarget, consent: Consent) -> Iterator[tuple[JsonObject, ReadyTarget]]:
    """The shim that an engine with such a store loads, compiled if necessary; none where it cannot be compiled.

    Without it the engine reads RocksDB through the C interface, which the record names
    (`result.store.build.interface`), and refuses a read cache; it refuses WiredTiger.
    """
    store = spec["workload"].get("store")
    described = shim.SHIMS.get(store["kind"]) if spec["workload"]["kind"] == "kv" else None
    with ExitStack() as closing:
        if described:
            with suppress(shim.UnavailableError):
                opened = closing.enter_context(shim.opened(described, store.get("library")))
                ready = replace(ready, shims={described.store: opened})
        yield spec, ready


ENCLOSURES = (with_shim,)
STATES = (Databases,)
