"""The Ceph cluster of a run: created and started before it, removed after it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from pydantic import ValidationError

from iosonde.engine.protocol import Event
from iosonde.errors import ServerError, TargetError
from iosonde.execution.context import RunContext, RunningServer
from iosonde.execution.servers import ServerStarter, removed_on_failure, started
from iosonde.features.object_stores.ceph import ClusterLayout, keyring_in
from iosonde.features.object_stores.ceph.cluster import CephCluster
from iosonde.features.object_stores.workload import ObjectsParameters
from iosonde.results.schema import RecordWarning
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Connection

RECOVERY_S = 600.0
POLL_S = 2.0
"""Between readings of the states of placement groups: each starts the program `ceph`, which needs CPU time."""


class OsdOutage:
    """Kills and restarts the last object daemon of a cluster."""

    def __init__(self, cluster: CephCluster, parameters: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._name = cluster.osd_names[-1]
        self._stop_ns: int | None = parameters.get("stop_osd_after")
        self._restart_ns: int | None = parameters.get("restart_osd_after")
        self._start = 0.0
        self._start_ns: int | None = None
        """The same on the engine's clock, which decides when something is due; None before the measurement."""
        self._stopped_s: float | None = None
        self._restarted_s: float | None = None
        self._recovered_s: float | None = None
        self._error: TargetError | None = None
        self._waiting: Thread | None = None
        self._is_abandoned = Flag()

    def event(self, event: Event) -> None:
        """Kill or start the daemon if its time has come; an error is kept for the record."""
        if self._stop_ns is None or event["event"] != "interval" or event["phase"] != "measure":
            return
        if self._start_ns is None:
            self._start = time.monotonic() - (event["end_ns"] - event["begin_ns"]) / 1e9
            self._start_ns = event["begin_ns"]
        elapsed_ns = event["end_ns"] - self._start_ns
        if self._stopped_s is None and elapsed_ns >= self._stop_ns:
            self._stop()
        elif self._stopped_s is not None and self._restart_ns is not None and elapsed_ns >= self._restart_ns:
            self._restart()

    def finish(self, *, engine_failed: bool) -> tuple[dict[str, Any], list[RecordWarning]]:
        """Facts and warnings after waiting for recovery, and about daemons that have ended."""
        outage = self.waited(engine_failed=engine_failed)
        ended = [_ended(name) for name in self._cluster.ended_daemons()]
        return ({"osd_outage": outage} if outage else {}), [*not_recovered(outage), *ended]

    def waited(self, *, engine_failed: bool) -> dict[str, Any]:
        """For the record, after waiting for recovery; empty if no daemon was stopped.

        After a failure of the engine, and once a stop is requested, the daemon is not started and recovery not awaited.
        """
        if engine_failed:
            self._is_abandoned.set()
        if self._stopped_s is None:
            return {}
        self._restart()
        if self._waiting:
            self._waiting.join()
        facts: dict[str, Any] = {"daemon": self._name, "stopped_seconds": round(self._stopped_s, 3)}
        if self._restarted_s is not None:
            facts["restarted_seconds"] = round(self._restarted_s, 3)
        if self._error:  # Also of a device that another program has claimed.
            return facts | {"error": self._error.what, "where": self._error.where}
        assert self._recovered_s is not None and self._restarted_s is not None
        return facts | {"recovery_seconds": round(self._recovered_s - self._restarted_s, 3)}

    def close(self) -> None:
        """Stop waiting for recovery; may be called again."""
        self._is_abandoned.set()
        if self._waiting:
            self._waiting.join()

    def _stop(self) -> None:
        try:
            self._cluster.stop_osd(self._name)
        except TargetError as error:
            self._error = error
        self._stopped_s = self._elapsed_s()

    def _restart(self) -> None:
        """Start the daemon, unless that was done or something has failed, and wait for recovery in a thread."""
        if self._restarted_s is not None or self._error:
            return
        try:
            self._check()
            self._cluster.check()
            self._restarted_s = self._elapsed_s()
            self._cluster.start_osd(self._name)
        except TargetError as error:
            self._error = error
            return
        self._waiting = Thread(target=self._wait, daemon=True)
        self._waiting.start()

    def _wait(self) -> None:
        try:
            self._cluster.wait_until_active(self._name, check=self._check)
            self._cluster.wait_until_clean(RECOVERY_S, poll_s=POLL_S, check=self._check)
            self._recovered_s = self._elapsed_s()
        except TargetError as error:
            self._error = error

    def _check(self) -> None:
        if self._is_abandoned.is_set():
            raise ServerError("recovery was not awaited because the run failed", code="stopped")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._start


def _ended(name: str) -> RecordWarning:
    return RecordWarning(
        code="daemon_ended",
        message=f"`{name}` of the Ceph cluster ended during the run",
        hint="part of the measurement is that of a degraded cluster; see the kernel log and the memory of the machine",
    )


def not_recovered(outage: Mapping[str, Any]) -> list[RecordWarning]:
    """Return a warning if the daemon was not started again, or recovery not complete."""
    if "error" not in outage:
        return []
    cause = ": ".join(filter(None, (outage["error"], outage["where"])))
    return [
        RecordWarning(
            code="osd_not_recovered",
            message=f"the cluster did not recover from the outage of `{outage['daemon']}`: {cause}",
            hint="the run has no recovery time, and the cluster was degraded from the outage on",
        )
    ]


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

    def describe(self, connection: Connection) -> dict[str, Any]:
        """Version and effective settings of an object daemon."""
        found = self._cluster.describe()
        return {name: found[name] for name in ("version", "settings", "changed")}

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
