"""NVMe over TCP: a device exported by the kernel's NVMe target on 127.0.0.1, and connected again.

Both sides are configured through the kernel's files: configfs (kernel `drivers/nvme/target/configfs.c`), and
`/dev/nvme-fabrics` (kernel `drivers/nvme/host/fabrics.c`). The subsystem has the name of the study, so that removal
disconnects and removes no other. The target does not claim the device, therefore iosonde keeps its own claim.

The target accepts one host, whose name (NQN) is random. With the name, any user could overwrite the device. The kernel
shows it in three places, which other users cannot read: configfs, `hostnqn` of the controller, and the kernel log.
Authentication (DH-HMAC-CHAP, Linux 6.0) would depend on the first two as well, because everybody can read the secret
there (`dhchap_key`, `dhchap_secret`). Debian 12's kernel is built without it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.features.network_storage.setup import FabricSetup
from iosonde.features.network_storage.tcp import require_ports_of_root
from iosonde.storage import tools
from iosonde.storage.block_layer.block_nodes import number_of, read
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Claims
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.targets.target import BuiltLayer
from iosonde.storage.tools import call, require_root, wait_until

JOURNALED = "NVMe/TCP target"
"""Kind of its journal entry; its path is a key, not a file."""

MODULES = ("nvmet-tcp", "nvme-tcp")
ADDRESS = "127.0.0.1"
CONFIG = Path("/sys/kernel/config")
TARGET = CONFIG / "nvmet"
FABRICS = Path("/dev/nvme-fabrics")
BLOCK = Path("/sys/block")
CONTROLLERS = Path("/sys/class/nvme")
FABRIC_CONTROLLERS = Path("/sys/devices/virtual/nvme-fabrics/ctl")
LOG_RESTRICTED = Path("/proc/sys/kernel/dmesg_restrict")
PORTS = range(512, 1024)
"""Ports of root, most of which no service has."""
NAME = "nqn.2014-08.org.nvmexpress:iosonde:"
RECONNECT_S = 1
"""Time between attempts to connect again (`reconnect_delay`; the kernel's default is 10 s)."""
LOST_S = 600
"""Time after which the kernel gives up and I/O fails (`ctrl_loss_tmo`, its default)."""
APPEARS_S = 60.0

_claims: dict[str, Claims] = {}
"""Claims of the exported devices, by the name of the study."""


@dataclass(frozen=True, kw_only=True)
class Fabric(BuiltLayer):
    """A connected device."""

    own: str
    port: str

    def stop_server(self) -> None:
        """Remove the subsystem from its port: the target closes all connections and refuses new ones."""
        _link(self.own, self.port).unlink()

    def start_server(self) -> None:
        """Add the subsystem to its port again."""
        _link(self.own, self.port).symlink_to(_subsystem(self.own))


def check_possible(asked: FabricSetup) -> None:
    """`TargetError` if this machine cannot export and connect a device."""
    require_root("export a device over NVMe/TCP")
    if missing := [module for module in MODULES if tools.state_of(module) == "missing"]:
        raise TargetError(
            f"this kernel has no {' and no '.join(f'`{each}`' for each in missing)}",
            where=f'by the parameter `fabric = "{asked.kind}"`',
            hint="use a kernel with these modules, such as Debian's `linux-image-amd64`, or `iosonde lab run`",
        )
    require_ports_of_root("export a device over NVMe/TCP")
    if read(LOG_RESTRICTED) != "1":
        raise TargetError(
            "NVMe/TCP requires a kernel log that only root can read: it contains the host's name, which gives access",
            where=f"`{LOG_RESTRICTED}` must be 1",
            hint="restrict the log with `sysctl kernel.dmesg_restrict=1`",
        )


def key_of(own: str) -> Path:
    """Return the path under which the journal has the target of a study."""
    return MOUNTS / own / "fabric"


def build(device: Path, asked: FabricSetup, own: str) -> Fabric:
    """Export a device and connect it; `TargetError` if the kernel refuses."""
    for module in MODULES:
        if not tools.is_loaded(module):
            call("modprobe", module)
    port = _free_port()
    is_mounted = TARGET.parent.is_dir() and any(TARGET.parent.iterdir())
    facts = {"own": own, "port": port, "mounted": "" if is_mounted else "yes"}
    journal.created(key_of(own), JOURNALED, facts=facts)
    if not is_mounted:
        call("mount", "-t", "configfs", "configfs", CONFIG)
    _claims[own] = Claims()
    _claims[own].take(number_of(device), str(device))
    host = f"{NAME}{own}:{secrets.token_hex(16)}"
    _export(device, own, port, host)
    options = _connect(asked, own, port, host)
    node = _connected(own)
    return Fabric(
        device=node,
        below=(device,),
        own=own,
        port=port,
        facts={"kind": asked.kind, "device": str(node), "exported": str(device), "options": options},
    )


def undo(entry: journal.Entry) -> None:
    """Disconnect, remove what was configured, and release the claim; `OSError` if the kernel refuses."""
    own, port = str(entry.facts["own"]), str(entry.facts["port"])
    with suppress(FileNotFoundError), _closed_controllers():  # A session that was killed left them closed.
        for controller in _controllers(own):
            with suppress(FileNotFoundError):
                (controller / "delete_controller").write_text("1", encoding="utf-8")
    with suppress(FileNotFoundError):
        _link(own, port).unlink()
    _remove(_port(port))
    namespace = _subsystem(own) / "namespaces/1"
    with suppress(FileNotFoundError):
        (namespace / "enable").write_text("0", encoding="utf-8")
    _remove(namespace)
    for host in TARGET.glob(f"hosts/{NAME}{own}:*"):
        with suppress(FileNotFoundError):
            _allowed(own, host.name).unlink()
        _remove(host)
    _remove(_subsystem(own))
    if own in _claims:
        _claims.pop(own).release_all()
    if entry.facts.get("mounted") == "yes" and TARGET.is_dir():
        with suppress(TargetError):  # Another program uses it by now.
            call("umount", CONFIG)


def _export(device: Path, own: str, port: str, host: str) -> None:
    subsystem, place = _subsystem(own), _port(port)
    (TARGET / "hosts").chmod(0o700)  # Until the module is unloaded: other users need no names of hosts.
    (subsystem / "namespaces/1").mkdir(parents=True)
    (subsystem / "allowed_hosts").chmod(0o700)
    place.mkdir()
    (TARGET / "hosts" / host).mkdir()
    values = {
        subsystem / "attr_allow_any_host": "0",
        subsystem / "namespaces/1/device_path": str(device),
        subsystem / "namespaces/1/enable": "1",
        place / "addr_trtype": "tcp",
        place / "addr_adrfam": "ipv4",
        place / "addr_traddr": ADDRESS,
        place / "addr_trsvcid": port,
    }
    for file, value in values.items():
        file.write_text(value, encoding="utf-8")
    _allowed(own, host).symlink_to(TARGET / "hosts" / host)
    _link(own, port).symlink_to(subsystem)


def _connect(asked: FabricSetup, own: str, port: str, host: str) -> str:
    """Connect -> the options, as the kernel takes them, without the name of the host."""
    options = [
        "transport=tcp",
        f"traddr={ADDRESS}",
        f"trsvcid={port}",
        f"nqn={NAME}{own}",
        f"reconnect_delay={RECONNECT_S}",
        f"ctrl_loss_tmo={LOST_S}",
        f"nr_io_queues={asked.queues}" if asked.queues else "",
        f"nr_poll_queues={asked.poll_queues}" if asked.poll_queues else "",
        "hdr_digest" if asked.header_digest else "",
        "data_digest" if asked.data_digest else "",
    ]
    text = ",".join(filter(None, options))
    try:
        with _closed_controllers() as fabrics:
            # A host has an ID of its own: newer kernels refuse two names with the same ID.
            fabrics.write(f"{text},hostnqn={host},hostid={uuid.uuid4()}".encode())
            for controller in _controllers(own):
                (controller / "hostnqn").chmod(0o400)
    except OSError as error:
        raise TargetError(
            f"cannot connect to the NVMe/TCP target on {ADDRESS}:{port}: {error.strerror}",
            where=f"with the options `{text}`",
            hint="check that the interface `lo` is up (`ip link set lo up`), and see the kernel log (`dmesg`)",
        ) from error
    return text


@contextmanager
def _closed_controllers() -> Iterator[FileIO]:
    """`/dev/nvme-fabrics`, while other users cannot read the files of controllers: new ones are readable by all."""
    with FABRICS.open("r+b", buffering=0) as fabrics:
        fcntl.flock(fabrics, fcntl.LOCK_EX)
        FABRIC_CONTROLLERS.chmod(0o700)
        try:
            yield fabrics
        finally:
            FABRIC_CONTROLLERS.chmod(0o755)


def _connected(own: str) -> Path:
    """The node of the connected namespace, once it exists."""
    wait_until(lambda: bool(_nodes(own)), APPEARS_S, "the connected NVMe/TCP namespace did not appear")
    return _nodes(own)[0]


def _nodes(own: str) -> list[Path]:
    found = []
    for device in BLOCK.glob("nvme*"):
        is_path = read(device / "hidden") == "1"  # Of native multipath, which has a device above it.
        if read(device / "device/subsysnqn") == NAME + own and not is_path:
            node = Path("/dev", device.name)
            found += [node] if number_of(node) and read(device / "size") not in ("", "0") else []
    return found


def _controllers(own: str) -> Iterator[Path]:
    for controller in CONTROLLERS.glob("nvme*"):
        if read(controller / "subsysnqn") == NAME + own and read(controller / "transport") == "tcp":
            yield controller


def _subsystem(own: str) -> Path:
    return TARGET / "subsystems" / (NAME + own)


def _port(port: str) -> Path:
    return TARGET / "ports" / port


def _link(own: str, port: str) -> Path:
    return _port(port) / "subsystems" / (NAME + own)


def _allowed(own: str, host: str) -> Path:
    return _subsystem(own) / "allowed_hosts" / host


def _free_port() -> str:
    """A TCP port that nobody uses; it is the number of the target's port too.

    Other users cannot take it while the target does not listen: the host would send its name to them.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((ADDRESS, port))
            if not _port(str(port)).exists():
                return str(port)
    raise TargetError(f"no TCP port from {PORTS[0]} to {PORTS[-1]} is free on {ADDRESS}")


def _remove(place: Path) -> None:
    """Remove a directory of configfs, which removes its files."""
    try:
        place.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(
            error.errno or errno.EBUSY, f"`{place}` is still in use: {os.strerror(error.errno or 0)}"
        ) from None
