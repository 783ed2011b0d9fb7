"""Early end of a run: iosonde decides from the engine's intervals when it is steady.

The intervals are combined into rounds as in `metrics.sustained`, so a report shows the same steady state. A run that
leaves steady state continues until it is steady again.
"""

from __future__ import annotations

from collections.abc import Callable

from iosonde.engine.protocol import Event
from iosonde.metrics.steady_state import Criteria, steady_state
from iosonde.metrics.sustained import LOWER_IS_BETTER, Series, gather
from iosonde.plan import JsonObject
from iosonde.units import format_duration

_OPERATIONS = ("read", "write", "trim")


class Watch:
    """Receives the events of one run, and decides when it has lasted long enough."""

    def __init__(self, until: JsonObject, *, note: Callable[[str], None] = lambda text: None) -> None:
        """`until`: `round_ns`, `tracking`, `hold`, the rounds for which it must stay steady, and the `criteria`."""
        self._round_ns: int = until["round_ns"]
        self._tracking: str = until["tracking"]
        self._hold: int = until["hold"]
        self._range_bytes: int | None = until.get("range_bytes")
        self._criteria = Criteria.from_parameters(until["criteria"])
        self._note = note
        self._series = Series()
        self._judged = 0
        self._held = 0
        """Consecutive rounds after which the series was steady."""
        self._has_left = False

    def is_enough(self, event: Event) -> bool:
        """Return True if the run may end after this event."""
        if event["event"] != "interval" or event["phase"] != "measure":
            return False
        operations = [
            operation
            for stream in event["streams"]
            for operation in stream["operations"]
            if operation["operation"] in _OPERATIONS
        ]
        numbers = (
            event["begin_ns"],
            event["end_ns"],
            sum(operation["count"] for operation in operations),
            sum(operation["bytes"] for operation in operations),
            sum((operation["completion_latency"] or {}).get("sum_ns", 0) for operation in operations),
            event.get("stalled_ns", 0),
        )
        self._series.rows.append(numbers)
        whole = self._series.whole_rounds(self._round_ns)
        if whole == self._judged:
            return False
        self._judged = whole
        return self._judge()

    def _judge(self) -> bool:
        rounds = gather(self._series, self._round_ns)
        values = rounds[self._tracking]
        found = steady_state(values, criteria=self._criteria)
        if self._held and not found.achieved and not self._has_left:
            self._has_left = True
            self._note(f"steady state lost in round {len(values)}; the run continues")
        self._held = self._held + 1 if found.achieved else 0
        # The last window must have moved enough of the active range to be judged.
        moved = float(rounds["bandwidth"][-self._criteria.window :].sum()) * self._round_ns / 1e9
        range_bytes = None if self._tracking in LOWER_IS_BETTER else self._range_bytes
        is_enough = self._criteria.has_enough(round_ns=self._round_ns, moved_bytes=moved, range_bytes=range_bytes)
        if self._held <= self._hold or not is_enough:
            return False
        length = format_duration(len(values) * self._round_ns)
        self._note(f"steady state reached after {length}; the run ends")
        return True
