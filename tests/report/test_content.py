"""Content of a report: findings next to figures, and verdicts in tables, at points and in the method."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from fabricate import result_set, small_study
from jsonschema import ValidationError
from report.conftest import compact

from iosonde.findings.finding import TOPICS, Finding
from iosonde.findings.quality import Warned
from iosonde.findings.questions.peak import Fastest, Peak
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics.statistics import Estimate
from iosonde.plan import Run
from iosonde.report import as_text, write
from iosonde.report.content import _VIEWS_OF_TOPIC, MAX_FINDINGS, Chapter, collect
from iosonde.report.figure import Figure
from iosonde.report.table import DEVICE_STATE, VERDICT, Cell, Table, folded
from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict

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


# Verdicts.


def verdict(run: Run) -> RecordVerdict:
    """Queue depth 16 is the tool's, blocks of 64 KiB a cache's; the first repeat of every case is unclear."""
    kind: Any = (
        "harness-limited"
        if "queue_depth=16" in run.case_id
        else "cache-served"
        if "block_size=65536" in run.case_id
        else "device-limited"
    )
    if run.repeat == 1:
        kind = "undetermined"
    return RecordVerdict(
        kind=kind, because=["so it is"], evidence={"in_flight_share": 0.9, "harness_ns_per_io": 61.0, "passes": None}
    )


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return result_set(tmp_path_factory.mktemp("judged") / "set", compact(), seconds=1, verdict=verdict)


@pytest.fixture(scope="module")
def judged_chapter(judged: ResultSet) -> Chapter:
    (judged_chapter,) = collect([judged]).chapters
    return judged_chapter


@pytest.fixture(scope="module")
def drawn(judged_chapter: Chapter) -> dict[str, Figure]:
    return {figure.title: figure for figure in judged_chapter.figures}


def column(table: Table, head: str) -> list[tuple[str, str]]:
    place = list(table.heads).index(head)
    return [(row[place].text, row[place].interval) for row in table.rows]


def test_every_case_has_its_verdict_and_the_counts_where_repeats_differ(judged_chapter: Chapter) -> None:
    verdicts = {
        key.partition("\n")[2]: cell
        for table in judged_chapter.case_tables
        for key, cell in zip(table.keys, column(table, VERDICT), strict=True)
    }
    assert verdicts["grid/direction=read/block_size=8192/queue_depth=16"] == (
        "harness",
        "undetermined 1, harness 2",
    )
    assert verdicts["grid/direction=read/block_size=8192/queue_depth=1"] == (
        "device",
        "undetermined 1, device 2",
    )


def test_the_section_counts_runs_and_shows_the_evidence_of_every_case(
    judged: ResultSet, judged_chapter: Chapter
) -> None:
    counts, evidence = judged_chapter.verdicts
    shares = dict(zip([kind for kind, _ in column(counts, "Verdict")], column(counts, "Runs"), strict=True))
    assert list(shares) == ["device-limited", "harness-limited", "cache-served", "undetermined"]
    total = len(judged.records())
    assert sum(int(text.partition(" of ")[0]) for text, _ in shares.values()) == total
    assert evidence.heads == ["Case", VERDICT, "In flight", "Harness per I/O"], "numbers that no run has are left out"
    assert len(evidence.rows) == len([case for case in judged.plan.cases if not case.control])
    assert evidence.rows[0][2].text == "90 %"


def test_every_chart_is_vega_lite(drawn: dict[str, Figure]) -> None:
    """Reports do not compare their charts with the schema, which would take longer than drawing them."""
    charts = [panel.chart for figure in drawn.values() for panel in figure.panels]
    for chart in charts:
        alt.LayerChart.from_dict(chart)
    with pytest.raises(ValidationError):
        alt.LayerChart.from_dict({**charts[0], "height": "tall"})


def test_points_that_are_not_device_limited_are_hollow_with_a_legend(drawn: dict[str, Figure]) -> None:
    for title in ("Bandwidth over block size", "Latency percentiles"):
        figure = drawn[title]
        layers = figure.panels[0].chart["layer"]
        (hollow,) = [layer for layer in layers if layer["encoding"].get("shape", {}).get("field") == "verdict"]
        assert hollow["mark"]["filled"] is False
        assert hollow["encoding"]["shape"]["title"] == "Not device-limited"
        assert "Hollow marks: not device-limited (○ harness-limited" in figure.caption
    assert "Hollow" not in drawn["Bandwidth over time"].caption


def test_surfaces_and_bars_mark_values_that_are_not_device_limited(drawn: dict[str, Figure]) -> None:
    marked = [
        figure
        for figure in drawn.values()
        if any(layer["encoding"].get("text", {}).get("field") == "mark" for layer in figure.panels[0].chart["layer"])
    ]
    assert {figure.panels[0].chart["layer"][0]["mark"]["type"] for figure in marked} == {"rect", "bar"}
    for figure in marked:
        marks = dict(figure.rows.select("verdict", "mark").unique().iter_rows())
        assert {kind: marks[kind] for kind in marks if marks[kind]}.items() <= {
            "harness-limited": "○",
            "cache-served": "□",
        }.items()


def test_page_markdown_and_terminal_have_verdicts(judged: ResultSet, tmp_path: Path) -> None:
    text = write([judged], tmp_path / "report.html")[0].read_text()
    assert "Each run is judged by its own counters" in text
    data = json.loads(text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    packed = [json.loads(zlib.decompress(base64.b64decode(figure))) for figure in data["figures"].values()]
    assert any("harness-limited" in figure["columns"]["verdict"]["of"] for figure in packed)
    text = write([judged], tmp_path / "report.md", format="md")[0].read_text()
    assert "## Verdicts" in text and "| device-limited |" in text
    shown = as_text(judged)
    assert "Limited" in shown and "harness" in shown and " runs were device-limited" in shown


def test_a_report_of_runs_on_a_busy_machine_makes_no_strong_claim(tmp_path: Path) -> None:
    """Two repeats of three wait for a CPU."""

    def busy(run: Run) -> RecordVerdict:
        kind: Any = "device-limited" if run.repeat == 2 and not run.case_id.startswith("control") else "undetermined"
        return RecordVerdict(kind=kind, because=["a job was ready to run and had no CPU"], evidence={})

    results = result_set(tmp_path / "set", small_study(), seconds=1, verdict=busy)
    [(_, answer)] = collect([results]).chapters[0].answers
    assert re.match(r"In \d+ of \d+ runs it is not known whether the device was", answer.trust.line)
    claims = [each for each in answer.findings if each.topic != "quality"]
    assert claims and {each.strength for each in claims} <= {"weak", "moderate"}, claims
    assert {each.strength for each in answer.summary} == {"weak"}
    page = write([results], tmp_path / "report.html")[0].read_text()
    for text in (page, as_text(results)):
        answered = text[text.index(">Answer<" if text is page else "Answer") :]
        answered = " ".join(answered.split())
        condition = answered.index("it is not known whether the device was the bottleneck")
        assert condition < answered.index(answer.summary[0].sentence[:20]), "the condition comes before the claims"


def test_a_report_of_runs_that_other_load_disturbed_says_so_and_folds_its_rates(tmp_path: Path) -> None:
    """All runs wait for a CPU; a reader who opens the folded rates finds them."""
    unknown = RecordVerdict(kind="undetermined", because=["a job was ready to run and had no CPU"], evidence={})
    results = result_set(tmp_path / "set", small_study(), seconds=1, verdict=lambda _: unknown, disturbed=True)
    [judged_chapter] = collect([results]).chapters
    [(_, answer)] = judged_chapter.answers
    assert answer.summary[0].sentence.startswith("Not usable: other load on this machine disturbed ")
    rates = [each for each in answer.rest if "IOPS" in each.sentence and each.strength != "strong"]
    assert rates and not [each for each in rates if each in judged_chapter.open_findings]
    shown = as_text(results)
    assert "Not usable" in shown and rates[0].sentence[:30] not in " ".join(shown.split())
