"""What pauses between writes give back, and how soon it is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.findings.finding import Finding, Strength, Untyped
from iosonde.findings.idle_recovery import NEAR, Decay, IdleRecovery
from iosonde.metrics import wording
from iosonde.units import format_bytes, format_duration


def tell(recoveries: Sequence[IdleRecovery]) -> Iterator[Finding]:
    """Say over all lengths of pause what they give back, then of each by how much, and how it is lost again."""
    for part in dict.fromkeys(each.part for each in recoveries):
        yield from _over_pauses([each for each in recoveries if each.part == part])
    for each in recoveries:
        yield _gain(each)
        if each.decay:
            yield _loss(each, each.decay)


def _over_pauses(recoveries: Sequence[IdleRecovery]) -> Iterator[Finding]:
    """One sentence from the shortest pause to the longest."""
    if len({each.pause_s for each in recoveries}) < 2:
        return
    in_order = sorted(recoveries, key=lambda each: each.pause_s)
    shortest, longest = in_order[0], in_order[-1]
    ratio = longest.gain / shortest.gain
    if max(abs(each.gain - 1) for each in in_order) <= NEAR:
        title = f"No pause up to {_pause(longest)} gives anything back: bursts stay at the rate of steady state"
    elif ratio > 1 + NEAR:
        title = (
            f"The longer the pause, the more it gives back: bursts reach {wording.times_text(shortest.gain)} the rate "
            f"of steady state with {_pause(shortest)}, {wording.times_text(longest.gain)} with {_pause(longest)}"
        )
    elif ratio < 1 / (1 + NEAR):
        title = (
            f"Longer pauses give back less: bursts reach {wording.times_text(shortest.gain)} the rate of steady state "
            f"with {_pause(shortest)}, {wording.times_text(longest.gain)} with {_pause(longest)}"
        )
    else:
        title = (
            f"Longer pauses give back no more than short ones: bursts reach {wording.times_text(shortest.gain)} the "
            f"rate of steady state with {_pause(shortest)}, {wording.times_text(longest.gain)} with {_pause(longest)}"
        )
    yield Untyped(
        kind="recovery",
        title=title,
        note="; ".join(f"{wording.times_text(each.gain)} with {_pause(each)}" for each in in_order),
        strength=_strength(shortest),
        case_ids=tuple(each.case_id for each in in_order),
        part=shortest.part,
    )


def _gain(each: IdleRecovery) -> Finding:
    gain, cycle = each.gain, f"{_pause(each)} after every {format_duration(each.burst_s * 1e9)} of load"
    if gain > 1 + NEAR:
        title = f"Pauses of {cycle} make it {wording.times_text(gain)} as fast as in steady state"
    elif gain < 1 / (1 + NEAR):
        title = f"Pauses of {cycle} make it slower: {wording.percent_text(gain)} of the rate of steady state"
    else:
        title = f"Pauses of {cycle} give nothing back: the rate stays within {100 * NEAR:.0f} % of steady state"
    drift = float(each.bursts[-1] / each.bursts[0])
    return Untyped(
        kind="recovery",
        title=title,
        note=f"{wording.value_text('iops', each.gain * each.base)} in the bursts (median of {len(each.bursts)}, "
        f"{wording.value_text('iops', float(each.bursts.min()))} to "
        f"{wording.value_text('iops', float(each.bursts.max()))}; the last is {wording.times_text(drift)} the first), "
        f"{_base(each)}",
        strength=_strength(each),
        case_ids=(each.case_id,),
        part=each.part,
    )


def _loss(each: IdleRecovery, decay: Decay) -> Finding:
    length = format_duration(decay.length_s * 1e9)
    ahead, behind = decay.first / each.base, decay.last / each.base
    again = f"Without pauses again, after those of {_pause(each)}, it"
    if decay.back_s == 0:
        title = f"{again} is at the rate of steady state at once"
    elif decay.back_s is not None and decay.back_bytes is not None:
        title = (
            f"{again} begins at {wording.times_text(ahead)} the rate of steady state and is back within "
            f"{100 * NEAR:.0f} % of it after {format_duration(decay.back_s * 1e9)} and {format_bytes(decay.back_bytes)}"
        )
    else:
        title = f"{again} is still {wording.times_text(behind)} the rate of steady state at the end, after {length}"
    return Untyped(
        kind="recovery",
        title=title,
        note=f"{wording.value_text('iops', decay.first)} at the begin, {wording.value_text('iops', decay.last)} at "
        f"the end of {length}, {_base(each)}",
        strength=_strength(each),
        case_ids=(decay.case_id,),
        part=each.part,
    )


def _pause(each: IdleRecovery) -> str:
    return format_duration(each.pause_s * 1e9)


def _base(each: IdleRecovery) -> str:
    of = "in steady state" if each.base_is_steady else "in the last rounds before, which were not steady"
    return f"{wording.value_text('iops', each.base)} {of}"


def _strength(each: IdleRecovery) -> Strength:
    """What is compared with a state that was none says little."""
    return "moderate" if each.base_is_steady else "weak"
