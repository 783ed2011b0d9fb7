"""Arrays compared with the expected model of their level: the rows that figures and tables share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.features.arrays.expected import level_name
from iosonde.features.arrays.loads import Loads
from iosonde.findings.question import Question
from iosonde.report.material import Material, Source
from iosonde.report.quantities import level_phrase
from iosonde.study.model import Analysis


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
