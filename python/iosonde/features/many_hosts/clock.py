"""Offset and drift of another host's clock, with bounds that hold whatever the delays are.

In an exchange the coordinator sends a request at `sent_ns` and receives the reply at `returned_ns`. The other host
reads its own clock at `read_ns`. No message arrives before it was sent, so the offset is at most `read_ns - sent_ns`
when the request is sent, and at least `read_ns - returned_ns` when the reply returns. The interval between is as long
as the round trip, however asymmetric the delays are
(F. Cristian, "Probabilistic clock synchronization", 1989). Of many exchanges the shortest delays decide, as in the
clock filter of NTP (RFC 5905, section 10), here for each of the two bounds separately.

The bounds assume that neither clock is set between an exchange and the instant, and that their rates differ by no more
than `max_drift_ppm`. Drift may vary. A straight line through all exchanges (S. B. Moon, P. Skelly and D. Towsley,
"Estimation and removal of clock skew from network delay measurements", 1999) would be tighter over a long gap, and
wrong where NTP adjusts a clock meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.errors import IosondeError

MAX_DRIFT_PPM = 1000.0
"""Largest difference of two rates: ntpd changes the rate of each clock by at most 500 ppm (adjtimex(2))."""
_RESOLUTION_NS = 1
"""A clock is read as a whole number of nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request to another host and its reply, in Unix time of the clock that was read."""

    sent_ns: int
    """When the request was sent, on the coordinator's clock."""
    read_ns: int
    """The other host's clock."""
    returned_ns: int
    """When the reply was received, on the coordinator's clock."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The clock of a host; by default that of the coordinator itself."""

    offset_ns: int = 0
    """It minus that of the coordinator."""
    bound_ns: int = 0
    """Largest error of that."""
    drift_ppm: float | None = None
    """Mean drift since the start of the session; None on the machine of the coordinator."""
    drift_bound_ppm: float | None = None
    """Largest error of that."""


def compared(exchanges: Sequence[Exchange], at_ns: int, *, recent: int) -> Clock:
    """The clock at an instant by so many of the last exchanges, and its drift by all of them."""
    low_ns, high_ns = offset(exchanges[-recent:], at_ns)
    low_ppm, high_ppm = drift(exchanges)
    offset_ns = (low_ns + high_ns) // 2
    return Clock(
        offset_ns=offset_ns,
        bound_ns=high_ns - offset_ns,
        drift_ppm=(low_ppm + high_ppm) / 2,
        drift_bound_ppm=(high_ppm - low_ppm) / 2,
    )


class ClockError(IosondeError):
    """No offset meets all exchanges."""


def offset(exchanges: Sequence[Exchange], at_ns: int, *, max_drift_ppm: float = MAX_DRIFT_PPM) -> tuple[int, int]:
    """Bounds of the other host's clock minus the coordinator's, at an instant before, between or after the exchanges.

    Half the interval between them is at most half the shortest round trip plus the drift between its exchange and the
    instant.
    """

    def drifted_ns(from_ns: int) -> int:
        return math.ceil(abs(at_ns - from_ns) * max_drift_ppm / 1e6) + _RESOLUTION_NS

    low_ns = max(each.read_ns - each.returned_ns - drifted_ns(each.returned_ns) for each in exchanges)
    high_ns = min(each.read_ns - each.sent_ns + drifted_ns(each.sent_ns) for each in exchanges)
    if low_ns > high_ns:
        raise ClockError(
            f"a clock was set during the study: its offset must be at least {low_ns} ns and at most {high_ns} ns",
            hint="wait until NTP or PTP has set the clocks of all hosts, and start the study again",
        )
    return low_ns, high_ns


def drift(exchanges: Sequence[Exchange], *, max_drift_ppm: float = MAX_DRIFT_PPM) -> tuple[float, float]:
    """Bounds of the mean drift in ppm between the first and the last exchange, which are some time apart."""
    begin_ns, end_ns = min(each.sent_ns for each in exchanges), max(each.returned_ns for each in exchanges)
    first, last = (offset(exchanges, at_ns, max_drift_ppm=max_drift_ppm) for at_ns in (begin_ns, end_ns))
    low_ppm, high_ppm = ((last[end] - first[1 - end]) / (end_ns - begin_ns) * 1e6 for end in (0, 1))
    return max(-max_drift_ppm, low_ppm), min(max_drift_ppm, high_ppm)
