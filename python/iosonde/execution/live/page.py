"""Starts the server of the live page, and passes the progress of a running study on to it without ever waiting."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import statistics
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.base.python_process import module_command
from iosonde.errors import IosondeError
from iosonde.execution.progress import PHASES, Clock, Rates
from iosonde.execution.run_loop import Observer
from iosonde.metrics import wording
from iosonde.report.document import asset, policy, template_of
from iosonde.units import format_bandwidth, format_count, format_latency

if TYPE_CHECKING:
    from iosonde.engine.protocol import Event
    from iosonde.plan import Case, Plan, Run
    from iosonde.planning.procedure import Remaining
    from iosonde.results.schema import Record


Send = Callable[..., None]

PERIOD_S = 0.5
NOTES = 20
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
        self._cases = rows(plan)
        study = {
            "name": plan.study_name,
            "title": plan.study["title"],
            "question": plan.study.get("question", ""),
            "target": plan.target,
            "profile": plan.profile,
        }
        self.send({"study": study, "cases": list(self._cases.values())})

    def observe(self, inner: Observer, ahead: Remaining) -> Observer:
        """Return an observer that passes everything on to `inner` and to the page."""
        return Feed(inner, ahead, self._cases, self.send)

    def send(self, message: dict[str, Any], *, droppable: bool = False) -> None:
        """Pass new parts of the page's state on without waiting: what does not fit is sent later or dropped."""
        self._flush()
        if self._pending and droppable:
            return
        self._pending += json.dumps(message).encode() + b"\n"
        self._flush()

    def over(self, outcome: str, text: str, report: Path | None = None) -> None:
        path = str(report.absolute()) if report and report.is_file() else ""
        self.send({"over": {"outcome": outcome, "text": text, "report": path}})

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


def rows(plan: Plan) -> dict[str, dict[str, Any]]:
    """The cases that have runs from the start, by name."""
    runs = Counter(run.case_id for run in plan.runs)
    return {each.case_id: _row(each, runs[each.case_id]) for each in plan.cases if each.case_id in runs}


class Feed(Observer):
    """Receives what the progress display receives, hands it on to it, and sends the parts of the page that change."""

    def __init__(self, inner: Observer, ahead: Remaining, cases: dict[str, dict[str, Any]], send: Send) -> None:
        self._inner = inner
        self._send = send
        self._clock = Clock(ahead)
        self._cases = cases
        self._measured: dict[str, list[dict[str, Any]]] = {}
        """Values of the complete runs of each case."""
        self._verdicts: Counter[str] = Counter()
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._now: dict[str, Any] = {}
        self._rates = Rates()
        self._sent_at = 0.0

    def run_started(self, run: Run, case: Case) -> None:
        self._inner.run_started(run, case)
        shown = self._cases.setdefault(case.case_id, _row(case, 0))
        shown["running"] = True
        self._clock.begin(case)
        self._rates = Rates(run, by_stream=False)
        self._now = {"case": run.case_id, "load": shown["load"], "run": run.run_id, "phase": "starting"}
        self._send({"now": self._now, "values": {}, "progress": self._progress(), "cases": [shown]})

    def event(self, run: Run, event: Event) -> None:
        self._inner.event(run, event)
        if event["event"] == "phase" and event["edge"] == "begin":
            self._now["phase"] = PHASES.get(event["phase"], event["phase"])
            self._send({"now": self._now})
        elif event["event"] == "interval":
            if event["phase"] == "measure":
                if event.get("index") == 0:  # That of several hosts is the whole measurement, after estimates.
                    self._rates = Rates(run, by_stream=False)
                self._rates.add(event)
            if time.monotonic() - self._sent_at >= PERIOD_S:
                self._sent_at = time.monotonic()
                self._now["phase"] = PHASES.get(event["phase"], event["phase"])
                rates = Rates(run, by_stream=False)
                rates.add(event)
                message = {"now": self._now, "values": _values(rates, run), "progress": self._progress()}
                self._send(message, droppable=True)

    def run_ended(self, run: Run, record: Record) -> None:
        self._inner.run_ended(run, record)
        self._clock.end(record)
        case = self._cases[record.case_id]
        case["running"] = False
        case["done"] += 1
        case["failed"] += record.failure is not None and not record.is_unsupported
        if self._rates.end_ns and not record.failure:
            values = _values(self._rates, run)
            measured = self._measured.setdefault(record.case_id, [])
            measured.append(values)
            p99s = [each["p99_ns"] for each in measured if each["p99_ns"] is not None]
            case |= {"unit": values["unit"], "rate": statistics.median(each["rate"] for each in measured)}
            case["p99_ns"] = statistics.median(p99s) if p99s else None
        if record.verdict:
            self._verdicts[record.verdict.kind] += 1
            case["verdicts"][record.verdict.kind] = case["verdicts"].get(record.verdict.kind, 0) + 1
        self._send({"progress": self._progress(), "cases": [case], "verdicts": self._verdicts})

    def note(self, text: str) -> None:
        self._inner.note(text)
        self._notes.append(text)
        self._send({"notes": list(self._notes)})

    def _progress(self) -> dict[str, Any]:
        clock = self._clock
        return {
            "done": clock.done,
            "failed": clock.failed,
            "total": clock.runs,
            "at_most": bool(clock.bound),
            "share": min(1.0, clock.passed_s() / clock.total_s) if clock.total_s else 0.0,
            "remaining": clock.remaining_text(),
        }


def _row(case: Case, runs: int) -> dict[str, Any]:
    """A case before its first run, described by its load."""
    load = wording.case_words(case.parameters, case.levels, case.case_id) + CONTROL * case.control
    counts = {"planned": runs, "done": 0, "failed": 0, "running": False, "verdicts": {}}
    return {"id": case.case_id, "load": load, **counts, "unit": "", "rate": None, "p99_ns": None}


def _values(rates: Rates, run: Run) -> dict[str, Any]:
    """Rate, tail and queue over intervals, all streams together, as numbers and as text."""
    sums, seconds = rates.whole, rates.seconds
    tails = sums.tails(PARTS)
    unit = "operations/s" if rates.load.io != "blocks" else "IOPS"
    # 0 where the streams of a run do not limit how many operations it has in flight.
    streams: Sequence[dict[str, Any]] = run.spec["workload"].get("streams", [])
    return {
        "seconds": rates.end_ns / 1e9,
        "rate": sums.count / seconds,
        "unit": unit,
        "rate_text": f"{format_count(sums.count / seconds)} {unit}",
        "bandwidth_text": format_bandwidth(sums.bytes / seconds),
        "p99_ns": tails["p99"],
        **{f"{name}_text": format_latency(value) if value is not None else "-" for name, value in tails.items()},
        "latency": "flush" if sums.has_flushes else "response" if sums.is_response else "completion",
        "in_flight": round(sums.latency_ns / 1e9 / seconds, 1),
        "queue_depth": sum(int(each.get("jobs", 1)) * int(each.get("queue_depth", 0)) for each in streams),
        "backlog": sums.backlog,
    }


ADDRESS = "127.0.0.1"
PIPE_BYTES = 1 << 20
LONGEST_WAIT_S = 2.0
"""For a server that does not read its last messages."""
