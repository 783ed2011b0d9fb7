"""Starts the server process and passes messages to it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.errors import IosondeError
from iosonde.live.feed import Feed, load_of
from iosonde.python_process import module_command
from iosonde.report.writers.document import policy, stylesheet, template_of

if TYPE_CHECKING:
    from iosonde.execution import Observer
    from iosonde.plan import Plan
    from iosonde.procedure.schedule import Remaining

ADDRESS = "127.0.0.1"
PIPE_BYTES = 1 << 20
LONGEST_WAIT_S = 2.0
"""For a server that does not read its last messages."""


class LivePage:
    """The page of a running study."""

    def __init__(self, plan: Plan, *, port: int = 0) -> None:
        """Start the server; `port` 0 is any free one. `IosondeError` where the port cannot be used."""
        self._token = secrets.token_urlsafe(24)
        self._pending = b""
        with _listening(port) as listening:
            self.url = f"http://{ADDRESS}:{listening.getsockname()[1]}/{self._token}/"
            self._process = subprocess.Popen(
                module_command("iosonde.live.server", str(listening.fileno())),
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


@contextmanager
def live_page(plan: Plan, *, port: int = 0) -> Iterator[LivePage]:
    """A live page for the duration of a study."""
    page = LivePage(plan, port=port)
    try:
        yield page
    finally:
        page.close()


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
    files = resources.files("iosonde.live") / "page_files"
    script = (files / "live.js").read_text(encoding="utf-8")
    style = stylesheet() + (files / "live.css").read_text(encoding="utf-8")
    return script, template_of((files / "live.html").read_text(encoding="utf-8")).render(style=style, script=script)


def _study(plan: Plan) -> dict[str, Any]:
    runs: dict[str, int] = {}
    for run in plan.runs:
        runs[run.case_id] = runs.get(run.case_id, 0) + 1
    return {
        "study": {
            "name": plan.study_name,
            "title": plan.study["title"],
            "question": plan.study.get("question", ""),
            "target": plan.target,
            "profile": plan.profile,
        },
        "cases": [
            {
                "id": each.case_id,
                "load": load_of(each),
                "runs": runs[each.case_id],
            }
            for each in plan.cases
            if each.case_id in runs
        ],
    }
