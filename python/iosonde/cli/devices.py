"""`iosonde devices`: every block device, and what stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iosonde.storage.devices import Device, Standing


def command() -> None:
    """Show every block device: what it is, what stands on it, and whether iosonde may use it.

    Nothing is written. A device that may be used is named as a target, and once more with `--destroy`.
    """
    from iosonde.pcie import shared_links
    from iosonde.storage.devices import devices

    found = devices()
    for device in found:
        print("\n".join([*lines(device), ""]))
    shared = [f"{link}\n" for link in shared_links([device.facts for device in found]) if link.is_narrow]
    print("".join(f"{line}\n" for line in shared), end="")
    print(
        "A block device is overwritten only if the command names it as the target and again with --destroy. Files in a "
        "directory can be measured on any of them: its block devices are watched."
        if found
        else "no block devices are to be seen here (a container?)"
    )


def lines(device: Device) -> Iterator[str]:
    """One device as text."""
    from iosonde.units import format_bytes

    facts = device.facts
    identity = [device.model or "no model", f"serial {device.serial}" if device.serial else "no serial"]
    identity += [f"firmware {facts['firmware']}"] if "firmware" in facts else []
    yield f"{device.name}  {format_bytes(facts['size_bytes'])}, {', '.join(identity)}"
    yield f"  kind      {_joined([facts['kind'], facts.get('transport'), _medium(facts)])}"
    sectors = (facts.get("logical_block_bytes", 512), facts.get("physical_block_bytes", 512))
    yield f"  sectors   {format_bytes(sectors[0])} logical, {format_bytes(sectors[1])} physical"
    yield f"  queue     {_queue(facts)}"
    if "pcie_link" in facts:
        yield f"  link      PCIe {facts['pcie_link']} of {facts['pcie_link_max']}"
    if "temperature_celsius" in facts:
        yield f"  heat      {facts['temperature_celsius']:.0f} degrees Celsius"
    if facts.get("under"):
        yield f"  on        {', '.join(facts['under'])}"
    for part in device.standing:
        yield from _standing_lines(part)
    yield f"  may be written: {_verdict(device)}"


def _standing_lines(part: Standing) -> Iterator[str]:
    from iosonde.units import format_bytes

    if part.uses:
        yield f"  holds     {part.name} ({format_bytes(part.size_bytes)}) {', '.join(part.uses)}"


def _verdict(device: Device) -> str:
    instead = f"; `--target {device.directory}` measures files on it" if device.directory else ""
    if device.refusals:
        return f"no, {'; '.join(device.refusals)}{instead}"
    if device.problem:
        return f"not known, {device.problem}"
    name = f"/dev/{device.name}"
    asked = f"`--target {name} --destroy {name}`"
    if not device.holdings:
        return f"yes, with {asked}"
    repeated = device.serial or device.facts["size_bytes"]
    return f"yes, with {asked} and `--confirm {repeated}`, for it holds {device.holdings}"


def _medium(facts: dict[str, Any]) -> str:
    if not facts.get("rotational"):
        return "not rotational"
    # A hypervisor's disk says so too, whatever stands behind it.
    return "rotational as the hypervisor has it" if facts.get("transport") == "virtio" else "rotational"


def _queue(facts: dict[str, Any]) -> str:
    parts = [
        f"scheduler {facts['scheduler']}" if "scheduler" in facts else None,
        f"{facts['nr_requests']} requests" if "nr_requests" in facts else None,
        f"{facts['hardware_queues']} hardware queues" if "hardware_queues" in facts else None,
        f"cache {facts['write_cache']}" if "write_cache" in facts else None,
    ]
    return _joined(parts)


def _joined(parts: list[str | None]) -> str:
    return ", ".join(part for part in parts if part)
