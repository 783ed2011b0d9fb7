"""The bucket of a limit: what it held at the start, and what comes back during rests of known length."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from iosonde.features.rate_limits.rules import Estimate
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage, Tail, deficit
from iosonde.features.rate_limits.walk import COUNTED, Walk

_BETWEEN = 1.25
"""Factor from the first and the last rate at which a rate is clearly between them."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Credits of one limit, in operations of the load that it was determined with."""

    credits: float = 0.0
    """In the bucket when it is full; 0: none seen."""
    estimates: tuple[Estimate, ...] = ()
    refills: tuple[Estimate, ...] = ()
    burst: Segment | None = None
    changed: bool = False
    mismatch: bool = False
    """True if what came back is not what the sustained rate predicts."""
    rest_missing: bool = False
    """True if no rest was possible within the bounds."""
    is_gradual: bool = False
    """True if the rate fell gradually, not from one value to another."""


def find_bucket(
    walk: Walk, name: str, load: Load, cost: float, series: Series, tail: Tail
) -> Generator[Stage, Series, Bucket]:
    """Rest, drain again, and compare what came back with the sustained rate; `series` drained it first."""
    segments = series.segments()
    head = _head(walk, series)
    has_burst = len(segments) > 1 and head.rate > (1 + STEP) * tail.rate
    noise = max(20.0, 3 * tail.segment.error * sum(series.seconds), 0.1 * tail.rate)
    if not has_burst and tail.held < noise:
        return Bucket()
    if has_burst and _falls_gradually(segments, head, tail):
        return Bucket(burst=head, is_gradual=True)
    history = [each for each in walk.history if each.load.read_fraction == load.read_fraction]
    until = next((place for place, each in enumerate(history) if each.name.startswith(series.name[:-1])), 0)
    count = sum(1 for each in history if each.name.startswith(series.name[:-1]))
    used = history[: until + count]
    costs = [_relative_cost(each.load, load, cost) for each in used]
    first = deficit(used, costs, tail.rate) if has_burst else tail.held
    estimates = [Estimate(method="drained from the start", value=first)]
    full_s = first / tail.rate
    if full_s < 2 or not has_burst or walk.settings.rest_s < 1:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head if has_burst else None, rest_missing=True)
    refills: list[Estimate] = []
    burst_s = first / max(head.rate - tail.rate, 1e-9)
    lengths = [min(walk.settings.rest_s, share * full_s) for share in (0.3, 0.6)]
    for number, rest_s in enumerate(dict.fromkeys(lengths), start=1):
        yield from walk.drain(f"{name}-empty{number}", load, _drain_time(walk, burst_s), known=tail.rate)
        back = yield from _back(walk, f"{name}-rest{number}", load, tail, head, rest_s)
        refills.append(Estimate(method=f"came back in {back[0]:.3g} s", value=back[1] / back[0]))
    if refills and refills[0].value < 0.2 * tail.rate:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head, changed=True)
    mismatch = any(abs(each.value / tail.rate - 1) > 0.05 for each in refills)
    if 1.3 * full_s <= walk.settings.rest_s:
        full = yield from _back(walk, f"{name}-full", load, tail, head, 1.3 * full_s, is_full=True)
        if full[1] > 1.04 * first and 1.7 * full[1] / tail.rate <= walk.settings.rest_s:
            estimates = [Estimate(method="drained after a rest", value=full[1])]
            full = yield from _back(walk, f"{name}-full2", load, tail, head, 1.7 * full[1] / tail.rate, is_full=True)
        estimates.append(Estimate(method=f"drained after {full[0]:.3g} s of rest", value=full[1]))
    return Bucket(
        credits=estimates[-1].value,
        estimates=tuple(estimates),
        refills=tuple(refills),
        burst=head,
        mismatch=mismatch,
    )


def _head(walk: Walk, series: Series) -> Segment:
    """The first segment, by the first stage alone where that is a good part of it: credits come back between stages."""
    head = series.segments()[0]
    first = next(each for each in walk.history if each.name == series.name).segments()
    return first[0] if len(first) == 1 and first[0].seconds >= head.seconds / 3 else head


def _falls_gradually(segments: Sequence[Segment], head: Segment, tail: Tail) -> bool:
    """True if the rate was clearly between its first and its last value for a quarter of the time before the last."""
    before = segments[:-1]
    between = [each.seconds for each in before if _BETWEEN * tail.rate < each.rate < head.rate / _BETWEEN]
    return sum(between) > sum(each.seconds for each in before) / 4


def _relative_cost(used: Load, load: Load, cost: float) -> float:
    """Cost of an operation of another size, in operations of `load`; by bytes if its cost is its size."""
    return used.block_size / load.block_size if cost == load.block_size else 1.0


def _drain_time(walk: Walk, burst_s: float) -> float:
    return min(walk.settings.drain_s, 1.2 * burst_s + 2 * walk.settings.probe_s)


def _back(
    walk: Walk, name: str, load: Load, tail: Tail, head: Segment, rest_s: float, *, is_full: bool = False
) -> Generator[Stage, Series, tuple[float, float]]:
    """Rest, then drain: the length of the rest, and the credits that came back."""
    burst_s = rest_s * tail.rate / max(head.rate - tail.rate, 1e-9)
    length = 1.2 * burst_s + max(walk.settings.probe_s, COUNTED / tail.rate)
    series = yield from walk.run(Stage(name=name, load=load, seconds=length, rest_s=rest_s))
    total = sum(series.seconds)
    held = float(series.operations.sum()) - tail.rate * total
    # Operations in flight at the end of the stage before spent credits in the rest; a full bucket does not show them.
    return series.idle_s, held if is_full else held + series.in_flight_before
