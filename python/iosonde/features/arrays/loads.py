"""Questions about arrays: layouts and loads apart, and loads with similar results in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import polars as pl

from iosonde.features.arrays.performance import LAYOUT, array_performance, level_name
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.report.material import Material, Source
from iosonde.report.quantities import level_phrase
from iosonde.study.model import Analysis, Level
from iosonde.study.workload.block.backends import VIRTUAL

Row = Mapping[str, Any]
Load = tuple[dict[str, Any], list[Row]]
"""The levels that name a load, and its rows."""
LOSSES = (
    "member_ios_per_operation",
    "member_reads_per_operation",
    "member_bytes_per_byte",
    "member_utilisation",
    "member_imbalance",
    "cpu_ns_per_byte",
    "core_utilisation",
    "array_thread_utilisation",
    "array_cpu_ns_per_byte",
    "busiest_core_utilisation",
)
"""Metrics that show why throughput is below the expected value."""
_OF_PROCESSOR = LOSSES[LOSSES.index("cpu_ns_per_byte") :]
EVERYTHING = "all loads"
ALIKE = 0.10
"""Loads with shares that differ by no more than this share one sentence."""


class Loads:
    """The factors of a question about arrays."""

    def __init__(self, question: Question) -> None:
        self.question = question

    @cached_property
    def factors(self) -> list[str]:
        """Those of the load: all that do not describe the array."""
        named = [self.question.analysis.over, *self.question.by]
        return [name for name in named if not self._is_layout(name)]

    @cached_property
    def apart(self) -> list[str]:
        """Those of them whose levels are no quantities: each combination is a load of its own."""
        schema = self.question.cells().schema
        return [name for name in self.factors if not schema[name].is_numeric() or name == "read_fraction"]

    @cached_property
    def quantities(self) -> list[str]:
        """The others."""
        return [name for name in self.factors if name not in self.apart]

    def answers(self) -> list[dict[str, Any]]:
        """Return the rows of `array_performance`, each with the medians of `LOSSES` that were measured.

        And with `array_thread`, the name of the kernel's thread that `array_thread_utilisation` is of.
        """
        question = self.question
        found = array_performance(
            question.cells(),
            question.cases,
            factors=self.factors,
            runs=question.outcomes,
            metric=question.analysis.metric,
        )
        losses = {name: self._medians(name) for name in LOSSES}
        return [
            {
                **row,
                **{name: self._loss(name, row, values) for name, values in losses.items()},
                "array_thread": self._threads.get(row["case_id"]),
            }
            for row in found
        ]

    def _loss(self, name: str, row: Row, values: Mapping[str, float]) -> float | None:
        """Processor time is meaningless for arrays on virtual time."""
        return None if name in _OF_PROCESSOR and row["case_id"] in self._virtual else values.get(row["case_id"])

    @cached_property
    def _threads(self) -> dict[str, str]:
        """By case the kernel's thread that did most for its array; the numbers of arrays may differ between repeats."""
        outcomes = self.question.outcomes
        if outcomes is None or "array_thread" not in outcomes.columns:
            return {}
        return dict(outcomes.drop_nulls("array_thread").select("case_id", "array_thread").iter_rows())

    @cached_property
    def _virtual(self) -> set[str]:
        outcomes = self.question.outcomes
        if outcomes is None or "backend_in_effect" not in outcomes.columns:
            return set()
        return set(outcomes.filter(pl.col("backend_in_effect").is_in(VIRTUAL))["case_id"])

    def _medians(self, metric: str) -> dict[str, float]:
        cells = self.question.cells(metric)
        return {case_id: values.median() for case_id, values in zip(cells["case_id"], cells["values"], strict=True)}

    def _is_layout(self, factor: str) -> bool:
        levels = self.question.part.factors.get(factor, [])
        sets = {name for level in levels if isinstance(level, Level) for name in level.set}
        return factor in LAYOUT or bool(sets & set(LAYOUT))

    def divide(self, rows: Sequence[Row]) -> list[Load]:
        """Return each load with its rows, in the order of the rows."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(row[name] for name in self.apart), []).append(row)
        return [(dict(zip(self.apart, key, strict=True)), group) for key, group in found.items()]

    def words(self, key: Mapping[str, Any], case_id: str) -> str:
        """Name a load by the levels that are left in `key`: `direct random writes`."""
        case = self.question.case(case_id)
        hidden = [name for name in self.factors if name not in key]
        words = self.question.words(case_id, without=[*hidden, *self._unvaried])
        direct = "io_mode" in key and case.get("io_mode") == "direct"
        rest = [wording.level_words(name, level) for name, level in key.items() if not self.question.is_worded(name)]
        text = ("direct " if direct else "") + wording.phrase(words)
        text += f" ({', '.join(rest)})" if rest else ""
        return EVERYTHING if text == "I/O" else text

    def includes(self, key: Mapping[str, Any], rows: Sequence[Row], row: Row) -> bool:
        """Return whether words for the load `key` and the quantities and devices of `rows` include a row."""
        devices = [each["devices"] for each in rows]
        return (
            all(row[name] == level for name, level in key.items())
            and all(row[name] in {each[name] for each in rows} for name in self.quantities)
            and min(devices) <= row["devices"] <= max(devices)
        )

    def cell(self, row: Row, key: Mapping[str, Any], rows: Sequence[Row]) -> str:
        """Name the levels of a row in which `rows` differ and that `key` does not name."""
        levels = [self._levels[each["case_id"]] for each in rows]
        factors = [self.question.analysis.over, *self.question.by]
        names = [name for name in factors if name not in key and len({each[name] for each in levels}) > 1]
        own = self._levels[row["case_id"]]
        return wording.listing([wording.level_words(name, own[name]) for name in names]) if names else ""

    @cached_property
    def _levels(self) -> dict[str, dict[str, Any]]:
        """Levels of all factors by case, those of the layout included."""
        return {row["case_id"]: row for row in self.question.cells().iter_rows(named=True)}

    @cached_property
    def _unvaried(self) -> list[str]:
        """Words that every load of the part has in common and that are in its title."""
        sets = {
            name
            for factor in self.factors
            for level in self.question.part.factors.get(factor, [])
            for name in (level.set if isinstance(level, Level) else [factor])
        }
        return [name for name in ("block_size", "access", "io_mode") if name not in sets or name in self.quantities]

    def together(self, loads: Sequence[Load], value: Callable[[Row], float]) -> list[Load]:
        """Merge loads along each factor where all of its levels have similar results."""
        merged = list(loads)
        for factor in self.apart:
            levels = {key[factor] for key, _ in loads if factor in key}
            if len(levels) < 2:
                continue
            alike: dict[tuple[Any, ...], list[Load]] = {}
            for key, rows in merged:
                rest = tuple((name, level) for name, level in key.items() if name != factor)
                alike.setdefault(rest, []).append((key, rows))
            merged = []
            for rest, members in alike.items():
                middles = [median(value(row) for row in rows) for _, rows in members]
                whole = len(members) == len(levels) and max(middles) - min(middles) <= ALIKE
                merged += [(dict(rest), [row for _, rows in members for row in rows])] if whole else members
        return merged


@dataclass(frozen=True, kw_only=True)
class ArrayRates:
    """The answers to one question about arrays, of one result set."""

    source: Source
    analysis: Analysis
    material: Material

    @cached_property
    def loads(self) -> Loads:
        """The question with its factors."""
        results = self.source.results
        metrics = self.material.run_metrics.filter(pl.col("result_set") == self.source.label)
        return Loads(
            Question(
                study=self.material.study,
                analysis=self.analysis,
                cases=results.cases,
                runs=metrics,
                outcomes=results.runs,
            )
        )

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One for each array and load."""
        return [] if self.loads.question.cells().is_empty() else self.loads.answers()


def array_rates(material: Material) -> Iterator[ArrayRates]:
    """Yield every question about array efficiency that has an answer."""
    for analysis in material.study.analysis:
        if analysis.kind == "array_efficiency":
            for source in material.sources:
                found = ArrayRates(source=source, analysis=analysis, material=material)
                if found.rows:
                    yield found


def set_name(found: ArrayRates) -> str:
    """Name the result set where there are several."""
    return found.source.label if len(found.material.sources) > 1 else ""


def load_name(found: ArrayRates, row: Mapping[str, Any]) -> str:
    """Name the load of a row by its levels."""
    return " · ".join(level_phrase(name, row[name]) for name in found.loads.apart) or "all"


def array_name(row: Mapping[str, Any]) -> str:
    """Name an array by its level and number of devices."""
    return f"{level_name(row)} × {row['devices']}"


def array_order(row: Mapping[str, Any]) -> tuple[int, str, str, int]:
    """Sort arrays by level, builder, state and number of devices."""
    levels = ["raid0", "raid1", "raid10", "raid5", "raid6"]
    return (levels.index(row["array"]), row["array_kind"], row["state"], row["devices"])
