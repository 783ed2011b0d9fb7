"""Counters of object daemons, read over their administration sockets.

A command is a JSON object that ends with a null byte; the answer is its length in four bytes, and JSON. This is what
`ceph daemon` does, without starting a Python interpreter for each reading.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.errors import ServerError

ANSWER_S = 30.0

PATHS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "osd_client_writes": (("osd", "op_w"),),
    "osd_client_reads": (("osd", "op_r"),),
    "osd_client_write_bytes": (("osd", "op_w_in_bytes"),),
    "osd_client_read_bytes": (("osd", "op_r_out_bytes"),),
    "osd_replica_write_bytes": (("osd", "subop_w_in_bytes"),),
    "osd_recovery_operations": (("osd", "recovery_ops"),),
    "bluestore_wal_bytes": (("bluefs", "bytes_written_wal"),),
    "bluestore_db_bytes": (("bluefs", "bytes_written_sst"), ("bluefs", "log_bytes")),
    "bluestore_deferred_bytes": (("bluestore", "deferred_write_bytes"),),
}
"""Statistics and the counters of `perf dump` that they are the sum of."""


def ask(path: Path, command: str) -> dict[str, Any]:
    """The answer of a daemon to a command; `ServerError` if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
            opened.settimeout(ANSWER_S)
            opened.connect(str(path))
            opened.sendall(json.dumps({"prefix": command}).encode() + b"\0")
            (length,) = struct.unpack(">I", _received(opened, 4))
            found = json.loads(_received(opened, length) or b"{}")
    except (OSError, ValueError, struct.error) as error:
        raise ServerError(
            f"the Ceph daemon does not answer `{command}`: {error}",
            where=f"at `{path}`",
            hint="see its messages",
            code="server_vanished",
        ) from None
    return found if isinstance(found, dict) else {}


def totals(dumps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The statistics of all object daemons together, from their answers to `perf dump`."""
    found: dict[str, int] = {}
    for dump in dumps:
        for name, paths in PATHS.items():
            for section, counter in paths:
                with suppress(KeyError, TypeError, ValueError):
                    found[name] = found.get(name, 0) + int(dump[section][counter])
    return found


def _received(opened: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        part = opened.recv(min(65536, length - len(found)))
        if not part:
            raise ConnectionResetError("the connection was closed")
        found += part
    return bytes(found)
