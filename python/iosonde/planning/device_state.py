"""The device state that a plan prepares for a case: the one that its study declares, or what target and profile allow.

SNIA's terms: *fresh* after a purge, *preconditioned* once the range was written, *steady* once the rate of writes has
settled. A small active range on a purged drive never gets there: the spare blocks absorb its writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iosonde.plan import Case, DeviceState
from iosonde.study.model import Part, Study
from iosonde.units import format_bytes
from iosonde.workload.block.backends import VIRTUAL_DRIVES
from iosonde.workload.block.parameters import BlockParameters
from iosonde.workload.workload import Room

SMALLEST_RANGE = 0.75
"""Share of the capacity that a purged drive's active range needs: SNIA tests clients at 75 % and 100 %."""

SPANS_TO_STEADY = 2
"""Without preconditioning, a run that writes less than this many times its range cannot reach steady state."""


@dataclass(frozen=True, kw_only=True)
class Attained:
    """The state of a case's device when it is measured."""

    state: DeviceState
    reason: str = ""
    """Reason for a state other than the declared one."""


def attained(study: Study, part: Part, loads: Sequence[Mapping[str, Any]], target: Room) -> Attained:
    """The state for all `loads` of a case; `not_applicable` where they write nothing, or nothing is stored."""
    streams = [stream for load in loads for stream in load.values()]
    blocks = [stream for stream in streams if isinstance(stream, BlockParameters)]
    given = target.backend()
    is_virtual_drive = given is not None and given["kind"] in VIRTUAL_DRIVES
    if blocks and not any(_writes(stream) for stream in blocks):
        return Attained(state="not_applicable")
    if not is_virtual_drive and (given is not None or any(stream.is_virtual for stream in blocks)):
        return Attained(state="not_applicable")
    declared = part.device_state or study.device_state or "unknown"
    if declared == "unknown":
        return Attained(state="unknown")
    if not blocks or not part.rounds:
        return Attained(state="unknown", reason="nothing prepares the device before these runs")
    if not is_virtual_drive and target.direct_unit() is not None and getattr(target, "kind", "") not in ("device", ""):
        return Attained(
            state="unknown", reason="the files occupy part of a device, and the state of its other blocks is unknown"
        )
    return _prepared(declared, part, blocks[0], target)


def _prepared(declared: DeviceState, part: Part, stream: BlockParameters, target: Room) -> Attained:
    assert part.rounds, "only rounds are prepared"
    is_purged = stream.purge not in ("none", "unneeded")
    range_bytes, capacity_bytes = stream.active_range_bytes, target.capacity().bytes
    if declared == "fresh":
        return Attained(state="fresh") if is_purged else Attained(state="unknown", reason="the device is not purged")
    if is_purged and is_small_range(range_bytes, stream.fill, capacity_bytes):
        return Attained(
            state="fresh",
            reason=f"the active range of {format_bytes(range_bytes)} is {100 * range_bytes / capacity_bytes:.0f} % of "
            f"the purged {format_bytes(capacity_bytes)}, whose spare blocks absorb its writes",
        )
    is_written = bool(stream.precondition or stream.fill)
    limit = stream.byte_limit
    if not is_written and limit is not None and limit < SPANS_TO_STEADY * range_bytes:
        return Attained(state="fresh", reason=f"at most {limit / range_bytes:.1f} times the active range is written")
    is_judged = part.rounds.sought or stream.round_length is not None
    if declared == "steady" and not is_judged:
        return Attained(state="preconditioned" if is_written else "unknown", reason="there are too few rounds to judge")
    return Attained(state=declared)


def is_small_range(range_bytes: int, fill: float, capacity_bytes: int) -> bool:
    """Return whether the spare blocks of a purged device absorb what is written to an active range.

    A range that was filled to a percentage is measured by what was filled: the free part is meant to be free.
    """
    return range_bytes * (100 / fill if fill else 1) < SMALLEST_RANGE * capacity_bytes


def _writes(stream: BlockParameters) -> bool:
    return stream.read_fraction + stream.trim_fraction < 1


def notes(cases: Sequence[Case]) -> list[str]:
    """One note for each reason why cases measure another state than the study declares."""
    reasons: dict[tuple[str, str], int] = {}
    for case in cases:
        if case.device_state_reason:
            key = (case.device_state, case.device_state_reason)
            reasons[key] = reasons.get(key, 0) + 1
    return [
        f"the declared device state cannot be reached in {number} case{'s' * (number != 1)}, recorded as `{state}`: "
        + reason
        for (state, reason), number in reasons.items()
    ]
