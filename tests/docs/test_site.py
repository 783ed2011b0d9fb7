"""The documentation site builds without warnings, and pages load nothing from the network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory), strict=True))
    return directory


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"([\w-]+\.md)$", text, re.MULTILINE))
    assert listed == {path.name for path in ROOT.glob("docs/*.md")} | {
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    }
    assert yaml.safe_load(text.partition("nav:")[2]) is not None


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=\"?(https?:[^\" >]+)", page.read_text())
        loaded += re.findall(
            r"<link[^>]*rel=\"?(?:stylesheet|preload|icon)[^>]*href=\"?(https?:[^\" >]+)", page.read_text()
        )
        assert loaded == [], page.name


def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "search/search_index.json").read_text()
    assert "preconditioning" in index
    assert "--destroy" in index
