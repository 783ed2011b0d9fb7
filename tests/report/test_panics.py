"""A library that panics loses the parts of a report that need it, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fabricate import result_set, small_study

from iosonde.errors import ResultsError
from iosonde.report import as_text, save_figures, write
from iosonde.results import ResultSet
from iosonde.results.interpreting import interpreting


def panic(*_: Any, **__: Any) -> Any:
    raise pl.exceptions.PanicException("capacity overflow")


@pytest.fixture
def small(tmp_path: Path) -> ResultSet:
    return result_set(tmp_path / "set", small_study(), seconds=1)


@pytest.mark.parametrize("method", ["pivot", "group_by", "join", "sort", "unique"])
def test_a_report_survives_a_panic_of_polars(
    method: str, small: ResultSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pl.DataFrame, method, panic)
    [page] = write([small], tmp_path / "report.html")
    markdown, *_ = write([small], tmp_path / "report.md", format="md")
    texts = [page.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8"), as_text(small)]
    for text in texts:
        words = " ".join(text.replace("</code>", "").replace("<code>", "").replace("`", "").split())
        assert "the library Polars failed (capacity overflow)" in words
        assert "a defect of the library or a limit of this machine" in words
        assert "edited" not in words
        assert "Method and machine" in words


def test_figures_that_a_panic_leaves_out_are_an_error(
    small: ResultSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = save_figures([small], tmp_path / "whole")
    monkeypatch.setattr(pl.DataFrame, "join", panic)
    with pytest.raises(ResultsError, match="cannot draw every figure: the library Polars failed"):
        save_figures([small], tmp_path / "some")
    assert len(whole) >= len(list((tmp_path / "some").glob("*")))


def test_a_panic_is_never_attributed_to_an_edit(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught, interpreting([tmp_path]):
        panic()
    assert "edited" not in str(caught.value)
    assert str(caught.value).startswith(f"cannot analyse `{tmp_path}`: the library Polars failed (`capacity overflow`)")
