"""docs/cli.md has every subcommand with its options, as `make docs` generates it."""

from __future__ import annotations

import re

import pytest
from vocabulary import ROOT

from iosonde.cli import manual

PAGE = (ROOT / "docs/cli.md").read_text()


@pytest.mark.parametrize("entry", list(manual.entries()), ids=lambda entry: entry.name)
def test_the_page_of_the_command_line_is_up_to_date(entry: manual.Entry) -> None:
    """Defaults in brackets depend on the version of typer."""
    section = PAGE.partition(f"\n## iosonde {entry.name}\n")[2].partition("\n## ")[0]
    assert " ".join(entry.text.split()) in " ".join(section.split())
    rows = dict(re.findall(r"^\| `(.*?)` \| (.*?)(?: \[[^]]*\])? \|$", section, re.MULTILINE))
    assert {name.replace("\\|", "|"): text for name, text in rows.items()} == {
        name: " ".join(re.sub(r"\s*\[[^]]*\]$", "", text).split()) for name, text in entry.parameters
    }
