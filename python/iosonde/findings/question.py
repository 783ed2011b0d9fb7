"""A study's question with what is needed to answer it: the part it is about, the cells, and words for its loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.findings.cells import OF_RESULTS, cells, separated_by_results, under_own_names
from iosonde.findings.device_state import DeviceStates, window_cells
from iosonde.findings.finding import Finding, Strength, Support
from iosonde.metrics import wording
from iosonde.metrics.facts import Facts
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import ALL
from iosonde.metrics.statistics import Estimate, Floats
from iosonde.metrics.sustained import LongRun
from iosonde.results import ResultSet
from iosonde.study.model import ROUND, STAGE, Analysis, Level, Part, Study
from iosonde.study.workload import workloads

_WORDED = frozenset(name for each in workloads().values() for name in each.worded)
"""Parameters that `wording.load_words` names."""


Observation = Callable[[pl.DataFrame, pl.DataFrame, pl.DataFrame | None, Support], Iterable[Finding]]
"""Returns what is stated about a result set without a question, from cases, metrics, the view `runs` and `Support`."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """One result set, for what is stated about it from its records and intervals."""

    study: Study
    result_set: ResultSet
    facts: Facts
    metrics: pl.DataFrame
    """Those of its runs."""
    long_runs: Sequence[LongRun]
    """Runs that are judged by their own rounds."""
    states: DeviceStates


OfResults = Callable[[Results], Iterable[Finding]]
"""Returns what is stated about a result set without a question, from more than its metrics; listed in `OF_RESULTS` of a
feature's `questions.py`."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One entry of a study's `analysis`, and the results it is asked of."""

    study: Study
    analysis: Analysis
    cases: pl.DataFrame
    runs: pl.DataFrame
    outcomes: pl.DataFrame | None = None
    """The view `runs`, for facts besides metrics."""
    warnings: pl.DataFrame | None = None
    """The view `warnings`."""
    support: Support = field(default_factory=Support)
    states: DeviceStates = field(default_factory=lambda: DeviceStates({}))
    hosts: int = 0
    """Those of the plan; 0 on one machine."""
    _cells: dict[str, pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cells of each metric, filled on first use: one analysis reads them several times."""

    @cached_property
    def part(self) -> Part:
        return next(part for part in self.study.parts if part.name == self.analysis.part)

    @cached_property
    def by(self) -> list[str]:
        """Factors that separate cells besides `over`, whether the analysis names them or not."""
        named = [self.analysis.over, *self.analysis.where]
        within = self.part.rounds.factors if self.part.rounds and self._is_of_window else {}
        names = [*self.part.factors, *within]
        return list(dict.fromkeys([*self.analysis.by, *(name for name in names if name not in named)]))

    @cached_property
    def _is_of_window(self) -> bool:
        """True if it is asked of the measurement window of rounds, and not of single rounds, stages or operations."""
        names = {self.analysis.over, *self.analysis.by, *self.analysis.where}
        return bool(self.part.rounds and self.part.rounds.sought and not names & {ROUND, STAGE, *OF_RESULTS})

    def have_warning(self, case_ids: Sequence[str], code: str) -> bool:
        """True if every run of these cases has a warning."""
        if self.outcomes is None or self.warnings is None:
            return False
        runs = set(self.outcomes.filter(pl.col("case_id").is_in(list(case_ids)))["run_id"])
        return bool(runs) and runs <= set(self.warnings.filter(pl.col("code") == code)["run_id"])

    def cells(self, metric: str | None = None) -> pl.DataFrame:
        wanted = metric or self.analysis.metric
        if wanted not in self._cells:
            factors, where = [self.analysis.over, *self.by], self.analysis.where
            self._cells[wanted] = (
                window_cells(self.part, self.cases, self.runs, wanted, factors=factors, where=where)
                if self._is_of_window
                else self.cells_by(wanted, factors)
            )
        return self._cells[wanted]

    def cells_by(self, metric: str, factors: Sequence[str], where: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Return the cells of a metric in the part, apart for these factors, `where` as in the study."""
        where = self.analysis.where if where is None else where
        return cells(self.runs, self.cases, part=self.part.name, metric=metric, factors=factors, where=where)

    def of_device(self, metric: str, *factors: str) -> pl.DataFrame:
        """Return the cells of `device_part`: block I/O on the same target, which others are compared with."""
        return cells(self.runs, self.cases, part=self.analysis.device_part, metric=metric, factors=factors)

    @cached_property
    def axis(self) -> str | None:
        """Return the factor that neighbours are grouped along into one sentence: numbers, and the most of them."""
        frame = self.cells()
        longest = max(self.numeric, key=lambda name: frame[name].n_unique(), default=None)
        return longest if longest and frame[longest].n_unique() > 1 else None

    @cached_property
    def apart_in_results(self) -> list[str]:
        """Separators of results (`operation`, `stream`) that are no factors of this part."""
        of_part = self.cases.filter(pl.col("part") == self.part.name)
        return separated_by_results(of_part, [self.analysis.over, *self.by])

    @property
    def along(self) -> list[str]:
        """The axis, if there is one."""
        return [self.axis] if self.axis else []

    @cached_property
    def numeric(self) -> list[str]:
        """Factors of `by` whose levels are numbers: the axis and its like."""
        schema = self.cells().schema
        return [name for name in self.by if schema[name].is_numeric()]

    def numbers(self, row: Mapping[str, Any]) -> str:
        """Name the numeric levels of an answer: `32 KiB blocks and queue depth 4`; empty without any."""
        words = [wording.level_words(name, row[name]) for name in self.numeric]
        return wording.listing(words) if words else ""

    def claim(
        self, case_ids: Iterable[str], *estimates: Estimate | None, at_most: Strength = "strong"
    ) -> dict[str, Any]:
        """Return the fields of every finding that is supported by cases and estimates."""
        return self.support.claim(case_ids, *estimates, part=self.part.name, at_most=at_most)

    def values(self, metric: str, *case_ids: str) -> list[float]:
        """Return the repeats of some cases; empty where no result of a metric is above 0."""
        chosen = self.cells(metric).filter(pl.col("case_id").is_in(case_ids))["values"]
        return [value for repeats in chosen for value in repeats]

    def mean(self, metric: str, case_ids: Sequence[str]) -> float | None:
        values = self.values(metric, *case_ids)
        return sum(values) / len(values) if values else None

    def repeats(self, metric: str, case_id: str) -> Floats:
        """Return the values of a metric of all operations in the repeats of a case, 0 included."""
        found = self.runs.filter(
            pl.col("case_id") == case_id, pl.col("metric") == metric, pl.col("operation") == ALL
        ).unique(["run_id"], maintain_order=True)
        return found.sort("repeat")["value"].to_numpy()

    def case(self, case_id: str) -> dict[str, Any]:
        return self.cases.row(by_predicate=pl.col("case_id") == case_id, named=True)

    def on_each_host(self, case_id: str) -> str:
        """` on each of 2 hosts`, after a count of a case that each of its hosts has; empty on one machine."""
        hosts = self.hosts and int(self.case(case_id).get("hosts") or self.hosts)
        return f" on each of {wording.counted(hosts, 'host')}" if hosts else ""

    def words(self, case_id: str, *, without: Sequence[str] = ()) -> dict[str, str]:
        """Name the load of a case, leaving out factors that a sentence names otherwise."""
        levels = [level for factor in without for level in self.part.all_factors.get(factor, [])]
        set_by = [name for level in levels if isinstance(level, Level) for name in level.set]
        return wording.load_words(self.case(case_id), without=[*without, *set_by])

    def load(self, key: Mapping[str, Any], case_id: str, *, without: Sequence[str] = ()) -> str:
        """Name what a sentence is about: the load, and the levels that distinguish it from similar ones."""
        hidden = [*without, self.analysis.over, *(name for name in self.numeric if name not in key)]
        words = self.words(case_id, without=hidden)
        if "operation" in key and "operation" in self.apart_in_results:
            fraction = self.case(case_id).get("read_fraction")
            mix = (
                ""
                if fraction is None or fraction in (0, 1)
                else f" in the {100 * fraction:.0f}/{100 * (1 - fraction):.0f} mix"
            )
            words["read_fraction"] = f"{key['operation']}s{mix}"
        phrase = wording.phrase(words)
        named = [
            wording.level_words(name, level)
            for name, level in key.items()
            if name not in hidden and (not self.is_worded(name) or name == "stream")
        ]
        rest = [each for each in named if each.replace("_", " ") not in phrase]
        return phrase + (f" ({', '.join(rest)})" if rest else "")

    @property
    def measured_levels(self) -> int:
        """Number of levels of `over` of which a run is complete, whether or not it has a value of the metric."""
        over, measured = self.analysis.over, self.runs["case_id"].unique().to_list()
        of_part = under_own_names(
            self.cases.filter(pl.col("part") == self.part.name, pl.col("case_id").is_in(measured))
        )
        return max(1, of_part[over].drop_nulls().n_unique()) if over in of_part else 1

    @property
    def seeks_maximum(self) -> bool:
        """True if larger values of the metric are better, and the load was not limited to an offered rate."""
        return metric_of(self.analysis.metric).better == "higher" and not self.is_open_loop

    @cached_property
    def is_open_loop(self) -> bool:
        """Return True if any of its cells is rate-limited: an offered rate, not a limit of the device."""
        rated = self.runs.filter(pl.col("metric") == "achieved_rate_fraction", pl.col("stream") != ALL)
        cells = self.cells()
        if "stream" in self.analysis.where:
            rated = rated.filter(pl.col("stream") == self.analysis.where["stream"])
        elif "stream" in cells.columns:
            return len(cells.join(rated.select("case_id", "stream"), on=["case_id", "stream"], how="semi")) > 0
        return len(cells.join(rated.select("case_id"), on="case_id", how="semi")) > 0

    def is_worded(self, factor: str) -> bool:
        """Return True if the words of a load distinguish all levels of a factor."""
        if factor in self.apart_in_results:
            return True
        levels = self.part.all_factors.get(factor, [])
        compound = [level.set for level in levels if isinstance(level, Level)]
        if not compound:
            return factor in _WORDED
        worded = [{name: value for name, value in each.items() if name in _WORDED} for each in compound]
        return all(each not in worded[:place] for place, each in enumerate(worded)) and any(worded)


@dataclass(frozen=True)
class QuestionKind:
    """A kind of question, in `KINDS` of its module. Its name is a literal: `questions.names` reads it in the source."""

    name: str
    find: Callable[[Question], Iterator[Finding]]
    compares_levels: bool = False
    """True if it has no answer for a single level: its value is stated instead."""
    explains_missing: bool = False
    """True if it states why no case has a value of its metric."""
    is_of_names: bool = False
    """True if it compares named levels: its answers come before the values of a single level."""
    needs_device_part: bool = False
    """True if it compares with another part of the study, `device_part`."""
