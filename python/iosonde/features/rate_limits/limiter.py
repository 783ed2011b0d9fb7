"""Latency that a limiter adds, and the way in which it delays I/Os.

At queue depth 1 each I/O starts when the one before completes, so the latencies of a closed loop that reaches the limit
are the intervals between completions. An open loop below the limit has the latency of the device.

batched   most I/Os pass at the device's latency, a few wait for the next time slice of the limiter
paced     completions have fixed intervals, which vary less than the device's latency
queued    I/Os wait one by one before the device, so that the intervals vary as its latency does
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from iosonde.features.rate_limits.rules import DelayStyle, Limiter
from iosonde.features.rate_limits.series import STEP, Distribution, Load, Series, Stage
from iosonde.features.rate_limits.walk import COUNTED, Walk

_BELOW = 0.25
"""Rate of the open loop, as a share of the limit."""
_FASTER = 0.5
"""Median of intervals in batches at most, as a share of their mean."""
_NARROWER = 0.5
"""Range of paced intervals at most, as a share of the range of the device's latency."""
_MOST_SERVERS = 8
_SHORTER, _LONGER = 0.95, 1.1
"""Latency of a device that serves some operations at a time, as a share of the time that its rate gives each."""
_CONSTANT, _FEW_CONSTANT, _FEW = 0.1, 0.5, 4
"""Range of a service time that makes a constant rate at most, as a share of it; the larger one for few at a time, where
a rate that is none of such a device rarely fits."""
_RESOLUTION = 0.002
"""Width of a bucket of the histogram, as a share of the latency."""


def measure(walk: Walk, small: Load, rate: float) -> Generator[Stage, Series, Limiter | None]:
    """Request a stage at queue depth 1 and one below the limit; None if that is below one I/O per second."""
    if math.floor(_BELOW * rate) < 1:
        return None
    one = replace(small, queue_depth=1)
    seconds = min(walk.seconds(rate), 4 * walk.settings.probe_s)
    reached = yield from walk.request(Stage(name="latency", load=one, seconds=seconds, has_distribution=True))
    below = yield from walk.request(
        Stage(
            name="latency-below",
            load=replace(small, queue_depth=8),
            seconds=min(COUNTED / 5 / (_BELOW * rate) + 1, 2 * seconds),
            rate=math.floor(_BELOW * rate),
            has_distribution=True,
        )
    )
    return judge(reached, below, rate)


def judge(reached: Series, below: Series, rate: float) -> Limiter | None:
    """Conclude from latencies at the limit and below; None without latencies."""
    if not reached.distribution or not below.distribution:
        return None
    at, device = _quantiles(reached.distribution), _quantiles(below.distribution)
    mean_s = reached.loaded_s / float(reached.operations.sum())
    waits = [(latency, count) for latency, count in reached.distribution if latency > 2 * mean_s]
    waiting = sum(count for _, count in waits)
    style, reason = _style(at, device, mean_s, rate)
    return Limiter(
        style=style,
        reason=reason,
        interval_s=at,
        device_s=device,
        mean_s=mean_s,
        wait_s=sum(latency * count for latency, count in waits) / waiting if waiting else 0.0,
        waiting=waiting / sum(count for _, count in reached.distribution),
    )


def servers(found: Limiter | None, rate: float) -> int:
    """Return how many operations a device serves at a time that explains the rate; 0 where none does.

    By Little's law, a device that serves k operations at a time has k in flight at its highest rate, without a queue:
    the rate times the latency below it is k. That of a rule is any number. An added time makes the latency longer.
    """
    if found is None:
        return 0
    low, latency_s, high = found.device_s
    in_service = rate * latency_s
    count = max(1, math.floor(in_service / _SHORTER))
    is_whole = _SHORTER * count <= in_service <= _LONGER * count
    most = (_FEW_CONSTANT if count <= _FEW else _CONSTANT) * latency_s
    return count if is_whole and count <= _MOST_SERVERS and high - low <= most else 0


def _style(
    at: tuple[float, float, float], device: tuple[float, float, float], mean_s: float, rate: float
) -> tuple[DelayStyle, str]:
    if abs(mean_s * rate - 1) > STEP:
        return "undecided", f"a queue depth of 1 reaches {100 / (mean_s * rate):.0f} % of the limit"
    if at[1] <= _FASTER * mean_s:
        return "batched", ""
    intervals, latencies = at[2] - at[0], device[2] - device[0]
    if latencies < 3 * _RESOLUTION * at[1]:
        return "undecided", "the latency below the limit varies too little to show in the intervals"
    if intervals <= _NARROWER * latencies:
        return "paced", ""
    if intervals >= latencies:
        return "queued", ""
    return "undecided", "the intervals vary less than the latency below the limit, but by more than half of it"


def _quantiles(found: Distribution) -> tuple[float, float, float]:
    """10th, 50th and 90th percentile."""
    values, counts = (np.asarray(each, dtype=float) for each in zip(*sorted(found), strict=True))
    places = np.searchsorted(np.cumsum(counts), np.array([0.1, 0.5, 0.9]) * counts.sum())
    low, middle, high = (float(values[place]) for place in places)
    return low, middle, high
