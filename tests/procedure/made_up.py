"""Searches whose runs are not carried out: what is observed at a value is made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iosonde.metrics.limit_test import Limit
from iosonde.metrics.statistics import UNKNOWN_NOISE, RepeatNoise
from iosonde.plan import Case, Run
from iosonde.planning import expand
from iosonde.planning.procedure import progress
from iosonde.planning.procedure.observations import Conclusion, Observation
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.storage import open_target
from iosonde.study.model import Study

MS = 10**6


@dataclass(frozen=True)
class Made:
    """A run with this p99.9, or none for too few samples, or a reason why it failed."""

    latency_ns: float | None = None
    failure: str = ""
    session: str = "first"
    moved_bytes: float = float(1 << 40)
    """In one second."""

    def value(self, metric: str, *, stream: str = "", operation: str = "") -> float | None:
        others = {"engine_stalled_fraction": None, "bandwidth": self.moved_bytes, "seconds": 1.0}
        return others.get(metric, self.latency_ns)

    def slow_shares(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        raise NotImplementedError


@dataclass
class MadeUp:
    """Evidence of the requested runs, in the order of requests."""

    observe: Callable[[Run], Made]
    known: dict[str, Made] = field(default_factory=dict)
    session: str = ""

    def observation(self, run: Run) -> Observation | None:
        return self.known.get(run.run_id)

    def elapsed_s(self) -> float:
        return float(len(self.known))

    def noise(self) -> RepeatNoise:
        return UNKNOWN_NOISE

    def best(self, part: str, metric: str, levels: Mapping[str, Any]) -> float | None:
        raise NotImplementedError

    def conclusion(self, part: str, levels: Mapping[str, Any]) -> Conclusion | None:
        raise NotImplementedError


def search_case(*, repeats: int = 1, **search: Any) -> Case:
    """A case that searches, by default for the highest rate of 1..1,000,000."""
    settings = {"over": "rate", "between": [1, 10**6], "holds": "response_latency_ns_p99_9 <= 1ms", **search}
    measurement = {"arrival": "poisson", "rate": 1000} if settings["over"] != "queue_depth" else {}
    return adaptive_case("null:1GiB", measurement, repeats=repeats, search=settings)


def adaptive_case(target: str, measurement: dict[str, Any], *, repeats: int, **procedure: Any) -> Case:
    """The case of a study with this procedure."""
    facts = {"name": "made-up", "title": "Made up", "question": "?", "repeats": repeats, "measurement": measurement}
    facts |= {"parts": [{"name": "main", **procedure}], "profiles": {"quick": {}}}
    return expand(Study.model_validate(facts), open_target(target), profile="quick").adaptive[0]


def up_to(boundary: float, over: str = "rate") -> Callable[[Run], Made]:
    """The condition holds up to a value and fails above."""
    return lambda run: Made(0.5 * MS if float(run.levels[over]) <= boundary else 2 * MS)


def carry_out(case: Case, observe: Callable[[Run], Made]) -> tuple[SearchConclusion, list[Run]]:
    """The whole search: what it concludes, and the runs that it took."""
    evidence, runs = MadeUp(observe), []
    while run := progress(case, evidence).next_run:
        runs.append(run)
        evidence.known[run.run_id] = observe(run)
    found = progress(case, evidence).conclusion
    assert isinstance(found, SearchConclusion)
    return found, runs
