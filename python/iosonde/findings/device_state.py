"""Device state of every run: the state that the plan prepared, corrected by what the run measured.

The plan states what target and profile allow. Whether the range was written often enough, and whether the rate settled,
is known afterwards. Answer, captions and tables of a report take the state from here, so that they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.findings.cells import groups, under_own_names, with_repeats
from iosonde.findings.finding import FIRST, Finding
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL, overall
from iosonde.metrics.settling import Trend
from iosonde.metrics.steady_state import Criteria, Window, held_window, steady_state, window
from iosonde.metrics.sustained import STALLED_SHARE, LongRun
from iosonde.plan import PREPARATION, DeviceState
from iosonde.planning.draft import SMALLEST_RANGE, SPANS_TO_STEADY, is_small_range
from iosonde.planning.procedure.preparation import STEP
from iosonde.study.model import ROUND, Part, Study
from iosonde.study.workload.block.backends import VIRTUAL_DRIVES
from iosonde.study.workload.block.parameters import active_range_bytes
from iosonde.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """One tracking variable of a pass."""

    levels: Mapping[str, Any]
    values: Sequence[float]
    window: Window | None
    """The measurement window; where steady state was not achieved, the last one there is."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """One pass, a prepared case measured round after round: joint steady state of all that is tracked."""

    levels: Mapping[str, Any]
    """Of the case."""
    repeat: int
    metric: str
    case_ids: Sequence[str]
    sought: bool
    """True if there could be enough rounds for a window at all."""
    rounds: int
    tracked: Sequence[Tracked]
    first: int | None
    """First round of the measurement window; None if steady state was not achieved."""
    last: int | None
    lasts: bool
    """True if the level of everything that is tracked lasts to the end, which the criterion does not show."""
    trend: Trend
    """Direction in which one of them still changes."""
    hidden: float | None
    """Largest drift per round that noise may hide, as a share, where that keeps one of them from being steady."""
    withdrawn: int | None
    """Last round of a first steady window that failed the closing check; None if there is none."""

    @property
    def achieved(self) -> bool:
        """True if all that is tracked met the criterion together."""
        return self.first is not None

    def is_own(self, *, inside: bool) -> pl.Expr:
        """Rows of rounds of this pass, inside or outside of the measurement window, or the last one there is."""
        latest = next((tracked.window for tracked in self.tracked if tracked.window), None)
        first, last = (latest.first, latest.last) if latest else (1, self.rounds)
        levels = {**self.levels, "repeat": self.repeat}
        is_inside = pl.col(ROUND).is_between(first, last)
        own = [pl.col(name).eq_missing(level) for name, level in levels.items()]
        return pl.all_horizontal(*own, is_inside if inside else ~is_inside)


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
            found.append(
                rounds.filter(each.is_own(inside=True))
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
    return with_repeats(means.filter(pl.col("value") > 0, *matching), factors)


def of_windows(parts: Sequence[Part], cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return run metrics without rounds outside of the measurement window, or the last one, of their pass."""
    outside: list[pl.DataFrame] = []
    for part in (each for each in parts if each.rounds):
        if not (found := convergences(part, cases, runs)):
            continue
        rounds = _rounds(part, cases, overall(runs)).select("case_id", "repeat", ROUND, *part.factors).unique()
        left_out = (rounds.filter(each.is_own(inside=False)) for each in found if each.sought)
        outside += [each.select("case_id", "repeat") for each in left_out]
    return runs.join(pl.concat(outside), on=["case_id", "repeat"], how="anti") if outside else runs


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
    series = [
        (levels, _complete(load.sort(ROUND)))
        for levels, load in groups(group, list(rounds.factors))
        if not rounds.track or any(each.items() <= levels.items() for each in rounds.track)
    ]
    whole = min((len(values) for _, values in series), default=0)
    values = [each[:whole] for _, each in series]
    criteria = Criteria(
        window=rounds.window, range=rounds.range, slope=rounds.slope, min_length=0, min_written=rounds.min_written
    )
    held, unheld = (
        held_window(
            values,
            criteria=criteria,
            hold=hold,
            moved_bytes=lambda index: moved.get(index + 1, 0.0),
            range_bytes=range_bytes,
        )
        for hold in (rounds.hold, 0)
    )
    last = held[1] if held else whole
    first = last - criteria.window + 1
    judged = [steady_state(each, criteria=criteria) for each in values]
    trend: Trend = next((each.trend for each in judged if each.trend), "")
    return Convergence(
        levels={name: level for name, level in key.items() if name != "repeat"},
        repeat=int(key["repeat"]),
        metric=rounds.metric,
        case_ids=group["case_id"].unique(maintain_order=True).to_list(),
        sought=rounds.sought,
        rounds=whole,
        tracked=[
            Tracked(
                levels=levels,
                values=tuple(each),
                window=window(each[first - 1 : last], first=first, criteria=criteria) if first > 0 else None,
            )
            for (levels, _), each in zip(series, values, strict=True)
        ],
        first=held[0] if held else None,
        last=held[1] if held else None,
        lasts=held is not None and not trend and all(each.achieved for each in judged),
        trend=trend,
        hidden=max((each.hidden for each in judged if each.hidden is not None), default=None),
        withdrawn=unheld[1] if unheld and unheld != held and unheld[1] + rounds.hold <= whole else None,
    )


def _complete(load: pl.DataFrame) -> list[float]:
    """Values of round 1, 2, .. as far as none is missing."""
    values: list[float] = []
    for number, value in load.select(ROUND, "value").iter_rows():
        if number != len(values) + 1:
            break
        values.append(value)
    return values


NEARLY_ALL = 0.9
"""Share of the capacity that must have been written since the purge for a steady state."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Range that was addressed and bytes that were written until a pass ended."""

    capacity_bytes: int
    range_bytes: int | None
    """Largest active range; None where streams have ranges of their own."""
    written_bytes: int
    """Since the last purge, preparation included."""
    fill: float = 0
    """Percentage of the capacity that was filled; 0 if the active range was not filled."""
    prepared: bool = False
    """True if the range was filled or preconditioned before."""

    @property
    def small_range(self) -> bool:
        return self.range_bytes is not None and is_small_range(self.range_bytes, self.fill, self.capacity_bytes)

    @property
    def enough(self) -> bool:
        spans = 0 if self.prepared else SPANS_TO_STEADY * (self.range_bytes or 0)
        return not self.small_range and self.written_bytes >= max(NEARLY_ALL * self.capacity_bytes, spans)


class FreshDevice(Finding, kind="fresh device", topic="state", place=FIRST):
    """Cases that were measured on a device that cannot have been in steady state."""

    state: DeviceState
    """`fresh`, or `unknown` where the device was not purged."""
    written: Written
    """Of the pass that wrote most."""
    cases: int
    """Cases of the part that write."""

    def _sentence(self) -> str:
        few = len(self.case_ids) < self.cases
        of = f"{len(self.case_ids)} of {wording.counted(self.cases, 'case')} of " if few else ""
        what = "a fresh drive, not steady state" if self.state == "fresh" else "a drive in an unknown state"
        return f"Results of {of}part `{self.part}` describe {what}: {self._reason}"

    @property
    def _reason(self) -> str:
        written, capacity = self.written, format_bytes(self.written.capacity_bytes)
        if written.small_range and written.range_bytes is not None:
            return f"the load addressed {format_bytes(written.range_bytes)} of {capacity}"
        text = f"{format_bytes(written.written_bytes)} were written to a device of {capacity}"
        if written.written_bytes >= NEARLY_ALL * written.capacity_bytes and written.range_bytes is not None:
            text += f", less than {SPANS_TO_STEADY} times the active range of {format_bytes(written.range_bytes)}"
        return text

    def _evidence(self) -> str:
        return (
            "steady state of a drive requires writing at least its capacity over at least "
            f"{100 * SMALLEST_RANGE:.0f} % of it; {format_bytes(self.written.written_bytes)} written, "
            f"{wording.counted(len(self.case_ids), 'case')}"
        )


@dataclass(frozen=True)
class DeviceStates:
    """Device state of every run that has metrics, by case and repeat, with notes on it."""

    runs: Mapping[tuple[str, int], DeviceState]
    findings: Sequence[FreshDevice] = ()

    def state(self, case_id: str, repeat: int) -> DeviceState:
        return self.runs.get((case_id, repeat), "unknown")

    def of_case(self, case_id: str) -> tuple[DeviceState, ...]:
        """Return the states that the repeats of a case measured, each once; empty if it has no result."""
        return self._by_case.get(case_id, ())

    @cached_property
    def _by_case(self) -> dict[str, tuple[DeviceState, ...]]:
        found: dict[str, dict[DeviceState, None]] = {}
        for (case_id, _), state in self.runs.items():
            found.setdefault(case_id, {})[state] = None
        return {case_id: tuple(states) for case_id, states in found.items()}


def device_states(
    study: Study,
    cases: pl.DataFrame,
    metrics: pl.DataFrame,
    outcomes: pl.DataFrame | None,
    long_runs: Sequence[LongRun] = (),
) -> DeviceStates:
    """Return the device state of every run of a result set.

    `metrics` are the metrics of all runs, preparation included; `outcomes` is the view `runs`.
    """
    planned: dict[str, DeviceState] = (
        dict(cases.select("case_id", "device_state").rows()) if "device_state" in cases.columns else {}
    )
    measured = metrics.filter(pl.col("part") != PREPARATION)
    runs = measured.select("case_id", "repeat").unique(maintain_order=True).rows()
    states = {(case_id, repeat): planned.get(case_id, "unknown") for case_id, repeat in runs}
    device = _Device(metrics, outcomes)
    found: list[FreshDevice] = []
    for part in study.parts:
        passes = [each for each in _passes(part, cases, states) if part.rounds or each.is_judged]
        achieved = _achieved(part, cases, measured, long_runs)
        written = [device.written(each) for each in passes]
        for each, evidence in zip(passes, written, strict=True):
            states |= {run: _state(run, states[run], each, evidence, achieved) for run in each.runs}
        found += _unsettled(study, part, passes, written, states)
    if outcomes is not None and "rate_is_transient" in outcomes.columns:
        # A stable rate is not steady state while burst credits last.
        bursting = outcomes.filter(pl.col("rate_is_transient")).select("case_id", "repeat").rows()
        states |= dict.fromkeys(states.keys() & set(bursting), "unknown")
    return DeviceStates(states, tuple(found))


@dataclass(frozen=True)
class _Pass:
    """Runs between one preparation and the next: the rounds and stages of a repeat; without rounds, a run."""

    rows: Sequence[Mapping[str, Any]]
    """Its cases."""
    repeat: int

    @property
    def runs(self) -> list[tuple[str, int]]:
        return [(row["case_id"], self.repeat) for row in self.rows]

    @property
    def is_judged(self) -> bool:
        return any(row.get("round_length") for row in self.rows)

    @property
    def starts_empty(self) -> bool:
        """True if the device holds nothing when the preparation starts."""
        purges = [row.get("purge") for row in self.rows if row.get("backend") not in VIRTUAL_DRIVES]
        return len(purges) < len(self.rows) or any(purge not in (None, "none", "unneeded") for purge in purges)


def _passes(part: Part, cases: pl.DataFrame, runs: Iterable[tuple[str, int]]) -> list[_Pass]:
    rows = under_own_names(cases.filter(pl.col("part") == part.name, ~pl.col("control"))).to_dicts()
    by_id = {row["case_id"]: row for row in rows}
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for case_id, repeat in runs:
        if row := by_id.get(case_id):
            place = str([row.get(name) for name in part.factors]) if part.rounds else case_id
            found.setdefault((place, repeat), []).append(row)
    return [_Pass(rows, repeat) for (_, repeat), rows in found.items()]


def _achieved(
    part: Part, cases: pl.DataFrame, measured: pl.DataFrame, long_runs: Sequence[LongRun]
) -> dict[tuple[str, int], bool]:
    """True if each run that was judged was steady, by itself or with the other rounds of its pass."""
    passes = convergences(part, cases, measured) if part.rounds else []
    found = {
        (case_id, each.repeat): each.achieved and each.lasts
        for each in passes
        if each.sought
        for case_id in each.case_ids
    }
    return found | {
        (each.case_id, each.repeat): each.outcome == "steady" for each in long_runs if each.part == part.name
    }


def _state(
    run: tuple[str, int],
    planned: DeviceState,
    whole: _Pass,
    evidence: Written | None,
    achieved: Mapping[tuple[str, int], bool],
) -> DeviceState:
    if planned not in ("steady", "preconditioned"):
        return planned
    if evidence is not None and not evidence.enough:
        return "fresh" if whole.starts_empty else "unknown"
    if run in achieved:
        return "steady" if achieved[run] else "preconditioned"
    # A stage that is not judged inherits the state of what was measured before it.
    judged = [achieved[each] for each in whole.runs if each in achieved]
    return "steady" if planned == "steady" and judged and all(judged) else "preconditioned"


class _Device:
    """Bytes written by the runs of a result set, and the capacity of their device."""

    def __init__(self, metrics: pl.DataFrame, outcomes: pl.DataFrame | None) -> None:
        self._writes = _written(metrics)
        self._orders = {
            (case_id, repeat): order
            for case_id, repeat, order in metrics.select("case_id", "repeat", "order").unique().sort("order").rows()
        }
        self._capacities: dict[tuple[str, int], int | None] = {}
        self._purges: list[int] = []
        if outcomes is not None and "target_bytes" in outcomes.columns:
            rows = outcomes.select("case_id", "repeat", "target_bytes").rows()
            self._capacities = {(case_id, repeat): size for case_id, repeat, size in rows}
        if outcomes is not None and STEP in outcomes.columns:
            self._purges = outcomes.filter(pl.col(STEP) == "purge")["order"].to_list()

    def written(self, whole: _Pass) -> Written | None:
        """Return what was written until the pass ended; None if it writes nothing, or the capacity is not known."""
        sizes = [size for run in whole.runs if (size := self._capacities.get(run))]
        writing = set(self._writes["case_id"])
        rows = [row for row in whole.rows if row["case_id"] in writing]
        if not (sizes and rows):
            return None
        last = max(self._orders[run] for run in whole.runs)
        purged = max((order for order in self._purges if order < last), default=-1)
        ranges = [size for row in rows if (size := active_range_bytes(row))]
        return Written(
            capacity_bytes=max(sizes),
            range_bytes=max(ranges, default=None),
            written_bytes=int(self._writes.filter(pl.col("order").is_between(purged + 1, last))["written"].sum()),
            fill=float(rows[0].get("fill") or 0),
            prepared=bool(rows[0].get("fill") or rows[0].get("precondition")),
        )


def _unsettled(
    study: Study,
    part: Part,
    passes: Sequence[_Pass],
    written: Sequence[Written | None],
    states: Mapping[tuple[str, int], DeviceState],
) -> Iterator[FreshDevice]:
    """Return the cases of a part that looks for steady state without reaching it, unless the study requires that."""
    if (part.device_state or study.device_state) == "fresh":
        return
    all_ids = {row["case_id"] for each in passes for row in each.rows}
    unsettled: tuple[DeviceState, ...] = ("fresh", "unknown")
    for state in unsettled:
        found = [
            (each, evidence)
            for each, evidence in zip(passes, written, strict=True)
            if evidence is not None
            and any(states[run] == state for run in each.runs)
            and not (state == "unknown" and evidence.enough)
        ]
        if found:
            yield FreshDevice(
                state=state,
                written=max((evidence for _, evidence in found), key=lambda each: each.written_bytes),
                cases=len(all_ids),
                strength="strong",
                case_ids=tuple(dict.fromkeys(row["case_id"] for each, _ in found for row in each.rows)),
                part=part.name,
            )


def _written(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes that each run wrote while measured: `run_id`, `case_id`, `order`, `written`."""
    names = ("bandwidth", "seconds")
    rows = runs.filter(pl.col("metric").is_in(names), pl.col("stream") != ALL)
    seconds = rows.filter(pl.col("metric") == "seconds").group_by("run_id").agg(seconds=pl.col("value").max())
    return (
        rows.filter(pl.col("metric") == "bandwidth", pl.col("operation") == "write", pl.col("value") > 0)
        .join(seconds, on="run_id")
        .group_by("run_id", "case_id", "order")
        .agg(written=(pl.col("value") * pl.col("seconds")).sum())
    )
