"""docs/warnings.md and the code know the same verdicts, warnings and numbers."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from iosonde.verdict.evidence import Evidence
from iosonde.verdict.verdict import KINDS, MEANING
from iosonde.verdict.warning_kinds import WARNINGS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/warnings.md").read_text()


def rows_under(head: str) -> list[list[str]]:
    table = re.search(rf"^\| {re.escape(head)} \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table, f"no table `{head}`"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_the_page_lists_exactly_the_warnings_with_rule_and_hint() -> None:
    documented = rows_under("warning | points to | given when | what to do")
    points = {"note": "-"}
    assert documented == [
        [f"`{kind.code}`", points.get(kind.points_to, kind.points_to), kind.when, kind.hint]
        for kind in WARNINGS.values()
    ]


def test_the_warnings_that_only_slow_are_listed_where_they_matter() -> None:
    text = (ROOT / "docs/requirements.md").read_text().partition("decided the verdict is one of")[2].partition(". ")[0]
    assert re.findall(r"`(\w+)`", text) == [kind.code for kind in WARNINGS.values() if kind.only_slows]


def test_every_verdict_is_explained() -> None:
    assert rows_under("verdict | meaning") == [[f"`{kind}`", MEANING[kind]] for kind in KINDS]


def test_every_number_is_explained() -> None:
    numbers = [name for name, value in vars(Evidence).items() if isinstance(value, cached_property) and name[0] != "_"]
    assert [row[0] for row in rows_under("number | meaning")] == [f"`{name}`" for name in numbers]


def test_a_code_that_is_given_has_a_rule_and_every_rule_is_tested_by_provoking_it() -> None:
    source = (ROOT / "python/iosonde/verdict/verdict.py").read_text()
    given = set(re.findall(r'_warning\(\s*"(\w+)"', source))
    assert given == set(WARNINGS)
    tests = "".join(path.read_text() for path in (ROOT / "tests/verdict").glob("test_*.py"))
    untested = [code for code in WARNINGS if f'"{code}"' not in tests]
    assert not untested
