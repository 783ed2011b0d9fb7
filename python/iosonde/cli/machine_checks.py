"""Checks of `iosonde doctor`."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from iosonde.core.check import OTHER_KERNEL, Check
from iosonde.core.features import contributed
from iosonde.tools import TOOLS, Tool, ask

_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_CPUS = Path("/sys/devices/system/cpu")
_VULNERABILITIES = _CPUS / "vulnerabilities"


def machine(target: Path) -> list[Check]:
    """Check the engine, the backends of block I/O, and the machine. The first check is that of the engine."""
    return [*engine_checks(), _clients(), *backend_checks(target), *machine_checks(), _memory_limits()]


def software() -> list[Check]:
    """Check what features use, the kernel's support, and programs that some studies use."""
    return [*_feature_checks(), *_kernel_support(), *tool_checks()]


def _feature_checks() -> Iterator[Check]:
    """Yield the checks of features."""
    found: tuple[Callable[[], list[Check]], ...] = contributed("run", "CHECKS")
    for checks in found:
        yield from checks()


def engine_checks() -> Iterator[Check]:
    """The engine, and what it finds by trying."""
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
        yield Check(
            name="engine", state="missing", found=f"{engine} does not respond", advice="rebuild or reinstall it"
        )
        yield _io_uring_by_setting()
        return
    yield _engine(engine, probe)
    yield _io_uring(probe)
    yield _clock(probe)


def _clients() -> Check:
    """The program for stores whose clients take long to compile."""
    from iosonde.errors import EngineError
    from iosonde.execution.engine import find_engine
    from iosonde.execution.engine_programs import is_built_on_demand, stores_with_clients

    name, stores = "engine clients", f"needed for {stores_with_clients()}"
    try:
        program = find_engine("iosonde-engine-clients")
    except EngineError as error:
        if is_built_on_demand():
            return Check(name=name, state="ok", found=f"built when a study first needs it; {stores}")
        return Check(name=name, state="note", found=f"{error.what}, {error.where}; {stores}", advice=error.hint)
    version = _version(str(program), ("--version",))
    if not version:
        return Check(name=name, state="note", found=f"{program} does not respond; {stores}", advice="build it again")
    return Check(name=name, state="ok", found=f"{program}, version {version}")


def backend_checks(target: Path) -> Iterator[Check]:
    """The I/O backends, each tried by a real read of the target; none without an engine."""
    from iosonde.errors import EngineError
    from iosonde.execution.engine import find_engine
    from iosonde.execution.engine_programs import probe_backends

    with suppress(EngineError):
        for each in probe_backends(find_engine(), target):
            lacks = f", without {'; '.join(each.lacks)}" if each.lacks else ""
            yield Check(
                name=f"backend {each.name}",
                state="ok" if each.is_available else "note",
                found=f"available{lacks}" if each.is_available else f"not available: {each.reason}",
                advice="" if each.is_available else each.hint,
            )


def machine_checks() -> Iterator[Check]:
    """Check the kernel's view of the machine."""
    yield Check(name="kernel", state="ok", found=os.uname().release)
    yield from _missing_file_systems()
    yield _clocksource()
    yield _locked_memory()
    yield _governor()
    yield _mitigations()
    yield _room(Path.cwd())
    if load := other_load():
        yield Check(name="load", state="note", found=load, advice="measure when the machine is idle")


BUSY = 0.5
"""Share of all CPU time that other programs use from which on most runs would be undetermined."""
LOOK_SECONDS = 0.3


def _cpu_ticks() -> tuple[int, int]:
    """Ticks of all CPUs: idle or waiting for I/O, and in all (proc_stat(5))."""
    ticks = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def other_load(ticks: Callable[[], tuple[int, int]] = _cpu_ticks) -> str:
    """Text on the CPU time that other programs use while this one waits; empty if it is little, or not known."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        before = ticks()
        time.sleep(LOOK_SECONDS)
        idle, total = (after - start for after, start in zip(ticks(), before, strict=True))
        if 1 - idle / total >= BUSY:
            return f"other programs use {100 * (1 - idle / total):.0f} % of all CPU time"
    return ""


def _missing_file_systems() -> Iterator[Check]:
    """File systems of the kernel that are not mounted."""
    from iosonde.storage.block_layer.block_stack import MOUNT_SYSFS, SYSFS
    from iosonde.storage.block_layer.mounts import MOUNT_PROCFS, TABLE

    if not TABLE.exists():
        advice = f"nothing but simulated drives can be measured without it: {MOUNT_PROCFS}"
        yield Check(name="procfs", state="missing", found=f"`{TABLE}` does not exist", advice=advice)
    if not SYSFS.exists():
        advice = f"block devices cannot be found or observed without it: {MOUNT_SYSFS}"
        yield Check(name="sysfs", state="missing", found=f"`{SYSFS}` does not exist", advice=advice)


def _memory_limits() -> Check:
    """Check that memory limits can be set."""
    from iosonde.errors import TargetError
    from iosonde.storage.control_groups.control_group import hierarchy

    try:
        found = hierarchy()
    except TargetError as error:
        return Check(name="memory limits", state="note", found=error.what, advice=error.hint)
    return Check(name="memory limits", state="ok", found=f"cgroup v{found.version}")


def _kernel_support() -> Iterator[Check]:
    """Yield the arrays and file systems of setups for which the kernel needs a module."""
    from iosonde.storage.block_layer.kernel_modules import state_of
    from iosonde.storage.setups.file_systems import is_known_to_kernel

    found = {
        "md": state_of("md-mod") != "missing",
        **{each: is_known_to_kernel(each) for each in ("ext4", "xfs", "btrfs")},
    }
    for name, is_there in found.items():
        yield Check(
            name=f"{name} in the kernel",
            state="ok" if is_there else "note",
            found="available" if is_there else "not available; needed for setups of a study",
            advice="" if is_there else OTHER_KERNEL,
        )


def tool_checks() -> list[Check]:
    """External programs that some studies use, those that every Debian has only if they are missing.

    Programs of tests and benchmarks are one check: they matter only to developers of iosonde.
    """
    programs = [tool for tool in TOOLS.values() if tool.form == "program"]
    wanted = [tool for tool in programs if tool.is_for_studies and not (tool.is_in_every_debian and tool.find())]
    with ThreadPoolExecutor() as pool:
        return [
            *pool.map(_tool, wanted),
            _development([tool for tool in programs if not tool.is_for_studies and tool.kind == "dev"]),
        ]


def _development(tools: Sequence[Tool]) -> Check:
    missing = [tool for tool in tools if tool.find() is None]
    if not missing:
        return Check(name="tests and benchmarks", state="ok", found=f"all {len(tools)} programs found")
    return Check(
        name="tests and benchmarks",
        state="note",
        found=f"without {', '.join(tool.name for tool in missing)}; needed only to change or test iosonde",
        advice=f"install the packages {' '.join(dict.fromkeys(tool.packages[0] for tool in missing))}",
    )


def _engine(engine: Path, probe: dict[str, Any]) -> Check:
    is_debug = str(probe.get("build", "")).startswith("debug")
    return Check(
        name="engine",
        state="note" if is_debug else "ok",
        found=f"{engine}, version {probe.get('version')}, {probe.get('build')}",
        advice="a debug build is too slow to measure with: build with `--release`" if is_debug else "",
    )


def _io_uring(probe: dict[str, Any]) -> Check:
    if probe.get("uring"):
        features = ", ".join(probe.get("uring_features", []))
        return Check(name="io_uring", state="ok", found=f"available, with {features}" if features else "available")
    return Check(
        name="io_uring",
        state="note",
        found=f"refused: {probe.get('uring_error')}",
        advice="studies use synchronous I/O instead; allow io_uring with "
        "`sysctl kernel.io_uring_disabled=0`, or in the container's seccomp profile",
    )


def _io_uring_by_setting() -> Check:
    setting = _read("/proc/sys/kernel/io_uring_disabled")
    state: Literal["ok", "note"] = "ok" if setting == "0" else "note"
    return Check(
        name="io_uring",
        state=state,
        found=f"kernel.io_uring_disabled = {setting or 'unknown'}",
        advice="not tested without an engine",
    )


def _clock(probe: dict[str, Any]) -> Check:
    name, cost_ns = probe.get("clock"), float(probe.get("clock_read_ns", 0))
    reason = "the CPU's counter is not stable" if _read(_CLOCKSOURCE) else f"`{_CLOCKSOURCE}` cannot be read"
    return Check(
        name="clock",
        state="ok" if name == "tsc" else "note",
        found=f"{name}, {cost_ns:.0f} ns to read",
        advice="" if name == "tsc" else f"timestamps use the system clock, because {reason}",
    )


def _clocksource() -> Check:
    name = _read(_CLOCKSOURCE)
    if not name:
        return Check(name="clocksource", state="note", found=f"unknown: `{_CLOCKSOURCE}` cannot be read")
    is_fast = name in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
    return Check(
        name="clocksource",
        state="ok" if is_fast else "note",
        found=name,
        advice=""
        if is_fast
        else "reading the time is slow with this clock source; see `clocksource=` in the kernel parameters",
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
        else "buffers above the limit are not registered, which costs CPU time per I/O: `ulimit -l unlimited`",
    )


def _governor() -> Check:
    cpus = sorted(_CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({_read(path) for path in cpus})
    if not governors:
        found = "none visible (usual in a virtual machine)" if _CPUS.exists() else f"unknown: no `{_CPUS}`"
        return Check(name="governor", state="ok" if _CPUS.exists() else "note", found=found)
    is_steady = governors == ["performance"]
    return Check(
        name="governor",
        state="ok" if is_steady else "note",
        found=", ".join(governors),
        advice="" if is_steady else "the CPU frequency varies with load: `cpupower frequency-set -g performance`",
    )


def _mitigations() -> Check:
    states = {path.name: _read(path) for path in sorted(_VULNERABILITIES.glob("*"))}
    if not states:
        return Check(name="mitigations", state="note", found=f"unknown: `{_VULNERABILITIES}` cannot be read")
    active = [name for name, state in states.items() if state.startswith("Mitigation")]
    found = f"{len(active)} active ({', '.join(active)})" if active else "none active"
    return Check(name="mitigations", state="ok", found=found, advice="they make system calls slower" if active else "")


def _room(directory: Path) -> Check:
    from iosonde.errors import TargetError
    from iosonde.storage.block_layer.mounts import mount_of
    from iosonde.units import format_bytes

    usage = shutil.disk_usage(directory)
    mount = None
    with suppress(TargetError):
        mount = mount_of(directory)
    on = f" on {mount.kind} at {mount.point}" if mount else ""
    is_enough = usage.free >= 2 << 30
    return Check(
        name="free space",
        state="ok" if is_enough else "note",
        found=f"{format_bytes(usage.free)} free{on}",
        advice="" if is_enough else "the study `quick` needs 1 GiB: choose a `--target` with more space",
    )


def _tool(tool: Tool) -> Check:
    path = tool.find()
    if path is None:
        hint = f"install the package `{tool.packages[0]}`"
        return Check(name=tool.name, state="note", found=f"not found; needed for {tool.purpose}", advice=hint)
    return Check(name=tool.name, state="ok", found=f"{_version(path, tool.version) or path}, for {tool.purpose}")


def _version(path: str, arguments: Sequence[str]) -> str:
    if not arguments:
        return ""
    asked = ask(path, *arguments)
    if asked is None:
        return ""
    matched = re.search(r"\d+(?:\.\d+)+[\w.+~:-]*", asked.stdout + asked.stderr)
    return matched[0] if matched else ""


def _probe(engine: Path) -> dict[str, Any] | None:
    asked = ask(engine, "--probe")
    if asked is None or asked.returncode:
        return None
    try:
        answer = json.loads(asked.stdout)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
