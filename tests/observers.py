"""An observer that acts while a run measures."""

from __future__ import annotations

from collections.abc import Callable

from iosonde.engine.protocol import Event
from iosonde.execution.run_loop import Observer
from iosonde.plan import Run


class AtFirstInterval(Observer):
    def __init__(self, act: Callable[[], None]) -> None:
        self._act: list[Callable[[], None]] = [act]

    def event(self, run: Run, event: Event) -> None:
        if self._act and event["event"] == "interval" and event["phase"] == "measure":
            self._act.pop()()
