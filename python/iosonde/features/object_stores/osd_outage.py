"""The outage of one object daemon during a run: killed and started again at set times, and how long recovery took.

The times are checked when the engine reports an interval, so they are exact to the length of an interval. The daemon is
started by the thread that started the others: the kernel kills a server when that thread ends. Another thread waits for
recovery, which may end during the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event as Flag
from threading import Thread
from typing import Any

from iosonde.errors import ServerError, TargetError
from iosonde.features.object_stores.ceph.cluster import CephCluster
from iosonde.protocol import Event
from iosonde.results.schema import RecordWarning

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
