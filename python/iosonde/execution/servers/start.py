"""Steps that starting a server for a run consists of: restoring or loading its database, starting it, removing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from iosonde.errors import ServerError
from iosonde.execution.engine import EngineRun
from iosonde.execution.servers.running_server import ManagedServer, ServerTools
from iosonde.plan import JsonObject
from iosonde.servers.instance import DATABASE, Instance


@contextmanager
def removed_on_failure(server: ManagedServer) -> Iterator[None]:
    """Remove a server with its data if the block fails."""
    try:
        yield
    except BaseException:
        server.remove()
        raise


def started(server: ManagedServer) -> dict[str, Any]:
    """Start a server, and wait until it is ready; the time for the record."""
    began = time.monotonic()
    server.start()
    return {"start_seconds": round(time.monotonic() - began, 3)}


def restored(instance: Instance, load: Callable[[], None]) -> dict[str, Any]:
    """Restore the database from its template, which is loaded first if there is none; facts for the record."""
    is_missing = not instance.template.is_complete
    if is_missing:
        load()
    copied = instance.restore()
    return {"loaded_for_this_run": is_missing, "restored": copied, "template": instance.template.facts}


def create_database(instance: Instance) -> None:
    """Create the database of a started server."""
    with closing(instance.connect()) as connection:
        instance.database_server.create_database(connection, DATABASE)


def load_template(
    instance: Instance,
    spec: JsonObject | None,
    tools: ServerTools,
    *,
    what: str,
    result: Callable[[EngineRun | None], dict[str, Any]] = lambda done: {},
) -> None:
    """Load a database with a server of its own and the engine, if there is a spec, and keep it as the template.

    `what` is a clause for errors (`records were loaded`), and `result` what the template's facts have of the load.
    """
    began, done = time.monotonic(), None
    try:
        instance.provision()
        instance.start()
        create_database(instance)
        if spec:
            done = tools.drive(spec, environment=instance.environment)
            _require_loaded(done, instance, what)
        with closing(instance.connect(DATABASE)) as connection:
            instance.database_server.finish_load(connection, tools.check)
        instance.stop_after_load()
        instance.keep_as_template({"seconds": round(time.monotonic() - began, 3), **result(done)})
    finally:
        instance.remove()


def _require_loaded(done: EngineRun, instance: Instance, what: str) -> None:
    """`ServerError` unless the engine loaded `what` (`records were loaded`), with the server's cause if it has one.

    A stop may have ended the load early, without a failure.
    """
    instance.check()
    if done.failure is None:
        return
    cause = instance.failure(f"failed while {what}")
    if cause.code in ("no_space", "out_of_memory"):
        raise cause
    failure = done.failure
    raise ServerError(failure.message, where=failure.context, hint=failure.hint, code=failure.code)
