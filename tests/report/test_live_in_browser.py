"""The live page, and the pages of the library and the history with 1,000 result sets, as a reader meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from plans import hand_plan
from summaries import a_summary

from iosonde.collections.history import history
from iosonde.collections.history.page import render as render_history
from iosonde.collections.library.indexing import Index
from iosonde.collections.library.page import render
from iosonde.collections.library.summary import Device
from iosonde.execution.live.page import LivePage

Start = Callable[..., Browser]

PROGRESS = {"done": 0, "failed": 0, "total": 4, "at_most": False, "share": 0.0, "remaining": "40 s"}


def values(second: int, rate: float) -> dict[str, Any]:
    shown = {
        **{"seconds": second, "rate": rate, "unit": "IOPS", "rate_text": f"{rate:.0f} IOPS"},
        **{"p99_ns": 4e5, "p50_text": "100 µs", "p99_text": "400 µs", "p99_9_text": "-", "latency": "response"},
        **{"in_flight": 3.9, "queue_depth": 4, "backlog": 7, "bandwidth_text": "41 MB/s"},
    }
    progress = PROGRESS | {"share": 0.25, "remaining": "30 s"}
    return {"progress": progress, "values": shown}


def ended(case: str, load: str, rate: float, done: int) -> dict[str, Any]:
    row = {"id": case, "load": load, "planned": 2, "done": 1, "failed": 0, "running": False}
    row |= {"rate": rate, "p99_ns": 4e5, "unit": "IOPS", "verdicts": {"device-limited": 1}}
    return {"cases": [row], "verdicts": {"device-limited": done}, "progress": PROGRESS | {"done": done}}


@pytest.fixture
def live() -> Iterator[LivePage]:
    page = LivePage(hand_plan())
    yield page
    page.close()
    page._process.kill()
    page._process.wait()


def wait_for(reader: Browser, element: str, text: str) -> None:
    reader.wait(f"return document.getElementById('{element}').innerText.includes('{text}')")


def test_a_study_in_a_browser_from_start_to_report(live: LivePage, browser: Start, tmp_path: Path) -> None:
    reader = browser(live.url)
    wait_for(reader, "title", "By hand")
    case, other = (each.case_id for each in hand_plan().cases)
    hostile = "<img src=x onerror=alert(1)> load"
    now = {"case": case, "load": hostile, "run": "c0001-r1", "phase": "starting"}
    live.send({"now": now, "values": {}, "progress": PROGRESS})
    for second in (1, 2, 3):
        live.send(values(second, 10_000 + second))
    wait_for(reader, "rate", "10003 IOPS")
    wait_for(reader, "current", hostile)
    wait_for(reader, "p99", "400 µs")
    wait_for(reader, "queue", "of 4; 7 due and not started")
    wait_for(reader, "remaining", "30 s remaining")
    assert reader.run("return document.querySelector('#rates path').getAttribute('d')").count("L") == 2
    live.send(ended(case, hostile, 10_000, 1))
    live.send(ended(other, "other load", 2_000_000, 2))
    wait_for(reader, "verdicts", "Verdict so far: 2 device-limited")
    wait_for(reader, "cases", "10.0 k IOPS")
    wait_for(reader, "cases", "2.00 M IOPS")
    assert reader.violations() == []
    (tmp_path / "report.html").write_text("<title>the report</title>")
    live.over("complete", "4 of 4 runs complete.", tmp_path / "report.html")
    wait_for(reader, "over", "The study is over. 4 of 4 runs complete.")
    assert reader.violations() == []
    own = live.url
    assert [url for url in reader.requests() if not url.startswith(own)] == []
    reader.click("#report")
    reader.wait("return document.title === 'the report'")
    assert [each for each in reader.complaints() if "favicon" not in each] == []


def test_the_page_survives_a_pause_of_the_server_and_reports_its_end(live: LivePage, browser: Start) -> None:
    reader = browser(live.url, width=800)
    wait_for(reader, "title", "By hand")
    assert reader.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    reader.driver.execute_cdp_cmd("Network.enable", {})
    reader.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    wait_for(reader, "connection", "No answer from iosonde; asking again.")
    live.send({"notes": ["sent during the pause"]})
    reader.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline | {"offline": False})
    wait_for(reader, "notes", "sent during the pause")
    assert reader.run("return document.getElementById('connection').innerText") == ""


COUNT = 1000
VISIBLE = "return [...document.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility()).length"


@pytest.fixture(scope="module")
def indexed() -> Index:
    """1,000 nights of two studies on four drives; one has a report and one a kernel of its own."""
    summaries = [
        a_summary(
            night,
            iops=100_000 + night,
            study="nightly" if night % 2 else "weekly",
            devices=[Device(name="nvme0n1", model=f"SSD {night % 4}", firmware="1.0", serial=f"{night % 4:08x}")],
            kernel="6.6.99-special" if night == 777 else "6.1",
            report="report.html" if night == 3 else "",
        )
        for night in range(COUNT)
    ]
    return Index(root=Path("/srv/sets"), summaries=summaries[::-1], problems=["`/srv/sets/x` skipped: damaged"])


@pytest.fixture(scope="module")
def page(indexed: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "library.html"
    path.write_text(render(indexed, Path("/srv/sets")))
    return path


def search(reader: Browser, words: str) -> None:
    reader.run(
        "const box = document.getElementById('search'); box.value = arguments[0];"
        "box.dispatchEvent(new Event('input', { bubbles: true }))",
        words,
    )


def test_search_filters_and_sorting_work_on_a_thousand_rows(page: Path, browser: Start) -> None:
    reader = browser(page)
    assert reader.run(VISIBLE) == COUNT
    search(reader, "special 6.6")
    assert reader.run(VISIBLE) == 1
    assert reader.run("return document.querySelector('tbody tr:not([hidden]) td.device').innerText").startswith("SSD 1")
    assert reader.run("return document.getElementById('shown').innerText") == f"1 of {COUNT} result sets."
    search(reader, "no such words")
    assert reader.run(VISIBLE) == 0
    reader.click("button[type=reset]")
    reader.wait(f"return ({VISIBLE.removeprefix('return ')}) === {COUNT}")
    reader.run(
        "const study = document.getElementById('study'); study.value = 'weekly';"
        "study.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert reader.run(VISIBLE) == COUNT / 2
    reader.run(
        "const device = document.getElementById('device'); device.value = 'SSD 2';"
        "device.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert reader.run(VISIBLE) == COUNT / 4
    values = "return [...document.querySelectorAll('tbody tr td.metrics')].map((cell) => Number(cell.dataset.number))"
    reader.click("thead th:nth-child(7) .sort")
    assert reader.run(values) == sorted(reader.run(values))
    reader.click("thead th:nth-child(7) .sort")
    assert reader.run(values) == sorted(reader.run(values), reverse=True)
    assert reader.requests() == []
    assert reader.complaints() == []


def test_the_table_is_complete_without_scripts(page: Path, browser: Start) -> None:
    reader = browser(page, scripts=False)
    assert reader.run(VISIBLE) == COUNT
    assert reader.run("return document.querySelectorAll('form:not([hidden]), .sort').length") == 0
    links = "return [...document.querySelectorAll('tbody a')].map((link) => link.getAttribute('href'))"
    assert reader.run(links) == ["./2026-01-04/report.html"]


def test_the_pages_are_accessible_and_not_wider_than_the_screen(indexed: Index, browser: Start, tmp_path: Path) -> None:
    few = Index(root=indexed.root, summaries=indexed.summaries[:30], problems=indexed.problems)
    for name, text in (("library", render(few, few.root)), ("history", render_history(history(few)))):
        (tmp_path / f"{name}.html").write_text(text)
        for dark, width in ((False, 360), (True, 800)):
            reader = browser(tmp_path / f"{name}.html", dark=dark, width=width)
            assert reader.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
            reader.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
            assert reader.violations() == []
            assert reader.requests() == []
            assert reader.complaints() == []
