"""Swap of cases: availability, and areas that are created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iosonde.errors import IosondeError, TargetError
from iosonde.plan import Destroys
from iosonde.planning.draft import Draft, in_case
from iosonde.storage.setups import memory_settings, swap
from iosonde.study.model import Study
from iosonde.study.swap import DEFAULT_BYTES
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target


def check_swap(drafts: Sequence[Draft], place: Target, study: Study) -> None:
    """`TargetError` for the first case whose swap is impossible here."""
    for draft in drafts:
        try:
            _check(draft, place)
        except IosondeError as error:
            raise in_case(error, draft.case.case_id, study) from None


def swap_areas(drafts: Sequence[Draft], place: Target) -> Iterator[Destroys]:
    """Yield the swap that is created or overwritten; each area once."""
    sizes = [_size(draft) for draft in drafts if draft.case.parameters.get("swap") == "target"]
    if not sizes:
        return
    if place.kind == "directory":
        what = f"creates a swap file of {format_bytes(max(size or DEFAULT_BYTES for size in sizes))} for each run that "
        yield Destroys(path=f"{place.name}/{place.own}-setup", what=f"{what}swaps, and removes it after the run")
    else:
        yield Destroys(path=place.name, what="overwrites it as a swap area for each run that swaps")


def _check(draft: Draft, place: Target) -> None:
    parameters = draft.case.parameters
    kind = parameters.get("swap")
    if kind in ("target", "zram"):
        swap.check_possible()
    settings = {name: parameters[name] for name in memory_settings.FILES if parameters.get(name) is not None}
    memory_settings.check_possible(settings)
    if kind not in ("target", "zram"):
        return
    if kind == "zram":
        return swap.check_zram()
    if place.kind not in ("directory", "device"):
        raise TargetError(
            f"`{place.name}` cannot be a swap area",
            where="by the parameter `swap`",
            hint="name a directory or a block device as the target",
        )
    size = _size(draft) or (DEFAULT_BYTES if place.kind == "directory" else 0)
    if size > place.free_bytes():
        raise TargetError(
            f"no room for a swap area of {format_bytes(size)} on `{place.name}`: {format_bytes(place.free_bytes())} "
            "are free",
            where="by the parameter `swap_size`",
            hint="make it smaller with `--set swap_size=...`, or name another target",
        )


def _size(draft: Draft) -> int | None:
    size: int | None = draft.case.parameters.get("swap_size")
    return size
