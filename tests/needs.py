"""Requirements of tests on the machine, each tried once: `@pytest.mark.needs("root", "mkfs.xfs", "kernel support of btrfs")`.

A need is an external program of `iosonde.base.tools` by its name, or one of `CAPABILITIES`. A test whose needs are not met
is skipped, and the reason names what to install or to change. The only other reason is a pause of the machine, where a
test decides by shares of time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from loop_stacks import Loops
from namespaces import private_mounts

from iosonde.base.tools import TOOLS
from iosonde.errors import EngineError, IosondeError

XFS = pytest.mark.needs("mkfs.xfs", "kernel support of xfs")
BTRFS = pytest.mark.needs("mkfs.btrfs", "btrfs", "kernel support of btrfs")


@cache
def lacking(need: str) -> str:
    """Reason for an unmet need; empty if it is met."""
    if need in TOOLS:
        found, package = TOOLS[need].find(), TOOLS[need].packages[0]
        return "" if found else f"`{need}` is not installed: install the package `{package}`"
    name, _, argument = need.partition(" of ")
    return CAPABILITIES[name](*filter(None, [argument]))


def _root() -> str:
    return "" if os.geteuid() == 0 else "not root: run the tests as root"


def _device_node(path: str) -> str:
    return "" if Path(path).exists() else f"no `{path}` on this machine"


def _ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"no IPv6 loopback address: {error}"
    return ""


def _kernel_support(file_system: str) -> str:
    from iosonde.storage.setups import file_systems

    return "" if file_systems.is_known_to_kernel(file_system) else f"no {file_system} in this kernel"


def _devices() -> list[dict[str, Any]]:
    """Those that store temporary files."""
    from iosonde.storage.block_layer.block_stack import describe_path

    with tempfile.TemporaryDirectory() as directory:
        return list(describe_path(Path(directory))["devices"])


def _root_device() -> str:
    number = Path("/").stat().st_dev
    nodes = [path for path in Path("/dev").iterdir() if path.is_block_device() and path.stat().st_rdev == number]
    return "" if nodes else "the root file system has no block device in /dev"


def _single_disk_without_nvme() -> str:
    from iosonde.storage.block_layer import block_stack

    disks = block_stack.drives([each["device"] for each in _devices()])
    if len(disks) != 1:
        return "temporary files are not on a single disk"
    return "the disk here is an NVMe drive" if block_stack.name_of(disks[0]).startswith("nvme") else ""


def _memory_limits() -> str:
    from iosonde.storage import control_groups

    try:
        control_groups.hierarchy()
    except IosondeError as error:
        return error.what
    return ""


def _engine() -> str:
    from iosonde.execution.engine import find_engine

    try:
        find_engine()
    except EngineError as error:
        return f"{error.what}: run `make setup`"
    return ""


def _loop_devices() -> str:
    """Created, formatted and mounted once, because only a trial shows whether it works."""
    if reason := _root() or _device_node("/dev/loop-control"):
        return reason
    with tempfile.TemporaryDirectory() as directory:
        loops = Loops(Path(directory))
        try:
            device = loops.attach(loops.image())
            loops.file_system(device)
            loops.mount(device)
        except (OSError, AssertionError) as error:
            return f"loop devices cannot be made and mounted here: {error}"
        finally:
            loops.close()
    return ""


def _throttle() -> str:
    path = "/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device"
    return "" if os.access(path, os.W_OK) else f"no `{path}`: control group `blkio` of version 1"


def _cpu_quota() -> str:
    path = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    is_offered = os.access("/sys/fs/cgroup/cpu/cgroup.procs", os.W_OK)
    return "" if is_offered else f"no `{path}` in groups: control group `cpu` of version 1"


def _real_time_scheduling() -> str:
    """Groups of the controller `cpu` of version 1 have none unless it is assigned to them (`cpu.rt_runtime_us`)."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError as error:
        return f"no real-time scheduling in this control group: {error.strerror}"
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return ""


def _overlay() -> str:
    """Overlay on a file system in memory, mounted once in a namespace of its own."""
    if reason := _root():
        return reason
    script = "mount -t tmpfs t /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/m && mount -t overlay o -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    done = subprocess.run(private_mounts(script), capture_output=True, text=True, check=False)
    return f"overlay cannot be mounted: {done.stderr.strip()}" if done.returncode else ""


def _tracepoints() -> str:
    """Tracepoints of system calls and of the block layer, in tracefs."""
    from iosonde.features.kernel_trace.instance import NoTracingError, directory

    try:
        events = directory() / "events"
    except NoTracingError as error:
        return str(error)
    wanted = ("syscalls/sys_enter_pread64", "block/block_rq_issue", "sched/sched_waking")
    missing = next((each for each in wanted if not (events / each).exists()), "")
    return f"the kernel has no tracepoint `{missing}`" if missing else ""


CAPABILITIES: dict[str, Callable[..., str]] = {
    "root": _root,
    "root file system on a device node": _root_device,
    "engine": _engine,
    "loop devices": _loop_devices,
    "disk": lambda: "" if _devices() else "temporary files are not on a block device",
    "memory limits": _memory_limits,
    "overlay": _overlay,
    "blkio throttle": _throttle,
    "cpu quota": _cpu_quota,
    "real-time scheduling": _real_time_scheduling,
    "IPv6": _ipv6,
    "FUSE": lambda: _device_node("/dev/fuse"),
    "CPU governor": lambda: _device_node("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "temperature sensor": lambda: (
        "" if any("temperature_celsius" in each for each in _devices()) else "no disk here reports its temperature"
    ),
    "disk without NVMe": _single_disk_without_nvme,
    "tracepoints": _tracepoints,
    "kernel support": _kernel_support,
}
"""Capabilities that can be missing besides programs; `kernel support of btrfs` passes `btrfs` on."""
