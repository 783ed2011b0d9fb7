"""Early end of a run: iosonde decides from the engine's intervals when it is steady, or its requirements are decided.

For steady state the intervals are combined into rounds as in `metrics.sustained`, so a report shows the same steady
state. A run that leaves steady state continues until it is steady again. Conditions are decided as in a report.
"""

from __future__ import annotations

from collections.abc import Callable

from iosonde.metrics.limit_test import Blocks
from iosonde.metrics.steady_state import Criteria, steady_state
from iosonde.metrics.sustained import LOWER_IS_BETTER, Series, gather
from iosonde.plan import JsonObject
from iosonde.procedure.condition import parse
from iosonde.procedure.limits import Limit, Tally, limit_of
from iosonde.protocol.event import Event
from iosonde.units import format_duration

_OPERATIONS = ("read", "write", "trim")
_LOOK_NS = 1_000_000_000
"""Time between two decisions on conditions."""


def watch_of(until: JsonObject, *, note: Callable[[str], None] = lambda text: None) -> Watch | Decisions:
    """Return what decides when a run may end."""
    return Decisions(until) if "conditions" in until else Watch(until, note=note)


def end_reason(until: JsonObject) -> str:
    """Return why a run that was ended early was ended."""
    return "decided" if "conditions" in until else "steady"


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
        self._series.add(
            begin_ns=event["begin_ns"],
            end_ns=event["end_ns"],
            count=sum(operation["count"] for operation in operations),
            moved=sum(operation["bytes"] for operation in operations),
            latency_ns=sum((operation["completion_latency"] or {}).get("sum_ns", 0) for operation in operations),
            stalled_ns=event.get("stalled_ns", 0),
        )
        whole = self._series.whole_rounds(self._round_ns)
        if whole == self._judged:
            return False
        self._judged = whole
        return self._judge()

    def _has_enough(self) -> bool:
        """Return True if the last window moved enough of the active range to be judged."""
        window = slice(-self._criteria.window, None)
        moved = float(gather(self._series, self._round_ns)["bandwidth"][window].sum()) * self._round_ns / 1e9
        range_bytes = None if self._tracking in LOWER_IS_BETTER else self._range_bytes
        return self._criteria.has_enough(round_ns=self._round_ns, moved_bytes=moved, range_bytes=range_bytes)

    def _judge(self) -> bool:
        values = gather(self._series, self._round_ns)[self._tracking]
        found = steady_state(values, criteria=self._criteria)
        if self._held and not found.achieved and not self._has_left:
            self._has_left = True
            self._note(f"steady state lost in round {len(values)}; the run continues")
        self._held = self._held + 1 if found.achieved else 0
        if self._held <= self._hold or not self._has_enough():
            return False
        length = format_duration(len(values) * self._round_ns)
        self._note(f"steady state reached after {length}; the run ends")
        return True


class Decisions:
    """Receives the events of one run, and decides when each of its conditions certainly holds or fails."""

    def __init__(self, until: JsonObject) -> None:
        """`until`: the `conditions`, and the names of the `streams` of the load."""
        parsed = [limit_of(parse(text, streams=until["streams"])) for text in until["conditions"]]
        self._limits = [limit for limit in parsed if limit]
        # Conditions that intervals do not add up to are judged after the run, which therefore lasts as long as planned.
        self._can_decide = len(self._limits) == len(parsed) > 0
        self._tallies = {limit: Tally(limit) for each in self._limits for limit in (each, each.clear)}
        self._begin_ns: int | None = None
        self._looked_ns = 0

    def is_enough(self, event: Event) -> bool:
        """Return True if the run may end after this event."""
        if event["event"] != "interval" or event["phase"] != "measure" or not self._can_decide:
            return False
        for limit, tally in self._tallies.items():
            operations = [
                operation
                for stream in event["streams"]
                for operation in stream["operations"]
                if limit.covers(stream["stream"], operation["operation"])
            ]
            tally.add(event["begin_ns"], event["end_ns"], operations)
        self._begin_ns = event["begin_ns"] if self._begin_ns is None else self._begin_ns
        length_ns = event["end_ns"] - self._begin_ns
        if length_ns < self._looked_ns + _LOOK_NS:
            return False
        self._looked_ns = length_ns
        decisions = (limit.decide(self._blocks) for limit in self._limits)
        return all(each is not None and each.holds is not None for each in decisions)

    def _blocks(self, limit: Limit) -> Blocks:
        return self._tallies[limit].blocks()
