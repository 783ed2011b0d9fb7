"""Idle recovery: stages of alternating load and pause, and the continuous load that follows each.

SNIA's host idle recovery. The baseline is the rate of the rounds before, if possible in steady state; the gain of a
pause length is the rate in the bursts over that baseline; the continuous load afterwards shows how long the gain lasts.
A drive that collects garbage while idle has a gain, and loses it as it uses up the blocks that it freed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from iosonde.findings.device_state import Convergence, DeviceStates, convergences
from iosonde.findings.finding import Finding
from iosonde.metrics import wording
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.statistics import Floats
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import STAGE, Study
from iosonde.study.workload.block.notation import active_window
from iosonde.units import format_bytes, format_duration

NEAR = 0.10
"""A rate is back at the base line when it is at most so much above it, and has gained when it is more. A mean that is
more than that below it is reported as such."""
SMOOTHED = 3
"""Intervals whose mean rate is taken for the rate at the first of them: single ones jump as collection does."""


@dataclass(frozen=True, kw_only=True)
class Decay:
    """The load without pauses that follows: how a gain is lost."""

    case_id: str
    first: float
    """IOPS when it starts."""
    last: float
    """IOPS when it stops."""
    back_s: float | None
    """Time at which it was first at most `NEAR` above the base line; None if it never was."""
    back_bytes: int | None
    """Moved until then."""
    rest: float | None
    """Mean IOPS from then on."""
    length_s: float


@dataclass(frozen=True, kw_only=True)
class IdleRecovery:
    """One length of pause."""

    case_id: str
    part: str
    stage: str
    burst_s: float
    pause_s: float
    base: float
    """IOPS of the rounds' measurement window."""
    base_is_steady: bool
    base_run: tuple[str, int]
    """Case and repeat of the last round."""
    bursts: Floats
    """IOPS of every burst, pauses left out."""
    decay: Decay | None
    """None where no load without pauses follows."""

    @property
    def gain(self) -> float:
        """Median of the bursts over the base line."""
        return float(np.median(self.bursts)) / self.base


class IdleGain(Finding, kind="idle gain", topic="state"):
    """Rate of bursts between pauses over the rate before them, for every pause length of a part."""

    gains: tuple[tuple[float, float], ...]
    """Pause in seconds, and the gain after it; the shortest pause first."""
    base: float
    """IOPS of the rounds before the pauses."""
    base_is_steady: bool
    """True if that is steady state."""

    def _sentence(self) -> str:
        (shortest, low), (longest, high) = self.gains[0], self.gains[-1]
        values = [gain for _, gain in self.gains]
        pauses = wording.range_text(_seconds(shortest), _seconds(longest))
        if max(abs(gain - 1) for gain in values) <= NEAR:
            base = "steady state" if self.base_is_steady else "the rate before them"
            return f"Idle pauses of {pauses}: rate within {100 * NEAR:.0f} % of {base}, no recovery"
        base = _base_words(self.base_is_steady)
        if len(self.gains) == 1:
            return f"Idle pauses of {pauses}: bursts reach {wording.times_text(low)} {base}"
        return (
            f"Bursts reach {wording.times_text(low)} {base} after pauses of {_seconds(shortest)}, "
            f"{wording.times_text(high)} after {_seconds(longest)}"
        )

    def _evidence(self) -> str:
        listed = "; ".join(f"{wording.times_text(gain)} after {_seconds(pause)}" for pause, gain in self.gains)
        return f"{listed}; {_base(self.base, self.base_is_steady)}"


class IdleDecay(Finding, kind="idle decay", topic="state"):
    """Loss of a gain of pauses under continuous load."""

    pause_s: float
    base: float
    base_is_steady: bool
    decay: Decay

    def _sentence(self) -> str:
        decay = self.decay
        after = f"Continuous load after pauses of {_seconds(self.pause_s)}"
        base = _base_words(self.base_is_steady)
        first, last = (wording.times_text(rate / self.base) for rate in (decay.first, decay.last))
        if decay.back_s is not None and decay.rest is not None and decay.rest < (1 - NEAR) * self.base:
            rest = wording.times_text(decay.rest / self.base)
            if decay.back_s == 0:
                return f"{after}: {rest} {base} on average"
            return f"{after}: starts at {first} {base} and falls to {rest} on average after {_seconds(decay.back_s)}"
        if decay.back_s == 0:
            return f"{after}: at {base} from the start"
        if decay.back_s is not None and decay.back_bytes is not None:
            return (
                f"{after}: starts at {first} {base} and returns to within {100 * NEAR:.0f} % of it after "
                f"{_seconds(decay.back_s)} and {format_bytes(decay.back_bytes)}"
            )
        return f"{after}: still {last} {base} after {_seconds(decay.length_s)}"

    def _evidence(self) -> str:
        first, last = (wording.value_text("iops", rate) for rate in (self.decay.first, self.decay.last))
        length = _seconds(self.decay.length_s)
        return f"{first} at the start, {last} after {length}; {_base(self.base, self.base_is_steady)}"


def find(recoveries: Sequence[IdleRecovery], states: DeviceStates) -> Iterator[Finding]:
    recoveries = [
        replace(each, base_is_steady=each.base_is_steady and states.state(*each.base_run) == "steady")
        for each in recoveries
    ]
    for part in dict.fromkeys(each.part for each in recoveries):
        ordered = sorted((each for each in recoveries if each.part == part), key=lambda each: each.pause_s)
        steady = all(each.base_is_steady for each in ordered)
        yield IdleGain(
            gains=tuple((each.pause_s, each.gain) for each in ordered),
            base=ordered[0].base,
            base_is_steady=steady,
            strength="moderate" if steady else "weak",
            case_ids=tuple(each.case_id for each in ordered),
            part=part,
        )
        for each in ordered:
            if each.decay:
                yield IdleDecay(
                    pause_s=each.pause_s,
                    base=each.base,
                    base_is_steady=each.base_is_steady,
                    decay=each.decay,
                    strength="moderate" if each.base_is_steady else "weak",
                    case_ids=(each.decay.case_id,),
                    part=part,
                )


def _seconds(seconds: float) -> str:
    return format_duration(seconds * 1e9)


def _base_words(steady: bool) -> str:
    return "the steady-state rate" if steady else "the rate before the pauses"


def _base(rate: float, steady: bool) -> str:
    state = "in steady state" if steady else "in the last rounds before, without steady state"
    return f"{wording.value_text('iops', rate)} {state}"


def idle_recoveries(study: Study, results: ResultSet) -> list[IdleRecovery]:
    """Every stage with pauses that follows rounds which were judged, in the order in which they were carried out."""
    parts = {part.name: part for part in study.parts if part.rounds and part.rounds.sought}
    records = [each for each in results.records() if each.outcome == "complete" and STAGE in each.levels]
    pausing = [each for each in records if each.part in parts and _cycle(each)]
    if not pausing:
        return []
    metrics = run_metrics(results)
    bases = {name: convergences(part, results.cases, metrics) for name, part in parts.items()}
    intervals = _intervals(results, [each.run_id for each in records])
    found = (_of_stage(each, _follower(each, records), bases[each.part], intervals) for each in pausing)
    return [each for each in found if each is not None]


def _cycle(record: Record) -> tuple[int, int] | None:
    """Nanoseconds of load, and from one begin of it to the next; None where load and pause do not alternate."""
    active = record.parameters.get("active")
    window = active_window(active) if isinstance(active, str) else None
    every_ns = window.get("every_ns") if window else None
    if window is None or every_ns is None:
        return None
    end_ns = window.get("end_ns")
    assert end_ns is not None, "a repeated window has an end"
    return end_ns - window["begin_ns"], every_ns


def _follower(record: Record, records: Sequence[Record]) -> Record | None:
    """The stage after it, if that has no pauses."""
    later = (each for each in records if each.order > record.order and each.repeat == record.repeat)
    after = min(later, key=lambda each: each.order, default=None)
    return after if after and after.part == record.part and not after.parameters.get("active") else None


def _intervals(results: ResultSet, run_ids: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Of each run `begin_ns, end_ns` since its measurement began, `count, bytes`."""
    frame = (
        Facts(results, run_ids=run_ids)
        .counts(per="interval")
        .filter(pl.col("phase") == "measure", pl.col("operation").is_in(["read", "write", "trim"]))
        .group_by("run_id", "begin_ns", "end_ns")
        .agg(pl.col("count", "bytes").sum())
        .sort("run_id", "begin_ns")
        .with_columns(pl.col("begin_ns", "end_ns") - pl.col("begin_ns").min().over("run_id"))
    )
    return {str(key[0]): group for key, group in frame.group_by("run_id", maintain_order=True)}


def _of_stage(
    record: Record, follower: Record | None, bases: Sequence[Convergence], intervals: Mapping[str, pl.DataFrame]
) -> IdleRecovery | None:
    cycle = _cycle(record)
    base = next((each for each in bases if each.repeat == record.repeat), None)
    window = next((each.window for each in base.tracked if each.window), None) if base else None
    if not (cycle and base and window and window.mean > 0 and record.run_id in intervals):
        return None
    bursts = np.fromiter(_bursts(intervals[record.run_id], *cycle), dtype=np.float64)
    if not len(bursts):
        return None
    after = intervals.get(follower.run_id) if follower else None
    return IdleRecovery(
        case_id=record.case_id,
        part=record.part,
        stage=str(record.levels[STAGE]),
        burst_s=cycle[0] / 1e9,
        pause_s=(cycle[1] - cycle[0]) / 1e9,
        base=window.mean,
        base_is_steady=base.achieved,
        base_run=(base.case_ids[-1], base.repeat),
        bursts=bursts,
        decay=decay_of(follower.case_id, after, window.mean) if follower and after is not None else None,
    )


def _bursts(intervals: pl.DataFrame, burst_ns: int, every_ns: int) -> Iterator[float]:
    """I/Os per second of each burst that was measured whole; what ends after it counts with it."""
    cycles = intervals.group_by(pl.col("begin_ns") // every_ns, maintain_order=True).agg(
        pl.col("end_ns").max().alias("end_ns"), pl.col("count").sum().alias("count")
    )
    for cycle, end_ns, count in cycles.iter_rows():
        if end_ns >= cycle * every_ns + burst_ns:
            yield count / burst_ns * 1e9


def decay_of(case_id: str, intervals: pl.DataFrame, base: float) -> Decay:
    """Return how the rate of a load without pauses returns to `base`, in I/Os per second."""
    lengths = (intervals["end_ns"] - intervals["begin_ns"]).to_numpy() / 1e9
    counts = intervals["count"].to_numpy()
    width = min(SMOOTHED, len(counts))
    window = np.ones(width)
    rates = np.convolve(counts, window, "valid") / np.convolve(lengths, window, "valid")
    near = np.flatnonzero(rates <= (1 + NEAR) * base)
    at = int(near[0]) if len(near) else None
    return Decay(
        case_id=case_id,
        first=float(rates[0]),
        last=float(rates[-1]),
        back_s=None if at is None else float(intervals["begin_ns"][at]) / 1e9,
        back_bytes=None if at is None else int(intervals["bytes"][:at].sum()),
        rest=None if at is None else float(counts[at:].sum() / lengths[at:].sum()),
        length_s=float(lengths.sum()),
    )
