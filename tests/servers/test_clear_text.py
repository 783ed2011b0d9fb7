"""A server that requests a password in clear text does not get it over a network."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from iosonde import servers
from iosonde.errors import ServerError
from iosonde.servers.connection import Address

PASSWORD = "correct horse"


def request_of_postgresql(client: socket.socket) -> None:
    """Refuse encryption, and request a password (AuthenticationCleartextPassword)."""
    while struct.unpack("!I", client.recv(8)[4:])[0] != 3 << 16:
        client.sendall(b"N")
    client.recv(4096)
    client.sendall(b"R" + struct.pack("!II", 8, 3))


def request_of_mariadb(client: socket.socket) -> None:
    """The handshake of protocol 10, and a switch to `mysql_clear_password`."""
    flags = 0xFFFFF7FF  # Without encryption.
    greeting = b"\x0a10.11.6\0" + struct.pack("<I", 1) + b"x" * 8 + b"\0" + struct.pack("<H", flags & 0xFFFF)
    greeting += b"\x2d" + struct.pack("<HH", 2, flags >> 16) + b"\x15" + bytes(10) + b"x" * 12 + b"\0"
    packet(client, 0, greeting + b"mysql_native_password\0")
    client.recv(4096)
    packet(client, 2, b"\xfemysql_clear_password\0")


def packet(client: socket.socket, number: int, body: bytes) -> None:
    client.sendall(struct.pack("<I", len(body))[:3] + bytes([number]) + body)


@contextmanager
def server(request: Callable[[socket.socket], None], received: list[bytes]) -> Iterator[int]:
    """A server that answers one client; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                request(client)
                received.append(client.recv(4096))

        answering = threading.Thread(target=answer)
        answering.start()
        yield listening.getsockname()[1]
        answering.join()


@pytest.mark.parametrize(
    ("kind", "request_of"), [("postgresql", request_of_postgresql), ("mariadb", request_of_mariadb)]
)
def test_a_password_in_clear_text_is_not_sent_over_a_network(
    kind: str, request_of: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    received: list[bytes] = []
    with server(request_of, received) as port:
        address = Address(host="127.0.0.1", port=port, user="me", database="iosonde", password=PASSWORD)
        with pytest.raises(ServerError, match="in clear text, which is sent through a Unix socket only") as error:
            servers.named(kind).connect(address)  # type: ignore[arg-type, union-attr]
    assert error.value.code == "authentication"
    assert PASSWORD.encode() not in b"".join(received)
