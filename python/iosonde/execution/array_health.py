"""Whether an array came out of a run as it went in: what its state before and after says that a reader must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.results.schema import RecordWarning
from iosonde.units import format_bytes

MEMBER_FAILED = "member_failed"
MEMBER_MISSING = "member_missing"

Json = Mapping[str, Any]


def warnings(setup: Json) -> Iterator[RecordWarning]:
    """Warnings about the array of a record's `setup` (docs/arrays.md)."""
    before, after = setup.get("state") or {}, setup.get("state_after") or {}
    if lacking := _lacking(setup.get("asked") or {}, before):
        yield RecordWarning(
            code=MEMBER_MISSING,
            message=f"the array was not whole any more when the run began: {lacking}",
            hint="the figures are those of a degraded array, whatever the case asks for; replace the device and "
            "measure these runs anew",
        )
    if has_lost_a_member(before, after):
        yield RecordWarning(
            code=MEMBER_FAILED,
            message=f"a member of the array failed during the run: {_lost(before, after)}"
            + _when(setup.get(MEMBER_FAILED) or {}),
            hint="the figures are those of a degraded array, from some moment on; replace the device and run it again",
        )
    if before.get("sync_action", "idle") != "idle" and after.get("sync_action") == "idle":
        yield RecordWarning(
            code="rebuild_ended",
            message="the rebuild ended during the run, so only a part of it shared the members with it",
            hint="measure for a shorter time, or use larger devices",
        )
    if unequal := (setup.get("array") or {}).get("unequal"):
        yield RecordWarning(
            code="unequal_members",
            message=f"the members differ in size, and the smallest counts: {format_bytes(unequal['unused_bytes'])} of "
            "the others are left unused",
            hint="build arrays from devices of one size",
        )


def has_lost_a_member(before: Json, after: Json) -> bool:
    """Whether more members are missing, or return errors, than before."""
    return any((after.get(name) or 0) > (before.get(name) or 0) for name in ("degraded", "errors") if after)


def _lacking(asked: Json, before: Json) -> str:
    """What an array lacks of what its case asks for; nothing where it is as it should be."""
    missing, errors = ((before.get(name) or 0) for name in ("degraded", "errors"))
    if missing > (asked.get("failed_members") or 0):
        return f"{missing} of {before.get('raid_disks', '?')} members were missing"
    return f"{errors} I/Os of its members had failed" if errors else ""


def _lost(before: Json, after: Json) -> str:
    missing, errors = ((after.get(name) or 0) - (before.get(name) or 0) for name in ("degraded", "errors"))
    if missing > 0:
        return f"{_names(before, after)}{after['degraded']} of {after.get('raid_disks', '?')} are missing"
    return f"{errors} of its I/Os failed"


def _names(before: Json, after: Json) -> str:
    """The members that were in order and are not any more, where the kernel tells of each."""
    now = after.get("members") or {}
    failed = [f"`{name}`" for name, state in (before.get("members") or {}).items()
              if "in_sync" in state and "in_sync" not in now.get(name, "")]  # fmt: skip
    return f"{', '.join(failed)}; " if failed else ""


def _when(seen: Json) -> str:
    return f", first seen in interval {seen['interval']} of `{seen['phase']}`" if seen else ""
