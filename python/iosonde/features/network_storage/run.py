"""Counters of the transport over a run, and probes of the network while it lasts.

A sample is taken when the measurement starts and at the end of each interval. This process may read an event late, so
each sample has its own time, and is compared with what the load had completed at that time (`load.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from iosonde.base.check import OTHER_KERNEL, Check
from iosonde.engine.protocol import Event
from iosonde.engine.supervisor.account import nfs_server_counters
from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.counters import CounterSampler
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.network_storage import link, tcp, transport
from iosonde.features.network_storage.load import LoadProgress, block_bytes
from iosonde.features.network_storage.outage import HungMount, Outage
from iosonde.features.network_storage.probe import Probe, RoundTrip
from iosonde.features.network_storage.record import STATISTICS, NetworkReading
from iosonde.features.network_storage.setup import OUTAGE_LENGTH
from iosonde.features.network_storage.setups import nvme_tcp
from iosonde.features.network_storage.storage import ServerExport
from iosonde.plan import Case, Destroys
from iosonde.storage.tools import state_of
from iosonde.units import format_duration, parse_duration

if TYPE_CHECKING:
    from iosonde.storage import Target


def _requirements(case: Case, place: Target) -> Iterator[Destroys]:
    """Yield the route that is cut; `TargetError` for an outage of a server that the target does not have."""
    outage = case.parameters.get("outage")
    has_own = case.setup is not None and any(layer.has_server for layer in case.setup.layers)
    if outage == "server" and not has_own:
        raise _no_server_of_iosonde(place)
    if outage == "link":
        export = getattr(place, "provider", None)
        if isinstance(export, ServerExport):
            server = export.server
        else:
            server = link.address_of({} if has_own else place.describe())
        yield _cut(server, format_duration(parse_duration(case.parameters.get("outage_length") or OUTAGE_LENGTH)))


def _cut(server: str, length: str) -> Destroys:
    what = (
        f"unreachable from this machine for {length} in each run with this outage (blackhole route): all connections "
        "to it stop, your own mounts and SSH sessions included"
    )
    if link.is_ssh_client(server):
        what += f"; your SSH session comes from it and will hang for {length}"
    return Destroys(path=server, what=what)


def _no_server_of_iosonde(place: Target) -> TargetError:
    address = ""
    with suppress(TargetError):
        address = link.address_of(place.describe())
    return TargetError(
        f"the server of `{place.name}` ({address}) is not one of iosonde, which cannot stop it"
        if address
        else f"`{place.name}` has no server that iosonde could stop",
        where='by the parameter `outage = "server"`',
        hint="cut the route to it with `--set outage=link`, or restart it yourself with `--set outage=watch`"
        if address
        else 'choose a setup with a server, `fabric = "nvme-tcp"` or `file_system = "nfs"`, on a kernel that has it '
        "(docs/network.md)",
    )


REQUIREMENTS = (_requirements,)


_MODULES = {
    "NVMe/TCP": (nvme_tcp.MODULES, 'for setups with `fabric = "nvme-tcp"`'),
    "NFS": (("nfs", "nfsd"), 'for setups with `file_system = "nfs"`'),
}


def _checks() -> Iterator[Check]:
    for name, (modules, needed) in _MODULES.items():
        missing = [f"`{each}`" for each in modules if state_of(each) == "missing"]
        if missing:
            found = f"not in this kernel (module{'s' * (len(missing) > 1)} {' and '.join(missing)}), {needed}"
            yield Check(name=name, state="note", found=found, advice=OTHER_KERNEL)
        else:
            yield Check(name=name, state="ok", found=f"{state_of(*modules)}, {needed}")


CHECKS = (_checks,)


class NetworkStorage(Instrument):
    """Watches the transport of targets that are not local."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._transport: dict[str, Any] = {}
        self._probe: Probe | None = None
        self._samples: list[dict[str, int]] = []
        self._engine_at_ns = 0
        self._load = LoadProgress()
        self._counters = CounterSampler(
            context.run.run_id,
            lambda: sample(self._transport, self._probe.ports if self._probe else ()),
            prefix=STATISTICS,
            hidden=("clock_ns", "time_ns", "read_ns"),
        )

    def start(self) -> None:
        """Describe the transport, and probe the network before the load."""
        target = self.context.workload.get("target") or {}
        text = target.get("path") or target.get("directory")
        # The target's file or directory, or the directory in which the engine creates it.
        places = (Path(text), *Path(text).parents) if text else ()
        place = next((each for each in places if each.exists()), None)
        if place is None:
            return
        self._transport = transport.describe(place, self.context.target_facts.get("devices") or [])
        if self._is_nfs and self._transport["options"].get("proto") in ("tcp", "tcp6", None):
            version = str(self._transport["version"]).partition(".")[0]
            payload = block_bytes(self.context.workload)
            self._probe = Probe(self._transport["server"], self._transport["port"], int(version or 0) or None, payload)
        elif self._has_echoes and (payload := block_bytes(self.context.workload)):
            self._probe = Probe(self._transport["server"], None, payload_bytes=payload)
        if self._probe:
            self._probe.start()

    def engine_started(self, pid: int) -> None:
        """Note the time: probes before it are of an idle network."""
        self._engine_at_ns = time.monotonic_ns()

    def event(self, event: Event) -> None:
        """Take a sample at the end of each interval; the engine does not report the start of the measurement."""
        if not self._transport:
            return
        if event["event"] == "interval":
            self._samples.append(self._counters.interval(event))
            self._load.add(event)

    def stop(self, done: EngineRun) -> Reading:
        """End the probes and return what was read."""
        if not self._transport:
            return Reading()
        start, end = self._load.ends(self._samples, done.hello, done.result or {})
        reading = NetworkReading(transport=self._transport, at_start=start, at_end=end, **self._probed(start, end))
        return Reading(parts=[reading], store_statistics=self._counters.table() if self._counters.rows else None)

    def close(self) -> None:
        """End the probes, also after a run that did not start."""
        if self._probe:
            self._probe.stop()

    @property
    def _is_nfs(self) -> bool:
        return self._transport.get("transport") == "nfs" and bool(self._transport.get("server"))

    @property
    def _has_echoes(self) -> bool:
        """A block device or FUSE daemon with a server on another machine, which may log connections without a login."""
        is_remote = (self._transport.get("path") or {}).get("server_is_local") is False
        return is_remote and self._transport["transport"] in (*transport.DEVICES, "fuse")

    def _probed(self, start: dict[str, int], end: dict[str, int]) -> dict[str, Any]:
        """Fields of a record with the round trips of probes between two samples, and before the engine started."""
        if (probe := self._probe) is None:
            return {}
        probe.stop()
        kinds: Sequence[RoundTrip] = get_args(RoundTrip)
        times = start.get("clock_ns", 0), end.get("clock_ns", 0)
        found = {f"{kind}_ns": probe.of(kind, *times) for kind in kinds}
        idle = probe.of("connect", 0, self._engine_at_ns)
        lost = probe.lost(*times)
        return {**found, "idle_connect_ns": idle, "payload_bytes": probe.payload_bytes, "lost_probes": lost}


INSTRUMENTS = (NetworkStorage, Outage, HungMount)


def sample(facts: dict[str, Any], own_ports: Collection[int] = ()) -> dict[str, int]:
    """Counters of a transport now, by name, the time, and how long it took; without connections from `own_ports`."""
    found = {"clock_ns": time.monotonic_ns(), "time_ns": time.time_ns()}
    way = facts.get("path") or {}
    if statistics := transport.mount_statistics(facts["mount_point"]) if facts["transport"] == "nfs" else None:
        found |= statistics.counters
    if facts["transport"] in transport.DEVICES:
        found |= transport.device_counters(facts["device"])
    if facts.get("server") and facts.get("port"):
        found |= tcp.counters(tcp.connections(facts["server"], facts["port"], but=own_ports))
    if interface := way.get("interface"):
        found |= transport.counters(interface)
    if way.get("server_is_local") and facts["transport"] == "nfs":
        found |= nfs_server_counters()
    if pid := facts.get("daemon_pid"):
        found |= _cpu_time([pid, *facts.get("connection_pids", ())]) | _bytes_moved(pid)
    return found | {"read_ns": time.monotonic_ns() - found["clock_ns"]}


def _cpu_time(processes: Sequence[int]) -> dict[str, int]:
    """CPU time of a FUSE daemon and of what has its connections (proc_pid_stat(5)), in ticks of the clock.

    Of their threads also the wait for a CPU, in nanoseconds (kernel `Documentation/scheduler/sched-stats.rst`), without
    those that have exited.
    """
    found: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        texts = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace") for pid in processes]
        fields = [text.rpartition(")")[2].split() for text in texts]
        found["daemon_cpu_ticks"] = sum(int(each[11]) + int(each[12]) for each in fields)
        tasks = [each for pid in processes for each in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        if threads := [each.read_text(encoding="utf-8").split() for each in tasks]:
            found["daemon_running_ns"] = sum(int(each[0]) for each in threads)
            found["daemon_waiting_ns"] = sum(int(each[1]) for each in threads)
    return found


def _bytes_moved(process: int) -> dict[str, int]:
    """Bytes that system calls of a process have read and written, whatever the files (proc_pid_io(5))."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{process}/io").read_text(encoding="ascii").splitlines()
        values = dict(line.split(": ") for line in lines)
        return {"daemon_read_bytes": int(values["rchar"]), "daemon_written_bytes": int(values["wchar"])}
    return {}
