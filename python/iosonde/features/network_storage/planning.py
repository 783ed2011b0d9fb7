"""Outages that are possible on a target, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.features.network_storage import link
from iosonde.features.network_storage.targets import ServerExport
from iosonde.plan import Case, Destroys

if TYPE_CHECKING:
    from iosonde.storage import Target


def _requirements(case: Case, place: Target) -> Iterator[Destroys]:
    """`TargetError` for an outage of a server that the target does not have; nothing is overwritten."""
    outage = case.parameters.get("outage")
    has_own = case.setup is not None and any(layer.has_server for layer in case.setup.layers)
    if outage == "server" and not has_own:
        raise _no_server_of_iosonde(place)
    if outage == "link" and not isinstance(getattr(place, "provider", None), ServerExport):
        link.address_of({} if has_own else place.describe())
    yield from ()


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
