"""Reads the mark when the engine has started."""

from __future__ import annotations

from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from toy.record import ToyReading
from toy.storage import ToyLayer


class ToyMark(Instrument):
    """The mark over the device."""

    _mark: int | None = None

    def engine_started(self, pid: int) -> None:
        building = self.context.building
        layer = building.layer(ToyLayer) if building else None
        self._mark = int(layer.file.read_text()) if layer else None

    def stop(self, done: EngineRun) -> Reading:
        return Reading(parts=[ToyReading(mark=self._mark)] if self._mark is not None else [])


INSTRUMENTS = (ToyMark,)
