"""Where a load saturates, and what lies beyond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Strength, Untyped
from iosonde.findings.question import Question
from iosonde.findings.saturation import SHARE_OF_PEAK, saturation
from iosonde.metrics import wording

P99 = "completion_latency_ns_p99"


def tell(question: Question) -> Iterator[Finding]:
    """Say from which level on nothing is gained, neighbours along the axis in one sentence."""
    over = question.analysis.over
    cells = question.cells()
    if cells[over].n_unique() < 2:
        return
    answers = saturation(cells, over=over, by=question.by)
    for key, group in question.along_axis(answers):
        yield _single(question, key, group) if len(group) == 1 else _along_axis(question, key, group)


def _single(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over, metric = question.analysis.over, question.analysis.metric
    row = group.row(0, named=True)
    load, level = question.load(key, row["case_ids"][0]), wording.level_words(over, row["level"])
    if _unclear(row):
        low, high = (wording.level_value(over, row[end]) for end in ("low", "high"))
        return Untyped(
            kind="unclear",
            title=f"Where {load} saturate is unclear: anywhere from {wording.factor_words(over)} {low} to {high}",
            note=f"{_evidence(question, row)}; more repeats would settle it",
            strength="weak",
            case_ids=tuple(row["case_ids"]),
            part=question.part.name,
        )
    peak = wording.value_text(metric, row["peak"])
    if row["saturates"]:
        title = f"{load} saturate at {level} (95 % of {peak}){_beyond(question, key, row)}"
    elif row["low"] is None or row["low"] == row["level"]:
        title = f"{load} do not saturate up to {level}: {peak}, and still rising"
    else:
        first = wording.level_words(over, row["low"])
        title = f"{load} saturate no sooner than {first}, and perhaps not even at {level}: {peak}"
    return Untyped(
        kind="saturation",
        title=wording.sentence(title),
        note=_evidence(question, row),
        strength=_strength([row]),
        case_ids=tuple(row["case_ids"]),
        part=question.part.name,
    )


def _along_axis(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    """Say it for neighbours together: in two stretches of the axis where that says more than one does."""
    axis, over = str(question.axis), question.analysis.over
    rows = group.to_dicts()
    levels = [row[axis] for row in rows]
    stretches = _stretches([_number(question, row["level"]) for row in rows])
    clauses = [_clause(question, levels, rows[begin:end]) for begin, end in stretches]
    load = question.load(key, rows[0]["case_ids"][0])
    return Untyped(
        kind="saturation",
        title=wording.sentence(f"{load} {', and '.join(_without_repetition(clauses))}"),
        note=_along_evidence(over, axis, rows),
        strength=_strength(rows),
        case_ids=tuple(dict.fromkeys(case for row in rows for case in row["case_ids"])),
        part=question.part.name,
    )


def _clause(question: Question, axis_levels: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> str:
    axis, over = str(question.axis), question.analysis.over
    where = wording.range_words(axis, axis_levels, [row[axis] for row in rows])
    level, last = _together(question, rows)
    words = wording.level_words(over, level)
    return f"still gain at {words}{where}" if last else f"{_LITTLE} beyond {words}{where}"


def _without_repetition(clauses: Sequence[str]) -> list[str]:
    """Leave out of a clause the words that the one before has said."""
    alike = all(clause.startswith(_LITTLE) for clause in clauses)
    return [clauses[0], *(clause.removeprefix(f"{_LITTLE} ") if alike else clause for clause in clauses[1:])]


_LITTLE = f"gain less than {100 * (1 - SHARE_OF_PEAK):.0f} %"


def _together(question: Question, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, bool]:
    """Return the first level that reaches the share of the peak on (geometric) average, and whether it is the last.

    The largest answer of all would be the answer of the noisiest cell.
    """
    levels = question.cells()[question.analysis.over].unique(maintain_order=True).to_list()
    shares = [dict(zip(row["levels"], row["shares_of_peak"], strict=True)) for row in rows]
    for level in levels[:-1]:
        measured = [each[str(level)] for each in shares if str(level) in each]
        if measured and np.exp(np.mean(np.log(measured))) >= SHARE_OF_PEAK:
            return level, False
    return levels[-1], True


def _stretches(answers: Sequence[float]) -> list[tuple[int, int]]:
    """Divide the axis in two where that brings what is said (the largest answer of a stretch) closer to each answer.

    Each stretch has at least two members, and the division must remove two fifths of what one stretch leaves unsaid.
    """
    whole = [(0, len(answers))]

    def unsaid(stretches: Sequence[tuple[int, int]]) -> float:
        return sum(math.log2(max(answers[a:b]) / each) for a, b in stretches for each in answers[a:b])

    divided = [[(0, at), (at, len(answers))] for at in range(2, len(answers) - 1)]
    best = min(divided, key=unsaid, default=whole)
    return best if unsaid(best) < 0.6 * unsaid(whole) else whole


def _number(question: Question, level: Any) -> float:
    """Return a level as a positive number to compare by: its position where it is not one."""
    if isinstance(level, (int, float)) and level > 0:
        return float(level)
    return 1.0 + question.cells()[question.analysis.over].unique(maintain_order=True).to_list().index(level)


def _beyond(question: Question, key: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Say what more of the factor costs in latency."""
    over = question.analysis.over
    tail = question.cells(P99)
    cells = next((group for found, group in groups(tail, question.by) if _same(found, row)), None)
    if cells is None:
        return ""
    medians = {level: values.median() for level, values in zip(cells[over], cells["values"], strict=True)}
    at, last = medians.get(row["level"]), medians.get(row["last_level"])
    if at is None or last is None or last < 1.2 * at:
        return ""
    here, there = wording.value_text(P99, at), wording.value_text(P99, last)
    at_level, at_last = (wording.level_value(over, row[name]) for name in ("level", "last_level"))
    return f"; beyond it only latency grows: p99 {here} at {at_level}, {there} at {at_last}"


def _same(key: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return all(row[name] == level for name, level in key.items())


def _evidence(question: Question, row: Mapping[str, Any]) -> str:
    over, metric = question.analysis.over, question.analysis.metric
    value, peak = (wording.value_text(metric, row[name]) for name in ("value", "peak"))
    name, level, peak_level = (
        wording.factor_words(over),
        wording.level_value(over, row["level"]),
        wording.level_value(over, row["peak_level"]),
    )
    text = f"{value} at {name} {level}, peak {peak} at {peak_level}"
    if row["low"] is None:
        return f"{text}; no interval from {wording.counted(row['repeats'], 'run')}"
    low, high = (wording.level_value(over, row[end]) for end in ("low", "high"))
    return f"{text}; 95 % interval of the level {low}..{high}, from {row['repeats']} runs each"


def _along_evidence(over: str, axis: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """List the answers, equal neighbours together."""
    runs: list[list[Mapping[str, Any]]] = []
    for row in rows:
        if runs and runs[-1][0]["level"] == row["level"]:
            runs[-1].append(row)
        else:
            runs.append([row])
    parts = [f"{_stretch_text(axis, run)}: {wording.level_value(over, run[0]['level'])}" for run in runs]
    repeats = min(row["repeats"] for row in rows)
    wide = [row for row in rows if row["low"] is not None and row["low"] != row["high"]]
    uncertain = f"; uncertain in {len(wide)} of {len(rows)}" if wide else ""
    return (
        f"smallest {wording.factor_words(over)} with 95 % of the peak: {', '.join(parts)}"
        f" ({wording.counted(repeats, 'run')} each{uncertain})"
    )


def _stretch_text(axis: str, run: Sequence[Mapping[str, Any]]) -> str:
    first, last = (wording.level_value(axis, row[axis]) for row in (run[0], run[-1]))
    return first if len(run) == 1 else f"{first}..{last}"


def _unclear(row: Mapping[str, Any]) -> bool:
    """Return whether the repeats disagree on the level more than they agree."""
    return row["share"] is not None and row["share"] < 0.5 and row["low"] != row["high"]


def _strength(rows: Sequence[Mapping[str, Any]]) -> Strength:
    shares = [row["share"] for row in rows]
    if any(share is None for share in shares):
        return "weak"
    typical = sorted(shares)[len(shares) // 2]
    return "strong" if typical >= 0.9 else "moderate" if typical >= 0.5 else "weak"
