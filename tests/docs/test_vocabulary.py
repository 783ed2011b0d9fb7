"""Texts for users use the terms of the field and of docs/glossary.md, and no private ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from vocabulary import (
    BANNED_IN_CODE,
    ROOT,
    messages,
    page_sources,
    pages,
    rust_messages,
    sources,
    study_texts,
    uses,
    without_code,
    without_literals,
)

from iosonde.cli.commands import man

STUDIES = sorted((ROOT / "python/iosonde/data/studies").glob("*.toml"))
MODULES = sorted((ROOT / "python/iosonde").rglob("*.py"))


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    assert [str(use) for use in uses(without_code(page.read_text()), page.name)] == []


def test_help() -> None:
    assert [str(use) for use in uses(man.markdown(), "help")] == []


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_studies(path: Path) -> None:
    assert [str(use) for text in study_texts(path) for use in uses(text, path.name)] == []


def found_in(texts: Iterable[tuple[Path, int, str]]) -> list[str]:
    return [str(use) for path, line, text in texts for use in uses(text, f"{path.relative_to(ROOT)}:{line}")]


def test_messages() -> None:
    assert found_in((path, *each) for path in MODULES for each in messages(path.read_text())) == []
    crates = sorted((ROOT / "crates").glob("*/src/**/*.rs"))
    assert found_in((path, *each) for path in crates for each in rust_messages(path.read_text())) == []
    assert found_in((path, 1, path.read_text().replace("Promise", "")) for path in page_sources()) == []


def test_comments_and_names() -> None:
    found = [
        str(use)
        for path in sources()
        for use in uses(without_literals(path.read_text()), str(path.relative_to(ROOT)), BANNED_IN_CODE)
    ]
    assert found == []


def test_banned_words_are_found_and_literals_and_quoted_ones_are_not() -> None:
    code = 'begun = 1  # as it stood\nkind = "begun"\nknown_untold_things = 0'
    assert len(list(uses(without_literals(code), "", BANNED_IN_CODE))) == 3
    assert [use.instead for use in uses("The drive tells nothing", "")] == ["report, return, show"]
    assert list(uses("The option `tell` is not prose", "")) == []
    for text in ("go on", "owes", "has it that", "speaks", "nobody", "at_begin"):  # Each pattern requires a stem.
        assert list(uses(text, "")) or list(uses(text, "", BANNED_IN_CODE)), text
