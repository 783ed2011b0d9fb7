"""Servers that iosonde starts privately for a measurement, and databases on servers that the user runs.

`postgresql.py` and `mariadb.py` are here because several workloads run on them; other servers are in their features.
All have the interface `server.Server`. `server.Instance` is the life of one, in `directories.py`, with the processes of
`programs.py`; `foreign.py` has what differs for a server of the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from iosonde.study.servers.server import SqlServer

Name = Literal["postgresql", "mariadb"]

NAMES: tuple[Name, ...] = get_args(Name)


def named(name: str) -> SqlServer:
    """The database server with SQL of that name."""
    from iosonde.study.servers.mariadb import MariaDb
    from iosonde.study.servers.postgresql import PostgreSql

    known: dict[str, type[SqlServer]] = {"postgresql": PostgreSql, "mariadb": MariaDb}
    return known[name]()
