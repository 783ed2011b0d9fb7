"""Probes of the network during a run, on the path of the mount but on connections of their own.

    connect   SYN to SYN-ACK, by the kernels of both sides: the network alone, with its queues
    call      an empty RPC (procedure NULL): the network and a thread of the server

The kernel measures the first one itself (`TCP_INFO` of the new connection), so that no delay of this process is in it.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

from iosonde.features.network_storage import tcp

PERIOD_S = 0.05
TIMEOUT_S = 5.0
_NFS = 100003
_LAST = 0x80000000
"""Mark of the last fragment of a record (RFC 5531, section 11)."""

_LONGEST_REPLY = 1 << 16


class Probe:
    """Measures round trips to a server in a thread of its own."""

    def __init__(self, server: str, port: int, version: int | None) -> None:
        self._server, self._port, self._version = server, port, version
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[int, int, int | None]] = []
        """Time on the monotonic clock, then connect and call: nanoseconds."""

    def start(self) -> None:
        """Start to measure."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to measure."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(OSError, struct.error, KeyError):  # The server refuses or is away.
                self.samples.append(self._measure())
            self._is_over.wait(PERIOD_S)

    def _measure(self) -> tuple[int, int, int | None]:
        with socket.create_connection((self._server, self._port), timeout=TIMEOUT_S) as link:
            at = time.monotonic_ns()
            found = tcp.info(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
            return at, 1000 * found["round_trip_us"], None if self._version is None else self._call(link)

    def _call(self, link: socket.socket) -> int:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = struct.pack(">10I", 1, 0, 2, _NFS, self._version, 0, 0, 0, 0, 0)
        start = time.monotonic_ns()
        link.sendall(struct.pack(">I", _LAST | len(body)) + body)
        (head,) = struct.unpack(">I", link.recv(4, socket.MSG_WAITALL))
        replied = time.monotonic_ns()
        link.recv(
            min(head & ~_LAST, _LONGEST_REPLY), socket.MSG_WAITALL
        )  # Unread, the close would reset the connection.
        return replied - start
