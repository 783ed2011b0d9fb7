"""Servers on which workloads run: their settings in a study, their directories, and a database server in a spec."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from iosonde.errors import StudyError, TargetError
from iosonde.plan import JsonObject
from iosonde.study import servers
from iosonde.study.servers.foreign import ServerUrl, parse
from iosonde.study.servers.server import DATABASE, Server

if TYPE_CHECKING:
    from iosonde.storage import Target


def open_directory(
    name: str, *, parameter: str = "log_target", hint: str = "name a directory of a file system on the second device"
) -> Target:
    """The target, mostly on a second device, that a parameter names, which must be a directory."""
    from iosonde.storage import open_target

    target = open_target(name)
    if target.kind != "directory":
        raise TargetError(
            f"`{name}` is not a directory",
            where=f"by the parameter `{parameter}`",
            hint=hint,
        )
    return target


def check_reachable(accounts: Sequence[str], target: Target, log_target: str | None = None) -> None:
    """Raise `ServerError` unless the user of a server, the first of `accounts` that exists, can reach its directories.

    They are iosonde's own on the target and, if there is one, on that of the log, and need not exist yet.
    """
    from iosonde.study.servers.directories import check_reachable

    own = Path(target.spec_target("per_job", 0)["directory"])
    check_reachable(own, accounts)
    if log_target:
        check_reachable(Path(open_directory(log_target).name, own.name), accounts)


def check_server(server: Server, settings: Mapping[str, Any], target: Target, log_target: str | None = None) -> None:
    """Raise unless a server can be started on the target with these settings. Nothing is written."""
    server.check_settings(server.locate(), settings)
    check_reachable(server.accounts, target, log_target)


def require_log_target(whole: Any) -> None:
    """Raise unless the second target of a separate log is named.

    Only when a run is prepared: what a study takes can be stated without it.
    """
    if whole.log == "apart" and whole.log_target is None:
        raise StudyError(
            "the log needs a second target, and none is named",
            where="by the parameter `log_target`",
            hint="name a directory on another device: `--set log_target=DIRECTORY`",
        )


def url_of(*kinds: str, what: str) -> BeforeValidator:
    """The address of a running server of some kinds, as it is recorded, or none; `what` describes them in an error."""

    def parse_url(value: Any) -> str | None:
        if value in (None, "", "none"):
            return None
        found = parse(str(value))
        if found.kind not in kinds:
            raise ValueError(f"`{found.text}` is not an address of {what}")
        return found.text

    return BeforeValidator(parse_url)


def running_server(url: str | None, *, what: str, example: str) -> ServerUrl:
    """The running server that a study must name; `what` is the store that requires it."""
    if url is None:
        raise StudyError(
            f"the {what} requires a running server, and none is named",
            where="by the parameter `server_url`",
            hint=f"name it with `--server {example}`",
        )
    return parse(url)


SettingValue = bool | int | float | str
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def parse_settings(value: Any) -> dict[str, SettingValue]:
    """A table of settings by the server's own names and units, or text as `shared_buffers=1GB;fsync=on`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError(f"`{value}` are not settings; write them like `shared_buffers=1GB;fsync=on`")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError('settings are a table of the server\'s own names, such as `{ shared_buffers = "1GB" }`')
    for name, given in value.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(given, (bool, int, float, str)):
            raise ValueError(f"the setting `{name}` cannot be `{given}`; it is true, false, a number or a text")
    return dict(value)


Settings = Annotated[dict[str, SettingValue], BeforeValidator(parse_settings)]


EMPTY_BYTES = 160 << 20
"""A data directory without tables, including its first log files."""

CONNECT_S = 30
"""Timeout, in seconds, of the engine's connection attempts while the server is starting."""

DECIDED_AT_CREATION = ("wal_segment_size", "innodb_page_size", "innodb_checksum_algorithm", "innodb_data_file_path")
"""Settings that belong to a data directory: others do not need a template of their own."""


def check_place(whole: Any, target: Target) -> None:
    """Raise unless a server can be started on the target with these settings. Nothing is written."""
    target.require_directory("a database server needs a file system", parameter="server")
    server = servers.named(whole.server)
    check_server(server, whole.settings, target, whole.log_target if whole.log == "apart" else None)
    if whole.memory_limit:
        from iosonde.storage import control_groups

        control_groups.hierarchy()
    require_log_target(whole)


def engine_server(whole: Any, target: Target) -> JsonObject:
    """The server as the engine's spec has it; the socket's path is the one in the target's directory."""
    name, kind, database = identity(whole), whole.server, DATABASE
    if whole.server_url:
        found = parse(whole.server_url)
        assert found.kind in ("postgresql", "mariadb"), "refused by the parameter"
        kind, address, user, database = found.kind, found.engine_address(), found.user, f"iosonde_{name}"
    else:
        check_place(whole, target)
        own = Path(target.spec_target("per_job", 0)["directory"])
        server = servers.named(kind)
        address = {"kind": "unix", "path": str(server.socket_path(own / f"{kind}-{name}" / "socket"))}
        user = server.user
    return {
        "kind": kind,
        "address": address,
        "user": user,
        "database": database,
        "missing_database": "fail",
        "connect_timeout_ns": CONNECT_S * 10**9,
    }


def identity(whole: Any) -> str:
    """Eight digits that differ between databases whose loaded data differ."""
    at_creation = {name: value for name, value in whole.settings.items() if name in DECIDED_AT_CREATION}
    facts = json.dumps([whole.server, at_creation, whole.population()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:8]
