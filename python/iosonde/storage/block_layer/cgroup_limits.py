"""Limits that control groups put on a block device's I/O, for this process: facts that cap a figure.

Both hierarchies are read: `blkio.throttle.*` of version 1 and `io.max` of version 2 (kernel
`Documentation/admin-guide/cgroup-v1/blkio-controller.rst`, `cgroup-v2.rst`). A limit of any ancestor counts.
"""

from __future__ import annotations

from pathlib import Path

THROTTLES = ("read_bps_device", "write_bps_device", "read_iops_device", "write_iops_device")

CONTROLS = ("io.latency", "io.cost.model", "io.cost.qos")
"""The last two are only in the root group."""


def limits(device: str) -> list[str]:
    """Every limit on a device (`major:minor`), such as `read_iops_device 2000`."""
    found = [limit for group in _groups("blkio") for limit in _version_1(group, device)]
    return list(dict.fromkeys(found + [limit for group in _groups("") for limit in _version_2(group, device)]))


def controls(device: str) -> list[str]:
    """Further settings of the kernel's I/O controllers for a device: `io.latency`, `io.cost.model`, `io.cost.qos`.

    They protect other groups rather than state a rate, so they are no limits; they may still slow this process down.
    """
    found = [
        f"{file} {setting}"
        for group in _groups("")
        for file in CONTROLS
        for line in _lines(group / file)
        if line.split()[0] == device and (setting := " ".join(line.split()[1:]))
    ]
    return list(dict.fromkeys(found))


def _groups(controller: str) -> list[Path]:
    """This process's group of a hierarchy and its ancestors, as directories; `` is version 2."""
    mounted = _mounted(controller)
    if mounted is None:
        return []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = mounted / path.lstrip("/")
            return [group for group in (own, *own.parents) if group.is_relative_to(mounted)]
    return []


def _mounted(controller: str) -> Path | None:
    """Mount point of a hierarchy."""
    from iosonde.storage.block_layer.mounts import mounts

    for mount in mounts():
        is_wanted = controller in mount.options if controller else mount.kind == "cgroup2"
        if is_wanted and mount.kind in ("cgroup", "cgroup2"):
            return Path(mount.point)
    return None


def _version_1(group: Path, device: str) -> list[str]:
    return [
        f"{throttle} {line.split()[1]}"
        for throttle in THROTTLES
        for line in _lines(group / f"blkio.throttle.{throttle}")
        if line.split()[0] == device
    ]


def _version_2(group: Path, device: str) -> list[str]:
    """Of a line such as `259:0 rbps=max wbps=max riops=2000 wiops=max`."""
    return [
        limit
        for line in _lines(group / "io.max")
        if line.split()[0] == device
        for limit in line.split()[1:]
        if not limit.endswith("=max")
    ]


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError:
        return []
