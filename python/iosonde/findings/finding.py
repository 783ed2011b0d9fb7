"""Findings: facts that a study established, as typed values.

Each kind of finding is a class that names its kind and its topic where it is derived, and becomes a frozen dataclass:

    class WriteStalls(Count, kind="write stalls", topic="stores"):
        worst_share: float

It has the numbers as fields, and renders its sentence and its evidence in one place, from these fields alone. Kinds
with the same form share a base class of `kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform, get_args

import polars as pl

from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate

if TYPE_CHECKING:
    pass


Topic = Literal[
    "integrity",
    "path",
    "state",
    "performance",
    "limits",
    "scaling",
    "comparison",
    "interference",
    "arrays",
    "caches",
    "stores",
    "transactions",
    "reference",
    "quality",
]

TOPICS: dict[Topic, str] = {
    "integrity": "Wrong data",
    "path": "Stages of an I/O",
    "state": "Steady state and recovery",
    "performance": "Throughput and latency",
    "limits": "Highest sustainable load",
    "scaling": "Scaling and saturation",
    "comparison": "Comparison of settings",
    "interference": "Interference between streams",
    "arrays": "Array efficiency",
    "caches": "Block caches",
    "stores": "Key-value stores",
    "transactions": "Transactions",
    "reference": "Published values",
    "quality": "Measurement quality",
}
"""Headings of the groups of findings, in the order of a report."""

Loss = Literal["wrong data", "lost durability", "served from memory", "another load", "disturbed"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
"""Losses of a reader who misses a finding, the worst first: each precedes all rates."""

Strength = Literal["strong", "moderate", "weak"]
FIRST, LAST = 0, 9
"""Places of kinds: of those that answer the question of the studies that have them, and of those without a place."""
STRENGTHS: tuple[Strength, ...] = ("strong", "moderate", "weak")

Fact = tuple[object, ...]
"""Something that several kinds of findings may state, such as `("value", metric, case)`."""
MOST_SPECIFIC = 3


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Kind(ABC):
    kind: ClassVar[str]
    topic: ClassVar[Topic]
    states_verdicts: ClassVar[bool] = False
    """True if the sentence itself states what limited its runs."""
    states_duration: ClassVar[bool] = False
    """True if the sentence states for how long the results hold."""
    place: ClassVar[int] = LAST
    """Place among the kinds of its topic, the first being 1; `FIRST` is before all topics."""
    specificity: ClassVar[int] = MOST_SPECIFIC
    """Rank among kinds that may state the same fact: of these only the most specific is kept."""

    def __init_subclass__(
        cls, *, kind: str = "", topic: Topic | None = None, place: int | None = None, **rest: Any
    ) -> None:
        """Make a dataclass of it; a base class of several kinds has no kind of its own."""
        super().__init_subclass__(**rest)
        if topic:
            cls.kind, cls.topic = kind, topic
        if place is not None:
            cls.place = place
        if topic or "kind" not in vars(cls):
            dataclass(frozen=True, kw_only=True)(cls)


class Finding(_Kind):
    """One fact. Subclasses add their values as fields."""

    strength: Strength
    case_ids: tuple[str, ...] = ()
    """Cases that the finding is based on."""
    part: str = ""
    limited: str = ""
    """Verdicts by which the device did not limit the values: `3 of 3 runs cache-served`; empty otherwise."""

    @property
    def facts(self) -> set[Fact]:
        """Facts that a less specific finding need not state: the metric in each of its cases."""
        metric = getattr(self, "metric", None)
        return {("value", metric, case_id) for case_id in self.case_ids}

    @property
    def superseded_by(self) -> set[Fact]:
        """Facts each of which makes it superfluous where a more specific finding states it."""
        return set()

    @property
    def loss(self) -> Loss | None:
        """The loss of a reader who misses it; None if it is a result among others."""
        return None

    @property
    def holds_under_load(self) -> bool:
        """True if other load on the machine does not change it: counts of what was lost, not rates."""
        return False

    @property
    def is_secondary(self) -> bool:
        """True if other findings have what it means for the answer: the values, and the state of the drive."""
        return False

    @property
    def sentence(self) -> str:
        """The finding in words, without a final period."""
        limited = f" ({self.limited})" if self.limited and not self.states_verdicts else ""
        return wording.sentence(f"{self._sentence()}{limited}")

    @property
    def evidence(self) -> str:
        """Numbers and the number of runs."""
        return self._evidence()

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of its intervals."""
        found = {f"{each.method}, n = {each.n}" for each in _estimates(vars(self)) if each.method}
        return tuple(f"95 % CI by {method}" for method in sorted(found))

    @abstractmethod
    def _sentence(self) -> str: ...

    @abstractmethod
    def _evidence(self) -> str: ...


def _estimates(value: object) -> Iterator[Estimate]:
    if isinstance(value, Estimate):
        yield value
    elif isinstance(value, Mapping):
        yield from (found for each in value.values() for found in _estimates(each))
    elif isinstance(value, tuple | list):
        yield from (found for each in value for found in _estimates(each))


def weakest(*strengths: Strength) -> Strength:
    return max(strengths, key=STRENGTHS.index)


def cases_of(rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the cases of rows, each once, in their order."""
    return tuple(rows["case_id"].unique(maintain_order=True))


class Count(Finding):
    count: int
    total: int
    noun: ClassVar[str] = "run"
    evidence_text: ClassVar[str] = ""

    @property
    def some(self) -> str:
        """`2 of 5 runs`."""
        return wording.some(self.count, self.total, self.noun)

    def _evidence(self) -> str:
        return self.evidence_text


def some(chosen: pl.DataFrame, of: pl.DataFrame) -> dict[str, Any]:
    """Return the fields of a `Count` of rows that have a `case_id`."""
    return {"count": len(chosen), "total": len(of), "case_ids": cases_of(chosen)}
