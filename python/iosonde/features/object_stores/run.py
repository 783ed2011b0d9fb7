"""The Ceph cluster of a run: created and started before it, removed after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iosonde.errors import ServerError
from iosonde.execution.context import RunContext, RunningServer
from iosonde.execution.servers import ServerStarter, removed_on_failure, started
from iosonde.features.object_stores.ceph import ClusterLayout, keyring_in
from iosonde.features.object_stores.ceph.cluster import CephCluster
from iosonde.features.object_stores.osd_outage import OsdOutage
from iosonde.features.object_stores.workload import ObjectsParameters
from iosonde.servers.directories import Directories
from iosonde.servers.server import Connection, ServerDescription


def start(context: RunContext) -> RunningServer:
    """The cluster of a run on objects, healthy and empty; `ServerError` if that fails."""
    cluster = _cluster(context)
    with removed_on_failure(cluster):
        cluster.provision()
        facts = started(cluster)
    return RunningServer(
        spec=context.run.spec,
        server=_Ceph(cluster),
        facts=facts,
        connect=_Unconnected,
        instance=cluster,
        companion=OsdOutage(cluster, context.parameters),
        # Else librados would prefer the keyring of a cluster of the user to that of the configuration.
        environment={"CEPH_KEYRING": str(keyring_in(cluster.data))},
    )


def _cluster(context: RunContext) -> CephCluster:
    directory = Path(context.workload["store"]["config_path"]).parents[1]
    layout = layout_of(context.case.parameters)
    layout = replace(layout, devices=context.target.osd_nodes()[: layout.osds])
    directories = Directories(own=directory.parent, name=directory.name)
    return CephCluster.locate(directories, layout, check=context.session.stop.check)


def layout_of(parameters: Mapping[str, Any]) -> ClusterLayout:
    """Composition of the cluster of a case; `ServerError` for values that no study may have."""
    names = ("osds", "replication", "placement_groups", "osd_size", "ceph")
    try:
        checked = ObjectsParameters.model_validate({name: parameters[name] for name in names})
    except (KeyError, ValidationError) as error:
        problem = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else f"no {error}"
        raise ServerError(
            f"the parameters of this case describe no cluster: {problem}",
            hint="the result set was edited, perhaps with intent; to measure here, run the study again",
            code="invalid_spec",
        ) from None
    return ClusterLayout(
        osds=checked.osds,
        replication=checked.replication,
        placement_groups=checked.placement_groups,
        osd_bytes=checked.osd_size,
        settings=checked.ceph,
    )


class _Ceph:
    """Observes a cluster, whose daemons are asked over their own sockets."""

    name = "ceph"
    title = "Ceph"

    def __init__(self, cluster: CephCluster) -> None:
        self._cluster = cluster

    def describe(self, connection: Connection) -> ServerDescription:
        """Version and effective settings of an object daemon."""
        found = self._cluster.describe()
        return ServerDescription(version=found["version"], settings=found["settings"], changed=found["changed"])

    def statistics(self, connection: Connection) -> dict[str, int]:
        """Counters of the object daemons, and CPU time."""
        return self._cluster.statistics()


class _Unconnected:
    """No connection: each reading of a daemon has one of its own."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Nothing."""
        return []

    def close(self) -> None:
        """Nothing."""


STARTERS = (ServerStarter("ceph", start),)
