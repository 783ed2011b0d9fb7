"""Progress of a study: a live display on a terminal, else one line per run; the same lines in the log file.

The display is redrawn when an event arrives and never in between: any other activity would take CPU time from the
engine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from iosonde.execution.run_loop import Observer
from iosonde.metrics.scopes import percentiles
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


class Rates:
    """Operations, bytes and latencies of intervals, of each stream, or of all streams together."""

    def __init__(self, run: Run | None = None, *, by_stream: bool = True) -> None:
        self.load = described(run.spec["workload"]) if run else Workload()
        self.end_ns = 0
        self._begin_ns: int | None = None
        self._by_stream = by_stream
        self._streams: dict[str, Sums] = {}

    def add(self, event: Event) -> None:
        """Add one `interval` event."""
        # Not the sum of their lengths: an interval lasts until its last I/O ends, and the next begins before that.
        self._begin_ns = event["begin_ns"] if self._begin_ns is None else min(self._begin_ns, event["begin_ns"])
        self.end_ns = max(self.end_ns, event["end_ns"])
        for stream in event["streams"]:
            self._streams.setdefault(stream["stream"] if self._by_stream else "", Sums()).add(stream)

    @property
    def seconds(self) -> float:
        """From the first begin to the last end."""
        return max(self.end_ns - (self._begin_ns or 0), 1) / 1e9

    @property
    def whole(self) -> Sums:
        """The sums over all streams together."""
        return self._streams.get("") or Sums()

    def text(self) -> str:
        """The values in one line, streams one after the other; latency in open loop counts from the intended start."""
        if self.load.io == "command":
            return f"{self.seconds:.0f} s"
        streams = self._streams or {"": Sums()}
        named = len(streams) > 1
        return " | ".join(f"{name}: " * named + self._text(sums) for name, sums in streams.items())

    def _text(self, sums: Sums) -> str:
        p99 = sums.tails({"p99": 990_000})["p99"]
        bandwidth = [f"{format_bandwidth(sums.bytes / self.seconds):>9}"] if self.load.rate.shows_bandwidth else []
        return "  ".join(
            [
                f"{format_count(sums.count / self.seconds):>7} {self.load.rate.unit}",
                *bandwidth,
                f"{'flush ' * sums.has_flushes}p99 {format_latency(p99) if p99 is not None else '-':>7}",
            ]
        )


class Sums:
    """Operations of streams. A flush follows from writes and is not counted, but decides their latency."""

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.latency_ns = 0
        """Completion latencies added up, those of flushes too."""
        self.backlog = 0
        """Most operations that were due and not started."""
        self.has_flushes = False
        """True if writes are durable by flushes."""
        self.is_response = False
        """True if latency counts from the intended start."""
        self._latencies: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
        """Buckets of latencies, of flushes (`True`) and of other operations. A frame for each interval would take most
        of iosonde's CPU time during a run."""

    def add(self, stream: Mapping[str, Any]) -> None:
        self.backlog = max(self.backlog, stream["backlog_max"])
        for operation in stream["operations"]:
            is_flush = operation["operation"] == "flush"
            self.has_flushes |= is_flush
            if not is_flush:
                self.count += operation["count"]
                self.bytes += operation["bytes"]
            self.latency_ns += operation["completion_latency"]["sum_ns"]
            self.is_response |= bool(operation.get("response_latency"))
            latencies = self._latencies[is_flush]
            for bucket, count in (operation.get("response_latency") or operation["completion_latency"])["buckets"]:
                latencies[bucket] += count

    def tails(self, parts: Mapping[str, int]) -> dict[str, float | None]:
        """Percentiles (in millionths) of the latency by name; None without any."""
        buckets = pl.DataFrame(
            list(self._latencies[self.has_flushes].items()),
            schema={"bucket": pl.UInt32, "count": pl.UInt64},
            orient="row",
        ).with_columns(all=0)
        found = percentiles(buckets, by=["all"], parts=parts)
        return {name: found[name].item() if found.height else None for name in parts}


def _state_text(record: Record) -> str:
    """The device state that the plan prepared; empty where it does not matter. The report states the one reached."""
    known = "" if record.device_state == "unknown" else "planned "
    return "" if record.device_state == "not_applicable" else f"  {known}device state {record.device_state}"


class _Lines(Observer):
    """One line per completed run."""

    def __init__(self, ahead: Remaining, info: Print, warning: Print) -> None:
        self._info, self._warning = info, warning
        self._clock = Clock(ahead)
        self._rates = Rates()
        self._printed: set[str] = set()

    def run_started(self, run: Run, case: Case) -> None:
        self._rates = Rates(run)
        self._clock.begin(case)

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval" and event["phase"] == "measure":
            if event.get("index") == 0:  # That of several hosts is the whole measurement, after estimates.
                self._rates = Rates(run)
            self._rates.add(event)

    def run_ended(self, run: Run, record: Record) -> None:
        self._clock.end(record)
        failure = _failure_text(record, self._printed)
        rates = f"{self._rates.text()}{_state_text(record)}"
        line = f"[{self._clock.done}/{self._clock.runs_text}] {run.run_id}  {record.case_id}  {failure or rates}"
        (self._warning if failure else self._info)(line)

    def note(self, text: str) -> None:
        self._warning(text)


class _Display(Observer):
    """For a terminal: a bar over the runs, the current case and phase, and the values of the last interval."""

    def __init__(self, ahead: Remaining, live: Live, log: Observer) -> None:
        self._live = live
        self._log = log
        self._clock = Clock(ahead)
        self._case = self._phase = self._rates = ""
        self._printed: set[str] = set()

    def run_started(self, run: Run, case: Case) -> None:
        self._log.run_started(run, case)
        self._case, self._phase, self._rates = run.case_id, "starting", ""
        self._clock.begin(case)
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
        self._clock.end(record)
        if failure := _failure_text(record, self._printed):
            self._print(f"{run.run_id}  {record.case_id}  {failure}")
        self._draw()

    def note(self, text: str) -> None:
        self._log.note(text)
        self._print(text)

    def _print(self, text: str) -> None:
        self._live.console.print(Text(text, style="yellow"), soft_wrap=True)

    def _draw(self) -> None:
        clock = self._clock
        failed = f", {clock.failed} failed" if clock.failed else ""
        failed += f", {clock.unsupported} unsupported" if clock.unsupported else ""
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=clock.total_s, completed=clock.passed_s(), width=30),
            Text(f"{clock.done} of {clock.runs_text} runs{failed}, {clock.bound}{clock.remaining_text()} remaining"),
        )
        now = Text.assemble((self._case, "bold"), f"  {self._phase}", no_wrap=True, overflow="ellipsis")
        self._live.update(Group(bar, now, Text(self._rates, style="cyan")), refresh=True)


class Clock:
    """Runs that have ended, and planned time that has passed and that remains.

    The time that remains is corrected by the median overhead of completed runs.
    """

    def __init__(self, ahead: Remaining) -> None:
        self.total_s = ahead.seconds
        self.runs = ahead.runs + ahead.at_most
        self.bound = "at most " if ahead.at_most else ""
        self.done = self.failed = self.unsupported = 0
        self._done_s = self._current_s = 0.0
        self._begin = time.monotonic()
        self._extra_s: list[float] = []

    @property
    def runs_text(self) -> str:
        """The number of all runs."""
        return f"{self.bound}{self.runs}"

    def begin(self, case: Case) -> None:
        """A run of this case starts."""
        self._current_s, self._begin = case.cost.seconds, time.monotonic()

    def end(self, record: Record) -> None:
        """The run ends."""
        self._extra_s.append(time.monotonic() - self._begin - self._current_s)
        self._done_s += self._current_s
        self._current_s = 0.0
        self.done += 1
        self.unsupported += record.is_unsupported
        self.failed += record.failure is not None and not record.is_unsupported

    def passed_s(self) -> float:
        """Planned seconds that have passed."""
        return self._done_s + min(self._current_s, time.monotonic() - self._begin)

    def remaining_text(self) -> str:
        """Time that the remaining runs will take."""
        # The median, because the first run may write the test files and a failed one stops early.
        extra_s = sorted(self._extra_s)[len(self._extra_s) // 2] if self._extra_s else 0.0
        remaining_s = self.total_s - self.passed_s() + extra_s * (self.runs - self.done)
        return format_duration(max(0.0, remaining_s) * 1e9)


def _failure_text(record: Record, printed: set[str]) -> str:
    """Outcome and message of a failed or unsupported run; empty if the run has a result.

    Each hint is printed once: the runs of a study tend to fail for the same reason.
    """
    failure = record.failure
    if failure is None:
        return ""
    is_new = bool(failure.hint) and failure.hint not in printed
    printed.add(failure.hint)
    outcome = "unsupported" if record.is_unsupported else "failed"
    return f"{outcome}: {failure.message}" + (f"\n  hint: {failure.hint}" if is_new else "")
