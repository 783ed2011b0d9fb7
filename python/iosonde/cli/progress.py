"""What a study is doing, on standard error: a live display on a terminal, else one line a run.

It redraws when an event comes and never in between: whatever wakes up while an engine measures takes time from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from iosonde.metrics.histogram import percentiles
from iosonde.units import format_bandwidth, format_count, format_duration, format_latency

if TYPE_CHECKING:
    from iosonde.execution import Observer
    from iosonde.plan import Case, Run
    from iosonde.procedure.schedule import Remaining
    from iosonde.protocol.event import Event, IntervalEvent
    from iosonde.results.schema import Record

PHASES = {
    "layout": "writing the test file",
    "precondition": "preconditioning",
    "warmup": "ramp",
    "measure": "measuring",
    "verify": "reading back what was written",
}


@contextmanager
def watch(ahead: Remaining, console: Console) -> Iterator[Observer]:
    """An observer that shows how far what lies ahead has come."""
    if not console.is_terminal:
        yield _Lines(ahead, console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Display(ahead, live)


def _total_text(ahead: Remaining) -> str:
    return f"{'at most ' if ahead.at_most else ''}{ahead.runs + ahead.at_most}"


class Figures:
    """IOPS, bandwidth and p99 of intervals, all streams and operations together."""

    def __init__(self, run: Run | None = None) -> None:
        is_store = run is not None and run.spec["workload"]["kind"] == "kv"
        self._rate = "ops/s" if is_store else "IOPS"
        self._count = self._bytes = self._end_ns = 0
        self._begin_ns: int | None = None
        self._histograms: list[pl.DataFrame] = []

    def add(self, event: IntervalEvent) -> None:
        """Take in one `interval` event."""
        # Not the sum of their lengths: an interval lasts until its last I/O ends, and the next begins before that.
        self._begin_ns = event["begin_ns"] if self._begin_ns is None else min(self._begin_ns, event["begin_ns"])
        self._end_ns = max(self._end_ns, event["end_ns"])
        for stream in event["streams"]:
            for operation in stream["operations"]:
                self._count += operation["count"]
                self._bytes += operation["bytes"]
                latency = operation["response_latency"] or operation["completion_latency"]
                self._histograms.append(_frame(latency["buckets"]))

    def text(self) -> str:
        """The figures in a line; latency in open loop counts from the intended start."""
        seconds = max(self._end_ns - (self._begin_ns or 0), 1) / 1e9
        found = percentiles(pl.concat([_frame([]), *self._histograms]), by=["all"], parts={"p99": 990_000})
        p99 = found["p99"].item() if found.height else None
        return "  ".join(
            [
                f"{format_count(self._count / seconds):>7} {self._rate}",
                f"{format_bandwidth(self._bytes / seconds):>9}",
                f"p99 {format_latency(p99) if p99 is not None else '-':>7}",
            ]
        )


def _frame(buckets: list[tuple[int, int]]) -> pl.DataFrame:
    frame = pl.DataFrame(buckets, schema={"bucket": pl.UInt32, "count": pl.UInt64}, orient="row")
    return frame.with_columns(pl.lit(0).alias("all"))


class _Lines:
    """For a file or a pipe: one line when a run has ended."""

    def __init__(self, ahead: Remaining, console: Console) -> None:
        self._total = _total_text(ahead)
        self._done = 0
        self._console = console
        self._figures = Figures()
        self._failures = _Failures()

    def run_started(self, run: Run, case: Case) -> None:
        self._figures = Figures(run)

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval" and event["phase"] == "measure":
            self._figures.add(event)

    def run_ended(self, run: Run, record: Record) -> None:
        self._done += 1
        ending = self._failures.text(record) or self._figures.text()
        self.note(f"[{self._done}/{self._total}] {run.run_id}  {record.case_id}  {ending}")

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class _Display:
    """For a terminal: a bar over the runs, what is going on, and the last interval's figures."""

    def __init__(self, ahead: Remaining, live: Live) -> None:
        self._live = live
        self._ahead = ahead
        self._clock = _Clock(ahead.seconds, ahead.runs + ahead.at_most)
        self._done = self._failed = 0
        self._case = self._phase = self._figures = ""
        self._failures = _Failures()

    def run_started(self, run: Run, case: Case) -> None:
        self._case, self._phase, self._figures = run.case_id, "starting", ""
        self._clock.begin(case.cost.seconds)
        self._draw()

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "phase" and event["edge"] == "begin":
            self._phase = PHASES.get(event["phase"], event["phase"])
        if event["event"] == "interval":
            figures = Figures(run)
            figures.add(event)
            self._phase, self._figures = PHASES[event["phase"]], figures.text()
        self._draw()

    def run_ended(self, run: Run, record: Record) -> None:
        self._done += 1
        self._clock.end()
        failure = self._failures.text(record)
        if failure:
            self._failed += 1
            self.note(f"{run.run_id}  {record.case_id}  {failure}")
        self._draw()

    def note(self, text: str) -> None:
        self._live.console.print(Text(text, style="yellow"), soft_wrap=True)

    def _draw(self) -> None:
        total, bound = _total_text(self._ahead), "at most " if self._ahead.at_most else ""
        failed = f", {self._failed} failed" if self._failed else ""
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=self._clock.total_s, completed=self._clock.passed_s(), width=30),
            Text(f"{self._done} of {total} runs{failed}, {bound}{format_duration(self._clock.left_s() * 1e9)} left"),
        )
        now = Text.assemble((self._case, "bold"), f"  {self._phase}", no_wrap=True, overflow="ellipsis")
        self._live.update(Group(bar, now, Text(self._figures, style="cyan")), refresh=True)


class _Clock:
    """How much of the planned time has passed, and how much is left when what runs take besides it is counted in."""

    def __init__(self, total_s: float, runs: int) -> None:
        self.total_s = total_s
        self._runs_left = runs
        self._done_s = self._current_s = 0.0
        self._begin = time.monotonic()
        self._extra_s: list[float] = []

    def begin(self, planned_s: float) -> None:
        self._current_s, self._begin = planned_s, time.monotonic()

    def end(self) -> None:
        self._extra_s.append(time.monotonic() - self._begin - self._current_s)
        self._done_s += self._current_s
        self._current_s = 0.0
        self._runs_left -= 1

    def passed_s(self) -> float:
        return self._done_s + min(self._current_s, time.monotonic() - self._begin)

    def left_s(self) -> float:
        # The median, because the first run may lay out the file and a failed one ends early.
        extra = sorted(self._extra_s)[len(self._extra_s) // 2] if self._extra_s else 0.0
        return max(0.0, self.total_s - self.passed_s() + extra * self._runs_left)


class _Failures:
    """What failures are told with: each hint once, for runs of a study tend to fail alike."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def text(self, record: Record) -> str:
        """Return why a run has no result; nothing of one that has."""
        failure = record.failure
        if failure is None:
            return ""
        is_new = bool(failure.hint) and failure.hint not in self._told
        self._told.add(failure.hint)
        return f"failed: {failure.message}" + (f"\n  hint: {failure.hint}" if is_new else "")
