"""Assignment of findings to figures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fabricate import result_set, study
from rich.console import Console

from iosonde.findings.finding import TOPICS
from iosonde.findings.observations.quality import Warned
from iosonde.report.content import summary
from iosonde.report.content.report import Chapter, collect
from iosonde.report.content.sections import _VIEWS_OF_TOPIC, MAX_FINDINGS
from iosonde.report.content.table import DEVICE_STATE, REPEATS, Cell, Table, folded
from iosonde.report.writers import terminal
from iosonde.results import ResultSet


@pytest.fixture(scope="module")
def chapter(whole: ResultSet) -> Chapter:
    (chapter,) = collect([whole]).chapters
    return chapter


def test_every_finding_appears_once(chapter: Chapter) -> None:
    [(_, answer)] = chapter.answers
    shown = [finding for section in chapter.sections for _, finding in section.findings]
    rest = [finding for _, finding in [*chapter.further_findings, *chapter.quality_findings]]
    everywhere = [each.sentence for each in [*answer.summary, *shown, *rest]]
    warned = [each for each in answer.findings if isinstance(each, Warned)]
    assert sorted(everywhere) == sorted(each.sentence for each in answer.findings if each not in warned)
    assert sorted((each.code, each.runs) for each in warned) == sorted(
        (caution.code, len(caution.runs)) for caution in chapter.warnings
    )
    assert len(answer.summary) <= 3


def test_findings_are_next_to_a_figure_of_their_part(chapter: Chapter) -> None:
    placed = [(section, finding) for section in chapter.sections for _, finding in section.findings]
    assert len(placed) >= 3
    for section, finding in placed:
        parts = {finding.part} if finding.part else {case_id.partition("/")[0] for case_id in finding.case_ids}
        assert section.figure and section.figure.part in parts
        metric, kinds = getattr(finding, "metric", ""), _VIEWS_OF_TOPIC[finding.topic]
        drawn = {
            each.figure.metric
            for each in chapter.sections
            if each.figure and each.figure.part in parts and each.figure.kind in kinds
        }
        assert metric not in drawn or section.figure.metric == metric
    assert max(len(section.findings) for section in chapter.sections) <= MAX_FINDINGS


def test_every_topic_has_its_figures() -> None:
    assert set(TOPICS) - {"quality"} == set(_VIEWS_OF_TOPIC)


def test_each_figure_but_a_time_series_has_its_values_below(chapter: Chapter) -> None:
    for section in chapter.sections:
        if section.figure:
            assert bool(section.tables) == (section.figure.kind != "timeseries"), section.title


def test_the_summary_has_shallow_and_deep_reads_and_writes(chapter: Chapter) -> None:
    assert chapter.summary
    loads = [(row[0].text, row[1].text) for row in chapter.summary.rows]
    assert ("Random read, 4 KiB", "QD 1") in loads
    assert all(row[-2].text != "-" for row in chapter.summary.rows)


@pytest.mark.parametrize(("values", "left_out"), [(5, 0), (8, 3)])
def test_a_summary_states_how_many_columns_it_leaves_out(
    values: int, left_out: int, monkeypatch: pytest.MonkeyPatch, chapter: Chapter
) -> None:
    """On the page, and on a terminal."""
    monkeypatch.setattr(summary, "_plain_card", lambda material: None)
    heads = ["Step", *(f"V{place}" for place in range(values)), REPEATS]
    rows = [[Cell(text=f"{step}{place}") for place in range(len(heads))] for step in ("a", "b")]
    card = summary.summary(chapter.material, [Table(title="Steps", heads=heads, labels=1, rows=rows)], [])
    assert card is not None and card.heads == ["Step", "V0", "V1", "V2", "V3", "V4", REPEATS]
    assert card.caption == f"Steps.{' The complete table, below, has more columns.' if left_out else ''}"
    console = Console(width=80, record=True, file=io.StringIO())
    terminal._table(console, card, card.rows, title="Summary")
    assert (f"Not shown: {left_out} more columns (see the report)." in console.export_text()) == bool(left_out)


def test_constant_columns_move_to_the_caption() -> None:
    rows = [[Cell(text=depth), Cell(text="closed"), Cell(text="-"), Cell(text=rate)] for depth, rate in ("1a", "2b")]
    table = Table(title="T", caption="All.", heads=["Depth", "Loop", "p99", "Rate"], labels=1, rows=rows)
    short = folded(table)
    assert short.heads == ["Depth", "Rate"]
    assert short.caption == "All. Loop: closed."
    assert [[cell.text for cell in row] for row in short.rows] == [["1", "a"], ["2", "b"]]


def test_the_first_of_constant_values_stays() -> None:
    rows = [[Cell(text=mode), Cell(text="10 GB/s"), Cell(text="4 devices")] for mode in ("buffered", "direct")]
    short = folded(Table(title="T", caption="All.", heads=["Load", "Bandwidth", "At"], labels=1, rows=rows))
    assert (short.heads, short.caption) == (["Load", "Bandwidth"], "All. At: 4 devices.")


def test_tables_of_cases_that_write_have_the_device_state(chapter: Chapter, whole: ResultSet) -> None:
    cases = {case.case_id: case for case in whole.plan.cases}
    states = {}
    for table in chapter.case_tables:
        ids = [key.partition("\n")[2] for key in table.keys]
        writes = any(cases[case_id].parameters["read_fraction"] < 1 for case_id in ids)
        assert (DEVICE_STATE in table.heads) == writes, "no column in tables of reads only"
        if writes:
            place = list(table.heads).index(DEVICE_STATE)
            states |= {case_id: row[place].text for case_id, row in zip(ids, table.rows, strict=True)}
    assert set(states.values()) == {"preconditioned", "-"}
    assert all((text == "-") == (cases[case_id].parameters["read_fraction"] == 1) for case_id, text in states.items())


def test_a_row_of_reads_and_writes_has_the_state_of_the_writes(tmp_path: Path) -> None:
    view = {"kind": "table", "title": "Both", "part": "grid", "x": "queue_depth", "y": "iops", "series": "direction"}
    parts = [each for each in study()["parts"] if each["name"] == "grid"]
    written = result_set(tmp_path / "set", study(parts=parts, views=[view], analysis=[]), seconds=1, repeats=1)
    [chapter] = collect([written]).chapters
    [table] = [each for each in chapter.tables if each.title == "Both"]
    assert {row[list(table.heads).index(DEVICE_STATE)].text for row in table.rows} == {"preconditioned"}
