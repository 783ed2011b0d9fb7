"""Requirements of a case with swap on its target and on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.features.swap_areas import area, settings
from iosonde.features.swap_areas.setup import DEFAULT_BYTES, uses_swap
from iosonde.plan import Case, Destroys
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target


def _requirements(case: Case, place: Target) -> Iterator[Destroys]:
    """Yield what is created as swap, or overwritten; `TargetError` if it is impossible here."""
    parameters = case.parameters
    if uses_swap(parameters):
        area.check_possible()
    settings.check_possible(settings.requested(parameters))
    if parameters.get("swap") == "zram":
        area.check_zram()
    elif uses_swap(parameters):
        yield _on_target(place, parameters.get("swap_size"))


def _on_target(place: Target, size_bytes: int | None) -> Destroys:
    if place.kind not in ("directory", "device"):
        raise TargetError(
            f"`{place.name}` cannot be a swap area",
            where="by the parameter `swap`",
            hint="name a directory or a block device as the target",
        )
    size_bytes = size_bytes or (DEFAULT_BYTES if place.kind == "directory" else 0)
    if size_bytes > place.free_bytes():
        raise TargetError(
            f"no room for a swap area of {format_bytes(size_bytes)} on `{place.name}`: "
            f"{format_bytes(place.free_bytes())} are free",
            where="by the parameter `swap_size`",
            hint="make it smaller with `--set swap_size=...`, or name another target",
        )
    if place.kind == "device":
        return Destroys(path=place.name, what="overwrites it as a swap area for each run that swaps")
    return Destroys(
        path=f"{place.name}/{place.own}-setup",
        what=f"creates a swap file of {format_bytes(size_bytes)} for each run that swaps, and removes it after the run",
    )


REQUIREMENTS = (_requirements,)
