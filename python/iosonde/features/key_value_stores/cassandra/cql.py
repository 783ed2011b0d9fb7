"""A client of CQL for administration: plain statements, text and numbers in answers (native protocol 4).

The measured statements are the engine's. This client exists so that readiness, settings and statistics of Cassandra and
ScyllaDB need no further package. Specification: `native_protocol_v4.spec` of Apache Cassandra.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.errors import ServerError
from iosonde.study.servers.server import Address

ANSWER_S = 30.0

PASSWORD = "CASSANDRA_PASSWORD"
"""Environment variable with the password of a user, which no record contains; the engine reads it too."""

LONGEST_FRAME = 256 << 20

_VERSION = 4
_STARTUP, _READY, _AUTHENTICATE, _QUERY, _RESULT, _ERROR = 0x01, 0x02, 0x03, 0x07, 0x08, 0x00
_AUTH_RESPONSE, _AUTH_SUCCESS = 0x0F, 0x10
_ROWS = 2
_HAS_MORE_PAGES, _ONE_TABLE = 0x0002, 0x0001
_CONSISTENCY_ONE = 1
_BAD_CREDENTIALS, _UNAUTHORIZED, _ALREADY_EXISTS = 0x0100, 0x2100, 0x2400


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


_TEXTS, _NUMBERS = (0x0001, 0x000A, 0x000D), (0x0002, 0x0005, 0x0009, 0x000E, 0x0013, 0x0014)
"""Types of columns by their numbers in the protocol; statements for administration select no others."""


LOGIN_HINT = f"name the user in the address (`cql://USER@HOST:PORT`), and set its password in `{PASSWORD}`"


class CqlError(ServerError):
    """An error that the server returned."""


def connect(address: Address, *, server_uid: int | None = None) -> CqlConnection:
    """Connect over TCP; `ServerError` with the reason where that fails.

    With `server_uid` the password is sent only to a process of this user on this machine.
    """
    assert address.port is not None
    try:
        opened = socket.create_connection((address.host, address.port), timeout=ANSWER_S)
    except OSError as error:
        raise ServerError(
            f"cannot connect to Cassandra: {error.strerror or error}",
            where=f"at `{address.host}:{address.port}`",
            hint="see whether the server is running",
            code="connection_refused",
        ) from None
    found = CqlConnection(opened, address)
    try:
        found.log_in(server_uid)
    except BaseException:
        found.close()
        raise
    return found


class CqlConnection:
    """One connection, with one request at a time."""

    def __init__(self, opened: socket.socket, address: Address) -> None:
        self._opened = opened
        self._address = address
        self._where = f"at `{address.host}:{address.port}`"

    def log_in(self, server_uid: int | None) -> None:
        """Start the protocol, with the user's password where the server requires it."""
        kind, _ = self._request(_STARTUP, struct.pack(">H", 1) + _string("CQL_VERSION") + _string("3.0.0"))
        if kind == _AUTHENTICATE:
            if not self._address.user:
                what = "Cassandra requires a user and a password, but the address names no user"
                raise self._error(what, LOGIN_HINT, "authentication")
            if server_uid is not None and _uid_of_peer(self._opened) != server_uid:
                what = "another user's program answers at the address of the private Cassandra node"
                raise self._error(what, "find the program with `ss -ltnp`, and end it", "server")
            own = self._address.password
            password = os.environ.get(PASSWORD, "") if own is None else own
            token = f"\0{self._address.user}\0{password}".encode()
            kind, _ = self._request(_AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
        if kind not in (_READY, _AUTH_SUCCESS):
            raise self._broken(f"an answer of kind {kind} to the start of the protocol")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; `CqlError` with the server's message if it fails."""
        assert not values, "statements for administration have no parameters"
        text = statement.encode()
        body = struct.pack(">i", len(text)) + text + struct.pack(">HB", _CONSISTENCY_ONE, 0)
        kind, answer = self._request(_QUERY, body)
        if kind != _RESULT:
            raise self._broken(f"an answer of kind {kind} to a statement")
        try:
            return _rows(_Reader(answer))
        except (struct.error, IndexError, ValueError) as error:
            raise self._broken(f"rows that cannot be read ({error})") from None

    def close(self) -> None:
        self._opened.close()

    def _request(self, kind: int, body: bytes) -> tuple[int, bytes]:
        try:
            self._opened.sendall(struct.pack(">BBhBi", _VERSION, 0, 0, kind, len(body)) + body)
            version, _, _, answered, size = struct.unpack(">BBhBi", self._receive(9))
            if version & 0x7F != _VERSION or not 0 <= size <= LONGEST_FRAME:
                raise self._broken(f"version {version & 0x7F} of the protocol, or a frame of {size} bytes")
            answer = self._receive(size)
        except OSError as error:
            raise self._error(f"Cassandra does not answer: {error}", "see its messages", "server_vanished") from None
        if answered == _ERROR:
            raise self._refused(answer)
        return answered, answer

    def _receive(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            part = self._opened.recv(min(missing, 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _refused(self, answer: bytes) -> CqlError:
        reader = _Reader(answer)
        number, message = reader.number(), reader.string()
        codes = {
            _BAD_CREDENTIALS: ("authentication", LOGIN_HINT),
            _UNAUTHORIZED: ("authentication", "grant the user `CREATE` on all keyspaces"),
            _ALREADY_EXISTS: ("foreign_data", "it was not changed; drop it, or name another server"),
        }
        code, hint = codes.get(number, ("server", "the message is the server's own"))
        return CqlError(f"Cassandra: {message}", where=self._where, hint=hint, code=code)

    def _broken(self, what: str) -> ServerError:
        hint = "name the port of CQL (`native_transport_port`, by default 9042) without TLS"
        return self._error(f"the server returned {what}", hint, "server")

    def _error(self, what: str, hint: str, code: str) -> ServerError:
        return ServerError(what, where=self._where, hint=hint, code=code)


def _uid_of_peer(connection: socket.socket) -> int | None:
    """User of the process on this machine that accepted a connection over IPv4 (proc_net_tcp(5)); None if unknown."""
    ends = [_in_proc(*connection.getpeername()), _in_proc(*connection.getsockname())]
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return next((int(fields[7]) for fields in map(str.split, lines) if fields[1:3] == ends), None)


def _in_proc(host: str, port: int) -> str:
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


class _Reader:
    """Reads the parts of an answer, one after the other."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._place = 0

    def take(self, size: int) -> bytes:
        end = self._place + size
        if size < 0 or end > len(self._answer):
            raise ValueError("it ends early")
        found = self._answer[self._place : end]
        self._place = end
        return found

    def number(self) -> int:
        return _signed(self.take(4))

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def string(self) -> str:
        return _text(self.take(self.short()))

    def value(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.take(size)


def _rows(reader: _Reader) -> list[tuple[Any, ...]]:
    if reader.number() != _ROWS:
        return []
    flags, columns = reader.number(), reader.number()
    if flags & _HAS_MORE_PAGES:
        reader.value()
    if flags & _ONE_TABLE:
        reader.string(), reader.string()
    types = []
    for _ in range(columns):
        if not flags & _ONE_TABLE:
            reader.string(), reader.string()
        reader.string()
        types.append(reader.short())
    if unknown := set(types) - {*_TEXTS, *_NUMBERS}:
        raise ValueError(f"columns of the types {sorted(unknown)}")
    return [tuple(_value(kind, reader.value()) for kind in types) for _ in range(reader.number())]


def _value(kind: int, value: bytes | None) -> Any:
    if value is None:
        return None
    return _text(value) if kind in _TEXTS else _signed(value)
