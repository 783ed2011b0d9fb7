"""`iosonde devices`: every block device, what uses it, and whether iosonde may overwrite it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from iosonde.cli.tables import AsJson, print_json

if TYPE_CHECKING:
    from iosonde.storage.safety.devices import Device, DevicePart


def command(as_json: AsJson = False) -> None:
    """List block devices and whether they may be overwritten.

    Nothing is written. A study overwrites a device only if it is named as the target and again with `--destroy`.
    """
    from iosonde.pcie import shared_links
    from iosonde.storage.safety.devices import devices

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
        "path": f"/dev/{device.name}",
        "model": device.model,
        "serial": device.serial,
        "refusals": device.refusals,
        "contents": device.contents,
        "overwrite": _verdict(device),
        "facts": device.facts,
    }


def lines(device: Device) -> Iterator[str]:
    """One device as text."""
    from iosonde.units import format_bytes

    facts = device.facts
    identity = [device.model or "unknown model", f"serial {device.serial}" if device.serial else "no serial number"]
    identity += [f"firmware {facts['firmware']}"] if "firmware" in facts else []
    yield f"{device.name}  {format_bytes(facts['size_bytes'])}, {', '.join(identity)}"
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
        yield from _use_lines(part)
    yield f"  overwrite    {_verdict(device)}"


def _use_lines(part: DevicePart) -> Iterator[str]:
    from iosonde.units import format_bytes

    if part.uses:
        yield f"  in use       {part.name} ({format_bytes(part.size_bytes)}) {', '.join(part.uses)}"


def _verdict(device: Device) -> str:
    files = f"; measure files on it with `--target {device.directory}`" if device.directory else ""
    if device.refusals:
        return f"no, {'; '.join(device.refusals)}{files}"
    if device.problem:
        return f"unknown, {device.problem}"
    name = f"/dev/{device.name}"
    options = f"`--target {name} --destroy {name}`"
    if not device.contents:
        return f"yes, with {options}"
    repeated = device.serial or device.facts["size_bytes"]
    return f"yes, with {options} `--confirm {repeated}`; it contains {device.contents}"


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
