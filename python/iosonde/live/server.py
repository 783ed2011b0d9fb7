"""The server of the live page, a process of its own with the lowest priority: `python -m iosonde.live.server FD`.

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from iosonde.live.state import State

IDLE_S = 5.0
"""A page asks every second, a hidden one less often."""
NAP_S = 0.2
LONGEST_S = 600.0
NICE = 19


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
                self._send_state(query)
            case "report.html":
                self._send_report()
            case _:
                self._send(404, b"not found\n", "text/plain")

    def _send_state(self, query: str) -> None:
        version = query.removeprefix("since=")
        state = self.server.state.as_json(int(version) if version.isascii() and version.isdigit() else -1)
        if state is None:
            self._send(204, b"", "application/json")
        else:
            self._send(200, state, "application/json")

    def _send_report(self) -> None:
        path = self.server.state.report
        try:
            content = Path(path).read_bytes() if path else None
        except OSError:
            content = None
        if content is None:
            self._send(404, b"there is no report\n", "text/plain")
        else:
            self._send(200, content, "text/html; charset=utf-8")

    def _send(self, status: int, content: bytes, kind: str, *, policy: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if policy:
            self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
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
        server.state.apply({"kind": "over", "outcome": "lost", "text": "The session ended unexpectedly.", "report": ""})
    deadline = time.monotonic() + LONGEST_S
    asked_at, idle_s = server.asked_at, 0.0
    while asked_at is not None and idle_s < IDLE_S and time.monotonic() < deadline:
        time.sleep(NAP_S)  # Naps are counted: a pause of the machine, of which a page knows nothing, is one of them.
        idle_s = idle_s + NAP_S if server.asked_at == asked_at else 0.0
        asked_at = server.asked_at


if __name__ == "__main__":
    main()
