"""Requests to the kernel over netlink(7): routes of addresses (rtnetlink(7)), and TCP sockets (sock_diag(7))."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from itertools import count

ROUTE, SOCK_DIAG = 0, 4
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_TIMEOUT_S = 2.0
_sequence = count(1)


def request(family: int, kind: int, payload: bytes, *, is_dump: bool = False) -> Iterator[bytes]:
    """Yield the payload of each message of the reply; `OSError` if the kernel refuses."""
    flags = _REQUEST | (_DUMP if is_dump else 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as link:
        link.settimeout(_TIMEOUT_S)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + len(payload), kind, flags, next(_sequence), 0) + payload)
        while True:
            for message, body in _messages(link.recv(1 << 18)):
                if message == _DONE:
                    return
                if message == _ERROR:
                    _raise(struct.unpack_from("=i", body)[0])
                    return
                yield body
            if not is_dump:
                return


def attributes(data: bytes) -> Mapping[int, bytes]:
    """Attributes of a message by type: length, type and value of each, padded to 4 bytes."""
    found, place = {}, 0
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[place + 4 : place + length]
        place += (length + 3) & ~3
    return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, place)
        if length < 16:
            return
        yield kind, data[place + 16 : place + length]
        place += (length + 3) & ~3


def _raise(number: int) -> None:
    if number:
        raise OSError(-number, "netlink request failed")
