"""Offset and drift of another host's clock, with bounds that hold whatever the delays are.

In an exchange the coordinator sends a request at `sent_ns` and receives the reply at `returned_ns`. The other host
receives the request at `received_ns` and replies at `replied_ns`, on its own clock. No message arrives before it was
sent, so the offset is at most `received_ns - sent_ns` when the request is sent, and at least `replied_ns - returned_ns`
when the reply returns. The interval between is as long as the round trip, however asymmetric the delays are
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
    received_ns: int
    """When the request was received, on the other host's clock."""
    replied_ns: int
    """When the reply was sent, on the other host's clock."""
    returned_ns: int
    """When the reply was received, on the coordinator's clock."""

    @property
    def round_trip_ns(self) -> int:
        """Delay of both messages together."""
        return self.returned_ns - self.sent_ns - (self.replied_ns - self.received_ns)


@dataclass(frozen=True, kw_only=True)
class Offset:
    """Bounds of the other host's clock minus the coordinator's at an instant."""

    at_ns: int
    """The instant, on the coordinator's clock."""
    low_ns: int
    high_ns: int

    @property
    def value_ns(self) -> int:
        """The middle of the bounds."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """Largest error of the value."""
        return self.high_ns - self.value_ns


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Bounds of the mean rate of the other host's clock relative to the coordinator's."""

    low_ppm: float
    high_ppm: float

    @property
    def value_ppm(self) -> float:
        """The middle of the bounds."""
        return (self.low_ppm + self.high_ppm) / 2

    @property
    def uncertainty_ppm(self) -> float:
        """Largest error of the value."""
        return (self.high_ppm - self.low_ppm) / 2


class ClockError(IosondeError):
    """No offset meets all exchanges."""


def offset(exchanges: Sequence[Exchange], at_ns: int, *, max_drift_ppm: float = MAX_DRIFT_PPM) -> Offset:
    """Bounds of the offset at an instant of the coordinator's clock, before, between or after the exchanges.

    The uncertainty is at most half the shortest round trip plus the drift between its exchange and the instant.
    """

    def drifted_ns(from_ns: int) -> int:
        return math.ceil(abs(at_ns - from_ns) * max_drift_ppm / 1e6) + _RESOLUTION_NS

    low_ns = max(each.replied_ns - each.returned_ns - drifted_ns(each.returned_ns) for each in exchanges)
    high_ns = min(each.received_ns - each.sent_ns + drifted_ns(each.sent_ns) for each in exchanges)
    if low_ns > high_ns:
        raise ClockError(
            f"a clock was set during the study: its offset must be at least {low_ns} ns and at most {high_ns} ns",
            hint="wait until NTP or PTP has set the clocks of all hosts, and start the study again",
        )
    return Offset(at_ns=at_ns, low_ns=low_ns, high_ns=high_ns)


def drift(exchanges: Sequence[Exchange], *, max_drift_ppm: float = MAX_DRIFT_PPM) -> Drift:
    """Bounds of the mean drift between the first and the last exchange, which are some time apart."""
    begin_ns, end_ns = min(each.sent_ns for each in exchanges), max(each.returned_ns for each in exchanges)
    first = offset(exchanges, begin_ns, max_drift_ppm=max_drift_ppm)
    last = offset(exchanges, end_ns, max_drift_ppm=max_drift_ppm)
    elapsed_ns = end_ns - begin_ns
    return Drift(
        low_ppm=max(-max_drift_ppm, (last.low_ns - first.high_ns) / elapsed_ns * 1e6),
        high_ppm=min(max_drift_ppm, (last.high_ns - first.low_ns) / elapsed_ns * 1e6),
    )
