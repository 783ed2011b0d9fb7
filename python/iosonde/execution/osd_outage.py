"""The outage of one object daemon during a run: killed and started again at set times, and how long recovery took.

The times are checked when the engine reports an interval, so they are exact to the length of an interval. The daemon is
started by the thread that started the others: the kernel kills a server when that thread ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from iosonde.errors import ServerError
from iosonde.protocol.event import Event
from iosonde.servers.ceph_cluster import CephCluster

RECOVERY_S = 600.0


class OsdOutage:
    """Kills and restarts the last object daemon of a cluster."""

    def __init__(self, cluster: CephCluster, parameters: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._name = cluster.osd_names[-1]
        self._stop_ns: int | None = parameters.get("stop_osd_after")
        self._restart_ns: int | None = parameters.get("restart_osd_after")
        self._begin: float | None = None
        self._begin_ns = 0
        """The same on the engine's clock, which decides when something is due."""
        self._stopped_s: float | None = None
        self._restarted_s: float | None = None

    def event(self, event: Event) -> None:
        """Kill or start the daemon if its time has come."""
        if self._stop_ns is None or event["event"] != "interval" or event["phase"] != "measure":
            return
        if self._begin is None:
            self._begin = time.monotonic() - (event["end_ns"] - event["begin_ns"]) / 1e9
            self._begin_ns = event["begin_ns"]
        elapsed_ns = event["end_ns"] - self._begin_ns
        if self._stopped_s is None and elapsed_ns >= self._stop_ns:
            self._cluster.stop_osd(self._name)
            self._stopped_s = time.monotonic() - self._begin
        elif self._stopped_s is not None and self._restart_ns is not None and elapsed_ns >= self._restart_ns:
            self._restart()

    def finish(self) -> dict[str, Any]:
        """For the record, after waiting for recovery; empty if no daemon was stopped."""
        if self._stopped_s is None:
            return {}
        facts: dict[str, Any] = {"daemon": self._name, "stopped_seconds": round(self._stopped_s, 3)}
        try:
            self._restart()
            assert self._begin is not None and self._restarted_s is not None
            facts["restarted_seconds"] = round(self._restarted_s, 3)
            self._cluster.wait_until_active(self._name)
            self._cluster.wait_until_clean(RECOVERY_S)
        except ServerError as error:
            return facts | {"error": error.what, "where": error.where}
        return facts | {"recovery_seconds": round(time.monotonic() - self._begin - self._restarted_s, 3)}

    def _restart(self) -> None:
        if self._restarted_s is None and self._begin is not None:
            self._restarted_s = time.monotonic() - self._begin
            self._cluster.start_osd(self._name)
