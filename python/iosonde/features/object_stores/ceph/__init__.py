"""Ceph: the configuration and the commands of a private cluster of one monitor, one manager and N object daemons.

Nothing of a cluster of the user is read or changed: every command names the configuration file of the private cluster,
and all daemons listen on loopback only. They answer nobody without a key of the cluster (cephx): other users of the
machine can connect to loopback too. `cluster.py` starts and stops the daemons.
"""

from __future__ import annotations

import functools
import hashlib
import re
import socket
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from iosonde.base.tools import LIBRARY_DIRECTORIES
from iosonde.engine.protocol.option_text import unsafe_option
from iosonde.errors import ServerError, StudyError
from iosonde.study.servers import programs
from iosonde.study.servers.server import Installation, Settings

ACCOUNTS: Sequence[str] = ("ceph",)

PROGRAMS: Mapping[str, str] = {
    "ceph-mon": "ceph-mon",
    "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
    "monmaptool": "ceph-base",
    "ceph": "ceph-common",
    "ceph-authtool": "ceph-common",
}
"""Programs and the Debian packages that contain them."""

OLDEST = 15
"""First major version whose librados and object daemons are supported."""

RESERVED = (
    *("fsid", "mon_initial_members", "mon_host", "public_addr", "cluster_addr", "public_network", "cluster_network"),
    *("auth_.*", "keyring", "run_dir", "log_file", "pid_file", "admin_socket", "crash_dir", ".*_data", "ms_bind_.*"),
    *("bluestore_block.*path", "bluestore_block_size", "bluestore_block_create", "osd_objectstore", "setuser.*"),
    *(
        "osd_pool_default_size",
        "osd_pool_default_min_size",
        "plugin_dir",
        "mgr_module_path",
        "host",
        "chdir",
        "daemonize",
        "cephx_.*",
    ),
    *(
        ".*_dir",
        ".*_path",
        ".*_file",
        ".*_socket",
        ".*_url",
        ".*_host",
        ".*_addrs?v?",
        ".*(command|script|hook|plugin).*",
    ),
    *(".*(syslog|graylog|journald|stderr|jaeger).*", "log_to_.*", "mgr_.*module.*", "osd_class_.*", "key(file)?"),
    *("ms_.*type", "ms_.*(rdma|dpdk).*", ".*spdk.*", "bdev_.*", "mon_dns_.*", "erasure_code.*", "lockdep.*"),
)
"""Settings that decide where the cluster listens, what it writes or loads, or how much it keeps."""

FIRST_PORT, LAST_PORT = 23300, 29000

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VALUE = re.compile(r"[A-Za-z0-9_.,:=+*% -]{0,500}")
"""Neither comments, continued lines and variables of `ceph.conf`, nor paths."""
_ROCKSDB = re.compile(r".*rocksdb_options.*")


@dataclass(frozen=True, kw_only=True)
class ClusterLayout:
    """Composition of a cluster."""

    osds: int
    replication: int
    placement_groups: int
    osd_bytes: int
    """Size of the file in which an object daemon keeps everything, or of its device."""
    devices: Sequence[Path] = ()
    """Nodes of the devices that object daemons take raw; none if they have files."""
    settings: Settings
    """Further settings by Ceph's own names."""


def locate() -> Installation:
    """The programs of Ceph; `ServerError` names the packages if they or librados are missing."""
    found = {name: programs.find(name) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        packages = sorted({PROGRAMS[name] for name in missing})
        raise ServerError(
            f"Ceph is not installed: no program `{missing[0]}` was found",
            where="on PATH and in system directories",
            hint=f"install the packages {', '.join(f'`{each}`' for each in packages)} (on Debian and Ubuntu `apt-get "
            "install --no-install-recommends ceph-mon ceph-mgr ceph-osd ceph-common`)",
            code="missing_server",
        )
    installed = [file for each in LIBRARY_DIRECTORIES for file in Path(each).glob("librados.so*")]
    if not installed and find_library("rados") is None:
        raise ServerError(
            "librados, the client library of Ceph, is not installed",
            where="in the library directories of the system",
            hint="install the package `librados2`",
            code="missing_library",
        )
    paths = {name: path for name, path in found.items() if path}
    return _installation(tuple(sorted(paths.items())))


def check_settings(settings: Settings) -> None:
    """`StudyError` for settings that iosonde chooses, or that are no names of Ceph's. Writes nothing."""
    programs.refuse_reserved(settings, RESERVED, "Ceph")
    for name, value in settings.items():
        if not _NAME.fullmatch(name):
            raise StudyError(
                f"`{name}` is not a setting of Ceph",
                where="by the parameter `ceph`",
                hint="write names with underscores, such as `osd_memory_target`",
            )
        if not _VALUE.fullmatch(_text(value)):
            raise StudyError(
                f"the setting `{name}` of Ceph cannot be `{str(value)[:60]}`",
                where="by the parameter `ceph`",
                hint="values have letters, digits, spaces and `_.,:=+*%-`",
            )
        if _ROCKSDB.fullmatch(name):
            _check_rocksdb(name, str(value))


def _check_rocksdb(name: str, text: str) -> None:
    """`StudyError` for options of RocksDB that name other places; Ceph separates them by commas."""
    options = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(",") if part)
    problem = unsafe_option(options)
    if problem:
        raise StudyError(
            f"the setting `{name}` of Ceph cannot be `{text[:60]}`: {problem}",
            where="by the parameter `ceph`",
            hint="object daemons write to their own files only",
        )


def configuration(directory: Path, sockets: Path, layout: ClusterLayout, *, fsid: str, port: int) -> str:
    """Text of `ceph.conf`: everything private to one directory, on loopback, and no secrets."""
    lines = {
        "fsid": fsid,
        "mon_initial_members": "a",
        "mon_host": f"v2:127.0.0.1:{port}",
        "public_addr": "127.0.0.1",
        "cluster_addr": "127.0.0.1",
        **{f"auth_{each}_required": "cephx" for each in ("cluster", "service", "client")},
        "auth_allow_insecure_global_id_reclaim": "false",
        "run_dir": sockets,
        "admin_socket": f"{sockets}/$name.asok",
        "pid_file": "",
        "log_file": f"{directory}/logs/$name.log",
        "crash_dir": f"{directory}/crash",
        "keyring": keyring_in(directory),
        "mon_data": f"{directory}/mon.$id",
        "mgr_data": f"{directory}/mgr.$id",
        "mgr_disabled_modules": " ".join(sorted(path.name for path in MANAGER_MODULES.glob("*/"))),
        "osd_data": f"{directory}/osd.$id",
        "ms_bind_msgr1": "false",
        "ms_bind_port_min": LAST_PORT + 1,
        "ms_bind_port_max": LAST_PORT + 1000,
        "osd_objectstore": "bluestore",
        "osd_pool_default_size": layout.replication,
        "osd_pool_default_min_size": 1,
        "osd_pool_default_pg_autoscale_mode": "off",
        "osd_crush_chooseleaf_type": 0,
        "mon_allow_pool_size_one": "true",
        "mon_data_avail_warn": 1,
        "mon_data_avail_crit": 0,
        "bluestore_block_create": "false" if layout.devices else "true",
        "bluestore_block_size": 0 if layout.devices else layout.osd_bytes,
        "bluestore_block_preallocate_file": "true",
        "osd_memory_target_autotune": "false",
        **DEFAULTS,
        **{name: _text(value) for name, value in layout.settings.items()},
    }
    client = {"admin_socket": "", "log_file": "", "log_to_stderr": "false"}
    sections: dict[str, Mapping[str, object]] = {"global": lines, "client": client}
    sections |= {f"osd.{number}": {"bluestore_block_path": node} for number, node in enumerate(layout.devices)}
    return "".join(_section(name, each) for name, each in sections.items())


DEFAULTS: Mapping[str, object] = {
    "osd_memory_target": 1 << 30,
    "osd_crush_update_on_start": "true",
    # cephx costs CPU time per connection, not per message: messenger v2 signs no messages (`ProtocolV2.cc`), and uses
    # checksums (`crc`) between clients and object daemons by default. Connections to the monitor would be encrypted,
    # which is not needed on loopback and would add to `ceph_control_cpu_ns`.
    **{f"ms_mon_{each}_mode": "crc" for each in ("cluster", "service", "client")},
}
"""Settings that a study may change."""


def keyring_in(directory: Path) -> Path:
    """File of all keys, in a directory that only the account of the daemons can enter."""
    return directory / "keys" / "keyring"


def capabilities(osd_names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Names with a key and what each may do, as in Ceph's manual deployment."""
    return {
        "mon.": {"mon": "allow *"},
        "mgr.x": {"mon": "allow profile mgr", "osd": "allow *"},
        "client.admin": {"mon": "allow *", "mgr": "allow *", "osd": "allow *"},
        **{name: {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"} for name in osd_names},
    }


MANAGER_MODULES = Path("/usr/share/ceph/mgr")
"""Modules of the manager, which it does not load: the cluster of a study needs none, and they take CPU time from it."""


def free_port(directory: Path) -> int:
    """A free port of the loopback address, searched from one that the directory of the cluster determines.

    The monitor binds it later, so two sessions that start together must not search from the same port.
    """
    first = FIRST_PORT + int(hashlib.sha256(str(directory).encode()).hexdigest(), 16) % (LAST_PORT - FIRST_PORT)
    ports: list[int] = [*range(first, LAST_PORT), *range(FIRST_PORT, first)]
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError(
        f"no port from {FIRST_PORT} to {LAST_PORT} is free on 127.0.0.1", hint="see `ss -ltn` for what listens there"
    )


def _section(name: str, lines: Mapping[str, object]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def _installation(paths: tuple[tuple[str, str], ...]) -> Installation:
    found = dict(paths)
    matched = programs.reported_version(
        [found["ceph-osd"], "--version"], r"ceph version ([0-9]+\.[0-9.]+)", package="ceph-osd"
    )
    programs.require_version("Ceph", matched[1], [OLDEST], program=found["ceph-osd"], package="ceph-osd")
    return Installation(version=matched[1], build=matched.string.strip(), programs=found)
