"""Warns of replays that read keys which the database does not have, although the trace has not deleted them."""

from __future__ import annotations

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.memcached.settings import CACHES
from iosonde.results.schema import RecordWarning

EXPLAINED = 0.02
"""Share of the gets that may miss without a warning."""


class TraceMisses(Instrument):
    """Compares the misses of a replay with those that its trace explains. A cache misses by design."""

    def stop(self, done: EngineRun) -> Reading:
        """Return a warning where misses of keys that were never there make the rate that of an empty database."""
        parameters = self.context.parameters
        if not parameters.get("trace") or parameters["store"] in CACHES or not done.result:
            return Reading()
        checks = (done.result.get("store") or {}).get("checks") or []
        missing = sum(check["missing"] for check in checks)
        gets = missing + sum(check["values"] for check in checks)
        # At most: the run may have ended before the trace.
        unexplained = missing - trace.converted(parameters["trace"]).deleted_gets
        return Reading(warnings=[_warning(unexplained, gets)] if unexplained > EXPLAINED * gets else [])


def _warning(unexplained: int, gets: int) -> RecordWarning:
    return RecordWarning(
        code="unexplained_misses",
        message=f"{unexplained:,} of {gets:,} gets found no record, although the trace has not deleted it",
        hint="give each `get` a `value_size`: its records are loaded before the replay",
    )


INSTRUMENTS = (TraceMisses,)
