"""Pages open with a command and its output, link each other by title, and are listed in the index.

The site builds from them, and the page of the command line is up to date.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from typer.testing import CliRunner
from vocabulary import ROOT, pages

from iosonde.cli import app
from iosonde.cli.commands import man


def test_the_index_and_the_navigation_list_every_page_and_no_other() -> None:
    names = {path.name for path in (ROOT / "docs").glob("*.md")}
    index = (ROOT / "docs/README.md").read_text()
    listed = dict(re.findall(r"^\| \[([^\]]+)\]\(([\w-]+\.md)\) \|", index, re.MULTILINE))
    titles = {(ROOT / "docs" / name).read_text().partition("\n")[0].removeprefix("# "): name for name in names}
    assert listed == {title: name for title, name in titles.items() if name != "README.md"}
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


OPENING_LINES = 4


def opening(text: str) -> list[str]:
    """Lines of the first block of a page: a session that follows the title and at most one paragraph."""
    before, fence, after = text.partition("\n```")
    language, *lines = after.partition("\n```")[0].split("\n")
    assert fence and language in ("console", "pycon"), f"the first block is `{language}`, not `console`"
    title, _, rest = before.partition("\n")
    paragraph = rest.strip()
    assert title.startswith("# ") and not paragraph.startswith(("#", "|", ">")), "a page starts with title and text"
    assert "\n\n" not in paragraph and len(paragraph.split("\n")) <= OPENING_LINES, "one short paragraph is enough"
    prompt = {"console": r"\$ (?:sudo )?(?:iosonde|iosonde-engine|python|make|podman) ", "pycon": ">>> "}[language]
    assert re.match(prompt, lines[0]), f"`{lines[0]}` is not a command"
    output = [
        line for line in lines if line.strip() not in ("", "...") and not re.match(r"\$ |>>> |\.\.\. | +--", line)
    ]
    assert output, "a command without its output"
    return lines


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_a_command_and_its_output(page: Path) -> None:
    assert len(opening(page.read_text())) <= 24


def test_an_opening_without_output_and_one_after_an_essay_are_refused() -> None:
    assert opening("# A\n\nOne.\nTwo.\n\n```console\n$ iosonde list\nquick\n...\n```\n") == [
        "$ iosonde list",
        "quick",
        "...",
    ]
    for wrong in (
        "# A\n\n```console\n$ iosonde list\n...\n```\n",
        "# A\n\n```sh\niosonde list\nquick\n```\n",
        "# A\n\n```console\niosonde list\nquick\n```\n",
        "# A\n\nOne.\n\nTwo.\n\n```console\n$ iosonde list\nquick\n```\n",
        "# A\n\n## B\n\n```console\n$ iosonde list\nquick\n```\n",
        "# A\n\nNo block.\n",
    ):
        with pytest.raises(AssertionError):
            opening(wrong)


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_are_titles_or_phrases_and_never_names_of_files(page: Path) -> None:
    assert re.findall(r"\[[^\]]*\w\.(?:md|txt)[^\]]*\]\([^)\s]+\)", page.read_text()) == []


def test_the_page_of_the_command_line_opens_with_the_help_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(app, ["--help"], prog_name="iosonde").output.splitlines()
    shown = opening((ROOT / "docs/cli.md").read_text())
    assert shown[0] == "$ iosonde --help"
    assert {line for line in shown[1:] if line not in ("", "...")} <= {line.rstrip() for line in printed}
    assert "\n".join(shown) in man.markdown()


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
