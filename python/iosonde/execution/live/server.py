"""The server of the live page, a process of the lowest priority: `python -m iosonde.execution.live.server FD`.

It inherits the listening socket, which is bound to loopback, and reads messages as JSON Lines from standard input; the
first one has the secret path and the page. Another user of the machine can connect but does not know the path. A page
of a stranger cannot read it either: requests with another `Host` are refused (DNS rebinding), there is no CORS, and
the page's policy lets it talk to this server alone.

It ends when the study is over and no page has sent a request for `IDLE_S`, at the latest after `LONGEST_S`.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

POINTS = 240
"""Intervals that the page draws."""


HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""


class Server(ThreadingHTTPServer):
    """Answers requests for the page, the state and the report."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, token: str, page: bytes, policy: str) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.page, self.policy = token, page, policy
        self.state = State()
        self.asked_at: float | None = None
        port = listening.getsockname()[1]
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 30
    server_version = "iosonde"
    sys_version = ""

    def do_GET(self) -> None:
        """Return the page, the state or the report; any path without the secret is not found."""
        if self.headers.get("Host") not in self.server.hosts:
            self._send(403, b"another host was requested\n", "text/plain")
            return
        _, token, *rest = self.path.split("/", 2) if self.path.count("/") > 1 else ("", "", "")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._send(404, b"not found\n", "text/plain")
            return
        self.server.asked_at = time.monotonic()
        name, _, query = "".join(rest).partition("?")
        match name:
            case "":
                self._send(200, self.server.page, "text/html; charset=utf-8", policy=self.server.policy)
            case "state":
                version = query.removeprefix("since=")
                known = int(version) if version.isascii() and version.isdigit() else -1
                state = self.server.state.as_json(known)
                self._send(204 if state is None else 200, state or b"", "application/json")
            case "report.html":
                self._send_report()
            case _:
                self._send(404, b"not found\n", "text/plain")

    def _send_report(self) -> None:
        try:
            content = Path(self.server.state.report).read_bytes()
        except OSError:  # Also of an empty path, which is a directory.
            self._send(404, b"there is no report\n", "text/plain")
        else:
            self._send(200, content, "text/html; charset=utf-8")

    def _send(self, status: int, content: bytes, kind: str, *, policy: str = "") -> None:
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(content))}
        own |= {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"} if policy else {}
        for name, value in (own | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: the path is a secret."""


def main() -> None:
    """Serve until the study is over and requests have ended."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    print("ready", flush=True)
    os.nice(NICE)
    hello = json.loads(sys.stdin.buffer.readline())
    server = Server(listening, hello["token"], hello["page"].encode(), hello["policy"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for line in sys.stdin.buffer:
        server.state.apply(json.loads(line))
    if not server.state.is_over:
        server.state.apply({"over": {"outcome": "lost", "text": "The session ended unexpectedly.", "report": ""}})
    deadline = time.monotonic() + LONGEST_S
    asked_at, idle_s = server.asked_at, 0.0
    while asked_at is not None and idle_s < IDLE_S and time.monotonic() < deadline:
        time.sleep(NAP_S)  # Naps are counted: a pause of the machine, of which a page knows nothing, is one of them.
        idle_s = idle_s + NAP_S if server.asked_at == asked_at else 0.0
        asked_at = server.asked_at


class State:
    """State of the page. Messages come from one thread, readers from others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 0
        self._facts: dict[str, Any] = {"study": {}, "progress": {}, "now": {}, "values": {}, "over": None}
        self._facts |= {"verdicts": {}, "notes": []}
        self._points: deque[list[float | None]] = deque(maxlen=POINTS)
        self._cases: dict[str, dict[str, Any]] = {}

    def apply(self, message: dict[str, Any]) -> None:
        """Replace the parts that a message has, of the cases those that it names."""
        with self._lock:
            self._version += 1
            self._cases |= {case["id"]: case for case in message.pop("cases", ())}
            self._facts |= message
            values = message.get("values")
            if values:
                self._points.append([values["seconds"], values["rate"], values["p99_ns"]])
            elif values is not None:  # A run starts.
                self._points.clear()

    def as_json(self, since: int) -> bytes | None:
        """Return the state as JSON; None if it is the one that the reader has."""
        with self._lock:
            if since == self._version:
                return None
            changing = {"points": list(self._points), "cases": list(self._cases.values())}
            return json.dumps({**self._facts, "version": self._version, **changing}).encode()

    @property
    def is_over(self) -> bool:
        return self._facts["over"] is not None

    @property
    def report(self) -> str:
        """Path of the report; empty before there is one."""
        return str((self._facts["over"] or {}).get("report", ""))


IDLE_S = 5.0
"""A page asks every second, a hidden one less often."""
NAP_S = 0.2
LONGEST_S = 600.0
NICE = 19


if __name__ == "__main__":
    main()
