"""A database on a server that the user runs: created for a study, in the journal, and dropped at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde import servers
from iosonde.errors import ServerError
from iosonde.servers.server import Server
from iosonde.servers.url import ServerUrl, parse
from iosonde.storage import journal
from iosonde.storage.journal_entry import DATABASE_ON_SERVER, Entry

if TYPE_CHECKING:
    from iosonde.plan import Plan

JOURNAL = Path("/run/iosonde/databases")
"""Entries of the journal have paths: that of a database is below this directory, which need not exist."""


def require_consent(plan: Plan, confirmed: Sequence[str]) -> None:
    """Raise `ServerError` unless the user has named every database that the plan creates on a server of theirs."""
    for case in plan.cases:
        url = case.parameters.get("server_url")
        for run in plan.runs if url else ():
            name = run.spec["workload"]["server"]["database"]
            if run.case_id == case.case_id and name not in confirmed:
                raise ServerError(
                    f"the database `{name}` would be created on `{url}`, and dropped at the end",
                    where=f"for case `{case.case_id}`",
                    hint=f"allow that with `--confirm {name}`",
                    code="consent",
                )


def create(server: Server, url: ServerUrl, database: str, *, own: str) -> None:
    """Create it unless this session has; `ServerError` (`foreign_data`) if somebody else did."""
    entry = journal.find(JOURNAL / database)
    if entry and entry.is_mine:
        return
    connection = server.connect(url.address())
    try:
        journal.created(
            JOURNAL / database, DATABASE_ON_SERVER, facts={"url": url.text, "database": database, "own": own}
        )
        try:
            server.create_database(connection, database)
        except ServerError:
            journal.removed(JOURNAL / database)
            raise
    finally:
        connection.close()


def drop_all(own: str) -> None:
    """Drop the databases of a session."""
    for entry in journal.entries():
        if entry.what == DATABASE_ON_SERVER and entry.is_mine and entry.facts.get("own") == own:
            with journal.undoing(f"drop the database `{entry.facts['database']}`"):
                journal.undo(Path(entry.path))


def undo(entry: Entry) -> None:
    """Drop the database of an entry; `OSError` if the server cannot be reached."""
    url = parse(str(entry.facts["url"]))
    server = servers.named(url.kind)
    try:
        connection = server.connect(url.address())
        try:
            server.drop_database(connection, str(entry.facts["database"]))
        finally:
            connection.close()
    except ServerError as error:
        raise OSError(f"{error.what}") from error
