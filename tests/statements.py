"""Statements of one report that contradict each other: in answer, trust, findings, captions and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from iosonde.findings.device_state import FreshDevice
from iosonde.findings.finding import Finding
from iosonde.findings.quality import ControlDrift, FewRepeats, MissingRuns
from iosonde.report.content import Chapter
from iosonde.report.table import DEVICE_STATE, Table

STEADY_WORDS = re.compile(r": steady (at|state in)|steady-state rate|of steady state|: steady state between")
"""A sentence that states that a device was in steady state."""
OF_REAL_DEVICES = re.compile(r"harness-limited|CPU-limited|device-limited|cache-served")


def contradictions(chapter: Chapter) -> list[str]:
    """Every contradiction between two statements of a chapter; the findings are those of one result set."""
    found = [each for _, findings in chapter.findings for each in findings]
    return [*_of_device_state(chapter, found), *_of_trust(chapter, found), *_of_values(chapter)]


def _of_device_state(chapter: Chapter, found: list[Finding]) -> Iterator[str]:
    by_case = _cells(chapter, DEVICE_STATE)
    fresh = {case_id for each in found if isinstance(each, FreshDevice) for case_id in each.case_ids}
    for case_id, states in by_case.items():
        if len(states) > 1:
            yield f"`{case_id}` is in the states {sorted(states)}"
        if case_id in fresh and states & {"steady", "preconditioned"}:
            yield f"`{case_id}` is {states}, and a finding says that nothing is known of steady state"
    for finding in found:
        states = {state for case_id in finding.case_ids for state in by_case.get(case_id, ())} - {"-"}
        if STEADY_WORDS.search(finding.sentence) and states - {"steady"}:
            yield f"{states}: {finding.sentence}"
    for part in chapter.study.parts:
        cases = [case.case_id for _, case in chapter.material.cases() if case.part == part.name]
        states = {state for case_id in cases for state in by_case.get(case_id, ())}
        for title, caption in _captions(chapter, part.name):
            for state in re.findall(r"Device state: ([^.]*)\.", caption):
                if not set(state.split(", ")) <= states:
                    yield f"{states}: {caption}"
            claims = "steady" in title.lower() and "not for steady state" not in caption
            if claims and "Device state" in caption and "steady" not in states:
                yield f"{states}: {title}"
    for table in chapter.tables:
        if "Steady" in table.heads:
            place = list(table.heads).index("Steady")
            if any(row[place].text == "yes" for row in table.rows) and not any("steady" in s for s in by_case.values()):
                yield f"`{table.title}` says steady, and no case is"


def _captions(chapter: Chapter, part: str) -> Iterator[tuple[str, str]]:
    yield from ((figure.title, figure.caption) for figure in chapter.all_figures if figure.part == part)
    titles = {view.title for view in chapter.study.views if view.part == part}
    for table in chapter.tables:
        if table.title in titles and DEVICE_STATE in table.heads:
            states = ", ".join(sorted({_cell(table, row, DEVICE_STATE) for row in range(len(table.rows))} - {"-"}))
            yield table.title, f"{table.caption} Device state: {states}."


def _cell(table: Table, row: int, head: str) -> str:
    return table.rows[row][list(table.heads).index(head)].text


def _cells(chapter: Chapter, head: str) -> dict[str, set[str]]:
    """Values of a case in a column of all tables."""
    found: dict[str, set[str]] = {}
    for table in [*chapter.tables, *([chapter.summary] if chapter.summary else [])]:
        if head in table.heads:
            for row, key in enumerate(table.keys):
                found.setdefault(key.partition("\n")[2], set()).add(_cell(table, row, head))
    return found


def _of_trust(chapter: Chapter, found: list[Finding]) -> Iterator[str]:
    [(_, answer)] = chapter.answers
    line = answer.trust.line
    missing = sum(each.count for each in found if isinstance(each, MissingRuns))
    if missing != answer.trust.incomplete or bool(missing) != bool(chapter.missing_runs):
        yield f"{missing} runs are missing: {line}"
    for each in found:
        if isinstance(each, ControlDrift) and "drift" in line and "No drift" in each.sentence:
            yield f"{each.sentence}: {line}"
        if isinstance(each, FewRepeats) and "no confidence intervals" in line and each.count != each.total:
            yield f"{each.sentence}: {line}"
        if answer.trust.simulated and OF_REAL_DEVICES.search(each.sentence):
            yield f"{line} {each.sentence}"
    for table in chapter.verdicts[:1]:
        listed = {table.rows[row][0].text: table.rows[row][1].text for row in range(len(table.rows))}
        for kind, count in answer.trust.verdicts.items():
            if listed.get(kind) != f"{count} of {answer.trust.judged}":
                yield f"{listed}: {line}"


def _of_values(chapter: Chapter) -> Iterator[str]:
    """Values of a case under the same head of two tables."""
    known: dict[tuple[str, str], tuple[str, str]] = {}
    for table in chapter.case_tables:
        for row, key in enumerate(table.keys):
            if table.keys.count(key) > 1:
                continue  # Reads and writes have rows of their own.
            for place in range(table.labels, len(table.heads)):
                known[key, table.heads[place]] = (table.rows[row][place].text, table.title)
    for table in [*chapter.tables, *([chapter.summary] if chapter.summary else [])]:
        for row, key in enumerate(table.keys):
            for place in range(table.labels, len(table.heads)):
                text, head = table.rows[row][place].text, table.heads[place]
                other = known.get((key, head))
                if other and other[0] != text:
                    yield f"`{key}`: {head} is {text} in `{table.title}`, {other[0]} in `{other[1]}`"
