"""A private database server on a TCP port: its user `bench` has no password, its empty database is `tpcc`."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from iosonde import servers
from iosonde.servers.directories import Directories
from iosonde.servers.instance import Instance
from iosonde.servers.server import Address, Installation, Place, Server, Settings
from iosonde.storage.safety import journal

SETTINGS: dict[str, Settings] = {
    "postgresql": {"shared_buffers": "1GB", "max_connections": 100, "max_wal_size": "8GB", "synchronous_commit": "off"},
    "mariadb": {
        "innodb_buffer_pool_size": "1G",
        "innodb_log_file_size": "1G",
        "innodb_flush_log_at_trx_commit": 2,
        "max_connections": 100,
    },
}
"""The database fits into memory and commits do not wait for the device, so that the server's CPU time is the limit."""

ACCOUNTS = {
    "postgresql": ["CREATE USER bench SUPERUSER"],
    "mariadb": ["CREATE USER bench", "GRANT ALL ON *.* TO bench"],
}
OPTIONS = {
    "postgresql": ["-c", "listen_addresses=127.0.0.1", "-c", "port={port}"],
    "mariadb": ["--skip-networking=0", "--bind-address=127.0.0.1", "--port={port}"],
}


@contextmanager
def tcp_server(kind: str, directory: Path) -> Iterator[tuple[Instance, int]]:
    """The server and its port; its data are in a new directory below `directory`, which the server's user can enter."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = _on_port(servers.named(kind), port)
    with tempfile.TemporaryDirectory(prefix="iosonde-bench-", dir=directory) as name:
        place = Path(name)
        place.chmod(0o711)
        directories = Directories(
            own=place / "iosonde-00000000", name=f"{kind}-00000000", template_name="template-00000000"
        )
        instance = Instance.locate(server, directories, SETTINGS[kind], None)
        try:
            instance.provision()
            instance.start()
            connection = instance.connect()
            for statement in ACCOUNTS[kind]:
                connection.rows(statement)
            instance.database_server.create_database(connection, "tpcc")
            connection.close()
            yield instance, port
        finally:
            instance.remove()
            journal.remove(directories.own)


def _on_port(server: Server, port: int) -> Server:
    """The same server, which also listens on 127.0.0.1."""
    base = type(server)

    class OnPort(base):  # type: ignore[misc, valid-type]
        name: ClassVar[str] = server.name

        def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
            """With networking."""
            options = [each.format(port=port) for each in OPTIONS[server.name]]
            return [*super().command(installation, place, settings), *options]

        def address(self, place: Place, database: str = "") -> Address:
            """PostgreSQL's socket is named after the port."""
            found = super().address(place, database)
            return replace(found, port=port) if server.name == "postgresql" else found

    return OnPort()
