"""Strangers: other users of this machine, who try what listens with a protocol's own client.

`listening` reads the sockets of processes from the kernel, and `as_stranger` runs Python as a user without rights.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STRANGER = 65534
"""`nobody`."""

_LISTEN, _UNCONNECTED, _ACCEPTS = "0A", "07", 1 << 16
"""States of TCP and UDP sockets, and `SO_ACCEPTCON` of Unix sockets (kernel `net/ipv4/tcp_ipv4.c`, `net/unix/af_unix.c`)."""


@dataclass(frozen=True, order=True)
class Listening:
    """A socket that others can connect to, or send to."""

    kind: str
    """`tcp`, `udp` or `unix`."""
    address: str
    """An IP address, or the path of a Unix socket."""
    port: int = 0


def listening(processes: Iterable[int]) -> set[Listening]:
    """Sockets of these processes that accept connections or datagrams, in the network namespace of each."""
    found: set[Listening] = set()
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            own = _sockets_of(process)
            net = Path(f"/proc/{process}/net")
            for name in ("tcp", "tcp6", "udp", "udp6"):
                state = _LISTEN if name.startswith("tcp") else _UNCONNECTED
                for fields in (line.split() for line in (net / name).read_text().splitlines()[1:]):
                    if fields[3] == state and int(fields[9]) in own:
                        found.add(Listening(name[:3], *_address(fields[1])))
            for fields in (line.split() for line in (net / "unix").read_text().splitlines()[1:]):
                if int(fields[3], 16) & _ACCEPTS and int(fields[6]) in own:
                    found.add(Listening("unix", fields[7] if len(fields) > 7 else ""))
    return found


def sharing_network(process: int) -> list[int]:
    """All processes in the network namespace of this one."""
    own, found = Path(f"/proc/{process}/ns/net").stat().st_ino, []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "ns/net").stat().st_ino == own:
                found.append(int(entry.name))
    return found


def as_stranger(imports: str, script: str, *arguments: str, inside: Sequence[str] = ()) -> str:
    """Run Python as another user, and return what it printed, errors included.

    Modules are imported before the rights are dropped: the user may not read the directory with Python's.
    """
    program = f"""\
import os, sys
{imports}
os.setgroups([]); os.setresgid({STRANGER}, {STRANGER}, {STRANGER}); os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
{script}
"""
    command = [*inside, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=600)
    return done.stdout + done.stderr


def refuses_strangers(paths: Iterable[str]) -> bool:
    """Return True if another user can connect to none of these Unix sockets, all of which exist."""
    script = """\
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except PermissionError:
        print("refused", path)
"""
    paths = sorted(paths)
    assert paths and all(Path(path).is_socket() for path in paths)
    return as_stranger("import socket", script, *paths).splitlines() == [f"refused {path}" for path in paths]


_DASK = """\
import asyncio, errno, json, ssl
import distributed
from distributed.comm.registry import get_backend
from iosonde.features.many_hosts import tls
own = open(sys.argv[1]).read() if sys.argv[1] else None
own = tls.of_session(own, open(sys.argv[2]).read()) if own else tls.of_session(*tls.create())
contexts = {"certificate": own.get_connection_args("client")["ssl_context"], "none": ssl.create_default_context()}
for each in contexts.values():
    each.check_hostname, each.verify_mode = False, ssl.CERT_NONE
"""
_ASK_DASK = """\
async def greeted(scheme, address, **arguments):
    peer = await get_backend(scheme).get_connector().connect(address, **arguments)
    await peer.write(peer.handshake_info())
    return "answered" if "python" in await peer.read() else "other"

async def asked_over_http(address):
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.0\\r\\n\\r\\n")
    return "answered" if b"HTTP" in await reader.read() else "closed"

async def outcome(attempt):
    try:
        return await attempt
    except OSError as error:
        reason = error.__cause__ or error
        if isinstance(reason, ConnectionRefusedError):
            return "nothing listens"
        unreached = getattr(reason, "errno", None) in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)
        return str(reason) if unreached else "closed"  # distributed's CommClosedError, and errors of TLS and sockets.
    except ValueError as error:  # Of tornado: a server without TLS has greeted before the handshake.
        return str(error)

async def ask(address):
    ways = {
        "in the clear": greeted("tcp", address),
        "with a certificate": greeted("tls", address, ssl_context=contexts["certificate"], require_encryption=True),
        "without a certificate": greeted("tls", address, ssl_context=contexts["none"], require_encryption=True),
        "over HTTP": asked_over_http(address),
    }
    waiting, answers = {asyncio.create_task(outcome(way)): name for name, way in ways.items()}, {}
    # A server that answers in one way may wait for the rest of another message.
    while waiting and "answered" not in answers.values():
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answers |= {waiting.pop(each): each.result() for each in done}
    for each in waiting:
        each.cancel()
    print(json.dumps([address, answers]), flush=True)

async def ask_all():
    await asyncio.gather(*map(ask, sys.argv[3:]))

asyncio.run(ask_all())
"""
CLOSED = dict.fromkeys(("in the clear", "with a certificate", "without a certificate", "over HTTP"), "closed")
"""Answers of a scheduler or worker that accepted each connection and ended it without an answer."""


def answers_of_dask(
    addresses: Iterable[str], *, inside: Sequence[str] = (), certificate: Sequence[Path | str] = ("", "")
) -> dict[str, dict[str, str]]:
    """Ask Dask's schedulers and workers `HOST:PORT` for their greeting, as a stranger -> the answers by address and way.

    Dask greets any client, and then runs what it is sent. The stranger accepts any certificate, and presents
    one of an authority of its own, or the files `certificate` and key. After an answer it waits for no other.
    """
    addresses = sorted(addresses)
    printed = as_stranger(_DASK, _ASK_DASK, *map(str, certificate), *addresses, inside=inside)
    found = dict(json.loads(line) for line in printed.splitlines() if line.startswith('["'))
    assert sorted(found) == addresses, printed
    return found


def _sockets_of(process: int) -> set[int]:
    found = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                found.add(int(match[1]))
    return found


def _address(text: str) -> tuple[str, int]:
    """Of `0100007F:1F90`: words of 32 bits in the order of the processor."""
    words, port = text.split(":")
    numbers = [int(words[start : start + 8], 16) for start in range(0, len(words), 8)]
    packed = b"".join(struct.pack("=I", number) for number in numbers)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed), int(port, 16)
