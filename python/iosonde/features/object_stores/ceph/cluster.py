"""A private Ceph cluster: created empty, started, observed, and removed with everything in it.

Each daemon is a `ServerProcess`: unprivileged, in the journal, and killed by the kernel when iosonde dies. The object
daemons have a control group of their own, because their CPU time and I/O are what a measurement is about.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import ServerError
from iosonde.features.object_stores import ceph
from iosonde.features.object_stores.ceph import ClusterLayout
from iosonde.storage.block_layer import signatures
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.control_groups import ProcessGroup
from iosonde.storage.safety import guard
from iosonde.storage.safety.guard import Claims
from iosonde.storage.setups import file_systems
from iosonde.study.servers import programs, server
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.programs import Account, ServerProcess, account_for
from iosonde.study.servers.server import Installation, no_check

ANSWER_S = 30.0

PATHS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "osd_client_writes": (("osd", "op_w"),),
    "osd_client_reads": (("osd", "op_r"),),
    "osd_client_write_bytes": (("osd", "op_w_in_bytes"),),
    "osd_client_read_bytes": (("osd", "op_r_out_bytes"),),
    "osd_replica_write_bytes": (("osd", "subop_w_in_bytes"),),
    "osd_recovery_operations": (("osd", "recovery_ops"),),
    "bluestore_wal_bytes": (("bluefs", "bytes_written_wal"),),
    "bluestore_db_bytes": (("bluefs", "bytes_written_sst"), ("bluefs", "log_bytes")),
    "bluestore_deferred_bytes": (("bluestore", "deferred_write_bytes"),),
}
"""Statistics and the counters of `perf dump` that they are the sum of."""


def ask(path: Path, command: str) -> dict[str, Any]:
    """The answer of a daemon to a command; `ServerError` if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
            opened.settimeout(ANSWER_S)
            opened.connect(str(path))
            opened.sendall(json.dumps({"prefix": command}).encode() + b"\0")
            (length,) = struct.unpack(">I", _received(opened, 4))
            found = json.loads(_received(opened, length) or b"{}")
    except (OSError, ValueError, struct.error) as error:
        raise ServerError(
            f"the Ceph daemon does not answer `{command}`: {error}",
            where=f"at `{path}`",
            hint="see its messages",
            code="server_vanished",
        ) from None
    return found if isinstance(found, dict) else {}


def totals(dumps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The statistics of all object daemons together, from their answers to `perf dump`."""
    found: dict[str, int] = {}
    for dump in dumps:
        for name, paths in PATHS.items():
            for section, counter in paths:
                with suppress(KeyError, TypeError, ValueError):
                    found[name] = found.get(name, 0) + int(dump[section][counter])
    return found


def _received(opened: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        part = opened.recv(min(65536, length - len(found)))
        if not part:
            raise ConnectionResetError("the connection was closed")
        found += part
    return bytes(found)


READY_S = 300.0
STOP_S = 20.0
POLL_S = 0.1
CLEAN_POLL_S = 0.5

POOL = "iosonde"

EXPECTED = ("POOL_NO_REDUNDANCY",)
"""Health warnings of every private cluster: a pool may have one copy."""


@dataclass(kw_only=True)
class CephCluster:
    """One cluster in the directories of a run.

    Devices that its object daemons take raw are unclaimed when it is created. Each is claimed exclusively while a
    daemon uses it: by the daemon itself, or by iosonde for versions of Ceph that do not (before 16.2.15 and 17.2.7).
    """

    installation: Installation
    directories: Directories
    layout: ClusterLayout
    account: Account
    check: Callable[[], None] = field(default=no_check)
    """Called while it waits; raises `ServerError` to stop waiting."""
    _processes: dict[str, ServerProcess] = field(default_factory=dict, init=False)
    _groups: dict[str, ProcessGroup] = field(default_factory=dict, init=False)
    _claims: Claims = field(default_factory=Claims, init=False)
    _dumps: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """Latest counters of each running object daemon."""
    _stopped_dumps: list[dict[str, Any]] = field(default_factory=list, init=False)
    """Counters of object daemons when they were stopped; they start at 0 again."""

    @classmethod
    def locate(
        cls, directories: Directories, layout: ClusterLayout, *, check: Callable[[], None] = no_check
    ) -> CephCluster:
        """Find the programs and check the settings; nothing is created."""
        installation = ceph.locate()
        ceph.check_settings(layout.settings)
        account = account_for(ceph.ACCOUNTS)
        return cls(installation=installation, directories=directories, layout=layout, account=account, check=check)

    @property
    def data(self) -> Path:
        return self.directories.run / "data"

    @property
    def configuration(self) -> Path:
        return self.data / "ceph.conf"

    @property
    def osd_names(self) -> list[str]:
        return [f"osd.{number}" for number in range(self.layout.osds)]

    @property
    def group(self) -> ProcessGroup:
        return self._groups["osd"]

    def device_paths(self) -> Sequence[Path]:
        """Paths on the devices that take the I/O of the object daemons."""
        return self.layout.devices or [self.directories.run]

    def event_log(self) -> None:
        """Its daemons have no garbage collection."""

    @property
    def is_running(self) -> bool:
        """True if every daemon runs."""
        return bool(self._processes) and not self.ended_daemons()

    def provision(self) -> None:
        """Create directories, configuration, keys and the monitor's database."""
        self.directories.create(self.account)
        self.directories.empty()
        sockets = self.directories.socket
        self.data.mkdir()  # Not the daemons' own: configuration and messages are written into it.
        self.data.chmod(0o711)
        owned = [self.data / each for each in ("crash", "keys", "logs", *self._daemons())]
        for path in (sockets, *owned):
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
            self.account.own(path)
        for node in self.layout.devices:
            _wipe(node)
            self.account.own(node)
        fsid, port = str(uuid.uuid4()), ceph.free_port(self.data)
        self.configuration.write_text(
            ceph.configuration(self.data, sockets, self.layout, fsid=fsid, port=port), encoding="utf-8"
        )
        self.configuration.chmod(0o644)
        self._create_keyring()
        monmap = str(self.data / "logs" / "monmap")
        address = f"[v2:127.0.0.1:{port}]"
        self._call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap)
        self._call("ceph-mon", *self._named("mon.a"), "--mkfs", "--monmap", monmap)

    def _create_keyring(self) -> None:
        """One file for all: the daemons run under one account. Keys are on no command line."""
        keyring = str(ceph.keyring_in(self.data))
        self._call("ceph-authtool", "--create-keyring", keyring)
        for name, granted in ceph.capabilities(self.osd_names).items():
            options = [text for pair in granted.items() for text in ("--cap", *pair)]
            self._call("ceph-authtool", keyring, "--name", name, "--gen-key", *options)

    def start(self) -> None:
        """Start all daemons, create the pool and wait until it is clean; `ServerError` if that fails."""
        try:
            for group in ("control", "osd"):
                self._groups[group] = ProcessGroup.make(None)
            self._start("mon.a", "control")
            self._start("mgr.x", "control")
            self._wait("the monitor did not answer", lambda: self._answers("mon.a", "mon_status"))
            self._create_osds()
            self._commanded(f"osd pool create {POOL} {self.layout.placement_groups}")
            self.wait_until_clean()
        except BaseException:
            self.kill()
            raise

    def _create_osds(self) -> None:
        own = self.directories.own.name
        identities = [file_systems.osd_identity(own, number) for number in range(self.layout.osds)]
        for identity in identities:
            self._commanded(f"osd new {identity}")
        for name, identity in zip(self.osd_names, identities, strict=True):
            self._call("ceph-osd", *self._named(name), "--mkfs", "--osd-uuid", identity)
            self._start(name, "osd")
        for name in self.osd_names:
            self.wait_until_active(name)

    def _claim(self, name: str) -> None:
        """Claim the device of a daemon; `TargetError` if another program has claimed it."""
        for node in self._device_of(name):
            self._claims.take(number_of(node), str(node))

    def _device_of(self, name: str) -> Sequence[Path]:
        number = int(name.partition(".")[2])
        return self.layout.devices[number : number + 1]

    def wait_until_active(self, name: str, *, check: Callable[[], None] = no_check) -> None:
        """Wait until an object daemon takes part in the cluster; its device is claimed then."""

        def is_active() -> bool:
            return bool(self._answers(name, "status").get("state") == "active")

        self._wait(f"`{name}` did not become active", is_active, check=check)
        if not any(guard.is_claimed(number_of(node)) for node in self._device_of(name)):
            self._claim(name)

    def wait_until_clean(
        self, timeout_s: float = READY_S, *, poll_s: float = CLEAN_POLL_S, check: Callable[[], None] = no_check
    ) -> None:
        """Wait until all placement groups are `active+clean`."""
        states: dict[str, int] = {}

        def is_clean() -> bool:
            states.clear()
            states.update(self.placement_group_states())
            return bool(states) and set(states) == {"active+clean"}

        what = "the cluster did not become healthy"
        self._wait(what, is_clean, timeout_s, poll_s, state=lambda: _shown(states), check=check)

    def placement_group_states(self) -> dict[str, int]:
        """Number of placement groups in each state."""
        with suppress(ServerError, KeyError, TypeError, ValueError):
            answer = json.loads(self._commanded("pg stat"))
            summary = answer.get("pg_summary", answer)
            return {str(each["name"]): int(each["num"]) for each in summary["num_pg_by_state"]}
        return {}

    def pid_of(self, name: str) -> int:
        return self._processes[name].pid

    def ended_daemons(self) -> list[str]:
        """Names of daemons that have ended by themselves."""
        return [name for name, each in list(self._processes.items()) if each.exit_status is not None]

    def stop_osd(self, name: str) -> None:
        """Kill an object daemon, as a crash does; its device is claimed until it is started again."""
        with suppress(ServerError):
            self._read_counters(name)
        if name in self._dumps:
            self._stopped_dumps.append(self._dumps.pop(name))
        self._processes.pop(name).kill()
        self._claim(name)

    def start_osd(self, name: str) -> None:
        for node in self._device_of(name):
            self._claims.release(number_of(node))
        self._start(name, "osd")

    def statistics(self) -> dict[str, int]:
        """Counters of all object daemons if those that run answer, and the CPU time of monitor and manager."""
        cpu_ns = self._groups["control"].cpu_ns() if "control" in self._groups else None
        return self._counters() | ({} if cpu_ns is None else {"ceph_control_cpu_ns": cpu_ns})

    def _counters(self) -> dict[str, int]:
        """Empty if a daemon that runs does not answer, which would make the sums smaller than before."""
        running = [name for name in self.osd_names if name in self._processes]
        try:
            dumps = [self._read_counters(name) for name in running]
        except ServerError:
            return {}
        return totals([*self._stopped_dumps, *dumps])

    def _read_counters(self, name: str) -> dict[str, Any]:
        self._dumps[name] = ask(self._socket(name), "perf dump")
        return self._dumps[name]

    def describe(self) -> dict[str, Any]:
        """For the record: version, layout, effective settings of an object daemon, open files, account."""
        settings = ask(self._socket("osd.0"), "config show")
        changed = ask(self._socket("osd.0"), "config diff").get("diff", {})
        files = self.open_files()
        return {
            "kind": "ceph",
            "title": "Ceph",
            "build": self.installation.build,
            "version": f"Ceph {self.installation.version}",
            "settings": {name: str(value) for name, value in settings.items()},
            "changed": sorted(changed),
            "set": dict(self.layout.settings),
            "osds": self.layout.osds,
            "replication": self.layout.replication,
            "placement_groups": self.layout.placement_groups,
            "osd_bytes": self.layout.osd_bytes,
            "raw_devices": len(self.layout.devices),
            "user": self.account.name,
            "open_files": files,
            "io_modes": server.summary(files),
            "managed": True,
        }

    def open_files(self) -> list[dict[str, Any]]:
        """Flags of the files that object daemons have open."""
        running = [self._processes[name] for name in self.osd_names if name in self._processes]
        places = [self.data, *{node.parent for node in self.layout.devices}]
        found = [each for process in running for each in server.open_files(process.pid, places)]
        return [each for each in found if Path(each["file"]).name.startswith(("block", "osd-"))]

    def stop(self) -> bool:
        """Shut all daemons down in order; returns whether none had to be killed."""
        orderly = True
        for name in (*reversed(self.osd_names), "mgr.x", "mon.a"):
            process = self._processes.pop(name, None)
            if process and process.exit_status is None:
                orderly &= process.stop(signal.SIGTERM, STOP_S)
            elif process:
                process.kill()
        self._claims.release_all()
        return orderly

    def kill(self) -> None:
        """Kill all daemons; may be called again."""
        for name in list(self._processes):
            self._processes.pop(name).kill()
        self._claims.release_all()

    def remove(self) -> None:
        """Kill it and remove everything; may be called again."""
        self.kill()
        for group in self._groups.values():
            group.remove()
        self._groups.clear()
        self.directories.empty()
        self.directories.remove_socket()

    def failure(self, what: str) -> ServerError:
        """An error of this cluster with the cause that its health and the daemons' messages show."""
        ended = self._first_ended()
        health = "" if ended else self._health()
        message = f"{ended}: {self._last_message(ended)}" if ended else health
        code, hint = ("server_vanished" if ended else "server"), "see the messages of the daemons"
        is_full = any(programs.report_full_disk(self._messages(name)) for name in self._daemons())
        if is_full or "OSD_FULL" in health or "POOL_FULL" in health:
            code, hint = "no_space", "use a larger `osd_size`, fewer objects, or a target with more room"
        return ServerError(f"the Ceph cluster {what}", where=message, hint=hint, code=code)

    def _health(self) -> str:
        with suppress(ServerError, ValueError, AttributeError):
            checks = json.loads(self._commanded("health detail"))["checks"]
            shown = {name: each["summary"]["message"] for name, each in checks.items() if name not in EXPECTED}
            return "; ".join(f"{name}: {message}" for name, message in shown.items())
        return ""

    def _daemons(self) -> list[str]:
        return ["mon.a", "mgr.x", *self.osd_names]

    def _named(self, name: str) -> list[str]:
        return ["-c", str(self.configuration), "-i", name.partition(".")[2]]

    def _start(self, name: str, group: str) -> None:
        kind = name.partition(".")[0]
        self._processes[name] = ServerProcess.start(
            [self.installation.programs[f"ceph-{kind}"], *self._named(name), "-f"],
            account=self.account,
            entry=self.data / name,
            messages=self.data / f"{name}.messages",
            group=self._groups[group],
        )

    def _call(self, program: str, *arguments: str) -> str:
        done = programs.call([self.installation.programs[program], *arguments], account=self.account)
        programs.require_success(done, f"run `{program}`")
        return done.stdout

    def _commanded(self, command: str) -> str:
        """Return the output of the program `ceph` for a command."""
        base = ["--connect-timeout", "20", "-c", str(self.configuration), "-f", "json"]
        return self._call("ceph", *base, *command.split())

    def _socket(self, name: str) -> Path:
        return self.directories.socket / f"{name}.asok"

    def _answers(self, name: str, command: str) -> dict[str, Any]:
        with suppress(ServerError):
            return ask(self._socket(name), command)
        return {}

    def _wait(
        self,
        what: str,
        is_reached: Callable[[], object],
        timeout_s: float = READY_S,
        poll_s: float = POLL_S,
        *,
        state: Callable[[], str] = str,
        check: Callable[[], None] = no_check,
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_reached():
            self.check()
            check()
            if self._first_ended():
                raise self.failure("ended while it started")
            if time.monotonic() > deadline:
                found = self.failure(f"is not ready after {timeout_s:.0f} s: {what}")
                where = "; ".join(filter(None, (state(), found.where)))
                raise ServerError(found.what, where=where, hint=found.hint, code=found.code)
            time.sleep(poll_s)

    def _first_ended(self) -> str | None:
        return next(iter(self.ended_daemons()), None)

    def _messages(self, name: str) -> str:
        texts = []
        for path in (self.data / f"{name}.messages", self.data / "logs" / f"{name}.log"):
            with suppress(OSError):
                texts.append(path.read_text(errors="replace", encoding="utf-8")[-20_000:])
        return "\n".join(texts)

    def _last_message(self, name: str) -> str:
        lines = [line for line in self._messages(name).splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r" -1 |error|FAILED", line)]
        return (errors or lines or [""])[-1]


def _wipe(node: Path) -> None:
    """Remove the label of the cluster of an earlier run; `TargetError` if another program has claimed the device."""
    claims = Claims()
    with claims.held({number_of(node): str(node)}):
        signatures.wipe_edges(claims.descriptors[number_of(node)])


def _shown(states: dict[str, int]) -> str:
    found = ", ".join(f"{number} {name}" for name, number in sorted(states.items()))
    return f"placement groups: {found or 'unknown'}"
