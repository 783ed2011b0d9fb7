"""A database or bucket on a server that the user runs: created for a study, in the journal, and dropped at its end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.errors import ServerError
from iosonde.servers.server import Connection, DatabaseHost
from iosonde.servers.url import ServerUrl, kinds, parse
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import DATABASE_ON_SERVER, DATABASES, Entry

if TYPE_CHECKING:
    from iosonde.plan import Case, JsonObject, Plan

RESTART_S = 15.0
POLL_S = 0.1

DATABASE_NAME = re.compile(r"iosonde[_-][0-9a-f]{8}")
"""Names of buckets have a hyphen."""


def require_consent(plan: Plan, confirmed: Sequence[str]) -> None:
    """Raise `ServerError` unless the user has named every database that the plan creates on a server of theirs.

    Also where a spec names another server than its case does: the plan of a result set may have been edited.
    """
    missing: dict[str, list[str]] = {}
    for case in plan.cases:
        url = case.parameters.get("server_url")
        for spec in _specs_of(plan, case) if url else ():
            name = _name_of(spec, str(url), case)
            of_server = missing.setdefault(str(url), [])
            if name not in confirmed and name not in of_server:
                of_server.append(name)
    if any(missing.values()):
        creations = (
            f"the {noun_of(url)}{'s' * (len(names) > 1)} {', '.join(f'`{name}`' for name in names)} "
            f"would be created on `{url}`"
            for url, names in missing.items()
            if names
        )
        options = (f"--confirm {name}" for names in missing.values() for name in names)
        raise ServerError(
            f"{' and '.join(creations)}, and dropped at the end",
            hint=f"allow that with `{' '.join(options)}`",
            code="consent",
        )


def require_servers(plan: Plan, given: Sequence[str]) -> None:
    """Raise `ServerError` unless the user has named every server of a plan: passwords are sent to it.

    For a plan that exists already: its addresses may have been edited.
    """
    named = {parse(each).text for each in given}
    for case in plan.cases:
        url = str(case.parameters.get("server_url") or "")
        if url and parse(url).text not in named:
            raise ServerError(
                f"the command must name the server of the result set, `{url}`",
                where=f"in case `{case.case_id}`",
                hint="repeat the option `--server` of `iosonde run`; if the address is not yours, the result set may "
                "have been tampered with",
                code="consent",
            )


def noun_of(url: str) -> str:
    """Return the word for the container on a server: `database`, `keyspace` or `bucket`."""
    return kinds()[parse(url).kind].noun


def _name_of(spec: JsonObject, text: str, case: Case) -> str:
    """Name of the database in a spec; `ServerError` unless the spec is on that server."""
    try:
        url, workload = parse(text), spec["workload"]
        kind = kinds()[url.kind]
        is_right, name = kind.is_used(url, workload, case.parameters), kind.database_of(workload)
    except (KeyError, TypeError, ValueError):
        is_right, name = False, ""
    if not is_right or not DATABASE_NAME.fullmatch(name):
        raise ServerError(
            "the plan names a server or database that does not belong to this result set; nothing was written",
            where=f"in case `{case.case_id}`, whose server is `{text}`",
            hint="the result set may have been tampered with; to measure here, run the study again",
        )
    return name


def _specs_of(plan: Plan, case: Case) -> Iterator[JsonObject]:
    yield from (run.spec for run in plan.runs if run.case_id == case.case_id)
    if case.procedure:
        yield case.procedure.spec


def create(
    host: DatabaseHost, url: ServerUrl, database: str, *, own: str, client: Mapping[str, str] | None = None
) -> None:
    """Create it unless this session has; `ServerError` (`foreign_data`) if it exists otherwise.

    That of a session that was killed is dropped first, by its entry in the journal.
    `client` has the options of the client (`ServerKind.client_options`) that dropping it needs as well.
    """
    entry = journal.find(DATABASES / database)
    if entry and entry.is_mine:
        return
    journal.undo_abandoned(DATABASES / database)
    connection = host.connect(url.address())
    try:
        facts = {"url": url.text, "database": database, "own": own, **(client or {})}
        journal.created(DATABASES / database, DATABASE_ON_SERVER, facts=facts)
        try:
            host.create_database(connection, database)
        except ServerError:
            journal.removed(DATABASES / database)
            raise
    finally:
        connection.close()


def drop_all(own: str) -> None:
    """Drop the databases of a session."""
    for entry in journal.entries():
        if entry.what == DATABASE_ON_SERVER and entry.is_mine and entry.facts.get("own") == own:
            noun = noun_of(str(entry.facts["url"]))
            with journal.undoing(f"drop the {noun} `{entry.facts['database']}`"):
                journal.undo(Path(entry.path))


def _connect(host: DatabaseHost, url: ServerUrl) -> Connection:
    """Connect, and wait for a server that its user has just restarted."""
    deadline = time.monotonic() + RESTART_S
    while True:
        try:
            return host.connect(url.address())
        except ServerError as error:
            if error.code == "authentication" or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def undo(entry: Entry) -> None:
    """Drop the database of an entry; `OSError` if the server cannot be reached, not even after a restart."""
    try:
        url = parse(str(entry.facts["url"]))
    except ValueError as error:
        raise OSError(str(error)) from error
    host = kinds()[url.kind].host(entry.facts)
    try:
        connection = _connect(host, url)
        try:
            host.drop_database(connection, str(entry.facts["database"]))
        finally:
            connection.close()
    except ServerError as error:
        raise OSError(_why_not_dropped(error, url, str(entry.facts["database"]))) from error


def _why_not_dropped(error: ServerError, url: ServerUrl, database: str) -> str:
    """The reason, what to do, and where the database is: `cleanup` may run long after the session."""
    where = "" if url.text in error.what else f" (the {noun_of(url.text)} `{database}` on `{url.text}`)"
    return f"{error.what}{where}; {error.hint}" if error.hint else f"{error.what}{where}"
