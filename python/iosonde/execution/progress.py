"""Progress of a study: a live display on a terminal, else one line per run; the same lines in the log file.

The display is redrawn when an event arrives and never in between: any other activity would take CPU time from the
engine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from iosonde.execution.run_loop import Observer
from iosonde.metrics.scopes import MIXED, percentiles
from iosonde.study.workload import described
from iosonde.study.workload.workload import Workload
from iosonde.units import format_bandwidth, format_count, format_duration, format_latency

if TYPE_CHECKING:
    from iosonde.engine.protocol import Event
    from iosonde.plan import Case, Run
    from iosonde.planning.procedure import Remaining
    from iosonde.results.schema import Record

Print = Callable[[str], None]

PHASES = {
    "layout": "writing test files",
    "precondition": "preconditioning",
    "ramp": "ramp",
    "measure": "measuring",
    "verify": "verifying data",
}


@contextmanager
def watch(
    ahead: Remaining, console: Console, *, info: Print, warning: Print, record: Print | None = None
) -> Iterator[Observer]:
    """An observer that shows the progress of the runs ahead.

    On a terminal or in a notebook `console` has a live display; elsewhere `info` and `warning` receive one line per
    run. `record` receives these lines in both cases.
    """
    if not console.is_terminal and not console.is_jupyter:
        yield _Lines(ahead, info, warning)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Display(ahead, live, _Lines(ahead, record, record) if record else Observer())


def _total_text(ahead: Remaining) -> str:
    return f"{'at most ' if ahead.at_most else ''}{ahead.runs + ahead.at_most}"


class Rates:
    """Operations per second, bandwidth and p99 latency of each stream over intervals, its operations together."""

    def __init__(self, run: Run | None = None) -> None:
        self._load = described(run.spec["workload"]) if run else Workload()
        self._end_ns = 0
        self._begin_ns: int | None = None
        self._streams: dict[str, _Sums] = {}

    def add(self, event: Event) -> None:
        """Add one `interval` event."""
        # Not the sum of their lengths: an interval lasts until its last I/O ends, and the next begins before that.
        self._begin_ns = event["begin_ns"] if self._begin_ns is None else min(self._begin_ns, event["begin_ns"])
        self._end_ns = max(self._end_ns, event["end_ns"])
        for stream in event["streams"]:
            self._streams.setdefault(stream["stream"], _Sums(self._load)).add(stream)

    def text(self) -> str:
        """The values in one line, streams one after the other; latency in open loop counts from the intended start."""
        seconds = max(self._end_ns - (self._begin_ns or 0), 1) / 1e9
        if self._load.io == "command":
            return f"{seconds:.0f} s"
        streams = self._streams or {"": _Sums(self._load)}
        named = len(streams) > 1
        return " | ".join(f"{name}: " * named + sums.text(seconds) for name, sums in streams.items())


class _Sums:
    """Operations of one stream."""

    def __init__(self, load: Workload) -> None:
        self._load = load
        self._count = self._bytes = 0
        self._flushes = False
        self._buckets: Counter[int] = Counter()
        """Counts of latencies. A frame for each interval would take most of iosonde's CPU time during a run."""

    def add(self, stream: Mapping[str, Any]) -> None:
        for operation in counted(stream["operations"]):
            self._count += operation["count"]
            self._bytes += operation["bytes"]
        self._flushes |= has_flushes(stream["operations"])
        for operation in timed(stream["operations"]):
            latency = operation.get("response_latency") or operation["completion_latency"]
            for bucket, count in latency["buckets"]:
                self._buckets[bucket] += count

    def text(self, seconds: float) -> str:
        buckets = pl.DataFrame(
            list(self._buckets.items()), schema={"bucket": pl.UInt32, "count": pl.UInt64}, orient="row"
        ).with_columns(all=0)
        found = percentiles(buckets, by=["all"], parts={"p99": 990_000})
        p99 = found["p99"].item() if found.height else None
        bandwidth = [f"{format_bandwidth(self._bytes / seconds):>9}"] if self._load.rate.shows_bandwidth else []
        return "  ".join(
            [
                f"{format_count(self._count / seconds):>7} {self._load.rate.unit}",
                *bandwidth,
                f"{'flush ' * self._flushes}p99 {format_latency(p99) if p99 is not None else '-':>7}",
            ]
        )


def counted(operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the operations that make up a rate: a flush follows from writes."""
    return [operation for operation in operations if operation["operation"] in MIXED]


def has_flushes(operations: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if writes are durable by flushes, which decide their latency."""
    return any(operation["operation"] == "flush" for operation in operations)


def timed(operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the operations whose latency is that of the load: flushes where there are any."""
    flushes = [operation for operation in operations if operation["operation"] == "flush"]
    return flushes or counted(operations)


def _state_text(record: Record) -> str:
    """The device state that the plan prepared; empty where it does not matter. The report states the one reached."""
    known = "" if record.device_state == "unknown" else "planned "
    return "" if record.device_state == "not_applicable" else f"  {known}device state {record.device_state}"


class _Lines(Observer):
    """One line per completed run."""

    def __init__(self, ahead: Remaining, info: Print, warning: Print) -> None:
        self._info, self._warning = info, warning
        self._total = _total_text(ahead)
        self._done = 0
        self._rates = Rates()
        self._failures = _Failures()

    def run_started(self, run: Run, case: Case) -> None:
        self._rates = Rates(run)

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval" and event["phase"] == "measure":
            if event.get("index") == 0:  # That of several hosts is the whole measurement, after estimates.
                self._rates = Rates(run)
            self._rates.add(event)

    def run_ended(self, run: Run, record: Record) -> None:
        self._done += 1
        failure = self._failures.text(record)
        rates = f"{self._rates.text()}{_state_text(record)}"
        line = f"[{self._done}/{self._total}] {run.run_id}  {record.case_id}  {failure or rates}"
        (self._warning if failure else self._info)(line)

    def note(self, text: str) -> None:
        self._warning(text)


class _Display(Observer):
    """For a terminal: a bar over the runs, the current case and phase, and the values of the last interval."""

    def __init__(self, ahead: Remaining, live: Live, log: Observer) -> None:
        self._live = live
        self._log = log
        self._ahead = ahead
        self._clock = Clock(ahead.seconds, ahead.runs + ahead.at_most)
        self._done = self._failed = self._unsupported = 0
        self._case = self._phase = self._rates = ""
        self._failures = _Failures()

    def run_started(self, run: Run, case: Case) -> None:
        self._log.run_started(run, case)
        self._case, self._phase, self._rates = run.case_id, "starting", ""
        self._clock.begin(case.cost.seconds)
        self._draw()

    def event(self, run: Run, event: Event) -> None:
        self._log.event(run, event)
        if event["event"] == "phase" and event["edge"] == "begin":
            self._phase = PHASES.get(event["phase"], str(event["phase"]))
        if event["event"] == "interval":
            rates = Rates(run)
            rates.add(event)
            self._phase, self._rates = PHASES[event["phase"]], rates.text()
        self._draw()

    def run_ended(self, run: Run, record: Record) -> None:
        self._log.run_ended(run, record)
        self._done += 1
        self._clock.end()
        failure = self._failures.text(record)
        if failure:
            self._unsupported += record.is_unsupported
            self._failed += not record.is_unsupported
            self._print(f"{run.run_id}  {record.case_id}  {failure}")
        self._draw()

    def note(self, text: str) -> None:
        self._log.note(text)
        self._print(text)

    def _print(self, text: str) -> None:
        self._live.console.print(Text(text, style="yellow"), soft_wrap=True)

    def _draw(self) -> None:
        total, bound = _total_text(self._ahead), "at most " if self._ahead.at_most else ""
        failed = f", {self._failed} failed" if self._failed else ""
        failed += f", {self._unsupported} unsupported" if self._unsupported else ""
        remaining = format_duration(self._clock.remaining_s() * 1e9)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=self._clock.total_s, completed=self._clock.passed_s(), width=30),
            Text(f"{self._done} of {total} runs{failed}, {bound}{remaining} remaining"),
        )
        now = Text.assemble((self._case, "bold"), f"  {self._phase}", no_wrap=True, overflow="ellipsis")
        self._live.update(Group(bar, now, Text(self._rates, style="cyan")), refresh=True)


class Clock:
    """Planned time that has passed and that remains, corrected by the median overhead of completed runs."""

    def __init__(self, total_s: float, runs: int) -> None:
        self.total_s = total_s
        self._runs_remaining = runs
        self._done_s = self._current_s = 0.0
        self._begin = time.monotonic()
        self._extra_s: list[float] = []

    def begin(self, planned_s: float) -> None:
        """A run of this planned length starts."""
        self._current_s, self._begin = planned_s, time.monotonic()

    def end(self) -> None:
        """The run ends."""
        self._extra_s.append(time.monotonic() - self._begin - self._current_s)
        self._done_s += self._current_s
        self._current_s = 0.0
        self._runs_remaining -= 1

    def passed_s(self) -> float:
        """Planned seconds that have passed."""
        return self._done_s + min(self._current_s, time.monotonic() - self._begin)

    def remaining_s(self) -> float:
        """Seconds that the remaining runs will take."""
        # The median, because the first run may write the test files and a failed one stops early.
        extra = sorted(self._extra_s)[len(self._extra_s) // 2] if self._extra_s else 0.0
        return max(0.0, self.total_s - self.passed_s() + extra * self._runs_remaining)


class _Failures:
    """Messages of failed and unsupported runs, each hint once: the runs of a study tend to fail for the same reason."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def text(self, record: Record) -> str:
        """Outcome and message of a failed run, with each hint only once; empty if the run has a result."""
        failure = record.failure
        if failure is None:
            return ""
        is_new = bool(failure.hint) and failure.hint not in self._printed
        self._printed.add(failure.hint)
        outcome = "unsupported" if record.is_unsupported else "failed"
        return f"{outcome}: {failure.message}" + (f"\n  hint: {failure.hint}" if is_new else "")
