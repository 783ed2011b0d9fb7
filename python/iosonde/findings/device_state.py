"""Device state of every run: the state that the plan prepared, corrected by what the run measured.

The plan states what target and profile allow. Whether the range was written often enough, and whether the rate settled,
is known afterwards. Answer, captions and tables of a report take the state from here, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.findings.cells import under_own_names
from iosonde.findings.convergence import convergences
from iosonde.findings.finding import FIRST, Finding
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL
from iosonde.metrics.sustained import LongRun
from iosonde.plan import PREPARATION, DeviceState
from iosonde.planning.device_state import SMALLEST_RANGE, SPANS_TO_STEADY, is_small_range
from iosonde.procedure.preparation import STEP
from iosonde.study.model import Part, Study
from iosonde.units import format_bytes
from iosonde.workload.block.backends import VIRTUAL_DRIVES
from iosonde.workload.block.requirements import active_range_bytes

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
    # A stable rate is not steady state while burst credits last.
    return DeviceStates(states | dict.fromkeys(_bursting(outcomes) & states.keys(), "unknown"), tuple(found))


def _bursting(outcomes: pl.DataFrame | None) -> set[tuple[str, int]]:
    """Return the runs whose rate drops when the credits of the volume are spent."""
    if outcomes is None or "rate_is_transient" not in outcomes.columns:
        return set()
    return set(outcomes.filter(pl.col("rate_is_transient")).select("case_id", "repeat").iter_rows())


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
        return "fresh" if any(map(_is_new, whole.rows)) else "unknown"
    if run in achieved:
        return "steady" if achieved[run] else "preconditioned"
    # A stage that is not judged inherits the state of what was measured before it.
    judged = [achieved[each] for each in whole.runs if each in achieved]
    return "steady" if planned == "steady" and judged and all(judged) else "preconditioned"


def _is_new(row: Mapping[str, Any]) -> bool:
    """True if the device holds nothing when the preparation of a case starts."""
    return row.get("backend") in VIRTUAL_DRIVES or row.get("purge") not in (None, "none", "unneeded")


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
