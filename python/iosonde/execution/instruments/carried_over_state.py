"""Warning about a database in the state that an earlier run left."""

from __future__ import annotations

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.results.schema import RecordWarning

CODE = "carried_over_state"


class CarriedOverState(Instrument):
    """Warns about runs of log-structured stores that were neither reloaded nor the first on their database."""

    def stop(self, done: EngineRun) -> Reading:
        """Compose the warning."""
        writer = self.context.carried_over
        if not writer:
            return Reading()
        warning = RecordWarning(
            code=CODE,
            message=f"the database was in the state that `{writer}` left, with compactions possibly pending",
            hint="load it before each run with `--set carry_over=false`",
        )
        return Reading(warnings=[warning])
