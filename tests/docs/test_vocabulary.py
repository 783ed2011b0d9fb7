"""Texts for users use the terms of the field and of docs/glossary.md, and no private ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from vocabulary import ROOT, messages, pages, study_texts, uses, without_code

from iosonde.cli import manual

STUDIES = sorted((ROOT / "python/iosonde/data/studies").glob("*.toml"))
MODULES = sorted((ROOT / "python/iosonde").rglob("*.py"))


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    assert [str(use) for use in uses(without_code(page.read_text()), page.name)] == []


def test_help() -> None:
    assert [str(use) for use in uses(manual.markdown(), "help")] == []


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_studies(path: Path) -> None:
    assert [str(use) for text in study_texts(path) for use in uses(text, path.name)] == []


def test_messages() -> None:
    found = [
        str(use)
        for path in MODULES
        for line, text in messages(path.read_text())
        for use in uses(text, f"{path.relative_to(ROOT)}:{line}")
    ]
    assert found == []


def test_a_banned_word_is_found_and_a_quoted_one_is_not() -> None:
    assert [use.instead for use in uses("The drive tells nothing", "")] == ["report, return, show"]
    assert list(uses("The option `tell` is not prose", "")) == []
