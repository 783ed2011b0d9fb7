"""PCIe links: what they carry, and which devices share one.

Drives behind a switch or a host bus adapter share its link to the processor, and together move no more than it carries,
however fast each of them is. A link is known by the function under it: all that the kernel finds below that function
goes through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iosonde.units import format_bandwidth

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
"""Domain, bus, device and function of a PCI device."""

ENCODED_8B10B_GT = 5.0
"""Up to this rate eight bits travel as ten (PCIe 1 and 2)."""
ENCODED_128B130B_GT = 32.0
"""Up to this one 128 bits as 130 (PCIe 3 to 5); PCIe 6 sends bits as they are."""


@dataclass(frozen=True, kw_only=True)
class SharedLink:
    """A link that several devices go through."""

    address: str
    """Of the function under it, such as `0000:01:00.0`."""
    link: str
    """As the kernel has it: `8.0 GT/s PCIe x4`."""
    bytes_per_second: float
    """In each direction, at most."""
    devices: tuple[str, ...]
    own_bytes_per_second: float | None
    """Sum of the devices' own links; None if they have none (SATA and SAS)."""

    @property
    def is_narrow(self) -> bool:
        """True if the link can limit the devices: their own links carry more than it does, or are not known."""
        return self.own_bytes_per_second is None or self.own_bytes_per_second > self.bytes_per_second

    def __str__(self) -> str:
        names = f"{', '.join(self.devices[:-1])} and {self.devices[-1]}"
        own = "" if self.own_bytes_per_second is None else (
            f", and their own links {format_bandwidth(self.own_bytes_per_second)}"
        )  # fmt: skip
        return (
            f"{names} share the PCIe link of {self.address} ({self.link}): together "
            f"{format_bandwidth(self.bytes_per_second)} in each direction at most{own}"
        )


def bytes_per_second(link: str) -> float | None:
    """Return the bandwidth of a link (`8.0 GT/s PCIe x4`) in each direction after encoding; None if not reported.

    As the kernel's `pcie_bandwidth_available` reckons: rate x lanes less the encoding. Headers of packets take some
    more, a tenth and upwards, by the size of payload that both ends agree on; so it is a bound that no drive reaches.
    """
    rate, _, rest = link.partition(" GT/s")
    lanes = rest.rpartition("x")[2]
    try:
        gigatransfers, width = float(rate), int(lanes)
    except ValueError:
        return None
    if width <= 0:
        return None
    encoding = 0.8 if gigatransfers <= ENCODED_8B10B_GT else 128 / 130 if gigatransfers <= ENCODED_128B130B_GT else 1.0
    return gigatransfers * 1e9 * width * encoding / 8


def shared_links(devices: Sequence[Mapping[str, Any]]) -> list[SharedLink]:
    """Return the links that more than one of these devices goes through, those that most share first.

    `devices` are facts of `block_stack.describe`: `name`, and `pcie_path`, from the device's own function up. Of links
    that the same devices share only the slowest is reported, the nearest of equals.
    """
    through: dict[str, dict[str, str]] = {}
    for device in devices:
        for function in device.get("pcie_path") or []:
            through.setdefault(function["address"], {"": function["link"]})[device["name"]] = ""
    found: dict[tuple[str, ...], SharedLink] = {}
    for address, names in through.items():
        sharing, carried = tuple(name for name in names if name), bytes_per_second(names[""])
        if len(sharing) > 1 and carried and (sharing not in found or carried < found[sharing].bytes_per_second):
            own = [_own(device, address) for device in devices if device["name"] in sharing]
            found[sharing] = SharedLink(
                address=address,
                link=names[""],
                bytes_per_second=carried,
                devices=sharing,
                own_bytes_per_second=None if None in own else sum(each for each in own if each),
            )
    return sorted(found.values(), key=lambda shared: -len(shared.devices))


def of_all(devices: Sequence[Mapping[str, Any]]) -> float | None:
    """Return what these devices carry together at most, when each moves as much as any other; None where none share.

    A link of k among N devices lets all of them have N/k times what it carries.
    """
    shares = [len(devices) / len(shared.devices) * shared.bytes_per_second for shared in shared_links(devices)]
    return min(shares, default=None)


def _own(device: Mapping[str, Any], shared: str) -> float | None:
    """Return the bandwidth of the device's own link; None where its first function is the shared one already."""
    nearest = device["pcie_path"][0]
    return None if nearest["address"] == shared else bytes_per_second(nearest["link"])
