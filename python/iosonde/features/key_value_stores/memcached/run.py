"""The cache server of a run: started empty before it, filled by the engine, removed after it."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution.servers import RunningServer, ServerTools, removed_on_failure, started
from iosonde.execution.setups import ReadyTarget
from iosonde.features.key_value_stores.memcached.server import Memcached
from iosonde.features.key_value_stores.memcached.settings import server_settings
from iosonde.plan import Case, JsonObject, Run
from iosonde.servers.directories import Directories
from iosonde.servers.instance import Instance


def start(run: Run, case: Case, ready: ReadyTarget, tools: ServerTools) -> RunningServer:
    """The server of a run on `memcached`, ready for its load; `ServerError` if that fails."""
    server = Memcached()
    instance = _instance(server, run, case, ready.swap_bytes)
    instance.check = tools.check
    with removed_on_failure(instance):
        instance.provision()
        facts = started(instance)
        server.allocate(instance.place, instance.settings)
    return RunningServer(
        spec=_with_socket(run.spec, instance),
        server=server,
        facts=facts,
        connect=instance.connect,
        instance=instance,
        measure=tools.drive,
    )


def _instance(server: Memcached, run: Run, case: Case, swap_bytes: int) -> Instance:
    directory = Path(run.spec["workload"]["target"]["path"]).parent.parent
    return Instance.locate(
        server,
        Directories(own=directory.parent, name=directory.name),
        server_settings(case.parameters),
        case.parameters.get("memory_limit"),
        swap_bytes=swap_bytes,
    )


def _with_socket(spec: JsonObject, instance: Instance) -> JsonObject:
    """The spec with the socket that the server has: its path differs where that in the target is too long."""
    path = str(instance.server.socket_path(instance.directories.socket))
    workload = spec["workload"]
    return {**spec, "workload": {**workload, "target": {**workload["target"], "path": path}}}
