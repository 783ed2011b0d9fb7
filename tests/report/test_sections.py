"""Assignment of findings to figures."""

from __future__ import annotations

import pytest

from iosonde.findings.finding import TOPICS, Finding
from iosonde.findings.quality import Warned
from iosonde.findings.questions.peak import Fastest, Peak
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics.statistics import Estimate
from iosonde.report.content import _VIEWS_OF_TOPIC, MAX_FINDINGS, Chapter, collect
from iosonde.report.table import DEVICE_STATE, Cell, Table, folded
from iosonde.results import ResultSet

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def chapter(whole: ResultSet) -> Chapter:
    (chapter,) = collect([whole]).chapters
    return chapter


def test_every_finding_appears_once(chapter: Chapter) -> None:
    [(_, answer)] = chapter.answers
    shown = [finding for section in chapter.sections for _, finding in section.findings]
    assert set(TOPICS) - {"integrity", "quality"} == set(_VIEWS_OF_TOPIC)
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


def test_each_figure_but_a_time_series_has_its_values_below(chapter: Chapter) -> None:
    for section in chapter.sections:
        if section.figure:
            assert bool(section.tables) == (section.figure.kind != "timeseries"), section.title


def test_the_summary_has_shallow_and_deep_reads_and_writes(chapter: Chapter) -> None:
    assert chapter.summary
    loads = [(row[0].text, row[1].text) for row in chapter.summary.rows]
    assert ("Random read, 4 KiB", "QD 1") in loads
    assert all(row[-2].text != "-" for row in chapter.summary.rows)


def test_constant_columns_move_to_the_caption() -> None:
    rows = [[Cell(text=depth), Cell(text="closed"), Cell(text="-"), Cell(text=rate)] for depth, rate in ("1a", "2b")]
    table = Table(title="T", caption="All.", heads=["Depth", "Loop", "p99", "Rate"], labels=1, rows=rows)
    short = folded(table)
    assert (short.heads, short.caption) == (["Depth", "Rate"], "All. Loop: closed.")
    assert [[cell.text for cell in row] for row in short.rows] == [["1", "a"], ["2", "b"]]


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


def values_of_cells(finding: Finding) -> list[Estimate]:
    match finding:
        case Throughput() | Peak():
            return [finding.value]
        case UnloadedLatency():
            return [finding.p50]
        case Fastest():
            return [value for _, value in finding.levels]
    return []


def test_a_cell_has_one_interval_in_findings_and_tables(whole: ResultSet) -> None:
    listed = {row[:4] for row in whole.case_metrics.select("case_id", "median", "low", "high").iter_rows()}
    stated = [(each.case_ids, value) for each in whole.findings for value in values_of_cells(each) if value.certain]
    assert stated
    for case_ids, value in stated:
        assert any((case, value.value, value.low, value.high) in listed for case in case_ids)
