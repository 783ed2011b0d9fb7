"""Number of runs, cases or operations that something is true of."""

from __future__ import annotations

from typing import Any, ClassVar

import polars as pl

from iosonde.findings.finding import Finding, cases_of
from iosonde.metrics import wording


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
