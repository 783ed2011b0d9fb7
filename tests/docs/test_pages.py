"""The pages find each other, the site builds from them, and the page of the command line is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from vocabulary import ROOT, pages

from iosonde.cli.commands import man


def test_the_index_and_the_navigation_list_every_page_and_no_other() -> None:
    names = {path.name for path in (ROOT / "docs").glob("*.md")}
    listed = set(re.findall(r"^\| \[([\w-]+\.md)\]\(\1\)", (ROOT / "docs/README.md").read_text(), re.MULTILINE))
    assert listed == names - {"README.md"}
    text = (ROOT / "mkdocs.yml").read_text()
    in_navigation = set(re.findall(r"([\w-]+\.md)$", text, re.MULTILINE))
    assert in_navigation == names | {"ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert yaml.safe_load(text.partition("nav:")[2]) is not None


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"`{target}` is not there"
        if anchor:
            assert anchor in anchors(linked), f"`{target}`: no such heading"


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("entry", list(man.entries()), ids=lambda entry: entry.name)
def test_the_page_of_the_command_line_is_up_to_date(entry: man.Entry) -> None:
    """Defaults in brackets depend on the version of typer."""
    page = (ROOT / "docs/cli.md").read_text()
    section = page.partition(f"\n## iosonde {entry.name}\n")[2].partition("\n## ")[0]
    assert " ".join(entry.text.split()) in " ".join(section.split())
    rows = dict(re.findall(r"^\| `(.*?)` \| (.*?)(?: \[[^]]*\])? \|$", section, re.MULTILINE))
    assert {name.replace("\\|", "|"): text for name, text in rows.items()} == {
        name: " ".join(re.sub(r"\s*\[[^]]*\]$", "", text).split()) for name, text in entry.parameters
    }


@pytest.mark.engine
@pytest.mark.extended
def test_the_site_builds_without_warnings_can_be_searched_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    for page in tmp_path.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=\"?(https?:[^\" >]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preload|icon)[^>]*href=\"?(https?:[^\" >]+)", text)
        assert loaded == [], page.name
    searched = (tmp_path / "search/search_index.json").read_text()
    assert "preconditioning" in searched and "--destroy" in searched
