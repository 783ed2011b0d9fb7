"""Latency that a limiter adds, and the way in which it delays I/Os.

At queue depth 1 each I/O starts when the one before completes, so the latencies of a closed loop that reaches the limit
are the intervals between completions. An open loop below the limit has the latency of the device.

batched   most I/Os pass at the device's latency, a few wait for the next time slice of the limiter
paced     completions have fixed intervals, which vary less than the device's latency
queued    I/Os wait one by one before the device, so that the intervals vary as its latency does
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from iosonde.features.rate_limits.credit_duration import LAST_PASS
from iosonde.features.rate_limits.known_limits import DelayStyle, Limiter
from iosonde.features.rate_limits.series import STEP, Distribution, Load, Series, Stage
from iosonde.features.rate_limits.walk import COUNTED, Walk, load_text
from iosonde.units import format_count, format_duration

_QUESTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("touch",), "whether first accesses take longer"),
    (("drain",), "which rate is sustained"),
    (("size",), "what a limit counts"),
    (("depth",), "whether the rate depends on the queue depth"),
    (("small",), "credits and their refill"),
    (("sequential",), "whether sequential I/O is merged"),
    (("large",), "whether large blocks have a limit of their own"),
    (("writes", "mix"), "whether reads and writes share a budget"),
    (("latency",), "the latency that a limiter adds"),
    (("last",), "whether the limit changed during the study"),
)
"""Beginnings of the names of stages, in their order, and what they decide."""


def conclude(walk: Walk, stage: str) -> None:
    """Keep what is known without this stage, and name what it and later ones would decide."""
    known = walk.known
    known.stopped_at = stage
    if stage.startswith(LAST_PASS):  # The stages that decide on a limit are complete.
        return
    if known.verdict != "limited":
        reasons = [known.reason or _drained(walk), f"the study was stopped in the stage `{stage}`"]
        known.verdict, known.reason = "undecided", "; ".join(filter(None, reasons))
    known.undecided += _open(walk, stage)


def _open(walk: Walk, stage: str) -> Sequence[str]:
    """Questions of the last stages that were started, and of all that follow."""
    names = [each.name for each in walk.history] + [stage]
    reached = max((place for name in names if (place := _place(name)) is not None), default=0)
    has_both = walk.settings.reads and walk.settings.writes
    return [text for starts, text in _QUESTIONS[reached:] if has_both or "mix" not in starts]


def _place(stage: str) -> int | None:
    return next((place for place, (starts, _) in enumerate(_QUESTIONS) if stage.startswith(starts)), None)


def _drained(walk: Walk) -> str:
    """State the rates of the first load so far; empty without any."""
    parts = [each for each in walk.history if each.name.startswith("drain")]
    if not parts:
        return ""
    whole = reduce(Series.then, parts)
    segments = (
        f"{'constant at ' if each.is_constant else ''}{format_count(each.rate)} IOPS for "
        f"{format_duration(round(each.seconds) * 10**9)}"
        for each in whole.segments()
    )
    return f"{load_text(whole.load)}: {', then '.join(segments)}"


_BELOW = 0.25
"""Rate of the open loop, as a share of the limit."""
_FASTER = 0.5
"""Median of intervals in batches at most, as a share of their mean."""
_NARROWER = 0.5
"""Range of paced intervals at most, as a share of the range of the device's latency."""
_IN_SERVICE = 0.95
"""Operations in service at the limit, below which they are too few for a device that serves one at a time."""
_RANDOM = 0.9
"""Rate of the open loop with random arrivals, as a share of the limit."""
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
        is_disturbed=below.is_disturbed,
    )


def device_instead(walk: Walk, small: Load, found: Limiter, rate: float) -> Generator[Stage, Series, str]:
    """Reason why a device that serves a fixed number of operations at a time may explain the rate; empty: it does not.

    By Little's law that number is at most the rate times the latency below it, so at least 1. Operations that arrive at
    random wait for one another before such a device: at 0.9 of its rate a tenth waits for 4 to 10 intervals of the rate
    if it serves up to 16 at a time. A rule with credits of a few operations lets them pass.
    """
    if rate * found.device_s[1] < _IN_SERVICE:
        return ""
    series = yield from walk.request(
        Stage(
            name="latency-random",
            load=small,
            seconds=walk.seconds(_RANDOM * rate),
            rate=math.floor(_RANDOM * rate),
            is_random=True,
            has_distribution=True,
        )
    )
    if series.distribution and _quantiles(series.distribution)[2] - found.device_s[2] >= 1 / rate:
        return "operations that arrive at random wait for one another"
    return "other load took CPU time while latencies were measured" if found.is_disturbed or series.is_disturbed else ""


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
