"""The page as a reader meets it: offline, in Chromium."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser import Browser
from fabricate import FAILED, result_set, small_study
from recordings import recorded

from iosonde.report import figures, write
from iosonde.results import ResultSet

Start = Callable[..., Browser]


@pytest.fixture(scope="module")
def page(whole: ResultSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([whole], tmp_path_factory.mktemp("page") / "report.html")[0]


@pytest.fixture(scope="module")
def page_with_missing_cases(interrupted: ResultSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([interrupted], tmp_path_factory.mktemp("missing") / "report.html")[0]


def test_figures_are_drawn_without_scripts(page: Path, browser: Start) -> None:
    reader = browser(page, scripts=False)
    drawn = reader.run(
        "return Object.fromEntries([...document.querySelectorAll('[data-figure]')].map((figure) => ["
        "figure.dataset.figure, [...figure.querySelectorAll('.chart')].map((chart) => chart.querySelectorAll("
        "'svg .mark-line path, svg .mark-rect path, svg .mark-symbol path').length)]))"
    )
    assert len(drawn) == 7
    assert all(marks and min(marks) >= 3 for marks in drawn.values()), drawn
    assert reader.run("return document.querySelectorAll('.actions:not([hidden])').length") == 0


def test_the_page_has_no_accessibility_violations(page_with_missing_cases: Path, browser: Start) -> None:
    for dark in (False, True):
        reader = browser(page_with_missing_cases, dark=dark)
        reader.read_through()
        assert reader.violations() == []
        reader.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        assert reader.violations() == []


def test_values_appear_under_the_pointer_on_demand(page: Path, browser: Start) -> None:
    reader = browser(page)
    reader.click("[data-figure='01-fabricated-bandwidth-over-block-size'] [data-interactive]")
    reader.wait("return document.querySelector('[data-figure]').dataset.drawn")
    place = reader.run(
        "const mark = [...document.querySelector('[data-drawn] .chart').querySelectorAll('.mark-symbol')].at(-1)"
        ".querySelector('path'); mark.scrollIntoView({ behavior: 'instant', block: 'center' });"
        "const r = mark.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]"
    )
    for step in (1, 0):
        moved = {"type": "mouseMoved", "x": place[0] + step, "y": place[1]}
        reader.driver.execute_cdp_cmd("Input.dispatchMouseEvent", moved)
    assert "Bandwidth" in reader.wait("return document.querySelector('.tip:not([hidden])')?.innerText")
    assert reader.complaints() == []


def test_nothing_runs_over_the_edge_of_a_phone(page_with_missing_cases: Path, browser: Start) -> None:
    reader = browser(page_with_missing_cases, width=360)
    reader.read_through()
    assert reader.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    wider = "(chart) => chart.getBoundingClientRect().right > window.innerWidth + 1"
    assert reader.run(f"return [...document.querySelectorAll('.chart svg')].filter({wider}).length") == 0


def test_every_figure_is_saved_as_svg_and_its_rows_as_csv_and_nothing_is_requested(
    whole: ResultSet, page: Path, browser: Start
) -> None:
    reader = browser(page)
    reader.read_through()
    for figure in figures([whole]):
        reader.click(f"[data-figure='{figure.name}'] [data-save=svg]")
        drawing = ElementTree.fromstring(reader.download(f"{figure.name}.svg"))
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert figure.title in "".join(drawing.itertext())
        reader.click(f"[data-figure='{figure.name}'] [data-save=csv]")
        saved = list(csv.reader(io.StringIO(reader.download(f"{figure.name}.csv"))))
        ours = list(csv.reader(io.StringIO(figure.csv())))
        assert saved[0] == ours[0]
        assert [list(map(_number, row)) for row in saved] == [list(map(_number, row)) for row in ours]
    assert reader.requests() == []
    assert reader.complaints() == []


def _number(field: str) -> object:
    try:
        return float(field)
    except ValueError:
        return field


HOSTILE = '</script><script>window.hit = 1</script><img src=x onerror="window.hit = 2">"\'`${window.hit=3}'


def test_markup_in_names_stays_text(tmp_path: Path, browser: Start) -> None:
    """Foreign studies and models reported by devices can put any text into the page, but no markup."""
    facts = small_study(title=f"Title {HOSTILE}", question=f"Question {HOSTILE}")
    facts["views"] = [view | {"title": f"{view['title']} {HOSTILE}", "caption": HOSTILE} for view in facts["views"]]
    facts["parts"] = [part | {"title": f"Part {HOSTILE}"} for part in facts["parts"]]
    facts["parts"][0]["factors"] = {
        "depth": [{"label": f"QD {HOSTILE}", "set": {"queue_depth": 4}}, {"label": "8", "set": {}}]
    }
    facts["views"] = json.loads(json.dumps(facts["views"]).replace('"queue_depth"', '"depth"'))
    hostile = result_set(tmp_path / "set", facts, seconds=2, model=f"Model {HOSTILE}", warning=f"Warning {HOSTILE}")
    reader = browser(write([hostile], tmp_path / "report.html")[0])
    reader.read_through()
    assert reader.run("return window.hit") is None
    assert reader.run("return document.querySelectorAll('img').length") == 0
    text = reader.run("return document.body.innerText")
    for name in ("Title", "Question", "Model", "Warning"):
        assert f"{name} {HOSTILE}" in text
    charts = "[...document.querySelectorAll('.legend, .chart svg')].map((chart) => chart.textContent).join()"
    assert f"QD {HOSTILE}" in reader.run(f"return {charts}")
    assert reader.requests() == []
    assert reader.complaints() == []


def test_an_incomplete_result_set_has_a_notice_and_marks_missing_cases(
    page_with_missing_cases: Path, browser: Start
) -> None:
    reader = browser(page_with_missing_cases)
    notice = reader.run("return document.querySelector('header [role=alert]').innerText")
    assert "This result set is incomplete. 70 of 76 runs are complete; 3 failed, 3 not run." in notice
    assert "--retry-failed" in notice
    reader.read_through()
    marks = reader.run(
        "return [...document.querySelectorAll('.chart svg text')].filter((t) => t.textContent === '✕').length"
    )
    assert marks >= 2
    missing = reader.run("return document.querySelector('#missing').innerText")
    assert FAILED in missing and "the device answered with an error" in missing
    assert reader.complaints() == []


def test_any_run_can_be_looked_at_and_its_spec_saved(whole: ResultSet, page: Path, browser: Start) -> None:
    reader = browser(page)
    run = whole.plan.runs[40]
    row = "[...document.querySelectorAll('tr[data-case]')].find((row) => row.dataset.case.endsWith(arguments[0]))"
    reader.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    reader.run(f"{row}.querySelector('td').click()", f"\n{run.case_id}")
    reader.wait("return document.querySelector('#run-view').dataset.run")
    reader.run(f"document.querySelector('#run-list [data-run=\"{run.run_id}\"]').click()")
    reader.wait(f"return document.querySelector('#run-view').dataset.run === '{run.run_id}'")
    reader.wait("return document.querySelectorAll('#run-view svg .mark-line path').length >= 3")
    reader.run("[...document.querySelectorAll('#run-view button')].find((b) => b.textContent.includes('spec')).click()")
    assert json.loads(reader.download(f"{run.run_id}.json")) == run.spec


def test_a_store_s_run_over_time_shows_its_operations_per_second(tmp_path: Path, browser: Start) -> None:
    results = recorded("store", tmp_path / "set", views=[])
    reader = browser(write([results], tmp_path / "report.html")[0])
    reader.run("document.querySelector('#runs').scrollIntoView({ behavior: 'instant' })")
    reader.wait("return document.querySelectorAll('#run-view svg').length === 3")
    drawn = reader.run(
        "return [...document.querySelectorAll('#run-view .panel')].map((panel) => [panel.textContent.includes("
        "'Operations per second'), panel.querySelectorAll('svg .mark-line path').length])"
    )
    assert [title for title, _ in drawn] == [False, True, False]
    assert all(lines >= 1 for _, lines in drawn), drawn


def test_a_table_is_sorted_and_filtered(page: Path, browser: Start) -> None:
    reader = browser(page)
    table = "document.querySelectorAll('#cases table')[0]"
    reader.run(f"{table}.closest('details').open = true")
    reader.run(f"[...{table}.querySelectorAll('.sort')].find((head) => head.textContent === 'IOPS').click()")
    column = (
        f"[...{table}.tBodies[0].rows].filter((row) => !row.hidden).map((row) => Number(row.cells[5].dataset.number))"
    )
    rates = reader.run(f"return {column}")
    assert len(rates) == 16 and rates == sorted(rates)
    reader.run(
        "const input = document.querySelector('[data-filter]'); input.value = 'write 8 KiB';"
        "input.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert len(reader.run(f"return {column}")) == 4


def test_figures_follow_the_colour_scheme_and_print_is_light_and_compact(page: Path, browser: Start) -> None:
    reader = browser(page, dark=True)
    label = "return getComputedStyle(document.querySelector('.chart svg .role-axis-label text')).fill"
    assert reader.run(label) == "rgb(154, 165, 177)"
    assert reader.run("return getComputedStyle(document.body).backgroundColor") == "rgb(23, 27, 32)"
    reader.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert reader.run(label) == "rgb(90, 101, 114)"
    assert reader.run("return getComputedStyle(document.querySelector('h3')).breakAfter") == "avoid"
    assert reader.run("return getComputedStyle(document.querySelector('.figure')).breakInside") == "avoid"
    assert reader.pages() <= 8


def test_two_result_sets_are_drawn_over_one_another(
    whole: ResultSet, faster: ResultSet, tmp_path: Path, browser: Start
) -> None:
    reader = browser(write([whole, faster], tmp_path / "report.html")[0])
    reader.read_through()
    assert reader.complaints() == []
    side_by_side = reader.run("return document.querySelector('.comparison').innerText")
    assert "second against first: bandwidth better in 24 of 24 cases" in side_by_side
    legends = reader.run("return [...document.querySelectorAll('.legend li')].map((entry) => entry.textContent.trim())")
    assert {"first", "second"} <= set(legends)
