"""Markdown and terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fabricate import result_set, small_study
from inline_snapshot import snapshot
from recordings import recorded
from rich.console import Console

from iosonde.report import as_text, terminal, write
from iosonde.report.console import _table
from iosonde.report.content import collect
from iosonde.report.figure_values import figure_table
from iosonde.report.markdown import escape
from iosonde.report.table import Cell, Table, selected
from iosonde.results import ResultSet


@pytest.mark.engine
def test_figures_of_a_markdown_report_are_in_the_same_directory(interrupted: ResultSet, tmp_path: Path) -> None:
    report, *drawn = write([interrupted], tmp_path / "report.md", format="md")
    text = report.read_text()
    named = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert sorted(tmp_path / name for name in named) == sorted(drawn)
    assert len(drawn) == 7
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    parts = ["Results", "Method and machine", "Warnings", "Missing runs", "All cases", "Reproduction"]
    assert headings == ["Answer", "Summary", *parts]
    assert "> **This result set is incomplete.** 70 of 76 runs are complete; 3 failed, 3 not run." in text
    assert "iosonde run fabricated --target /srv/test/iosonde.dat --profile quick --repeats 3 --seed 1" in text


def test_markdown_shows_text_as_it_is() -> None:
    assert escape("a | <img> *bold* _it_ [x](y)") == r"a \| &lt;img&gt; \*bold\* \_it\_ \[x\](y)"
    assert escape("two\nlines, `io` and half `open") == r"two lines, `io` and half \`open"


def printed(results: ResultSet, colours: Any, directory: Path) -> str:
    file = (directory / "out").open("w")
    console = Console(width=80, color_system=colours, force_terminal=True, record=True, file=file)
    terminal(results, console, page=directory / "report.html")
    return console.export_text()


def small(directory: Path) -> ResultSet:
    return result_set(directory / "set", small_study(), seconds=1, failed=lambda run: run.run_id == "c0004-r1")


def test_the_terminal_shows_what_matters_in_eighty_columns(tmp_path: Path) -> None:
    results = small(tmp_path)
    text, coloured = (printed(results, colours, tmp_path) for colours in (None, "truecolor"))
    assert text == coloured, "words have the meaning of every colour"
    assert [line for line in text.splitlines() if line != line.rstrip()] == [], "trailing spaces"
    assert max(map(len, text.splitlines())) <= 80 + len(str(tmp_path))
    shown = text.replace(str(tmp_path), "DIR")
    assert shown == snapshot("""\

What a drive of known behaviour delivers
EXAMPLE SSD 1TB (931 GiB)
This result set is incomplete: 12 of 13 runs are complete; 1 failed.
To continue: iosonde resume DIR/set --retry-failed

Answer
○ 4 KiB 70/30 reads and writes: 329 k IOPS at queue depth 64.
● 4 KiB 70/30 reads and writes with one I/O in flight: median latency 67.1 µs
  (95 % CI 64.2–70.5 µs), p99 173 µs.
Trust: No run has a verdict; 1 of 13 runs failed or stopped.
Evidence: ● strong, ◐ moderate, ○ weak

Summary
Device state: preconditioned.
Queue
depth    IOPS  Repeats
1      13.5 k        3
4      52.8 k        3
16      213 k        3
64      329 k        2

Findings
● 1 of 13 runs failed.
● Little's law holds in all 12 runs long enough to check.
● 1 of 4 cases have fewer than 3 repeats, so no CI.

All cases
Completion latency. Device state: preconditioned. Loop: closed.
Queue
depth  Bandwidth    IOPS      p50     p99   p99.9
1      55.1 MB/s  13.5 k  67.1 µs  173 µs  218 µs
4       216 MB/s  52.8 k  68.8 µs  182 µs  237 µs
16      874 MB/s   213 k  68.2 µs  181 µs  246 µs
64     1.35 GB/s   329 k   177 µs  470 µs  639 µs

Method and machine
Device     EXAMPLE SSD 1TB (931 GiB)
Target     /srv/test/iosonde.dat
Measured   2026-01-02 03:00:00 UTC to 2026-01-02 03:00:13 UTC
Runs       12 of 13 complete
Profile    quick, 3 repeats
Load       closed loop
Intervals  95 % confidence intervals of the median of 3 repeats (Student's t;
           Student's t on logarithms)
Coverage   95 % for independent repeats with one mode or two near modes; for two
           distant modes only 75 % with 3 repeats: too few to show both modes,
           use 6 or more
Sessions   one; another session can differ by more than these intervals show

Warnings
cpu_saturated (3 of 13 runs): the cores were busy all the time
  hint: use fewer jobs

Report: DIR/report.html
""")


@pytest.mark.engine
def test_a_report_survives_a_panic_of_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses the parts that need the method, and no others, and blames no edit of the result set."""

    def panic(*_: Any, **__: Any) -> Any:
        raise pl.exceptions.PanicException("capacity overflow")

    results = small(tmp_path)
    monkeypatch.setattr(pl.DataFrame, "join", panic)
    for text in (write([results], tmp_path / "report.html")[0].read_text(encoding="utf-8"), as_text(results)):
        words = " ".join(text.replace("</code>", "").replace("<code>", "").replace("`", "").split())
        assert "the library Polars failed (capacity overflow)" in words
        assert "a defect of the library or a limit of this machine" in words
        assert "edited" not in words
        assert "Method and machine" in words


def test_the_first_lines_name_every_drive_and_the_summary_has_values(tmp_path: Path) -> None:
    """The labels of two arms left no room for a value, and an array of two drives was one drive."""
    text = as_text(recorded("arms", tmp_path / "set"))
    first, summary = text.partition("\nComparison")[0], text.partition("\nSummary")[2].partition("\nFindings")[0]
    optane = "Intel Optane SSD 900P 480 GB (simulated) (447 GiB)"
    assert first.splitlines()[-2:] == [optane, f"2 × {optane}"]
    assert re.search(r"^b +Random write, 4 KiB +unknown +99.4 k IOPS", summary, re.MULTILINE)


def test_points_of_a_trade_off_are_under_the_factor_that_labels_them(tmp_path: Path) -> None:
    axes = {"x": "iops", "y": "completion_latency_ns_p99", "series": "read_fraction"}
    view = {"kind": "tradeoff", "title": "Tail", "part": "main", **axes}
    [chapter] = collect([recorded("seeded", tmp_path / "set", views=[view])]).chapters
    table = figure_table(chapter.figures[0])
    assert table and table.heads[:-1] == ["Panel", "Queue depth", "IOPS", "Completion latency, p99"]
    assert table.heads[-1] == "Repeats" and {row[-1].number for row in table.rows} == {2}


def test_latencies_of_several_kinds_have_different_heads(tmp_path: Path) -> None:
    """Response latency counts from the intended start: as `p99` and `p99` nobody could tell it from the other."""
    heads = ["Arrival", "Completion latency, p99", "Response latency, p99"]
    rows = [[Cell(text=text) for text in texts] for texts in (("trace", "1.2 ms", "3.4 ms"), ("closed", "5 ms", "-"))]
    table = Table(title="Summary", heads=heads, labels=1, rows=rows)
    with (tmp_path / "out").open("w") as file:
        several, single = (Console(width=80, record=True, file=file) for _ in range(2))
        _table(several, table)
        _table(single, selected(table, [0, 1]))
    assert several.export_text().splitlines()[2:5] == snapshot(
        [
            "         Completion  Response",
            "Arrival         p99       p99",
            "trace        1.2 ms    3.4 ms",
        ]
    )
    assert single.export_text().splitlines()[2].split() == ["Arrival", "p99"]
