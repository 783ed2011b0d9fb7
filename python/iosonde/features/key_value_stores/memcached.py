"""memcached: items in memory only, or with extstore, which keeps the values of idle items in a file on the target."""

from __future__ import annotations

import errno
import functools
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from iosonde.errors import ServerError, StudyError
from iosonde.study.servers import programs
from iosonde.study.servers.server import (
    Address,
    Connection,
    Installation,
    Place,
    Server,
    Settings,
    SettingValue,
)
from iosonde.units import MIB, format_bytes

OLDEST = (1, 6)
"""First version with the meta protocol."""

OPTIONS = (
    *("memory-limit", "disable-evictions", "conn-limit", "lock-memory", "slab-growth-factor", "slab-min-size"),
    *("enable-largepages", "threads", "max-reqs-per-event", "disable-cas", "listen-backlog", "max-item-size"),
)
"""Settings that are options of the command line; all others are arguments of its option `-o`."""

FLAGS = ("disable-evictions", "lock-memory", "enable-largepages", "disable-cas")
"""Options without a value."""

RESERVED = (
    *("port", "udp-port", "unix-socket", "unix-mask", "enable-shutdown", "listen", "daemon", "user", "pidfile"),
    *("protocol", "enable-sasl", "auth-file", "memory-file", "enable-ssl", "ssl_.*", "ext_path", "extended"),
    *("verbose", "help", "license", "version", "enable-coredumps", "disable-flush-all", "napi_ids", "D"),
)
"""Settings that decide where it listens, what it writes, or its protocol."""

EXTSTORE_BYTES = "extstore_size"
"""Not memcached's own: the size of the file of extstore in the data directory, in bytes."""

ANSWER_S = 30.0

_FILE = "extstore"


class Memcached(Server):
    """memcached 1.6 and newer."""

    name: ClassVar[str] = "memcached"
    title: ClassVar[str] = "memcached"
    accounts: ClassVar[Sequence[str]] = ("memcache", "memcached")
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    data_setting: ClassVar[str] = "cache_memory"

    @staticmethod
    def settings_of(parameters: Mapping[str, Any]) -> dict[str, SettingValue]:
        """Settings by its own names, from the parameters of a load."""
        settings = {**parameters["memcached"], "memory-limit": int(parameters["cache_memory"]) // MIB}
        if parameters["tier"] == "extstore":
            settings[EXTSTORE_BYTES] = int(parameters["extstore_size"])
        return settings

    def locate(self) -> Installation:
        found = programs.find("memcached")
        if not found:
            raise ServerError(
                "memcached is not installed: no program `memcached` was found",
                where="on PATH and in system directories",
                hint="install the package `memcached` (on Debian, `apt-get install memcached` also starts a server of "
                "its own, which iosonde does not use)",
                code="missing_server",
            )
        return _installation(found)

    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """memcached reads its options in order, and exits at `--version` before it opens anything."""
        own = {name: value for name, value in settings.items() if name != EXTSTORE_BYTES}
        programs.refuse_reserved(own, RESERVED, self.title)
        _check(installation.programs["memcached"], tuple(sorted(settings.items())))

    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """A directory for the file of extstore; without extstore it stays empty."""
        place.data.mkdir(mode=0o700)
        place.account.own(place.data)

    def allocate(self, place: Place, settings: Settings) -> None:
        """Allocate all blocks of the file of extstore, which memcached truncates at its start.

        memcached does not report failed writes: on a full file system values are lost, and gets of them count as hits.
        `ServerError` (`no_space`) if there is no room.
        """
        size = int(settings.get(EXTSTORE_BYTES, 0))
        if not size:
            return
        descriptor = os.open(place.data / _FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            raise ServerError(
                f"cannot allocate {format_bytes(size)} for extstore: {error.strerror}",
                where=f"in `{place.data}`",
                hint="name a target with more room, or use a smaller `extstore_size`",
                code="no_space" if error.errno in (errno.ENOSPC, errno.EFBIG) else "server",
            ) from error
        finally:
            os.close(descriptor)

    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        """Everything on the command line; with a Unix socket it listens on no port."""
        listening = ["--unix-socket", str(self.socket_path(place.socket)), "--unix-mask", "700"]
        return [installation.programs["memcached"], *listening, *_arguments(settings, str(place.data / _FILE))]

    def address(self, place: Place, database: str = "") -> Address:
        return Address(host=str(self.socket_path(place.socket)), port=None, user="", database="")

    def socket_path(self, directory: Path) -> Path:
        return directory / "memcached.sock"

    def connect(self, address: Address) -> Connection:
        """A connection whose statements are commands of the text protocol that return `STAT` lines."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.settimeout(ANSWER_S)
        try:
            opened.connect(address.host)
        except OSError as error:
            opened.close()
            raise ServerError(
                f"cannot connect to memcached: {error.strerror or error}",
                where=f"at `{address.host}`",
                hint="see whether the server is running",
                code="connection_refused",
            ) from None
        return _Connection(opened, address)

    def describe(self, connection: Connection) -> dict[str, Any]:
        """From `stats settings`; which of them are not the default cannot be asked."""
        settings = {str(name): str(value) for name, value in connection.rows("stats settings")}
        version = dict(connection.rows("stats")).get("version", "")
        return {"version": f"memcached {version}", "settings": settings, "changed": []}

    def statistics(self, connection: Connection) -> dict[str, int]:
        """The whole numbers in `stats`, except those that identify the process."""
        rows = ((str(name), str(value)) for name, value in connection.rows("stats"))
        return {name: int(value) for name, value in rows if value.isdecimal() and name not in ("pid", "time")}


class _Connection:
    def __init__(self, opened: socket.socket, address: Address) -> None:
        self._opened = opened
        self._address = address

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Names and values of the `STAT` lines that a command returns."""
        try:
            self._opened.sendall(statement.encode() + b"\r\n")
            answer = b""
            while not answer.endswith((b"END\r\n", b"ERROR\r\n", b"RESET\r\n")):
                received = self._opened.recv(65536)
                if not received:
                    raise ConnectionResetError("the connection was closed")
                answer += received
        except OSError as error:
            raise ServerError(
                f"memcached does not answer `{statement}`: {error}",
                where=f"at `{self._address.host}`",
                hint="see its messages",
                code="server_vanished",
            ) from None
        lines = (line.split(" ", 2) for line in answer.decode(errors="replace").splitlines())
        return [(line[1], line[2]) for line in lines if line[0] == "STAT" and len(line) == 3]

    def close(self) -> None:
        self._opened.close()


def _arguments(settings: Settings, path: str) -> list[str]:
    """Options of the command line. `ext_path` ends the list: other settings of extstore only count before it."""
    found, extended = [], []
    for name, value in sorted(settings.items()):
        if name in FLAGS:
            found += [f"--{name}"] if value is True else []
        elif name in OPTIONS:
            found.append(f"--{name}={value}")
        elif name != EXTSTORE_BYTES:
            extended += [name] if value is True else [] if value is False else [f"{name}={value}"]
    size = settings.get(EXTSTORE_BYTES)
    if size:
        extended.append(f"ext_path={path}:{int(size) // MIB}m")
    return [*found, *(["-o", ",".join(extended)] if extended else [])]


@functools.cache
def _installation(program: str) -> Installation:
    matched = programs.reported_version([program, "--version"], r"[0-9]+\.[0-9]+[.0-9]*", package="memcached")
    programs.require_version("memcached", matched[0], OLDEST, program=program, package="memcached")
    return Installation(version=matched[0], build=matched.string.strip(), programs={"memcached": program})


@functools.cache
def _check(program: str, settings: tuple[tuple[str, SettingValue], ...]) -> None:
    chosen = dict(settings)
    for name, value in settings:
        if "," in str(value) or "," in name:
            raise StudyError(
                f"the setting `{name}` of memcached cannot be `{value}`", hint="use a value without commas"
            )
    done = programs.call([program, *_arguments(chosen, "/nonexistent"), "--version"])
    if done.returncode == 0:
        return
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    shown = next((line for line in lines if "unrecognized" in line or "llegal" in line), lines[0] if lines else "")
    extstore = " (extstore is not compiled in)" if EXTSTORE_BYTES in chosen and "ext_" in shown else ""
    raise StudyError(
        f"memcached rejects a setting: {shown.removeprefix(program + ': ').removeprefix('memcached: ')}{extstore}",
        where="by the parameter `memcached`",
        hint="correct its name or value; `memcached --help` lists all settings by their long names",
    )
