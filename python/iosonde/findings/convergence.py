"""Convergence: the rounds of a part as tables of results have them, and the window out of which figures are taken.

The same rule that decided how many rounds there were (`procedure/rounds.py`) is applied to the metrics of the rounds,
so that a report follows from the records alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from iosonde.findings.cells import under_own_names
from iosonde.metrics.scopes import overall
from iosonde.metrics.settling import Trend
from iosonde.metrics.steady_state import Criteria, Window, held_window, steady_state, window
from iosonde.metrics.sustained import STALLED_SHARE
from iosonde.study.model import ROUND, Level, Part
from iosonde.workload.block.requirements import active_range_bytes


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """One tracking variable of a pass."""

    levels: Mapping[str, Any]
    values: Sequence[float]
    window: Window | None
    """The measurement window; where steady state was not achieved, the last one there is."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """One pass: a prepared case, measured round after round."""

    levels: Mapping[str, Any]
    """Of the case."""
    repeat: int
    rounds: int
    metric: str
    tracked: Sequence[Tracked]
    first: int | None
    """First round of the measurement window; None if steady state was not achieved."""
    last: int | None
    case_ids: Sequence[str]
    lasts: bool
    """True if the level of everything that is tracked lasts to the end, which the criterion does not show."""
    trend: Trend
    """Direction in which one of them still changes."""
    hidden: float | None
    """Largest drift per round that noise may hide, as a share, where that keeps one of them from being steady."""
    sought: bool
    """True if there could be enough rounds for a window at all."""
    withdrawn: int | None = None
    """Last round of a first steady window that failed the closing check; None if there is none."""

    @property
    def achieved(self) -> bool:
        """Return True if all that is tracked met the criterion together."""
        return self.first is not None


def convergences(part: Part, cases: pl.DataFrame, runs: pl.DataFrame) -> list[Convergence]:
    """Return every pass of a part with rounds, in the order of its cases. `runs` are run metrics of one result set."""
    assert part.rounds, "a part with rounds"
    whole = overall(runs)
    rounds = _rounds(part, cases, _without_stalled(whole, part.rounds.metric))
    if rounds.is_empty():
        return []
    outer = [*part.factors, "repeat"]
    moved = _moved(part, cases, whole)
    ranges = {row["case_id"]: active_range_bytes(row) for row in cases.filter(pl.col("part") == part.name).to_dicts()}
    found = []
    for key, group in rounds.group_by(outer, maintain_order=True):
        bytes_of = moved.filter(pl.col(name).eq_missing(level) for name, level in zip(outer, key, strict=True))
        by_round = dict(bytes_of.group_by(ROUND).agg(pl.col("value").sum()).iter_rows())
        range_bytes = max((size for each in group["case_id"] if (size := ranges[each])), default=None)
        found.append(_convergence(part, dict(zip(outer, key, strict=True)), group, by_round, range_bytes))
    return found


def _moved(part: Part, cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Bytes that each load of each round read and wrote: one row a round and load, as of `_rounds`."""
    keys = ("case_id", "repeat")
    rates, seconds = (
        runs.filter(pl.col("metric") == name).select(*keys, pl.col("value").alias(name))
        for name in ("bandwidth", "seconds")
    )
    products = rates.join(seconds, on=keys).select(*keys, value=pl.col("bandwidth") * pl.col("seconds"))
    return _rounds(part, cases, products)


def _without_stalled(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Values of a metric; not a number where the engine itself was stalled."""
    keys = ("case_id", "repeat")
    fractions = runs.filter(pl.col("metric") == "engine_stalled_fraction")
    stalled = fractions.filter(pl.col("value") >= STALLED_SHARE).select(*keys, stalled=pl.lit(value=True))
    joined = runs.filter(pl.col("metric") == metric).join(stalled, on=keys, how="left", maintain_order="left")
    return joined.with_columns(value=pl.when(pl.col("stalled")).then(math.nan).otherwise("value")).drop("stalled")


def window_means(part: Part, cases: pl.DataFrame, runs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Return the mean of metrics over the measurement window (or the last one) of each pass and load.

    Columns: the factors of the case and of the round, `repeat`, `metric`, `value`, `case_id` of the last round there.
    """
    assert part.rounds, "a part with rounds"
    found = []
    factors = [*part.factors, *part.rounds.factors]
    for metric in metrics:
        rounds = _rounds(part, cases, overall(runs).filter(pl.col("metric") == metric))
        for each in convergences(part, cases, runs):
            first, last = _range(each)
            chosen = [pl.col(name) == level for name, level in {**each.levels, "repeat": each.repeat}.items()]
            found.append(
                rounds.filter(*chosen, pl.col(ROUND).is_between(first, last))
                .group_by([*factors, "repeat"], maintain_order=True)
                .agg(pl.col("value").mean(), pl.col("case_id").last())
                .with_columns(metric=pl.lit(metric))
            )
    return pl.concat(found) if found else pl.DataFrame()


def window_cells(
    part: Part,
    cases: pl.DataFrame,
    runs: pl.DataFrame,
    metric: str,
    *,
    factors: Sequence[str],
    where: Mapping[str, Any],
) -> pl.DataFrame:
    """Return what `cells.cells` does, with the mean over the measurement window as the value of each repeat."""
    means = window_means(part, cases, runs, [metric])
    if means.is_empty():
        return pl.DataFrame(
            schema={**dict.fromkeys(factors, pl.String), "case_id": pl.String, "values": pl.List(float)}
        )
    matching = [pl.col(name) == level for name, level in where.items()]
    return (
        means.filter(pl.col("value") > 0, *matching)
        .group_by([*factors, "case_id"], maintain_order=True)
        .agg(values=pl.col("value").sort_by("repeat"))
        .sort([name for name in factors if means.schema[name].is_numeric()], maintain_order=True)
    )


def of_windows(parts: Sequence[Part], cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return run metrics without rounds outside of the measurement window, or the last one, of their pass."""
    outside: list[pl.DataFrame] = []
    for part in (each for each in parts if each.rounds):
        found = convergences(part, cases, runs)
        if not found:
            continue
        rounds = _rounds(part, cases, overall(runs)).select("case_id", "repeat", ROUND, *part.factors).unique()
        for each in found:
            first, last = _range(each)
            chosen = [pl.col(name).eq_missing(level) for name, level in {**each.levels, "repeat": each.repeat}.items()]
            left_out = rounds.filter(*chosen, ~pl.col(ROUND).is_between(first, last)) if each.sought else rounds.clear()
            outside.append(left_out.select("case_id", "repeat"))
    return runs.join(pl.concat(outside), on=["case_id", "repeat"], how="anti") if outside else runs


def _range(each: Convergence) -> tuple[int, int]:
    latest = next((tracked.window for tracked in each.tracked if tracked.window), None)
    return (latest.first, latest.last) if latest else (1, each.rounds)


def _rounds(part: Part, cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """One row a round and load, with its levels, `repeat` and `value`."""
    assert part.rounds, "a part with rounds"
    named = under_own_names(cases.filter(pl.col("part") == part.name))
    wanted = [*part.factors, *part.rounds.factors, ROUND]
    if any(name not in named.columns for name in wanted):
        return pl.DataFrame()
    return (
        named.select("case_id", *wanted)
        .join(runs.select("case_id", "repeat", "value"), on="case_id", maintain_order="left")
        .filter(pl.col(ROUND).is_not_null())
    )


def _convergence(
    part: Part,
    key: Mapping[str, Any],
    group: pl.DataFrame,
    moved: Mapping[int, float],
    range_bytes: int | None,
) -> Convergence:
    rounds = part.rounds
    assert rounds, "a part with rounds"
    criteria = Criteria(
        window=rounds.window, range=rounds.range, slope=rounds.slope, min_length=0, min_written=rounds.min_written
    )
    series = [
        (dict(zip(rounds.factors, levels, strict=True)), _complete(load.sort(ROUND)))
        for levels, load in _by(group, list(rounds.factors))
        if _is_tracked(part, dict(zip(rounds.factors, levels, strict=True)))
    ]
    whole = min((len(values) for _, values in series), default=0)
    values = [each[:whole] for _, each in series]
    enough = {"moved_bytes": lambda index: moved.get(index + 1, 0.0), "range_bytes": range_bytes}
    held = held_window(values, criteria=criteria, hold=rounds.hold, **enough)  # type: ignore[arg-type]
    first = held_window(values, criteria=criteria, **enough)  # type: ignore[arg-type]
    end = held[1] if held else None
    last = end or whole
    tracked = [
        Tracked(
            levels=levels,
            values=values[:whole],
            window=window(values[last - criteria.window : last], first=last - criteria.window + 1, criteria=criteria)
            if last >= criteria.window
            else None,
        )
        for levels, values in series
    ]
    judged = [steady_state(each, criteria=criteria) for each in values]
    trend: Trend = next((each.trend for each in judged if each.trend), "")
    return Convergence(
        levels={name: level for name, level in key.items() if name != "repeat"},
        repeat=int(key["repeat"]),
        rounds=whole,
        metric=rounds.metric,
        tracked=tracked,
        first=held[0] if held else None,
        last=end,
        lasts=held is not None and not trend and all(each.achieved for each in judged),
        trend=trend,
        hidden=max((each.hidden for each in judged if each.hidden is not None), default=None),
        withdrawn=first[1] if first and first != held and first[1] + rounds.hold <= whole else None,
        case_ids=group["case_id"].unique(maintain_order=True).to_list(),
        sought=rounds.max_rounds >= rounds.window,
    )


def _by(group: pl.DataFrame, factors: list[str]) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    return [((), group)] if not factors else list(group.group_by(factors, maintain_order=True))


def _complete(load: pl.DataFrame) -> list[float]:
    """Values of round 1, 2, .. as far as none is missing."""
    values: list[float] = []
    for number, value in load.select(ROUND, "value").iter_rows():
        if number != len(values) + 1:
            break
        values.append(value)
    return values


def _is_tracked(part: Part, levels: Mapping[str, Any]) -> bool:
    assert part.rounds, "a part with rounds"
    return not part.rounds.track or any(each.items() <= _plain(levels).items() for each in part.rounds.track)


def _plain(levels: Mapping[str, Any]) -> dict[str, Any]:
    return {name: level.label if isinstance(level, Level) else level for name, level in levels.items()}
