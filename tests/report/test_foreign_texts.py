"""Text of somebody else in a result set: no writer lets it become markup, script, a formula or a control character."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fabricate import result_set, small_study
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from plans import sign

from iosonde.base import foreign_text
from iosonde.collections.history import history
from iosonde.collections.history.page import render as history_page
from iosonde.collections.library.indexing import index
from iosonde.collections.library.page import render as library_page
from iosonde.findings import regression
from iosonde.findings.regression import Cell, Check, Settings
from iosonde.report import save_figures, write
from iosonde.report.document import embedded_json
from iosonde.results import ResultSet
from iosonde.results.frames import as_csv

EVIL = (
    "=1+1 </title></script></style></svg><script>alert(1)</script><img src=x onerror=alert(1)> \" ' --> ``` `<b>` `|` "
    "](javascript:alert(1)) ![x](http://example.com/x) | cell | <details> \x1b[2J\x9b31m\u202e\x7f"
)
LABEL = "@SUM(1+1)*cmd|' /C calc'!A0 <script>alert(2)</script> `<i>`"
FREE = {
    *("title", "question", "source", "caption", "description"),
    *("message", "hint", "code", "model", "firmware", "kernel"),
}
"""Keys of the study, the records and the environment with a text that others can choose."""


def hostile(value: Any) -> Any:
    """Put a hostile text into every free text of a document."""
    if isinstance(value, dict):
        return {key: EVIL if key in FREE and isinstance(each, str) else hostile(each) for key, each in value.items()}
    return [hostile(each) for each in value] if isinstance(value, list) else value


def study(label: str, **texts: str) -> dict[str, Any]:
    facts = small_study(**texts)
    [part] = facts["parts"]
    part["factors"] = {"kind": [{"label": each, "set": {"queue_depth": at}} for at, each in ((1, label), (4, "deep"))]}
    facts["views"] = [
        {"kind": "bars", "title": "Bars", "part": "mixed", "x": "kind", "y": "iops"},
        {"kind": "percentiles", "title": "Percentiles", "part": "mixed", "series": "kind"},
    ]
    return facts


def made(directory: Path, label: str, change: Callable[[Any], Any], **texts: str) -> ResultSet:
    """A result set of two cases, one of which failed once, whose documents are changed."""
    made = result_set(
        directory, study(label, **texts), seconds=1, repeats=2, failed=lambda run: run.run_id == "c0002-r1"
    )
    for record in (made.directory / "records").iterdir():
        path = record / "record.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        sign(record)
    for path in (made.directory / "environments").iterdir():
        facts = change(json.loads(path.read_text()))
        path.unlink()
        with made.lock():
            name = made.write_environment(facts)
        for record in (made.directory / "records").iterdir():
            file = record / "record.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "environment": name}))
            sign(record)
    return ResultSet.open(made.directory)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return made(
        tmp_path_factory.mktemp("plain") / "set", "a shallow queue of one", lambda document: document, source="A source"
    )


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    texts = {"title": EVIL, "question": f"- {EVIL}", "source": EVIL}
    found = made(tmp_path_factory.mktemp("evil") / "<b>`a;b", LABEL, hostile, **texts)
    assert found.problems == [] and found.plan.study["title"] == EVIL, "else the tests would show nothing"
    assert {record.target["devices"][0]["model"] for record in found.records() if record.target} == {EVIL}
    return found


class _Structure(HTMLParser):
    """Elements and names of attributes of a page, and the contents of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()
        self.scripts: list[str] = []
        self.links: set[str] = set()
        self._in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, *sorted(name for name, _ in attrs)))
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def controls(text: str) -> set[str]:
    return {character for character in text if character != "\n" and foreign_text.printable(character) != character}


def assert_same_structure(page: str, benign: str) -> None:
    """The hostile page has no element, attribute, script or link that the benign one has not."""
    ours, theirs = _Structure(page), _Structure(benign)
    assert ours.found <= theirs.found
    assert len(ours.scripts) == len(theirs.scripts)
    assert ours.scripts[-1:] == theirs.scripts[-1:], "the program of the page"
    assert not [each for each in ours.links if each.startswith(("javascript:", "http:"))]
    assert controls(page) == set()


@pytest.mark.engine
def test_a_report_has_no_markup_of_others(evil: ResultSet, plain: ResultSet, tmp_path: Path) -> None:
    pages = [write([each], tmp_path / f"{number}.html")[0].read_text() for number, each in enumerate((evil, plain))]
    assert_same_structure(*pages)
    assert "&lt;img src=x onerror=alert(1)&gt;" in pages[0], "the text is there, as text"
    structure = _Structure(pages[0])
    for data in structure.scripts[:2]:
        json.loads(data)
    assert f"iosonde sql '{evil.directory}' " in re.sub("&#39;", "'", pages[0]).replace("&lt;", "<").replace(
        "&gt;", ">"
    )


@pytest.mark.engine
def test_pages_of_the_library_and_history_have_no_markup_of_others(
    evil: ResultSet, plain: ResultSet, tmp_path: Path
) -> None:
    def pages(each: ResultSet) -> list[str]:
        found = index(each.directory.parent)
        assert len(found.summaries) == 1
        return [foreign_text.printable(page) for page in (library_page(found, tmp_path), history_page(history(found)))]

    for page, other in zip(pages(evil), pages(plain), strict=True):
        assert_same_structure(page, other)


def tokens(text: str) -> Iterator[tuple[str, str]]:
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        for each in (token, *(token.children or ())):
            yield each.type, each.content


OURS = {"<details>", "</details>"}


@pytest.mark.engine
def test_markdown_and_figures_of_two_sets_have_no_markup_or_elements_of_others(
    evil: ResultSet, plain: ResultSet, tmp_path: Path
) -> None:
    report, *figures = write([evil, plain], tmp_path / "report.md", format="md")
    text = report.read_text()
    html = {content for kind, content in tokens(text) if kind in ("html_inline", "html_block")}
    left = {line for block in html for line in block.splitlines() if line not in OURS}
    assert all(re.fullmatch(r"<summary>[^<>]*</summary>", line) for line in left), left
    assert {kind for kind, _ in tokens(text)} & {"link_open"} == set()
    images = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert sorted(tmp_path / name for name in images) == sorted(figures)
    assert controls(text) == set()
    benign = save_figures([plain], tmp_path / "benign")
    tags = [
        {element.tag for path in drawn for element in ElementTree.parse(path).iter()} for drawn in (figures, benign)
    ]
    assert tags[0] <= tags[1]
    texts = "".join(path.read_text() for path in figures)
    assert controls(texts) == set()
    assert "&lt;script&gt;" in texts, "a level is in a label, as text"


def cells(text: str) -> Iterator[str]:
    for row in csv.reader(io.StringIO(text)):
        yield from row


def is_formula(cell: str) -> bool:
    return len(cell) > 1 and cell[0] in "=+-@\t\r\n" and not re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", cell)


@pytest.mark.engine
def test_exported_tables_figures_and_queries_have_no_formulas(evil: ResultSet, tmp_path: Path) -> None:
    written = evil.export("csv", tmp_path / "out")
    texts = {path.name: path.read_text() for path in written}
    assert not [
        cell for name, text in texts.items() if name.endswith(".csv") for cell in cells(text) if is_formula(cell)
    ]
    assert f"'{LABEL}" in set(cells(texts["runs.csv"]))
    readme = texts["README.md"]
    assert not [content for kind, content in tokens(readme) if kind.startswith("html")]
    assert controls(readme) == set()
    assert "apostrophe" in readme
    evil.export("json", tmp_path / "json")
    assert LABEL in {row["kind"] for row in json.loads((tmp_path / "json/runs.json").read_text())}, "as it is"
    queried = as_csv(evil.sql('SELECT *, -1 AS number, [1, 2] AS "=1+1" FROM runs'))
    rows = [figure.csv() for figure in evil.figures] + [queried]
    assert not [cell for text in rows for cell in cells(text) if is_formula(cell)]
    assert "-1" in set(cells(queried)), "numbers stay"
    assert {"'=1+1", "[1, 2]"} <= set(cells(queried))


def test_the_outcome_of_a_check_has_no_markup_of_others() -> None:
    values = {"change": -0.5, "baseline": 2.0, "candidate": 1.0, "low": -0.6, "high": -0.4}
    cell = Cell(case_id=EVIL, metric="iops", outcome="regression", reason=EVIL, **values)
    outcome = Check(cells=[cell], settings=Settings(), baselines=["a"], candidates=["b"], notes=[EVIL])
    written = regression.markdown(outcome)
    assert not [kind for kind, _ in tokens(written) if kind.startswith(("html", "link", "image"))]
    assert controls(written) == set()
    suite = ElementTree.fromstring(regression.junit(outcome))
    assert [each.tag for each in suite.iter()] == ["testsuite", "testcase", "failure"]


@pytest.mark.parametrize(
    "name", ["report/page/report.js", "collections/library/page_files/library.js", "execution/live/page_files/live.js"]
)
def test_scripts_of_pages_set_text_and_never_markup(name: str) -> None:
    from importlib import resources

    script = (resources.files("iosonde") / name).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


TEXT = st.text(alphabet=st.sampled_from("`|<>&*_[]()!#~\\-+=1.) \n\t\x1b\x9b\u202eab"), max_size=30)


@given(TEXT)
@example("`_1_")
@example("``_1_`")
@example("`_1_`_2_`")
def test_any_text_is_text_in_markdown(text: str) -> None:
    paragraph = foreign_text.markdown_paragraph(text)
    for written in (foreign_text.markdown(text), paragraph, foreign_text.markdown_code(text)):
        found = [kind for kind, _ in tokens(f"| x {written} |\n|---|\n| {written} |\n\n- x {written}\n\n> {written}\n")]
        assert not [kind for kind in found if kind.startswith(("html", "link", "image", "em_", "strong_"))], written
    kinds = [kind for kind, _ in tokens(paragraph) if kind.endswith("_open")]
    assert kinds in ([], ["paragraph_open"]), "also at the start of a line"
    block = "\n".join(["before", *foreign_text.markdown_block(text, language="sh"), "after"])
    assert [kind for kind, _ in tokens(block) if kind in ("fence", "paragraph_open")] == [
        *("paragraph_open", "fence", "paragraph_open"),
    ]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
def test_cells_are_never_formulas_and_embedded_json_is_no_markup(text: str) -> None:
    assert not is_formula(foreign_text.cell(text))
    written = embedded_json([text, "</script><!--"])
    assert not set("<>&\u2028\u2029") & set(written)
    assert controls(written) == set()
    assert json.loads(written) == [text, "</script><!--"]


@pytest.mark.engine
def test_control_characters_in_labels_and_titles_reach_no_drawing(tmp_path: Path) -> None:
    """The drawing library aborts the process at some of them."""
    facts = made(tmp_path / "set", "a\u0001\u001b\u0000b", lambda document: document, title="T\u0001\u0000")
    for path in save_figures([facts], tmp_path / "figures", format="svg"):
        assert ElementTree.fromstring(path.read_text()) is not None
    assert "\u0001" not in write([facts], tmp_path / "report.md", format="md")[0].read_text()
