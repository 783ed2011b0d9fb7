"""A database server that iosonde starts on a target, or that the user runs, as the engine's spec has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from iosonde import servers
from iosonde.errors import StudyError
from iosonde.servers.instance import DATABASE
from iosonde.workload.log_directory import check_reachable

if TYPE_CHECKING:
    from iosonde.protocol import spec
    from iosonde.storage import Target

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
    server.check_settings(server.locate(), whole.settings)
    check_reachable(server.accounts, target, whole.log_target if whole.log == "apart" else None)
    if whole.memory_limit:
        from iosonde.storage.control_groups import control_group

        control_group.hierarchy()
    # Only here: what a study would take can be stated without a second target.
    if whole.log == "apart" and whole.log_target is None:
        raise StudyError(
            "the log needs a second target, and none is named",
            where="by the parameter `log_target`",
            hint="name a directory on another device: `--set log_target=DIRECTORY`",
        )


def engine_server(whole: Any, target: Target) -> spec.SqlServer:
    """The server as the engine's spec has it; the socket's path is the one in the target's directory."""
    name = identity(whole)
    if whole.server_url:
        from iosonde.servers import foreign

        found = foreign.parse(whole.server_url)
        assert found.kind in ("postgresql", "mariadb"), "refused by the parameter"
        return {
            "kind": cast("servers.Name", found.kind),
            "address": cast("spec.SqlAddress", found.engine_address()),
            "user": found.user,
            "database": f"iosonde_{name}",
            "missing_database": "fail",
            "connect_timeout_ns": CONNECT_S * 10**9,
        }
    check_place(whole, target)
    own = Path(target.spec_target("per_job", 0)["directory"])
    server = servers.named(whole.server)
    socket = server.socket_path(own / f"{whole.server}-{name}" / "socket")
    return {
        "kind": whole.server,
        "address": {"kind": "unix", "path": str(socket)},
        "user": server.user,
        "database": DATABASE,
        "missing_database": "fail",
        "connect_timeout_ns": CONNECT_S * 10**9,
    }


def identity(whole: Any) -> str:
    """Eight digits that differ between databases whose loaded data differ."""
    at_creation = {name: value for name, value in whole.settings.items() if name in DECIDED_AT_CREATION}
    facts = json.dumps([whole.server, at_creation, whole.population()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:8]
