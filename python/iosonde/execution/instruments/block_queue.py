"""Settings of the block queues under the target: set before a run, restored after it."""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.results.schema import UNSUPPORTED
from iosonde.storage.safety import guard
from iosonde.storage.setups import queue_settings


class BlockQueue(Instrument):
    """Sets the I/O scheduler, read-ahead and others where a study requires them."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._saved: Sequence[queue_settings.Saved] = ()

    def start(self) -> None:
        """Set them; of a device that hosts of one machine share, the first host does so for all."""
        parameters = self.context.parameters
        asked = {name: parameters[name] for name in queue_settings.FILES if name in parameters}
        is_set_by_another = guard.shares_claims() and self.context.case.setup is None
        if not asked or is_set_by_another:
            return
        devices = self.context.target_facts.get("devices", [])
        try:
            self._saved = queue_settings.apply(devices, asked, own=self.context.session.plan.created_name)
        except TargetError as error:
            raise NotStartedError(UNSUPPORTED, error) from error

    def stop(self, done: EngineRun) -> Reading:
        """Record what was set."""
        facts = [each.fact() for each in self._saved if each.value is not None]
        return Reading(facts={"queue_settings": facts} if facts else {})

    def close(self) -> None:
        """Restore the former values."""
        saved, self._saved = self._saved, ()
        queue_settings.restore(saved)
