"""`iosonde doctor`: what this machine offers, what is missing, and what may mislead."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the examination."""

    name: str
    state: Literal["ok", "note", "missing"]
    found: str
    advice: str = ""


COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}

TOOLS = {
    "fio": ("--version", "comparison with fio (`bench/`)"),
    "chromium": ("--version", "the tests of the HTML report"),
    "mdadm": ("--version", "arrays"),
    "nvme": ("version", "wear and media counters in the record"),
    "blkid": ("--version", "signatures in `iosonde devices`"),
    "wipefs": ("--version", "what a block device holds, before it may be a target"),
    "mkfs.ext4": ("-V", "file systems made for a study"),
    "mkfs.xfs": ("-V", "file systems made for a study"),
    "mkfs.btrfs": ("--version", "file systems made for a study"),
    "qemu-storage-daemon": ("--version", "devices of known performance (`iosonde lab device`)"),
    "qemu-system-x86_64": ("--version", "the lab's virtual machine with throttled drives (`iosonde lab run`)"),
    "virtiofsd": ("--version", "the same: it shares folders with the guest"),
    "cpio": ("--version", "the image of that machine"),
    "depmod": ("--version", "the image of that machine"),
}
"""Programs that some studies or tests use: how to ask for the version, and what for."""


def command() -> None:
    """Examine this machine: engine, kernel, clock, processor, room, and the tools that some studies need.

    The exit code is 0 unless nothing could be measured.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    checks = [*engine_checks(), *machine_checks(), _memory_limits(), _simulated_drives(), _rocksdb(), *tool_checks()]
    table = Table.grid(padding=(0, 2))
    for check in checks:
        text = check.found + (f"\n-> {check.advice}" if check.advice else "")
        table.add_row(Text(check.state, style=COLOURS[check.state]), check.name, text)
    Console(highlight=False, markup=False).print(table)
    if checks[0].state == "missing":
        raise typer.Exit(1)


def engine_checks() -> Iterator[Check]:
    """The engine first: without it nothing runs. Then what it finds by trying."""
    from iosonde.errors import EngineError
    from iosonde.execution.engine import find_engine

    try:
        engine = find_engine()
    except EngineError as error:
        yield Check(name="engine", state="missing", found=f"{error.what}, {error.where}", advice=error.hint)
        yield _io_uring_by_setting()
        return
    probe = _probe(engine)
    if probe is None:
        yield Check(name="engine", state="missing", found=f"{engine} does not answer", advice="build it again")
        yield _io_uring_by_setting()
        return
    yield _engine(engine, probe)
    yield _io_uring(probe)
    yield _clock(probe)


def machine_checks() -> Iterator[Check]:
    """What the kernel tells about the machine."""
    yield Check(name="kernel", state="ok", found=os.uname().release)
    yield _clocksource()
    yield _locked_memory()
    yield _governor()
    yield _mitigations()
    yield _room(Path.cwd())


def _memory_limits() -> Check:
    """Whether a database can be held to a part of the memory."""
    from iosonde.errors import TargetError
    from iosonde.storage.control_group import hierarchy

    try:
        found = hierarchy()
    except TargetError as error:
        return Check(name="memory limits", state="note", found=error.what, advice=error.hint)
    return Check(name="memory limits", state="ok", found=f"control groups of version {found.version}")


def _rocksdb() -> Check:
    """The library that the engine loads unless a study names another."""
    library = ctypes.util.find_library("rocksdb")
    if library is None:
        return Check(
            name="RocksDB",
            state="note",
            found="no librocksdb.so found; for the store `rocksdb`",
            advice="install Debian's `librocksdb7.8`, or name a library in the study; the other stores need none",
        )
    return Check(name="RocksDB", state="ok", found=f"{library}, for the store `rocksdb`")


def _simulated_drives() -> Check:
    """What can be measured without any device at hand."""
    from iosonde.storage.drive_model import models

    names = ", ".join(models())
    if not names:
        return Check(name="simulated drives", state="missing", found="no models", advice="install iosonde again")
    return Check(name="simulated drives", state="ok", found=f"{names} (`iosonde list --drives`)")


def tool_checks() -> list[Check]:
    """Programs that some studies or tests use."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda tool: _tool(tool, *TOOLS[tool]), TOOLS))


def _engine(engine: Path, probe: dict[str, Any]) -> Check:
    is_debug = str(probe.get("build", "")).startswith("debug")
    return Check(
        name="engine",
        state="note" if is_debug else "ok",
        found=f"{engine}, version {probe.get('version')}, {probe.get('build')}",
        advice="a debug build measures itself: build with `--release`" if is_debug else "",
    )


def _io_uring(probe: dict[str, Any]) -> Check:
    if probe.get("uring"):
        features = ", ".join(probe.get("uring_features", []))
        return Check(name="io_uring", state="ok", found=f"works, with {features}" if features else "works")
    return Check(
        name="io_uring",
        state="note",
        found=f"refused: {probe.get('uring_error')}",
        advice="studies fall back to one I/O at a time in each thread; allow it with "
        "`sysctl kernel.io_uring_disabled=0`, or in the container's seccomp profile",
    )


def _io_uring_by_setting() -> Check:
    setting = _read("/proc/sys/kernel/io_uring_disabled")
    state: Literal["ok", "note"] = "ok" if setting == "0" else "note"
    return Check(
        name="io_uring", state=state, found=f"kernel.io_uring_disabled = {setting or 'unknown'}", advice="not tried"
    )


def _clock(probe: dict[str, Any]) -> Check:
    name, cost_ns = probe.get("clock"), float(probe.get("clock_read_ns", 0))
    return Check(
        name="clock",
        state="ok" if name == "tsc" else "note",
        found=f"{name}, {cost_ns:.0f} ns to read",
        advice=""
        if name == "tsc"
        else "latencies cost two system clock reads per I/O: the processor's counter is not stable",
    )


def _clocksource() -> Check:
    name = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    is_fast = name in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
    return Check(
        name="clocksource",
        state="ok" if is_fast else "note",
        found=name or "unknown",
        advice=""
        if is_fast
        else "reading the time is slow with this one; see `clocksource=` in the kernel's parameters",
    )


def _locked_memory() -> Check:
    from iosonde.units import format_bytes

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_large = soft == resource.RLIM_INFINITY or soft >= 64 << 20 or os.geteuid() == 0
    return Check(
        name="locked memory",
        state="ok" if is_large else "note",
        found="unlimited" if soft == resource.RLIM_INFINITY else format_bytes(soft),
        advice=""
        if is_large
        else "buffers beyond it are not registered with the ring, which costs time per I/O: `ulimit -l unlimited`",
    )


def _governor() -> Check:
    cpus = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({_read(path) for path in cpus})
    if not governors:
        return Check(name="governor", state="ok", found="none to be seen (usual in a virtual machine)")
    is_steady = governors == ["performance"]
    return Check(
        name="governor",
        state="ok" if is_steady else "note",
        found=", ".join(governors),
        advice="" if is_steady else "the processor's speed varies with load: `cpupower frequency-set -g performance`",
    )


def _mitigations() -> Check:
    states = {path.name: _read(path) for path in sorted(Path("/sys/devices/system/cpu/vulnerabilities").glob("*"))}
    active = [name for name, state in states.items() if state.startswith("Mitigation")]
    found = f"{len(active)} active ({', '.join(active)})" if active else "none active"
    return Check(
        name="mitigations", state="ok", found=found, advice="they make every system call dearer" if active else ""
    )


def _room(directory: Path) -> Check:
    from iosonde.storage.mounts import mount_of
    from iosonde.units import format_bytes

    usage = shutil.disk_usage(directory)
    mount = mount_of(directory)
    on = f" on {mount.kind} at {mount.point}" if mount else ""
    is_enough = usage.free >= 2 << 30
    return Check(
        name="room here",
        state="ok" if is_enough else "note",
        found=f"{format_bytes(usage.free)} free{on}",
        advice="" if is_enough else "the study `quick` needs 1 GiB: name a `--target` with more room",
    )


def _tool(tool: str, version_option: str, purpose: str) -> Check:
    path = shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin:/usr/lib/qemu:/usr/libexec")
    if path is None:
        return Check(name=tool, state="note", found=f"not found; for {purpose}")
    return Check(name=tool, state="ok", found=f"{_version(path, version_option) or path}, for {purpose}")


def _version(path: str, option: str) -> str:
    try:
        asked = subprocess.run(
            [path, option], capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    matched = re.search(r"\d+(?:\.\d+)+[^\s,)]*", asked.stdout + asked.stderr)
    return matched[0] if matched else ""


def _probe(engine: Path) -> dict[str, Any] | None:
    try:
        asked = subprocess.run(
            [engine, "--probe"], capture_output=True, text=True, timeout=10, check=True, stdin=subprocess.DEVNULL
        )
        answer = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
