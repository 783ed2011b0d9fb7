"""Environment of a session: devices, kernel, versions and settings, as far as they can change results."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from iosonde.results.schema import Record

SHORT = 8
"""Digits of a shortened serial number: records have its hash alone."""


class Device(BaseModel):
    """A device at the bottom of the target's stack."""

    model_config = ConfigDict(frozen=True)
    name: str
    model: str
    firmware: str
    serial: str
    """The first digits of the hash of its serial number."""


MACHINE = {
    ("kernel", "release"): "kernel",
    ("kernel", "cmdline"): "kernel parameters",
    ("kernel", "dirty_ratio"): "vm.dirty_ratio",
    ("kernel", "dirty_background_ratio"): "vm.dirty_background_ratio",
    ("kernel", "swappiness"): "vm.swappiness",
    ("kernel", "clocksource"): "clock source",
    ("cpu", "model"): "CPU",
    ("cpu", "microcode"): "CPU microcode",
    ("cpu", "governor"): "CPU governor",
    ("cpu", "boost"): "CPU boost",
    ("cpu", "no_turbo"): "CPU no_turbo",
    ("cpu", "smt"): "SMT",
    ("cpu", "threads_allowed"): "CPU threads",
    ("memory", "total_bytes"): "memory size",
    ("memory", "transparent_hugepage"): "transparent huge pages",
    ("machine", "host_hash"): "host",
    ("machine", "virtualization"): "virtualization",
    ("machine", "distribution"): "distribution",
    ("software", "iosonde"): "iosonde",
    ("software", "engine"): "engine",
    ("software", "engine_clients"): "engine with clients",
    ("software", "libc"): "C library",
}
"""Facts of an environment that are compared between sessions, with their names in sentences."""

FILE_SYSTEM = {"kind": "file system", "options": "mount options", "block_bytes": "file system block size"}
DEVICE = {
    "firmware": "firmware",
    "scheduler": "I/O scheduler",
    "nr_requests": "nr_requests",
    "read_ahead_kib": "read-ahead",
    "write_cache": "write cache",
    "pcie_link": "PCIe link",
    "level": "RAID level",
    "chunk_size": "RAID chunk size",
}
"""Facts of a device, named with it where there are several."""


def devices_of(records: Sequence[Record]) -> list[Device]:
    """Return the devices without another below them, each once."""
    found = {
        Device(
            name=str(each.get("name", "")),
            model=str(each.get("model", "")),
            firmware=str(each.get("firmware", "")),
            serial=str(each.get("serial_hash", ""))[:SHORT],
        ): None
        for record in records
        for each in _lowest(record.target)
    }
    return list(found)


def wear_of(records: Sequence[Record]) -> tuple[int | None, int | None]:
    """Return power-on hours and percentage used of the drives as last recorded, the highest of several; None if no
    record has them.
    """
    newest = sorted((each for each in records if each.drives), key=lambda each: each.started_at)[-1:]
    ends = [_part(drive, "end") for record in newest for drive in record.drives]
    hours, used = (
        [value for end in ends if isinstance(value := end.get(name), int)]
        for name in ("power_on_hours", "percentage_used")
    )
    return max(hours, default=None), max(used, default=None)


def _lowest(target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    devices = [each for each in target.get("devices", []) if isinstance(each, Mapping)]
    return [each for each in devices if not each.get("under")] or devices


def environment_of(environments: Mapping[str, Mapping[str, Any]], records: Sequence[Record]) -> Mapping[str, Any]:
    """Return machine and software of most runs."""
    used = Counter(record.environment for record in records)
    return next((environments[name] for name, _ in used.most_common() if name in environments), {})


def kernel_of(environment: Mapping[str, Any]) -> str:
    """Return the kernel's release."""
    return _text(_part(environment, "kernel").get("release"))


def software_of(environment: Mapping[str, Any]) -> str:
    """Return the version of iosonde."""
    return _text(_part(environment, "software").get("iosonde"))


def facts_of(environment: Mapping[str, Any], records: Sequence[Record], settings: Mapping[str, str]) -> dict[str, str]:
    """Return every fact that is compared between sessions, by the name that sentences give it."""
    found = {
        name: _text(_part(environment, group).get(key))
        for (group, key), name in MACHINE.items()
        if _part(environment, group).get(key) is not None
    }
    mitigations = _part(_part(environment, "cpu"), "mitigations")
    if mitigations:
        found["CPU mitigations"] = checksum(mitigations)
    for record in records:
        found |= _target_facts(record.target)
        if record.engine.get("build"):
            found["engine build"] = _text(record.engine["build"])
    return found | {f"setting {name}": value for name, value in settings.items()}


def _target_facts(target: Mapping[str, Any]) -> dict[str, str]:
    file_system = _part(target, "file_system")
    found = {name: _text(file_system[key]) for key, name in FILE_SYSTEM.items() if key in file_system}
    devices = [each for each in target.get("devices", []) if isinstance(each, Mapping)]
    alone = len(_lowest(target)) == 1
    for device in devices:
        of = "" if alone and device in _lowest(target) else f" of {device.get('name', '?')}"
        found |= {f"{name}{of}": _text(device[key]) for key, name in DEVICE.items() if device.get(key) is not None}
    return found


def checksum(value: Any) -> str:
    """Return a short checksum of a value as JSON."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return "" if value is None else str(value)
