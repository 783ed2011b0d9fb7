"""Findings, facts that a study established, as typed values; and the support that its data gives to claims.

Each kind of finding is a class that names its kind and its topic where it is derived, and becomes a frozen dataclass:

    class WriteStalls(Count, kind="write stalls", topic="stores"):
        worst_share: float

It has the numbers as fields, and renders its sentence and its evidence in one place, from these fields alone. Kinds
with the same form share a base class of `kinds`.

Claims are supported by the width of intervals, the verdicts of the runs, and the control case: if its results, repeated
through the study, change, so may those of every other, and differences between cases measured at different times are
not all theirs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, dataclass_transform, get_args

import numpy as np
import polars as pl

from iosonde.metrics import wording
from iosonde.metrics.registry import RATES, named_among
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import Estimate, slope
from iosonde.metrics.sustained import LongRun
from iosonde.metrics.verdict.verdict import KINDS, Kind, of_repeats

Topic = str
"""A key of `TOPICS`."""

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
    evidence_text: ClassVar[str] = ""
    """Evidence of a kind for which it is always the same."""
    states_verdicts: ClassVar[bool] = False
    """True if the sentence itself states what limited its runs."""
    states_duration: ClassVar[bool] = False
    """True if the sentence states for how long the results hold."""
    holds_under_load: ClassVar[bool] = False
    """True if other load on the machine does not change it: counts of what was lost, not rates."""
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
            assert topic in TOPICS, f"no topic `{topic}`"
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

    def _evidence(self) -> str:
        return self.evidence_text


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

    @property
    def some(self) -> str:
        """`2 of 5 runs`."""
        return wording.some(self.count, self.total, self.noun)


def some(chosen: pl.DataFrame, of: pl.DataFrame) -> dict[str, Any]:
    """Return the fields of a `Count` of rows that have a `case_id`."""
    return {"count": len(chosen), "total": len(of), "case_ids": cases_of(chosen)}


MINIMUM_CONTROLS = 4
"""Fewer control runs show nothing."""
MINIMUM_FOR_TREND = 5
"""Of fewer the interval of the change misses 0 in more than 5 % of series without a trend, by simulation."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Change and spread of a metric of the control case during the study."""

    change: Estimate
    """Change from the first run of the study to the last, as a fraction (Theil-Sen slope of the logarithms x runs)."""
    spread: float
    """(largest - smallest) / median."""
    controls: int

    @property
    def has_trend(self) -> bool:
        """True if the interval of the change excludes 0."""
        return self.controls >= MINIMUM_FOR_TREND and (self.change.above(0) or self.change.below(0))


def load_drift(runs: pl.DataFrame, *, rates: Sequence[str] = ("iops",)) -> Drift | None:
    """Return the drift of the first of these metrics, or of those that a study names, that the control case has."""
    named = named_among(runs.filter(pl.col("control"))["metric"].unique())
    found = (drift(runs, metric=metric) for metric in (*rates, *named))
    return next((each for each in found if each is not None), None)


def drift(runs: pl.DataFrame, *, metric: str) -> Drift | None:
    """Return the drift of the control case; None where it was run too seldom."""
    control = overall(runs.filter(pl.col("control"), pl.col("metric") == metric)).sort("order")
    values = control["value"].to_numpy()
    if len(values) < MINIMUM_CONTROLS or (values <= 0).any():
        return None
    median = float(control["value"].median())  # type: ignore[arg-type]  # not empty, so a number
    order = control["order"].cast(pl.Float64).to_numpy()
    position = (order - order[0]) / (order[-1] - order[0])
    logs = slope(position, np.log(values))
    # A change of logarithms as a fraction is never below -1.
    low, high = (None if end is None else math.expm1(end) for end in (logs.low, logs.high))
    return Drift(
        change=replace(logs, value=math.expm1(logs.value), low=low, high=high),
        spread=float((values.max() - values.min()) / median),
        controls=len(values),
    )


NARROW = 0.05
"""Half the width of an interval, as a share of its value, up to which a claim can be strong."""
WIDE = 0.20
"""The same, above which it is weak. Drift of the control case is judged by the same limits."""
OF_THE_SYSTEM: tuple[Kind, ...] = (
    *("device-limited", "network-limited", "server-limited", "server-CPU-limited", "lock-limited"),
)
"""Verdicts of runs that were limited by what is measured, device or server, and not by the client."""
MOST = 0.8
"""Share of device-limited runs from which a claim about the device can be strong; below half it is weak."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """Verdicts of all runs by case, and the drift of the control case."""

    verdicts: Mapping[str, Counter[Kind]] = field(default_factory=dict)
    drift: float | None = None
    """Magnitude of the change of the control case over the study, as a fraction; None if it is not known."""
    unsteady: frozenset[str] = frozenset()
    """Cases judged by their own rounds in which a run was not steady to its end."""

    def claim(
        self, case_ids: Iterable[str], *estimates: Estimate | None, part: str = "", at_most: Strength = "strong"
    ) -> dict[str, Any]:
        """Return the fields of every finding: its cases, each once, and how strongly they and estimates support it."""
        ids = tuple(dict.fromkeys(case_ids))
        return {"strength": weakest(at_most, self.strength(ids, *estimates)), "case_ids": ids, "part": part}

    def strength(self, case_ids: Iterable[str], *estimates: Estimate | None) -> Strength:
        """Return the strength of a claim about these cases that is based on these estimates."""
        return weakest(self.of_cases(case_ids), *(of_interval(each) for each in estimates))

    def of_cases(self, case_ids: Iterable[str]) -> Strength:
        """Return the strength that verdicts and drift permit, whatever the values are."""
        share = self.device_limited_share(case_ids)
        by_verdict: Strength = "strong" if share is None or share >= MOST else "moderate" if share >= 0.5 else "weak"
        return weakest(by_verdict, of_width(self.drift or 0.0))

    def device_limited_share(self, case_ids: Iterable[str]) -> float | None:
        """Return the share of judged runs that are device-limited; None if no run has a verdict."""
        counts = self.counts(case_ids)
        return sum(counts[kind] for kind in OF_THE_SYSTEM) / counts.total() if counts else None

    def is_lower_bound(self, case_id: str) -> bool:
        """Return True if half or more of a case's judged runs are not device-limited: the device may be faster.

        It may be slower as well if a run was served by a cache, and if half of the runs are undetermined, which a
        cache of the device or an unknown one may have served.
        """
        share, counts = self.device_limited_share([case_id]), self.counts([case_id])
        may_be_slower = counts["cache-served"] or 2 * counts["undetermined"] >= counts.total()
        return share is not None and share <= 0.5 and not may_be_slower

    def is_cache_served(self, case_id: str) -> bool:
        counts = self.counts([case_id])
        return 2 * counts["cache-served"] > counts.total()

    def limited(self, case_ids: Iterable[str]) -> str:
        """Name the runs of these cases that a cache or the harness limited: half of the judged ones or more."""
        counts = self.counts(case_ids)
        kinds: tuple[Kind, ...] = ("cache-served", "harness-limited")
        if 2 * sum(counts[kind] for kind in kinds) < counts.total() or not counts:
            return ""
        total = wording.counted(counts.total(), "run")
        return ", ".join(f"{counts[kind]} of {total} {kind}" for kind in kinds if counts[kind])

    def counts(self, case_ids: Iterable[str]) -> Counter[Kind]:
        found: Counter[Kind] = Counter()
        for case_id in dict.fromkeys(case_ids):
            found.update(self.verdicts.get(case_id, {}))
        return found

    def of_most(self, case_ids: Iterable[str]) -> Kind | Literal[""]:
        """Return the verdict of more than half of the runs of cases, else `undetermined`; empty without verdicts."""
        return of_repeats(list(self.counts(case_ids).elements())) or ""

    def note(self, case_ids: Iterable[str]) -> str:
        """Name the verdicts other than device-limited: `3 of 5 runs undetermined`; empty if there are none."""
        counts = self.counts(case_ids)
        others: dict[Kind, int] = {kind: counts[kind] for kind in KINDS if kind != "device-limited" and counts[kind]}
        return verdicts_text(others, counts.total()) if others else ""


Bound = Literal["at least", "at most"]
Bounds = tuple[Bound, ...]
"""What a ratio is if the device may be better than measured: on one side a bound, on both sides not even that."""


def bounds_of(metric: str, *, top: bool, bottom: bool) -> Bounds:
    """Return the bounds of a ratio of rates or latencies, by whether the device may be better on either side."""
    known = metric_of(metric)
    if known.kind not in ("rate", "latency") and metric not in RATES:
        return ()
    words: Bounds = ("at least", "at most") if known.better == "higher" else ("at most", "at least")
    return tuple(word for word, may_be_better in zip(words, (top, bottom), strict=True) if may_be_better)


def verdicts_text(counts: Mapping[Kind, int], total: int, verb: str = "") -> str:
    """Count verdicts: `3 of 5 runs undetermined, 1 harness-limited`."""
    (first, number), *rest = counts.items()
    text = f"{wording.some(number, total, 'run')} {verb}{first}"
    return text + "".join(f", {count} {kind}" for kind, count in rest)


def support_of(metrics: pl.DataFrame, outcomes: pl.DataFrame | None, long_runs: Sequence[LongRun] = ()) -> Support:
    """Return the support that a result set gives; `outcomes` is the view `runs`."""
    found = load_drift(metrics, rates=("iops", "ops_per_sec"))
    verdicts: dict[str, Counter[Kind]] = {}
    if outcomes is not None:
        for case_id, kind in outcomes.drop_nulls("verdict").select("case_id", "verdict").iter_rows():
            verdicts.setdefault(case_id, Counter())[kind] += 1
    return Support(
        verdicts=verdicts,
        drift=abs(found.change.value) if found else None,
        unsteady=frozenset(each.case_id for each in long_runs if each.outcome != "steady"),
    )


def of_interval(estimate: Estimate | None) -> Strength:
    """Return the strength that the width of an interval permits; weak without one."""
    if estimate is None:
        return "strong"
    if estimate.low is None or estimate.high is None or not estimate.value:
        return "weak"
    return of_width((estimate.high - estimate.low) / 2 / abs(estimate.value))


def of_width(share: float) -> Strength:
    return "strong" if share <= NARROW else "moderate" if share <= WIDE else "weak"
