"""Starts the server of the live page, and passes the progress of a running study on to it without ever waiting."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.base.python_process import module_command
from iosonde.errors import IosondeError
from iosonde.execution.progress import PHASES, Clock, counted, has_flushes, timed
from iosonde.execution.run_loop import Observer
from iosonde.metrics import wording
from iosonde.metrics.scopes import percentiles
from iosonde.report.document import asset, policy, template_of
from iosonde.study.workload import described
from iosonde.units import format_bandwidth, format_count, format_duration, format_latency

if TYPE_CHECKING:
    from iosonde.engine.protocol import Event
    from iosonde.plan import Case, Plan, Run
    from iosonde.planning.procedure import Remaining
    from iosonde.results.schema import Record


PERIOD_S = 0.5
CONTROL = " (control)"
PARTS = {"p50": 500_000, "p99": 990_000, "p99_9": 999_000}


class LivePage:
    """The page of a running study."""

    def __init__(self, plan: Plan, *, port: int = 0) -> None:
        """Start the server; `port` 0 is any free one. `IosondeError` where the port cannot be used."""
        self._token = secrets.token_urlsafe(24)
        self._pending = b""
        with _listening(port) as listening:
            self.url = f"http://{ADDRESS}:{listening.getsockname()[1]}/{self._token}/"
            self._process = subprocess.Popen(
                module_command("iosonde.execution.live.server", str(listening.fileno())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C is for the study; the page shows that it was stopped
            )
        assert self._process.stdin and self._process.stdout, "pipes were requested"
        with self._process.stdout as answer:
            if not answer.readline():  # it has started, so that its start takes no time from a measurement
                raise IosondeError("the server of the live page ended at once", hint="run without `--live`")
        self._pipe = self._process.stdin.fileno()
        with suppress(OSError):  # beyond what the kernel allows a user
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._pipe, False)
        script, text = _page()
        # The token is no argument of the process: other users see those.
        self.send({"token": self._token, "page": text, "policy": policy(script, connect=True)})
        self.send({"kind": "study", **_study(plan)})

    def observe(self, inner: Observer, ahead: Remaining) -> Observer:
        """Return an observer that passes everything on to `inner` and to the page."""
        return Feed(inner, ahead, self.send)

    def send(self, message: dict[str, Any], *, droppable: bool = False) -> None:
        """Pass a message on without waiting: what does not fit into the pipe is sent later or dropped."""
        self._flush()
        if self._pending and droppable:
            return
        self._pending += json.dumps(message).encode() + b"\n"
        self._flush()

    def over(self, outcome: str, text: str, report: Path | None = None) -> None:
        path = str(report.absolute()) if report and report.is_file() else ""
        self.send({"kind": "over", "outcome": outcome, "text": text, "report": path})

    def close(self) -> None:
        """Send what is pending. The server ends by itself, when no browser asks any more."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while self._pending and self._process.poll() is None and time.monotonic() < deadline:
            self._flush()
            time.sleep(0.02)
        assert self._process.stdin, "a pipe was requested"
        self._process.stdin.close()

    def _flush(self) -> None:
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._pipe, self._pending) :]
        except BlockingIOError:
            return
        except OSError:  # the server is gone; the study is not its concern
            self._pending = b""


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(16)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise IosondeError(
            f"cannot serve the live page on port {port}: {reason}",
            hint="name another port with `--live-port`, or omit it to use any free port",
        ) from error
    return listening


def _page() -> tuple[str, str]:
    files = resources.files("iosonde.execution.live") / "page_files"
    script = (files / "live.js").read_text(encoding="utf-8")
    style = asset("report.css") + (files / "live.css").read_text(encoding="utf-8")
    return script, template_of((files / "live.html").read_text(encoding="utf-8")).render(style=style, script=script)


def _study(plan: Plan) -> dict[str, Any]:
    runs = Counter(run.case_id for run in plan.runs)
    return {
        "study": {
            "name": plan.study_name,
            "title": plan.study["title"],
            "question": plan.study.get("question", ""),
            "target": plan.target,
            "profile": plan.profile,
        },
        "cases": [
            {"id": each.case_id, "load": _load_of(each), "runs": runs[each.case_id]}
            for each in plan.cases
            if each.case_id in runs
        ],
    }


@dataclass
class _Now:
    """The run in progress."""

    run: Run
    load: str
    queue_depth: int
    intervals: list[Event]


class Feed(Observer):
    """Receives what the progress display receives, and hands it on to it."""

    def __init__(self, inner: Observer, ahead: Remaining, send: Callable[..., None]) -> None:
        self._inner = inner
        self._send = send
        self._total = ahead.runs + ahead.at_most
        self._is_bound = bool(ahead.at_most)
        self._clock = Clock(ahead.seconds, self._total)
        self._done = self._failed = 0
        self._now: _Now | None = None
        self._sent_at = 0.0

    def run_started(self, run: Run, case: Case) -> None:
        self._inner.run_started(run, case)
        load = _load_of(case)
        self._now = _Now(run, load, _queue_depth(run), [])
        self._clock.begin(case.cost.seconds)
        now = {"case": run.case_id, "load": load, "run": run.run_id, "phase": "starting"}
        self._send({"kind": "run", "now": now, "progress": self._progress()})

    def event(self, run: Run, event: Event) -> None:
        self._inner.event(run, event)
        if self._now is None:
            return
        if event["event"] == "phase" and event["edge"] == "begin":
            self._send({"kind": "phase", "phase": PHASES.get(event["phase"], event["phase"])})
        elif event["event"] == "interval":
            if event["phase"] == "measure":
                if event.get("index") == 0:  # That of several hosts is the whole measurement, after estimates.
                    self._now.intervals.clear()
                self._now.intervals.append(event)
            if time.monotonic() - self._sent_at >= PERIOD_S:
                self._sent_at = time.monotonic()
                message = {"kind": "values", "phase": PHASES.get(event["phase"], event["phase"])}
                values = _values(self._now, [event])
                self._send({**message, "values": values, "progress": self._progress()}, droppable=True)

    def run_ended(self, run: Run, record: Record) -> None:
        self._inner.run_ended(run, record)
        now, self._now = self._now, None
        self._done += 1
        has_failed = record.failure is not None and not record.is_unsupported
        self._failed += has_failed
        self._clock.end()
        self._send(
            {
                "kind": "ended",
                "case": record.case_id,
                "load": now.load if now else record.case_id,
                "failed": has_failed,
                "verdict": record.verdict.kind if record.verdict else "",
                "values": _values(now, now.intervals) if now and now.intervals and not record.failure else None,
                "progress": self._progress(),
            }
        )

    def note(self, text: str) -> None:
        self._inner.note(text)
        self._send({"kind": "note", "text": text})

    def _progress(self) -> dict[str, Any]:
        remaining_s = self._clock.remaining_s()
        return {
            "done": self._done,
            "failed": self._failed,
            "total": self._total,
            "at_most": self._is_bound,
            "share": min(1.0, self._clock.passed_s() / self._clock.total_s) if self._clock.total_s else 0.0,
            "remaining": format_duration(remaining_s * 1e9),
        }


def _load_of(case: Case) -> str:
    """Describe a case by its load."""
    return wording.case_words(case.parameters, case.levels, case.case_id) + CONTROL * case.control


def _queue_depth(run: Run) -> int:
    """Return how many I/Os a run may have in flight; 0 where its streams do not limit it."""
    streams: Sequence[dict[str, Any]] = run.spec["workload"].get("streams", [])
    return sum(int(each.get("jobs", 1)) * int(each.get("queue_depth", 0)) for each in streams)


def _values(now: _Now, intervals: Sequence[Event]) -> dict[str, Any]:
    """Return rate, tail and queue over intervals, all streams together, as numbers and as text."""
    begin, end = min(each["begin_ns"] for each in intervals), max(each["end_ns"] for each in intervals)
    seconds = max(end - begin, 1) / 1e9
    operations = [op for each in intervals for stream in each["streams"] for op in stream["operations"]]
    latencies = [op.get("response_latency") or op["completion_latency"] for op in timed(operations)]
    buckets = [pair for each in latencies for pair in each["buckets"]]
    frame = pl.DataFrame(buckets, schema={"bucket": pl.UInt32, "count": pl.UInt64}, orient="row")
    found = percentiles(frame.with_columns(all=pl.lit(0)), by=["all"], parts=PARTS)
    is_response = any(op.get("response_latency") for op in operations)
    tails = {name: found[name].item() if found.height else None for name in PARTS}
    rate = sum(op["count"] for op in counted(operations)) / seconds
    in_flight = sum(op["completion_latency"]["sum_ns"] for op in operations) / 1e9 / seconds
    unit = "operations/s" if described(now.run.spec["workload"]).io != "blocks" else "IOPS"
    return {
        "seconds": end / 1e9,
        "rate": rate,
        "unit": unit,
        "rate_text": f"{format_count(rate)} {unit}",
        "bandwidth_text": format_bandwidth(sum(op["bytes"] for op in operations) / seconds),
        "p99_ns": tails["p99"],
        **{f"{name}_text": format_latency(value) if value is not None else "-" for name, value in tails.items()},
        "latency": "flush" if has_flushes(operations) else "response" if is_response else "completion",
        "in_flight": round(in_flight, 1),
        "queue_depth": now.queue_depth,
        "backlog": max((stream["backlog_max"] for each in intervals for stream in each["streams"]), default=0),
    }


ADDRESS = "127.0.0.1"
PIPE_BYTES = 1 << 20
LONGEST_WAIT_S = 2.0
"""For a server that does not read its last messages."""
