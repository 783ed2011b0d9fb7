"""Time that the loads of several applications share, so that all of them end within ten minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from iosonde.metrics.limit_test import SHORTEST_NS
from iosonde.metrics.wording import counted
from iosonde.qualify.plan import USUAL_LIMIT_NS
from iosonde.study.model import Study
from iosonde.units import format_duration

TOTAL_NS = 600 * 10**9
_LEAST_LIMIT_NS = SHORTEST_NS + 10**9
"""Nothing is decided in a shorter measurement."""
_OVERHEAD_NS = 3 * 10**9
"""Of a load besides its measurement: ramp, start and record."""


class SharedTime:
    """Gives each load an equal part of the time that is left: loads that are decided early leave more to later ones."""

    def __init__(
        self, studies: Sequence[Study], *, limit_ns: int | None, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`limit_ns` is the longest measurement of each load, where the user names it: then nothing is shared."""
        self._limit_ns = limit_ns
        self._now_ns = now_ns
        self._ends_ns = now_ns() + TOTAL_NS
        self._loads = sum(map(_loads, studies))
        most_ns = self._loads * (limit_ns + _OVERHEAD_NS) if limit_ns else TOTAL_NS
        self.text = (
            f"{counted(len(studies), 'application')} with {counted(self._loads, 'load')}, "
            f"at most about {format_duration(most_ns)}"
        )
        """Loads and their longest time, in words."""

    def limit_of(self, study: Study) -> int:
        """Return the longest measurement of each load of the next study."""
        share_ns = (self._ends_ns - self._now_ns()) // max(1, self._loads) - _OVERHEAD_NS
        self._loads -= _loads(study)
        return self._limit_ns or max(_LEAST_LIMIT_NS, min(USUAL_LIMIT_NS, share_ns))


def _loads(study: Study) -> int:
    """Return the number of cases of a study without procedures."""
    return sum(math.prod(len(levels) for levels in part.factors.values()) for part in study.parts)
