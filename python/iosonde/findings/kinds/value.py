"""Value of a metric under a load: the highest of several cases, or the only one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.support import Support
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, maximum_interval, repeats_interval


class Value(Finding):
    """A value of one load."""

    load: str
    metric: str
    value: Estimate
    setting: str
    """The levels that have this value, with a preposition; empty without any."""
    repeats: int

    def _stated(self, before: str = "") -> str:
        """`4 KiB reads: at least 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS)`."""
        value = wording.value_text(self.metric, self.value.value)
        interval = wording.estimate_text(self.metric, self.value).removeprefix(value)
        setting = f" {self.setting}" if self.setting else ""
        return f"{self.load}: {before}{value}{setting}{interval}"

    @property
    def _runs(self) -> str:
        return wording.counted(self.repeats, "run")


class Highest(Value):
    """The highest value of several cases, and the limits of what it shows."""

    states_verdicts = True
    maximum: Estimate
    """The same with an interval that accounts for the selection of the case among all candidates."""
    candidates: int
    lower_bound: bool
    """True if the device may be faster, by the verdicts of these runs."""
    verdicts: str
    """Verdicts of these runs other than device-limited."""
    cache_served: bool = False
    unsaturated: bool = False
    """True if the value still rose by more than 5 % at the largest level measured."""
    is_mean_of_change: bool = False
    """True if it is the mean of a run whose level did not last."""

    @property
    def _limits(self) -> list[str]:
        limits = {
            "maximum not shown": self.unsaturated,
            "cache-served": self.cache_served,
            "mean of a whole run, not shown to be steady": self.is_mean_of_change,
        }
        return [words for words, applies in limits.items() if applies]

    @property
    def _selection(self) -> str:
        return f"{wording.selection_text(self.value, self.maximum, self.candidates)}; {self._runs}"

    @property
    def _other_verdicts(self) -> str:
        return f"; {self.verdicts}" if self.verdicts else ""


def highest(
    best: Mapping[str, Any], candidates: pl.DataFrame, support: Support, *, case_ids: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of a `Highest` that follow from the best cell and all `candidates`."""
    value, maximum = repeats_interval(best["values"]), maximum_interval(candidates["values"].to_list())
    case_ids = tuple(dict.fromkeys([best["case_id"], *case_ids]))
    return {
        "value": value,
        "maximum": maximum,
        "candidates": len(candidates),
        "repeats": len(best["values"]),
        "lower_bound": support.is_lower_bound(best["case_id"]),
        "cache_served": support.is_cache_served(best["case_id"]),
        "is_mean_of_change": best["case_id"] in support.unsteady,
        "verdicts": support.note(case_ids),
        "strength": support.strength(case_ids, value, maximum),
        "case_ids": case_ids,
    }


def best_of(cells: pl.DataFrame, *, lowest: bool = False) -> dict[str, Any]:
    """Return the cell with the largest median, or with the smallest."""
    medians = cells["values"].list.median()
    return cells.row(int((medians.arg_min() if lowest else medians.arg_max()) or 0), named=True)


def selected(best: Mapping[str, Any], candidates: pl.DataFrame) -> Estimate:
    """Return the value of the best cell, with an interval that accounts for its selection, if there are others."""
    values = candidates["values"].to_list()
    return maximum_interval(values) if len(values) > 1 else repeats_interval(best["values"])
