"""Cost of an I/O in the harness itself, for the record of a run."""

from __future__ import annotations

from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading


class HarnessCost(Instrument):
    """Adds the calibration of the run's streams."""

    def stop(self, done: EngineRun) -> Reading:
        """Look it up, or measure a shape that no run of the plan had."""
        return Reading(facts={"harness": self.context.session.harness.costs(self.context.run.spec)})
