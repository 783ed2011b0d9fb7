"""The outcome of a check as text, Markdown, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from xml.etree import ElementTree

from iosonde.base.foreign_text import markdown as escape
from iosonde.base.foreign_text import markdown_code, printable
from iosonde.findings.regression.check import Cell, Check, better, loss_of, percentile_of
from iosonde.metrics.registry import find
from iosonde.units import format_count, format_latency


def lines(check: Check) -> Iterator[str]:
    """Yield the summary, one line per cell that regressed or is undecided, and the notes."""
    yield summary(check)
    for cell in check.regressions:
        yield f"regression  {describe(cell)}"
    for cell in check.undecided:
        yield f"undecided   {describe(cell)}"
    for cell in check.listed:
        yield f"tail {cell.outcome}, does not decide  {describe(cell)}"
    for note in check.notes:
        yield f"note: {note}"


def summary(check: Check) -> str:
    """Return the outcome in one sentence."""
    against = f"{len(check.baselines)} baseline{'s' if len(check.baselines) != 1 else ''}"
    compared = f"{len(check.deciding)} cells against {against}"
    if not check.deciding:
        return f"Undetermined: no case of {against} has a rate or a latency."
    if found := check.regressions:
        worst = found[0]
        return f"Regression in {len(found)} of {compared}; largest: {_loss_text(worst)} in {worst.case_id}."
    if check.undecided:
        return f"Undetermined: {len(check.undecided)} of {compared} are undecided; no regression in the others."
    return f"No regression in {compared}; {_excluded_text(check)}"


def describe(cell: Cell) -> str:
    """Return one line about a cell: values, change with its interval, and why it is undecided."""
    known = find(cell.metric)
    parts = [f"{cell.case_id}  {known.title if known else cell.metric}"]
    if cell.change is not None and cell.low is not None and cell.high is not None:
        assert cell.baseline is not None and cell.candidate is not None, "a change has two values"
        values = f"{_value(cell.metric, cell.baseline)} to {_value(cell.metric, cell.candidate)}"
        parts.append(f"{values} ({cell.change:+.1%}, 90 % CI {cell.low:+.1%} to {cell.high:+.1%})")
    if cell.reason:
        parts.append(cell.reason)
    return ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def markdown(check: Check) -> str:
    """Return a comment for a pull request: the summary and a table of the cells that did not pass."""
    shown = [*check.regressions, *check.undecided, *check.listed]
    rows = [
        "| outcome | case | metric | baseline | candidate | change | 90 % CI | reason |",
        "|---|---|---|---:|---:|---:|---:|---|",
        *(_row(cell) for cell in shown),
    ]
    notes = [f"- {escape(note)}" for note in check.notes]
    blocks = [f"**{escape(summary(check))}**", "\n".join(rows) if shown else "", "\n".join(notes), _method(check)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def to_json(check: Check) -> str:
    """Return everything about the check, values in the units of the metrics, changes as shares."""
    return json.dumps(
        {"summary": summary(check), "exit_code": check.exit_code, "method": _method(check), **asdict(check)}, indent=2
    )


def junit(check: Check) -> str:
    """Return JUnit XML: one test case per cell, a regression as a failure; undecided cells and listed tails skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name="iosonde check",
        tests=str(len(check.cells)),
        failures=str(len(check.regressions)),
        skipped=str(len(check.undecided) + len(check.listed)),
    )
    for cell in check.cells:
        case = ElementTree.SubElement(suite, "testcase", classname=cell.case_id, name=cell.metric)
        if cell.outcome == "regression" and cell.decides:
            ElementTree.SubElement(case, "failure", message=describe(cell))
        elif cell.outcome != "pass":
            ElementTree.SubElement(case, "skipped", message=describe(cell))
    ElementTree.indent(suite)
    # Control characters are not allowed in XML, not even escaped.
    return printable(ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)) + "\n"


def _method(check: Check) -> str:
    settings = check.settings
    return (
        f"Sessions as units, moderated variances, one-sided 95 % bounds; allowance {100 * settings.allow:.3g} % of the "
        f"rate and {100 * settings.allow_latency:.3g} % of latency; false discovery rate "
        f"{100 * settings.false_alarms:.3g} % over {len(check.deciding)} cells."
    )


def _excluded_text(check: Check) -> str:
    """State the loss that every cell excludes."""
    excluded = [(better(cell.metric), cell.excluded) for cell in check.deciding if cell.excluded is not None]
    parts = [
        f"{what} of {100 * max(each):.1f} %"
        for what, side in (("a rate loss", "higher"), ("a latency increase", "lower"))
        if (each := [loss for of_side, loss in excluded if of_side == side])
    ]
    return f"{' and '.join(parts)} or more {'are' if len(parts) > 1 else 'is'} excluded with 95 % confidence."


def _loss_text(cell: Cell) -> str:
    if percentile := percentile_of(cell.metric):
        return f"{percentile.replace('_', '.')} latency +{100 * loss_of(cell):.1f} %"
    what = "rate" if better(cell.metric) == "higher" else cell.metric
    return f"{what} {'-' if what == 'rate' else '+'}{100 * loss_of(cell):.1f} %"


def _row(cell: Cell) -> str:
    values = ["", "", "", ""]
    if cell.change is not None and cell.baseline is not None and cell.candidate is not None:
        values = [
            _value(cell.metric, cell.baseline),
            _value(cell.metric, cell.candidate),
            f"{cell.change:+.1%}",
            f"{cell.low:+.1%} to {cell.high:+.1%}",
        ]
    fields = [cell.outcome, markdown_code(cell.case_id), *map(escape, (cell.metric, *values, cell.reason))]
    return f"| {' | '.join(fields)} |"


def _value(metric: str, value: float) -> str:
    return format_latency(value) if better(metric) == "lower" else format_count(value)
