"""Words for the levels of a case: a maximum, an extreme and an overload name every factor of the case they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

import polars as pl

from iosonde.findings.cells import under_own_names
from iosonde.metrics import wording
from iosonde.study.model import Level, Part, Study


def unstated_levels(part: Part, case: Mapping[str, Any], *, stated: Container[str] = ()) -> list[str]:
    """Return words for the level of each factor with several levels, unless `stated` has all that the factor sets."""
    return [
        wording.level_words(factor, case[factor])
        for factor, levels in part.all_factors.items()
        if len(levels) > 1
        and case.get(factor) is not None
        and not all(name in stated for level in levels for name in _sets(factor, level))
    ]


def case_words(study: Study, cases: pl.DataFrame) -> dict[str, str]:
    """Return words for each case: its levels; the title of its part where it has none or another case has the same."""
    parts = {part.name: part for part in study.parts}
    rows = under_own_names(cases).to_dicts()
    levels = {
        row["case_id"]: ", ".join(unstated_levels(parts[row["part"]], row) if row["part"] in parts else [])
        for row in rows
    }
    counts = Counter(levels.values())
    titles = {row["case_id"]: _title(parts.get(row["part"]), row["case_id"]) for row in rows}
    return {
        case_id: words if words and counts[words] == 1 else ", ".join(filter(None, (titles[case_id], words)))
        for case_id, words in levels.items()
    }


def _title(part: Part | None, case_id: str) -> str:
    return part.title if part and part.title else f"`{case_id}`"


def _sets(factor: str, level: Any) -> list[str]:
    return list(level.set) if isinstance(level, Level) else [factor]
