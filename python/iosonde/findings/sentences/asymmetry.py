"""How two levels of a factor compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.asymmetry import asymmetry
from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.catalogue import METRICS
from iosonde.metrics.statistics import MARGIN, Estimate, pooled_ratio, runs_needed, verdict

ALIKE = 1.25
"""Ratios along the axis that differ by less are told as one."""


def tell(question: Question) -> Iterator[Finding]:
    """Compare every two levels, all along the axis in one sentence; where nothing can be said of any, once for all."""
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(answers):
        pairs = [pair for _, pair in groups(group, ["first", "second"])]
        found = [_finding(question, key, pair) for pair in pairs]
        if len(found) > 1 and all(each.kind == "unclear" for each in found):
            yield _all_unclear(question, key, pairs, found)
        else:
            yield from found


def _all_unclear(
    question: Question, key: Mapping[str, Any], pairs: Sequence[pl.DataFrame], found: Sequence[Finding]
) -> Finding:
    rows = [pair.row(0, named=True) for pair in pairs]
    levels = [_level(question, row, which) for row in rows for which in (0, 1)]
    ratios = [float(ratio) for pair in pairs for ratio in pair["ratio"]]
    low, high = (wording.ratio_text(end) for end in (min(ratios), max(ratios)))
    repeats = min(len(row[values]) for row in rows for values in ("first_values", "second_values"))
    return Untyped(
        kind="unclear",
        title=wording.sentence(
            f"Whether {wording.listing(list(dict.fromkeys(levels)))} differ is unclear{_about(question, key, rows[0])}"
        ),
        note=f"{wording.metric_words(question.analysis.metric)} of every two: ratios {low}..{high}, "
        f"{wording.counted(repeats, 'run')} each; more repeats are needed",
        strength="weak",
        case_ids=tuple(dict.fromkeys(case for each in found for case in each.case_ids)),
        part=question.part.name,
    )


def _finding(question: Question, key: Mapping[str, Any], pair: pl.DataFrame) -> Finding:
    rows = list(pair.iter_rows(named=True))
    pooled = pooled_ratio([(row["first_values"], row["second_values"]) for row in rows])
    first, second = (_level(question, rows[0], which) for which in (0, 1))
    about = _about(question, key, rows[0])
    judged = verdict(pooled, better="higher")
    kind, title = "asymmetry", ""
    match judged:
        case "same":
            average = " on average" if _unlike(question, pair) else ""
            title = f"{first} and {second} are equal within {100 * MARGIN:.0f} %{average}{about}{_ends(question, pair)}"
        case "better":
            title = f"{_compared(question, first, second, pooled, pair, about)}"
        case "worse":
            inverse = Estimate(1 / pooled.value, _inverse(pooled.high), _inverse(pooled.low))
            swapped = pair.with_columns(ratio=1 / pl.col("ratio"))
            title = f"{_compared(question, second, first, inverse, swapped, about)}"
        case "unclear":
            kind = "unclear"
            title = f"Whether {first} and {second} differ is unclear{about}"
    repeats = min(len(row[values]) for row in rows for values in ("first_values", "second_values"))
    settled = f"; {runs_needed(pooled, repeats)}" if kind == "unclear" else ""
    return Untyped(
        kind="unclear" if kind == "unclear" else "asymmetry",
        title=wording.sentence(title),
        note=f"{first} to {second}, {wording.metric_words(question.analysis.metric)}: "
        f"{wording.ratio_estimate_text(pooled)}{_cells(pair)}, {wording.counted(repeats, 'run')} each{settled}",
        strength="weak" if kind == "unclear" else "strong" if repeats >= 3 else "moderate",
        case_ids=tuple(dict.fromkeys(case for row in rows for case in row["case_ids"])),
        part=question.part.name,
    )


def _compared(question: Question, larger: str, smaller: str, pooled: Estimate, pair: pl.DataFrame, about: str) -> str:
    """Say how many times: one number where all cells agree, else also from where to where."""
    plural = not (larger.endswith("I/O") or larger.startswith("a ") or question.analysis.over == "store")
    if METRICS[question.analysis.metric].better == "higher":
        verb = "reach" if plural else "reaches"
    else:
        verb = "have" if plural else "has"
    words = wording.metric_words(question.analysis.metric)
    return f"{larger} {verb} {wording.times_text(pooled.value)} the {words} of {smaller}{about}{_ends(question, pair)}"


def _unlike(question: Question, pair: pl.DataFrame) -> bool:
    return bool(question.numeric) and float(pair["ratio"].max() / pair["ratio"].min()) > ALIKE  # type: ignore[operator,arg-type]


def _ends(question: Question, pair: pl.DataFrame) -> str:
    """Say where the ratio is smallest and largest, if that is far apart."""
    if not _unlike(question, pair):
        return ""
    low, high = (pair.sort("ratio").row(end, named=True) for end in (0, -1))
    ends = [f"{wording.times_number(row['ratio'])} with {question.numbers(row)}" for row in (low, high)]
    return f", from {ends[0]} to {ends[1]}"


def _level(question: Question, row: Mapping[str, Any], which: int) -> str:
    """Name one side by the words that tell it from the other: `reads`, `sequential I/O`, `buffered I/O`."""
    over = question.analysis.over
    if over in question.apart_in_results:
        level = str(row[("first", "second")[which]])
        return f"{level}s" if over == "operation" else level
    words = [question.words(case) for case in row["case_ids"]]
    differing = {name: word for name, word in words[which].items() if words[1 - which].get(name) != word}
    if differing:
        return wording.phrase(differing)
    if words[1 - which].keys() - words[which].keys():
        return "direct I/O"
    return wording.level_words(over, row[("first", "second")[which]])


def _about(question: Question, key: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Say of what load: the words that both sides share."""
    over = question.analysis.over
    hidden = [over, *question.numeric]
    ours, theirs = (question.words(case, without=hidden) for case in row["case_ids"])
    shared = {name: word for name, word in ours.items() if theirs.get(name) == word}
    rest = [
        wording.level_words(name, level)
        for name, level in key.items()
        if name not in hidden and not question.is_worded(name)
    ]
    of = f" for {wording.phrase(shared)}" if shared else ""
    return of + (f" at {wording.listing(rest)}" if rest else "")


def _cells(pair: pl.DataFrame) -> str:
    if len(pair) == 1:
        return ""
    low, high = (wording.ratio_text(float(end)) for end in (pair["ratio"].min(), pair["ratio"].max()))  # type: ignore[arg-type]
    return f" ({low}..{high} in {len(pair)} cells)"


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value
