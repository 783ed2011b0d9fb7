"""The pages of the library and the history as a reader meets them, with 1,000 result sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser import Browser
from summaries import a_summary

from iosonde.history import history
from iosonde.history.page import render as render_history
from iosonde.library.context import Device
from iosonde.library.indexing import Index
from iosonde.library.page import render

Start = Callable[..., Browser]
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
