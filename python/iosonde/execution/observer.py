"""Interface for observing a running study."""

from __future__ import annotations

from typing import Protocol

from iosonde.plan import Case, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import Record


class Observer(Protocol):
    """Receives the progress of a study; the progress display is one."""

    def run_started(self, run: Run, case: Case) -> None:
        """A run starts."""

    def event(self, run: Run, event: Event) -> None:
        """The engine wrote an event."""

    def run_ended(self, run: Run, record: Record) -> None:
        """The record of a run was written."""

    def note(self, text: str) -> None:
        """A message for the user."""


class Silent:
    """Ignores everything."""

    def run_started(self, run: Run, case: Case) -> None:
        """Ignore it."""

    def event(self, run: Run, event: Event) -> None:
        """Ignore it."""

    def run_ended(self, run: Run, record: Record) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""
