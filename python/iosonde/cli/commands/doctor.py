"""`iosonde doctor` and `devices`: what this machine can measure, what is missing, what may distort measurements."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from iosonde.base.check import OTHER_KERNEL, Check
from iosonde.base.features import contributed
from iosonde.base.tools import TOOLS, USES, Tool, ask
from iosonde.cli.options import AS_JSON, option, switch
from iosonde.cli.terminal import print_json, print_table, wrapped
from iosonde.errors import EngineError, TargetError
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage.safety.guard import Device


COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}
_BACKEND = "backend "
_AS_ROOT = ("arrays", "file systems", "block caches", "network storage", "lab")


def doctor_command(
    target: Path = option(
        "PATH", "Device, file or directory on which I/O backends are tried, without writing to it.", default=Path()
    ),
    is_complete: bool = switch("--all", "List every check, with versions and what each is needed for."),
    as_json: bool = AS_JSON,
) -> None:
    """Show what this machine can measure and what is missing.

    Checks the engine, I/O backends, kernel, clock, CPU, memory limits, free space and optional tools. Exits with 1 if
    nothing can be measured.
    """
    found, others = machine(target), software()
    if as_json:
        print_json([asdict(check) for check in (*found, *others)])
    elif is_complete:
        _print_checks((*found, *others))
    else:
        _print_summary(found, others)
    if found[0].state == "missing":
        raise typer.Exit(1)


def _print_checks(checks: Iterable[Check]) -> None:
    rows = [[each.state, each.name, each.found + (f"\n-> {each.advice}" if each.advice else "")] for each in checks]
    print_table(rows, styles=COLOURS)


def _print_summary(on_machine: Sequence[Check], of_software: Sequence[Check]) -> None:
    backends = [check for check in on_machine if check.name.startswith(_BACKEND)]
    problems = [check for check in (*on_machine, *of_software) if check.state == "missing"]
    problems += [check for check in on_machine if check.state == "note" and check not in backends]
    if problems:
        _print_checks(problems)
        print()
    if on_machine[0].state == "missing":
        print("Nothing can be measured without the engine.")
        return
    lacking = {check.name.removesuffix(" in the kernel"): check for check in of_software if check.state != "ok"}
    usable = [check.name.removeprefix(_BACKEND) for check in backends if check.state == "ok"]
    rows = [["block I/O", ", ".join(usable)]]
    rows += [[check.name, check.found] for check in of_software if check.is_use]
    absent: list[tuple[str, list[str]]] = []
    for use, products in USES.items():
        missing = [each for each, tools in products.items() if each in lacking or _not_found(tools)]
        available = ", ".join(each for each in products if each not in missing)
        as_root = " (as root)" if use in _AS_ROOT and os.geteuid() != 0 else ""
        rows.append([use, f"{available}{as_root}" if available else "none"])
        absent += [(use, missing)] if missing else []
    print("Can be measured or used here:")
    print_table([["", *row] for row in rows])
    if absent:
        print("\nNot available here:")
        print_table([["", use, ", ".join(missing)] for use, missing in absent])
        for line in wrapped(_advice([each for _, missing in absent for each in missing], lacking)):
            print(line)
    print("\n`iosonde doctor --all` lists every check with versions. `iosonde list` shows the studies.")


def _not_found(tools: Iterable[str]) -> list[str]:
    return [name for name in tools if TOOLS[name].find() is None]


def _advice(products: Sequence[str], lacking: dict[str, Check]) -> Iterator[str]:
    """Yield one command that installs everything, and what no package of this distribution has."""
    tools = {name for group in USES.values() for each in products for name in _not_found(group.get(each, ()))}
    choices = {TOOLS[name].packages for name in tools}
    known = _known_packages()
    found = {next((each for each in packages if each in known), "") for packages in choices} if known else set()
    chosen = found - {""} if known else {packages[0] for packages in choices}
    if chosen:
        root = "sudo " if os.geteuid() else ""
        where = "" if known else " (names of Debian)"
        yield f"To install{where}: {root}apt install {' '.join(sorted(chosen))}"
    for packages in sorted(choices):
        if known and not known.intersection(packages):
            names = sorted(name for name in tools if TOOLS[name].packages == packages)
            yield f"No package of this distribution: {', '.join(names)}, for {TOOLS[names[0]].purpose}"
    by_advice: dict[str, list[str]] = {}
    for each in dict.fromkeys(products):
        if each in lacking and each not in TOOLS:
            by_advice.setdefault(lacking[each].advice, []).append(each)
    yield from (f"For {', '.join(names)}: {advice}" for advice, names in by_advice.items())


_PACKAGE_LISTS = Path("/var/lib/apt/lists")


def _known_packages() -> set[str]:
    """Packages of this distribution; none where apt has no lists, as in container images."""
    if not any(_PACKAGE_LISTS.glob("*_Packages*")):
        return set()
    asked = ask("apt-cache", "pkgnames")
    return set(asked.stdout.split()) if asked is not None and asked.returncode == 0 else set()


# Checks


_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_CPUS = Path("/sys/devices/system/cpu")
_VULNERABILITIES = _CPUS / "vulnerabilities"


def machine(target: Path) -> list[Check]:
    """Check the engine, the backends of block I/O, and the machine. The first check is that of the engine."""
    return [*_engine_checks(), _clients(), *_backend_checks(target), *_machine_checks()]


def software() -> list[Check]:
    """Check what features use, the kernel's support, and programs that some studies use."""
    of_features: tuple[Callable[[], list[Check]], ...] = contributed("run", "CHECKS")
    return [*(check for checks in of_features for check in checks()), *_kernel_support(), *_tool_checks()]


def _noted(name: str, is_good: bool, found: str, advice: str = "") -> Check:
    """A check that is passed, or a note with advice."""
    return Check(name=name, state="ok" if is_good else "note", found=found, advice="" if is_good else advice)


def _engine_checks() -> Iterator[Check]:
    """The engine, and what it finds by trying."""
    from iosonde.execution.engine import find_engine

    try:
        engine = find_engine()
        probe = _probe(engine)
        error = EngineError(f"{engine} does not respond", hint="rebuild or reinstall it")
    except EngineError as missing:
        probe, error = None, missing
    if probe is None:
        found = ", ".join(filter(None, (error.what, error.where)))
        yield Check(name="engine", state="missing", found=found, advice=error.hint)
        setting = _read(_URING_DISABLED)
        found = f"kernel.io_uring_disabled = {setting or 'unknown'}"
        state: Literal["ok", "note"] = "ok" if setting == "0" else "note"
        yield Check(name="io_uring", state=state, found=found, advice="not tested without an engine")
        return
    yield _noted(
        "engine",
        not str(probe.get("build", "")).startswith("debug"),
        f"{engine}, version {probe.get('version')}, {probe.get('build')}",
        "a debug build is too slow to measure with: build with `--release`",
    )
    features = ", ".join(probe.get("uring_features", []))
    available = f"available, with {features}" if features else "available"
    yield _noted(
        "io_uring",
        bool(probe.get("uring")),
        available if probe.get("uring") else f"refused: {probe.get('uring_error')}",
        f"studies use synchronous I/O instead; {_uring_advice()}",
    )
    clock = probe.get("clock")
    reason = "the CPU's counter is not stable" if _read(_CLOCKSOURCE) else f"`{_CLOCKSOURCE}` cannot be read"
    found = f"{clock}, {float(probe.get('clock_read_ns', 0)):.0f} ns to read"
    yield _noted("clock", clock == "tsc", found, f"timestamps use the system clock, because {reason}")


_URING_DISABLED = Path("/proc/sys/kernel/io_uring_disabled")
_STATUS = Path("/proc/self/status")


def _uring_advice() -> str:
    """Advice that allows io_uring, by the reason for which it is refused."""
    if _read(_URING_DISABLED) in ("1", "2"):
        return "allow io_uring with `sysctl kernel.io_uring_disabled=0`"
    if re.search(r"^Seccomp:\s*2$", _read(_STATUS), re.MULTILINE):
        return "allow io_uring in the seccomp profile of this container or service (`--security-opt seccomp=PROFILE`)"
    return "use a kernel with io_uring"


def _probe(engine: Path) -> dict[str, Any] | None:
    asked = ask(engine, "--probe")
    with suppress(ValueError):
        answer = json.loads(asked.stdout) if asked and not asked.returncode else None
        return answer if isinstance(answer, dict) else None
    return None


def _clients() -> Check:
    """The program for stores whose clients take long to compile."""
    from iosonde.execution.engine import find_engine
    from iosonde.execution.engine_programs import is_built_on_demand, stores_with_clients

    name, stores = "engine clients", f"needed for {stores_with_clients()}"
    try:
        program = find_engine("iosonde-engine-clients")
    except EngineError as error:
        if is_built_on_demand():
            return _noted(name, True, f"built when a study first needs it; {stores}")
        return _noted(name, False, f"{error.what}, {error.where}; {stores}", error.hint)
    version = _version(str(program), "--version")
    if not version:
        return _noted(name, False, f"{program} does not respond; {stores}", "build it again")
    return _noted(name, True, f"{program}, version {version}")


def _backend_checks(target: Path) -> Iterator[Check]:
    """The I/O backends, each tried by a real read of the target; none without an engine."""
    from iosonde.execution.engine import find_engine
    from iosonde.execution.engine_programs import probe_backends

    with suppress(EngineError):
        for each in probe_backends(find_engine(), target):
            lacks = f", without {'; '.join(each.lacks)}" if each.lacks else ""
            found = f"available{lacks}" if each.is_available else f"not available: {each.reason}"
            yield _noted(f"backend {each.name}", each.is_available, found, each.hint)


def _machine_checks() -> Iterator[Check]:
    """Check the kernel's view of the machine."""
    from iosonde.storage.control_groups import hierarchy

    yield Check(name="kernel", state="ok", found=os.uname().release)
    yield from _missing_file_systems()
    yield from _cpu_checks()
    yield _room(Path.cwd())
    if load := other_load():
        yield Check(name="load", state="note", found=load, advice="measure when the machine is idle")
    try:
        yield _noted("memory limits", True, f"cgroup v{hierarchy().version}")
    except TargetError as error:
        yield _noted("memory limits", False, error.what, error.hint)


def _cpu_checks() -> Iterator[Check]:
    """Settings that add CPU time to each I/O."""
    clocksource = _read(_CLOCKSOURCE)
    yield _noted(
        "clocksource",
        clocksource in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"),
        clocksource or f"unknown: `{_CLOCKSOURCE}` cannot be read",
        clocksource and "reading the time is slow with this clock source; see `clocksource=` in the kernel parameters",
    )
    locked_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield _noted(
        "locked memory",
        locked_bytes == resource.RLIM_INFINITY or locked_bytes >= 64 << 20 or os.geteuid() == 0,
        "unlimited" if locked_bytes == resource.RLIM_INFINITY else format_bytes(locked_bytes),
        "buffers above the limit are not registered, which costs CPU time per I/O: `ulimit -l unlimited`",
    )
    governors = sorted({_read(path) for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")})
    if governors:
        advice = "the CPU frequency varies with load: `cpupower frequency-set -g performance`"
        yield _noted("governor", governors == ["performance"], ", ".join(governors), advice)
    else:
        found = "none visible (usual in a virtual machine)" if _CPUS.exists() else f"unknown: no `{_CPUS}`"
        yield _noted("governor", _CPUS.exists(), found)
    mitigations = {path.name: _read(path) for path in sorted(_VULNERABILITIES.glob("*"))}
    active = [name for name, state in mitigations.items() if state.startswith("Mitigation")]
    if mitigations:
        found = f"{len(active)} active ({', '.join(active)})" if active else "none active"
        advice = "they make system calls slower" if active else ""
        yield Check(name="mitigations", state="ok", found=found, advice=advice)
    else:
        yield _noted("mitigations", False, f"unknown: `{_VULNERABILITIES}` cannot be read")


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


def _kernel_support() -> Iterator[Check]:
    """Yield the arrays and file systems of setups for which the kernel needs a module."""
    from iosonde.storage.setups.file_systems import is_known_to_kernel
    from iosonde.storage.tools import state_of

    found = {
        "md": state_of("md-mod") != "missing",
        **{each: is_known_to_kernel(each) for each in ("ext4", "xfs", "btrfs")},
    }
    for name, is_there in found.items():
        state = "available" if is_there else "not available; needed for setups of a study"
        yield _noted(f"{name} in the kernel", is_there, state, OTHER_KERNEL)


def _tool_checks() -> list[Check]:
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
        return _noted("tests and benchmarks", True, f"all {len(tools)} programs found")
    return _noted(
        "tests and benchmarks",
        False,
        f"without {', '.join(tool.name for tool in missing)}; needed only to change or test iosonde",
        f"install the packages {' '.join(dict.fromkeys(tool.packages[0] for tool in missing))}",
    )


def _room(directory: Path) -> Check:
    from iosonde.storage.block_layer.mounts import mount_of

    free, on = shutil.disk_usage(directory).free, ""
    with suppress(TargetError):
        on = f" on {mount.kind} at {mount.point}" if (mount := mount_of(directory)) else ""
    advice = "the study `quick` needs 1 GiB: choose a `--target` with more space"
    return _noted("free space", free >= 2 << 30, f"{format_bytes(free)} free{on}", advice)


def _tool(tool: Tool) -> Check:
    path = tool.find()
    if path is None:
        hint = f"install the package `{tool.packages[0]}`"
        return _noted(tool.name, False, f"not found; needed for {tool.purpose}", hint)
    return _noted(tool.name, True, f"{_version(path, tool.version) or path}, for {tool.purpose}")


def _version(path: str, argument: str) -> str:
    asked = ask(path, argument) if argument else None
    if asked is None:
        return ""
    matched = re.search(r"\d+(?:\.\d+)+[\w.+~:-]*", asked.stdout + asked.stderr)
    return matched[0] if matched else ""


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# Block devices


def devices_command(as_json: bool = AS_JSON) -> None:
    """List block devices and whether they may be overwritten.

    Nothing is written. A study overwrites a device only if it is named as the target and again with `--destroy`.
    """
    from iosonde.storage.pcie import shared_links
    from iosonde.storage.safety.guard import devices

    found = devices()
    shared = [str(link) for link in shared_links([device.facts for device in found]) if link.is_narrow]
    if as_json:
        print_json({"devices": [_document(device) for device in found], "shared_links": shared})
        return
    for device in found:
        print("\n".join([*lines(device), ""]))
    print("".join(f"{line}\n\n" for line in shared), end="")
    print(
        "A block device is overwritten only if it is named as the target and again\n"
        "with --destroy. Any mounted device can be measured through files in a directory."
        if found
        else "no block devices visible (a container?)"
    )


def _document(device: Device) -> dict[str, Any]:
    return {
        "path": f"/dev/{device.facts['name']}",
        "model": device.facts.get("model", ""),
        "serial": device.serial,
        "refusals": device.findings.refusals,
        "contents": device.findings.contents,
        "overwrite": _verdict(device),
        "facts": device.facts,
    }


def lines(device: Device) -> Iterator[str]:
    """One device as text."""
    facts = device.facts
    identity = [facts.get("model", "unknown model"), f"serial {device.serial}" if device.serial else "no serial number"]
    identity += [f"firmware {facts['firmware']}"] if "firmware" in facts else []
    yield f"{facts['name']}  {format_bytes(facts['size_bytes'])}, {', '.join(identity)}"
    yield f"  kind         {_joined([facts['kind'], facts.get('transport'), _medium(facts)])}"
    sectors = (facts.get("logical_block_bytes", 512), facts.get("physical_block_bytes", 512))
    yield f"  sectors      {format_bytes(sectors[0])} logical, {format_bytes(sectors[1])} physical"
    if queue := _queue(facts):
        yield f"  queue        {queue}"
    if "pcie_link" in facts:
        yield f"  link         PCIe {facts['pcie_link']} of {facts['pcie_link_max']}"
    if "temperature_celsius" in facts:
        yield f"  temperature  {facts['temperature_celsius']:.0f} °C"
    if facts.get("under"):
        yield f"  backed by    {', '.join(facts['under'])}"
    for part in device.parts:
        if part.uses:
            yield f"  in use       {part.name} ({format_bytes(part.size_bytes)}) {', '.join(part.uses)}"
    yield f"  overwrite    {_verdict(device)}"


def _verdict(device: Device) -> str:
    directory = next(iter(device.findings.mounted_at), "")
    files = f"; measure files on it with `--target {directory}`" if directory else ""
    if device.findings.refusals:
        return f"no, {'; '.join(device.findings.refusals)}{files}"
    if device.problem:
        return f"unknown, {device.problem}"
    name = f"/dev/{device.facts['name']}"
    options = f"`--target {name} --destroy {name}`"
    if not device.findings.contents:
        return f"yes, with {options}"
    repeated = device.serial or device.facts["size_bytes"]
    return f"yes, with {options} `--confirm {repeated}`; it contains {device.findings.contents}"


def _medium(facts: dict[str, Any]) -> str:
    if not facts.get("rotational"):
        return "not rotational"
    # A hypervisor's disk reports this too, whatever backs it.
    return "rotational (as reported by the hypervisor)" if facts.get("transport") == "virtio" else "rotational"


def _queue(facts: dict[str, Any]) -> str:
    from iosonde.metrics.wording import counted

    parts = [
        f"scheduler {facts['scheduler']}" if "scheduler" in facts else None,
        f"{facts['nr_requests']} requests" if "nr_requests" in facts else None,
        counted(facts["hardware_queues"], "hardware queue") if "hardware_queues" in facts else None,
        f"cache {facts['write_cache']}" if "write_cache" in facts else None,
    ]
    return _joined(parts)


def _joined(parts: list[str | None]) -> str:
    return ", ".join(part for part in parts if part)
