"""Probes of the network during a run, on the path of the mount but on connections of their own.

    connect        SYN to SYN-ACK, by the kernels of both sides: the network alone, with its queues
    call           an empty RPC (procedure NULL): the network and a thread of the server
    padded call    the same with a payload, which takes the way to the server
    echo           ICMP echo, answered by the kernel of the server
    padded echo    the same with a payload, which takes the way to the server and back

The kernel measures the first one itself (`TCP_INFO` of the new connection), so that no delay of this process is in it.
Delays of this process are in both of a pair, and cancel in their difference: the time of the payload on the way.
"""

from __future__ import annotations

import ipaddress
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Literal, NamedTuple

from iosonde.features.network_storage import tcp

PERIOD_S = 0.1
PAUSE_S = 0.02
"""Longest pause between two probes of a period."""
PADDED_EVERY = 2
"""Probes of which one has a payload: its share of a slow link stays small."""
LARGEST_BYTES = 32 << 10
"""Largest payload: an echo is one datagram, and each of its fragments can be lost."""
TIMEOUT_S = 2.0
_NFS = 100003
_LAST = 0x80000000
"""Mark of the last fragment of a record (RFC 5531, section 11)."""

_LONGEST_REPLY = 1 << 16
_ECHOES = {4: (socket.IPPROTO_ICMP, 8, 0), 6: (socket.IPPROTO_ICMPV6, 128, 129)}
"""Protocol, and types of request and reply, by version of IP."""


RoundTrip = Literal["connect", "call", "padded_call", "echo", "padded_echo"]


class ProbeSample(NamedTuple):
    """A round trip."""

    at_ns: int
    """On the monotonic clock."""
    of: RoundTrip
    ns: int


class Probe:
    """Measures round trips in a thread for each kind: what waits for a reply delays no other."""

    def __init__(self, server: str, port: int | None, version: int | None = None, payload_bytes: int = 0) -> None:
        """Without a port echoes only, without a version no calls."""
        self._server, self._port, self._version = server, port, version
        self._payload = bytes(min(payload_bytes, LARGEST_BYTES) & ~3)
        self._is_over = threading.Event()
        self._echo = Echo.open(server) if self._payload else None
        self._measured = [self._measure_network] if port is not None else []
        self._measured += [self._measure_server] if version is not None else []
        self._measured += [self._measure_echoes] if self._echo else []
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in self._measured]
        self.samples: list[ProbeSample] = []
        self._lost: list[ProbeSample] = []
        self.ports: set[int] = set()
        """Local ports of its connections."""

    @property
    def payload_bytes(self) -> int:
        """Payload of padded calls and echoes; 0 if none are made."""
        return len(self._payload) if self._echo else 0

    def start(self) -> None:
        """Start measuring."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._is_over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._echo:
            self._echo.close()

    def of(self, kind: RoundTrip, begin_ns: int, end_ns: int) -> list[int]:
        """Round trips of a kind in a time, ns."""
        return [each.ns for each in self.samples if each.of == kind and begin_ns <= each.at_ns <= end_ns]

    def lost(self, begin_ns: int, end_ns: int) -> int:
        """Echoes without reply, and connections whose first segment had none at first, in a time.

        Kinds of echoes that were never answered do not count: many hosts and firewalls drop them.
        """
        answered = {each.of for each in self.samples} | {"connect"}
        return sum(each.of in answered and begin_ns <= each.at_ns <= end_ns for each in self._lost)

    def _run(self, measure: Callable[[bool], None]) -> None:
        for number in count():
            if self._is_over.is_set():
                return
            with suppress(OSError, struct.error, KeyError):  # The server refuses or is away.
                measure(bool(self._payload) and number % PADDED_EVERY == 0)
            self._is_over.wait(PERIOD_S)

    def _measure_network(self, is_padded: bool) -> None:
        try:
            with self._connected() as link:
                found = tcp.info(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
        except TimeoutError:
            self._add("connect", None)
            return
        if found["retransmits"]:
            self._add("connect", None)
        self._add("connect", 1000 * found["round_trip_us"])

    def _measure_echoes(self, is_padded: bool) -> None:
        if is_padded and self._echo:
            self._pause()
            self._add("echo", self._echo.round_trip(b""))
            self._pause()
            self._add("padded_echo", self._echo.round_trip(self._payload))

    def _measure_server(self, is_padded: bool) -> None:
        with self._connected() as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pause()
            self._add("call", self._call(link, b""))
            if is_padded:
                self._pause()
                self._add("padded_call", self._call(link, self._payload))

    def _pause(self) -> None:
        """Wait for a random time: else probes would follow replies of the load on a full link, not wait for them."""
        self._is_over.wait(random.uniform(0, PAUSE_S))

    def _add(self, kind: RoundTrip, ns: int | None) -> None:
        if ns is None:
            self._lost.append(ProbeSample(time.monotonic_ns(), kind, 0))
        else:
            self.samples.append(ProbeSample(time.monotonic_ns(), kind, ns))

    def _connected(self) -> socket.socket:
        """A new connection, whose port is known before it exists."""
        family, _, _, _, address = socket.getaddrinfo(self._server, self._port, type=socket.SOCK_STREAM)[0]
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            link.settimeout(TIMEOUT_S)
            link.bind(("", 0))
            self.ports.add(link.getsockname()[1])
            link.connect(address)
        except BaseException:
            link.close()
            raise
        return link

    def _call(self, link: socket.socket, payload: bytes) -> int:
        """A call of the procedure NULL, whose server does not read arguments."""
        body = struct.pack(">10I", 1, 0, 2, _NFS, self._version, 0, 0, 0, 0, 0) + payload
        start = time.monotonic_ns()
        link.sendall(struct.pack(">I", _LAST | len(body)) + body)
        (head,) = struct.unpack(">I", link.recv(4, socket.MSG_WAITALL))
        replied = time.monotonic_ns()
        link.recv(
            min(head & ~_LAST, _LONGEST_REPLY), socket.MSG_WAITALL
        )  # Unread, the close would reset the connection.
        return replied - start


class Echo:
    """Echoes of a host (icmp(7): a socket for users in `ping_group_range`, else a raw one)."""

    def __init__(self, link: socket.socket, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        self._link, self._address = link, address
        self._numbers = count(1)
        self._identifier = os.getpid() & 0xFFFF

    @classmethod
    def open(cls, server: str) -> Echo | None:
        """None if it is not permitted."""
        with suppress(ValueError):
            address = ipaddress.ip_address(server.partition("%")[0])
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
                with suppress(OSError):
                    link = socket.socket(family, kind, _ECHOES[address.version][0])
                    link.connect((str(address), 0))
                    return cls(link, address)
        return None

    def close(self) -> None:
        """Close the socket."""
        self._link.close()

    def round_trip(self, payload: bytes) -> int | None:
        """Time of an echo, ns; None without a reply in time."""
        _, request, reply = _ECHOES[self._address.version]
        number = next(self._numbers) & 0xFFFF
        head = struct.pack(">BBHHH", request, 0, 0, self._identifier, number)
        message = head[:2] + struct.pack(">H", _checksum(head + payload)) + head[4:] + payload
        start = time.monotonic_ns()
        try:
            self._link.send(message)
            while True:
                # Without time left, what has arrived is read all the same: this process may have had no CPU until now.
                self._link.settimeout(max(0.0, TIMEOUT_S - (time.monotonic_ns() - start) / 1e9))
                data = self._link.recv(1 << 17)
                replied = time.monotonic_ns()
                is_raw = self._link.type == socket.SOCK_RAW
                if is_raw and self._address.version == 4:
                    data = data[(data[0] & 15) * 4 :]  # With the header of IP.
                kind, identifier, found = struct.unpack_from(">B3xHH", data)
                # The kernel sets the identifier of a socket that is not raw, and filters by it.
                if (kind, found) == (reply, number) and (not is_raw or identifier == self._identifier):
                    return replied - start
        except (OSError, struct.error):
            return None


def _checksum(data: bytes) -> int:
    """Checksum of the internet (RFC 1071)."""
    total = int(sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
