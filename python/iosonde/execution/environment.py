"""Machine and software: facts that decide whether results can be compared.

A fact that cannot be read is null. They are read once per session; the state of the target is recorded with every run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.base import text_files
from iosonde.base.foreign_text import printable
from iosonde.base.python_process import installed_version
from iosonde.base.tools import ANSWER_S, ask
from iosonde.errors import TargetError

LIBRARIES = ("duckdb", "numpy", "polars", "pydantic")
"""Libraries whose version may change what a result set holds."""

CMDLINE = {
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "default_hugepagesz",
    "hugepages",
    "idle",
    "intel_idle",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "isolcpus",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "nvme",
    "nvme_core",
    "pcie_aspm",
    "processor",
    "rcu_nocbs",
    "scsi_mod",
    "transparent_hugepage",
    "tsc",
}
"""Kernel parameters that move I/O figures; the others may hold host names and stay out."""


def capture(engine: Path, clients: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Facts about this machine and what runs on it; `clients` are further programs of the engine by name."""
    return {
        "cpu": _cpu(),
        "memory": _memory(),
        "kernel": _kernel(),
        "machine": _machine(),
        "software": _software({"iosonde-engine": engine, **(clients or {})}),
    }


def require_same_software(host: str, found: Mapping[str, Any], own: Mapping[str, Any], *others: str) -> None:
    """`TargetError` if a host has another iosonde than this machine, or another version of `others`."""
    for name in ("iosonde", "engine", "engine_sha256", *others):
        for place, known in ((f"host `{host}`", found), ("this machine", own)):
            if known.get(name) is None:
                raise TargetError(
                    f"cannot determine `{name}` of {place}: no answer within {ANSWER_S} s, or it cannot be run",
                    hint="try again once the machine is less busy; `iosonde doctor` there names other causes",
                )
        if found[name] != own[name]:
            versions = "versions of iosonde and Dask" if others else "version of iosonde"
            raise TargetError(
                f"host `{host}` must have the same `{name}` as this machine; got `{printable(str(found[name]))}` "
                f"instead of `{own[name]}`",
                hint=f"install the same {versions} on all hosts",
            )


def _cpu() -> dict[str, Any]:
    info = _cpu_info()
    cpus = Path("/sys/devices/system/cpu")
    return {
        "model": info.get("model name") or info.get("Model") or platform.processor() or None,
        "architecture": platform.machine(),
        "microcode": info.get("microcode"),
        "threads": os.cpu_count(),
        "threads_allowed": len(os.sched_getaffinity(0)),
        "cores": _distinct(cpus, "topology/core_id", "topology/physical_package_id"),
        "sockets": _distinct(cpus, "topology/physical_package_id"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "smt": _read(cpus / "smt/control"),
        "governor": _same([_read(path) for path in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))]),
        "frequency_driver": _read(cpus / "cpu0/cpufreq/scaling_driver"),
        "maximum_frequency_khz": _integer(_read(cpus / "cpu0/cpufreq/cpuinfo_max_freq")),
        "boost": _read(cpus / "cpufreq/boost"),
        "no_turbo": _read(cpus / "intel_pstate/no_turbo"),
        "idle_driver": _read(cpus / "cpuidle/current_driver"),
        "mitigations": {path.name: _read(path) for path in sorted((cpus / "vulnerabilities").glob("*"))},
    }


def _memory() -> dict[str, Any]:
    return {
        "total_bytes": _meminfo_bytes("MemTotal"),
        "swap_bytes": _meminfo_bytes("SwapTotal"),
        "transparent_hugepage": _chosen(_read(Path("/sys/kernel/mm/transparent_hugepage/enabled"))),
        "limit_bytes": _memory_limit(),
    }


def _meminfo_bytes(name: str) -> int | None:
    """Of a line such as `MemTotal:  8139752 kB`."""
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        if line.startswith(f"{name}:"):
            kib = _integer(line.split()[1])
            return kib * 1024 if kib is not None else None
    return None


def _kernel() -> dict[str, Any]:
    settings = Path("/proc/sys")
    parameters = (_read(Path("/proc/cmdline")) or "").split()
    clock = Path("/sys/devices/system/clocksource/clocksource0")
    return {
        "system": platform.system(),
        "release": platform.release(),
        "version": platform.version(),
        "cmdline": [parameter for parameter in parameters if parameter.split("=")[0].split(".")[0] in CMDLINE],
        "clocksource": _read(clock / "current_clocksource"),
        "clocksources": (_read(clock / "available_clocksource") or "").split() or None,
        "io_uring_disabled": _integer(_read(settings / "kernel/io_uring_disabled")),
        "dirty_ratio": _integer(_read(settings / "vm/dirty_ratio")),
        "dirty_background_ratio": _integer(_read(settings / "vm/dirty_background_ratio")),
        "dirty_bytes": _integer(_read(settings / "vm/dirty_bytes")),
        "swappiness": _integer(_read(settings / "vm/swappiness")),
    }


def _machine() -> dict[str, Any]:
    dmi = Path("/sys/class/dmi/id")
    return {
        "vendor": _read(dmi / "sys_vendor"),
        "product": _read(dmi / "product_name"),
        "virtualization": _virtualization(),
        "distribution": _distribution(),
        # Distinguishes machines in a collection of results without naming them.
        "host_hash": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
    }


def _software(engines: Mapping[str, Path]) -> dict[str, Any]:
    """Each program of the engine is named as in `engine` and `engine_clients`."""
    found: dict[str, str | None] = {}
    for program, path in engines.items():
        name = program.removeprefix("iosonde-").replace("-", "_")
        found |= {name: _engine_version(path), f"{name}_sha256": _sha256(path)}
    return {
        "iosonde": installed_version("iosonde"),
        **found,
        "python": platform.python_version(),
        "libraries": {name: installed_version(name) for name in LIBRARIES},
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _cpu_info() -> dict[str, str]:
    """The entry of the first processor, and fields outside of any entry (`Model` on some ARM boards)."""
    fields: dict[str, str] = {}
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _virtualization() -> str | None:
    """Return the hypervisor or container, as systemd reports it; `none` on bare metal."""
    asked = ask("systemd-detect-virt")
    if asked is not None:  # It ends with status 1 for `none`.
        return asked.stdout.strip() or None
    # Without systemd, or where it hangs, the processor reports a hypervisor.
    if "hypervisor" in _cpu_info().get("flags", "").split():
        return _read(Path("/sys/hypervisor/type")) or "hypervisor"
    return None


def _distribution() -> str | None:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return None


def _memory_limit() -> int | None:
    """Of the memory cgroup, if there is one and it limits."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _integer(_read(Path(path)))
        if limit is not None and limit < 1 << 60:
            return limit
    return None


def _engine_version(engine: Path) -> str | None:
    asked = ask(engine, "--version")
    return asked.stdout.strip() or None if asked is not None and asked.returncode == 0 else None


_DIGESTS: dict[tuple[int, ...], str] = {}


def _sha256(path: Path) -> str | None:
    """Digest of a file; computed once in a process, unless the file changes: an engine is large."""
    try:
        with os.fdopen(text_files.open_regular(path), "rb") as file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if identity not in _DIGESTS:
                _DIGESTS[identity] = hashlib.file_digest(file, "sha256").hexdigest()
            return _DIGESTS[identity]
    except OSError:
        return None


def _distinct(cpus: Path, *names: str) -> int | None:
    """Number of distinct values in these files over all online processors; None without any."""
    online = [cpu for cpu in cpus.glob("cpu[0-9]*") if (cpu / "topology").exists()]
    return len({tuple(_read(cpu / name) for name in names) for cpu in online}) or None


def _same(values: list[str | None]) -> str | None:
    """The value that all share, or all that occur."""
    return ", ".join(sorted({value for value in values if value is not None})) or None


def _chosen(text: str | None) -> str | None:
    """`madvise` of `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or None if text else None


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(errors="replace", encoding="utf-8").strip()
    return None
