"""An outage during a run: the server is stopped, or the path to it is cut, for a known time.

Use an open-loop load: arrivals continue, and the backlog is visible.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from iosonde.engine.protocol import Event
from iosonde.errors import IosondeError, TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.features.network_storage import link
from iosonde.features.network_storage.record import OutageReading
from iosonde.features.network_storage.setup import OUTAGE_LENGTH
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.results.schema import RecordWarning
from iosonde.storage.setups.file_systems import abort_calls, answers
from iosonde.storage.tools import require, require_root
from iosonde.units import format_duration, parse_duration


@dataclass(frozen=True)
class Interval:
    """Completed I/Os and the largest backlog of an interval of the measurement; times of the engine's clock."""

    begin_ns: int
    end_ns: int
    count: int
    backlog: int


def unavailability(
    intervals: Sequence[Interval], after_ns: int = 0, before_ns: int | None = None
) -> dict[str, int | None]:
    """Return the longest time without a completed I/O that ends after a time and begins before another one.

    As fields of an `OutageReading`; empty if every interval has one, or none follows. The default is any time.
    """
    longest: tuple[int, int] | None = None
    served = [place for place, each in enumerate(intervals) if each.count]
    for before, after in pairwise(served):
        is_other = intervals[after].end_ns <= after_ns or (
            before_ns is not None and intervals[before].begin_ns >= before_ns
        )
        if after - before > 1 and not is_other and (longest is None or after - before > longest[1] - longest[0]):
            longest = before, after
    if longest is None:
        return {}
    before, after = longest
    resolution = max(each.end_ns - each.begin_ns for each in intervals[before : after + 1])
    begin = (intervals[before].begin_ns + intervals[before].end_ns) // 2
    end = (intervals[after].begin_ns + intervals[after].end_ns) // 2
    usual = max(each.backlog for each in intervals[:before] or intervals[:1])
    backlog = max(each.backlog for each in intervals[before:])
    back = next((each for each in intervals[after:] if each.backlog <= usual), None)
    return {
        "unavailable_from_ns": begin,
        "unavailable_ns": end - begin,
        "resolution_ns": resolution,
        "backlog_max": backlog,
        "caught_up_ns": max(0, back.end_ns - end) if back and backlog > usual else None,
    }


HUNG_S = 120.0
"""Time without progress of the engine after which calls to a server that does not answer are aborted."""
ABORT_EVERY_S = 10.0


class Outage(Instrument):
    """Makes the server unavailable during a run with the parameter `outage`, and finds out how long it was."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return (context.parameters.get("outage") or "off") != "off"

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._kind = context.parameters["outage"]
        self._after_s = _seconds(context, "outage_after", "5s")
        self._length_s = _seconds(context, "outage_length", OUTAGE_LENGTH)
        self._stoppable: link.Link | nfs.NfsMount | nvme_tcp.Fabric | None = None
        self._thread: threading.Thread | None = None
        self._cancel = threading.Event()
        self._times: list[int] = []
        """Real time at which the outage began and ended, in nanoseconds."""
        self._problem = ""
        self._is_cut_short = False
        """True if the run ended first."""
        self._intervals: list[Interval] = []

    def start(self) -> None:
        """Find out what can be stopped."""
        if self._kind == "watch":
            return
        try:
            self._stoppable = self._found()
        except TargetError as error:
            raise NotStartedError("outage", error) from error

    def event(self, event: Event) -> None:
        """Keep the intervals; the first one of the measurement, which is over by now, starts the clock."""
        if event["event"] != "interval" or event["phase"] != "measure":
            return
        self._intervals.append(_interval(event))
        if self._stoppable and self._thread is None:
            past_s = (event["end_ns"] - event["begin_ns"]) / 1e9
            self._thread = threading.Thread(target=self._carry_out, args=(self._after_s - past_s,), daemon=True)
            self._thread.start()

    def stop(self, done: EngineRun) -> Reading:
        """Return the outage and what the load saw of it."""
        self._ended()
        zero = int(done.hello.get("realtime_ns", 0))
        began_ns = self._times[0] - zero if self._times else None
        ended_ns = self._times[1] - zero if len(self._times) > 1 else None
        if ended_ns is not None and ended_ns > max((each.end_ns for each in self._intervals if each.count), default=0):
            self._is_cut_short = True  # The engine verifies data after the measurement, where storage may return.
        seen: dict[str, int | None] = {}
        if self._kind == "watch":
            seen = unavailability(self._intervals)
        elif began_ns is not None and not self._is_cut_short:
            seen = unavailability(self._intervals, began_ns, ended_ns)
        part = OutageReading(
            kind=self._kind,
            requested_ns=round(self._length_s * 1e9),
            began_ns=began_ns,
            ended_ns=ended_ns,
            **seen,
        )
        return Reading(parts=[part], warnings=self._warnings())

    def close(self) -> None:
        """End an outage that continues, also after a run that failed."""
        self._ended()

    def _found(self) -> link.Link | nfs.NfsMount | nvme_tcp.Fabric:
        building = self.context.building
        if self._kind == "link":
            require_root("cut the path to a server")
            require("ip", "cut the path to a server")
            address = link.address_of(self.context.target.describe())
            return link.Link(address, self.context.session.plan.created_name)
        fabric = building.layer(nvme_tcp.Fabric) if building else None
        mount = building.layer(nfs.NfsMount) if building else None
        if mount is not None and mount.is_exported:
            nfs.check_alone(mount.own)
            return mount
        if fabric is not None:
            return fabric
        raise TargetError(
            "no server of iosonde is below this target",
            where='by the parameter `outage = "server"`',
            hint='use `outage = "link"` to cut the route to the server, or `fabric = "nvme-tcp"` or '
            '`file_system = "nfs"` on a device of this machine',
        )

    def _carry_out(self, after_s: float) -> None:
        assert self._stoppable
        if self._cancel.wait(max(0.0, after_s)):
            return
        began_ns = time.time_ns()
        try:
            self._stoppable.stop_server()
            self._times.append(began_ns)
            self._is_cut_short = self._cancel.wait(self._length_s)
            self._stoppable.start_server()
            self._times.append(time.time_ns())
        except (OSError, IosondeError) as error:
            self._problem = str(error)

    def _ended(self) -> None:
        self._cancel.set()
        if self._thread is not None:
            self._thread.join()

    def _warnings(self) -> list[RecordWarning]:
        is_missed = self._stoppable is not None and (not self._times or self._is_cut_short)
        problem = self._problem or ("the measurement ended first" if is_missed else "")
        if not problem:
            return []
        asked = format_duration(self._length_s * 1e9)
        return [
            RecordWarning(
                code="outage_failed",
                message=f"the outage of {asked} was not carried out as requested: {problem}",
                hint="`iosonde cleanup` restores the rest"
                if self._problem
                else "make `duration` longer than `outage_after` and `outage_length`",
            )
        ]


class HungMount(Instrument):
    """Aborts calls of a mount that iosonde made when the engine waits for a server that does not come back."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return context.building is not None and context.building.layer(nfs.NfsMount) is not None

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._over = threading.Event()
        self._last_s = time.monotonic()
        self._bytes = 0
        self._is_aborted = False

    def engine_started(self, pid: int) -> None:
        """Watch it."""
        self._last_s = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def event(self, event: Event) -> None:
        """Note progress: phases before and after the load report their bytes each second, also while they wait."""
        if event["event"] == "interval":
            if not any(done["count"] for stream in event["streams"] for done in stream["operations"]):
                return
        elif event["event"] == "phase" and event["edge"] == "progress":
            if event["bytes"] == self._bytes:
                return
            self._bytes = event["bytes"]
        self._last_s = time.monotonic()

    def stop(self, done: EngineRun) -> Reading:
        """State that calls were aborted."""
        self._over.set()
        if not self._is_aborted:
            return Reading()
        warning = RecordWarning(
            code="hung_mount",
            message=f"the server did not answer for {HUNG_S:.0f} s; I/O in flight was aborted",
            hint="check the server and the network, then continue with `iosonde resume DIR`",
        )
        return Reading(warnings=[warning])

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        building = self.context.building
        assert building
        while not self._over.wait(ABORT_EVERY_S):
            point = building.target.point
            if time.monotonic() - self._last_s > HUNG_S and not answers(point):
                self._is_aborted |= abort_calls(point)


def _interval(event: Event) -> Interval:
    streams = event["streams"]
    done = [operation for stream in streams for operation in stream["operations"]]
    count = sum(each["count"] for each in done if each["operation"] in ("read", "write"))
    return Interval(event["begin_ns"], event["end_ns"], count, sum(stream["backlog_max"] for stream in streams))


def _seconds(context: RunContext, name: str, default: str) -> float:
    return parse_duration(context.parameters.get(name) or default) / 1e9
