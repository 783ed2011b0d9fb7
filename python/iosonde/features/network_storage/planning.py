"""Outages that are possible on a target, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.features.network_storage import link
from iosonde.features.network_storage.setup import OUTAGE_LENGTH
from iosonde.features.network_storage.targets import ServerExport
from iosonde.plan import Case, Destroys
from iosonde.units import format_duration, parse_duration

if TYPE_CHECKING:
    from iosonde.storage import Target


def _requirements(case: Case, place: Target) -> Iterator[Destroys]:
    """Yield the route that is cut; `TargetError` for an outage of a server that the target does not have."""
    outage = case.parameters.get("outage")
    has_own = case.setup is not None and any(layer.has_server for layer in case.setup.layers)
    if outage == "server" and not has_own:
        raise _no_server_of_iosonde(place)
    if outage == "link":
        export = getattr(place, "provider", None)
        if isinstance(export, ServerExport):
            server = export.server
        else:
            server = link.address_of({} if has_own else place.describe())
        yield _cut(server, format_duration(parse_duration(case.parameters.get("outage_length") or OUTAGE_LENGTH)))


def _cut(server: str, length: str) -> Destroys:
    what = (
        f"unreachable from this machine for {length} in each run with this outage (blackhole route): all connections "
        "to it stop, your own mounts and SSH sessions included"
    )
    if link.is_ssh_client(server):
        what += f"; your SSH session comes from it and will hang for {length}"
    return Destroys(path=server, what=what)


def _no_server_of_iosonde(place: Target) -> TargetError:
    address = ""
    with suppress(TargetError):
        address = link.address_of(place.describe())
    return TargetError(
        f"the server of `{place.name}` ({address}) is not one of iosonde, which cannot stop it"
        if address
        else f"`{place.name}` has no server that iosonde could stop",
        where='by the parameter `outage = "server"`',
        hint="cut the route to it with `--set outage=link`, or restart it yourself with `--set outage=watch`"
        if address
        else 'choose a setup with a server, `fabric = "nvme-tcp"` or `file_system = "nfs"`, on a kernel that has it '
        "(docs/network.md)",
    )


REQUIREMENTS = (_requirements,)
