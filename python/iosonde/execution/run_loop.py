"""The loop of a session: each missing run is carried out, its record written, and repeated failures are noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from iosonde.errors import TargetError

if TYPE_CHECKING:
    from iosonde.engine.protocol import Event
    from iosonde.execution.attempt import Attempt
    from iosonde.execution.stop import Stop
    from iosonde.plan import Case, Run
    from iosonde.planning.procedure import Schedule
    from iosonde.results.result_set import ResultSet
    from iosonde.results.schema import Record

REPEATED_FAILURES = 3
"""The observer gets a note after this many consecutive failures for the same reason."""


class Observer:
    """Receives the progress of a study; ignores everything that a subclass does not handle."""

    def run_started(self, run: Run, case: Case) -> None:
        """A run starts."""

    def event(self, run: Run, event: Event) -> None:
        """The engine wrote an event."""

    def run_ended(self, run: Run, record: Record) -> None:
        """The record of a run was written."""

    def note(self, text: str) -> None:
        """A message for the user."""


Attempting: TypeAlias = "Callable[[Run, Case, int, Callable[[Event], None]], Attempt | None]"
"""Carries out attempt `number` at a run, on this machine or on several hosts at the same time; None if it was stopped
and leaves no record."""


class RunLoop:
    """Carries out the runs of one `run` or `resume`."""

    def __init__(self, result_set: ResultSet, observer: Observer, stop: Stop, carry_out: Attempting) -> None:
        self._result_set = result_set
        self._observer = observer
        self._stop = stop
        self._attempt = carry_out
        self._restart = 0
        self._repeated_failure: tuple[str, int] = ("", 0)

    def carry_out_all(self, schedule: Schedule) -> None:
        """Run after run, until none is missing or the session is stopped."""
        while not self._stop.is_set() and (run := schedule.next_run()):
            if not self.carry_out(run):
                return

    def carry_out(self, run: Run) -> bool:
        """Carry out one run and write its record; False if it was stopped and leaves none."""
        case = self._result_set.plan.case_of(run.run_id)
        assert case, f"`{run.run_id}` is of no case of the plan"
        self._observer.run_started(run, case)
        self._note_restart(run)
        number = self._result_set.next_attempt(run.run_id)
        attempt = self._attempt(run, case, number, lambda event: self._observer.event(run, event))
        if attempt is None:
            return False
        done = attempt.done
        self._result_set.write(
            attempt.record, done.intervals, done.histograms, done.usage, done.store_statistics, done.values
        )
        self._observer.run_ended(run, attempt.record)
        if attempt.ends_session:
            raise attempt.ends_session
        self._note_failures(attempt.record)
        self._note_failed_member(attempt.record)
        return True

    def _note_restart(self, run: Run) -> None:
        if run.restart > self._restart:
            self._observer.note(
                f"the pause has destroyed the device state that `{run.case_id}` needs, so the target is prepared "
                "again; completed rounds count"
            )
        self._restart = run.restart

    def _note_failures(self, record: Record) -> None:
        code = record.failure.code if record.failure and not record.is_unsupported else ""
        self._repeated_failure = (code, self._repeated_failure[1] + 1 if code == self._repeated_failure[0] else 1)
        if code and self._repeated_failure[1] == REPEATED_FAILURES:
            advice = (
                "others refused for the same reason will fail too: stop, correct the study, and run it again"
                if record.refused
                else "failed runs can be repeated with `iosonde resume DIR --retry-failed`"
            )
            self._observer.note(
                f"{REPEATED_FAILURES} consecutive runs failed with `{code}`; the study continues, and {advice}"
            )

    def _note_failed_member(self, record: Record) -> None:
        """Stop if the study requires it."""
        lasting = next((each for each in record.warnings if each.is_lasting), None)
        if lasting is None:
            return
        if self._result_set.plan.study.get("on_member_failure") == "stop":
            raise TargetError(
                f"{lasting.message}; the study stops on member failure",
                where=f"in run `{record.run_id}` of case `{record.case_id}`",
                hint="completed runs are kept; `iosonde resume DIR` continues with a new setup",
            )
        self._observer.note(f"{lasting.message}; the study continues")
