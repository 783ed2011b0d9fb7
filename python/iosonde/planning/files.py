"""Files that are on a target once cases have run, and what is created and removed for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iosonde.plan import OF_WHOLE_DEVICE, Destroys, Setup
from iosonde.planning.draft import Draft
from iosonde.planning.setup_targets import SetupTargets

if TYPE_CHECKING:
    from iosonde.storage import Target


def files_of(drafts: Sequence[Draft]) -> dict[str, int]:
    """The files that are there when all cases have run, with their largest size."""
    files: dict[str, int] = {}
    for draft in drafts:
        for name, size_bytes in draft.workload.files(draft.streams).items():
            files[name] = max(size_bytes, files.get(name, 0))
    return files


def sharing_a_setup(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Cases by setup: their files exist at the same time."""
    groups: dict[tuple[str, ...], list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.setup_key, []).append(draft)
    return list(groups.values())


def _by_setup(drafts: Sequence[Draft]) -> dict[Setup | None, list[Draft]]:
    """Cases that are measured on the same thing."""
    groups: dict[Setup | None, list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.setup, []).append(draft)
    return groups


def destroyed(drafts: Sequence[Draft], stages: SetupTargets[Target], *, keep: bool) -> list[Destroys]:
    """Return everything that setups create and remove, each once, with its largest size."""
    found: dict[str, Destroys] = {}
    for setup, group in _by_setup(drafts).items():
        size_bytes = sum(files_of(group).values())
        takes_all = any(draft.case.parameters.get("purge") in OF_WHOLE_DEVICE for draft in group)
        if stages.on(setup).kind == "device" and takes_all:
            size_bytes = stages.on(setup).free_bytes()
        if size_bytes or stages.on(setup) is not stages.base:
            for each in stages.on(setup).destroys(size_bytes, keep=keep):
                found.setdefault(f"{each.path}: {each.what}", each)
    return list(found.values())
