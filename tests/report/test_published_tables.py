"""Published limits and improvements are listed with measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.errors import StudyError
from iosonde.execution import execute
from iosonde.planning import expand, load, parse
from iosonde.report.content.report import Chapter, collect
from iosonde.report.content.table import Table
from iosonde.results import ResultSet
from iosonde.storage import open_target

SLOW = "simulated:servers=4,read=100us,write=200us,size=1TiB"
FAST = "simulated:servers=16,read=50us,write=50us,size=1TiB"
LIMITS = """
name = "limit"
title = "Limit"
question = "?"
[[parts]]
name = "main"
[profiles.standard]
[[references]]
name = "published"
csv = "{csv}"
source = "somebody"
value = "{value}"
label = "device"
[[views]]
kind = "{kind}"
title = "Published"
{reference}
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def measured(name: str, target: str, directory: Path) -> ResultSet:
    return execute(expand(load(name), open_target(target), profile="quick", repeats=1), directory)


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def table_of(chapter: Chapter, title: str) -> Table:
    return next(table for table in chapter.tables if table.title.startswith(title))


@pytest.mark.engine
def test_the_passing_load_is_listed_between_published_ones_and_its_improvement_above_them(tmp_path: Path) -> None:
    slow, fast = measured("act", SLOW, tmp_path / "slow"), measured("act", FAST, tmp_path / "fast")
    one = texts(table_of(collect([slow]).chapters[0], "Highest passing load"))
    assert one[0] == ["SmartIOPS DataEngine 6.4 TB", "275", "published"]
    place = one.index(["measured", "16", "measured"])
    assert [row[1] for row in one[place - 1 : place + 2]] == ["24", "16", "11"]
    assert len(one) == 29
    chapter = collect([slow, fast]).chapters[0]
    first, second, cited = texts(table_of(chapter, "Improvement of the highest"))
    assert first[1:] == ["-", "", "16", "-"]
    assert second[1] == first[0]
    assert second[4] == f"{float(second[3]) / 16:.3g}×" and float(second[3]) > 16
    assert cited == ["ultra-low-latency drives", "conventional drives", "-", "-", "7.2 to 26×"]


@pytest.mark.engine
def test_read_latency_under_writes_is_listed_above_published_improvements(tmp_path: Path) -> None:
    slow, fast = measured("write-stress", SLOW, tmp_path / "a"), measured("write-stress", FAST, tmp_path / "b")
    rows = texts(table_of(collect([slow, fast]).chapters[0], "Read latency and the"))
    own, cited = rows[:4], rows[4:]
    assert [row[2] for row in own] == ["128 KiB sequential", "4 KiB random"] * 2
    assert [row[4] for row in own[:2]] == ["-", "-"]
    assert all(float(row[4].removesuffix("×")) > 1 for row in own[2:]), "the second device answers sooner"
    assert [(row[0], row[4]) for row in cited] == [("Optane SSD (P4800X)", "95×"), ("Z-SSD (SZ985)", "31×")]


LEVELS = """
name = "levels"
title = "Levels"
question = "?"
repeats = 1
[measurement]
duration = "200ms"
interval = "100ms"
ramp = 0
[[parts]]
[parts.factors]
read_fraction = [1.0, 0.0]
queue_depth = [1, 2, 4]
[profiles.standard]
[[references]]
name = "published"
csv = "jo2024_driver.csv"
source = "Jo 2024, Figure 3"
value = "improvement_low"
value_high = "improvement_high"
label = "device"
against = "against"
[[views]]
kind = "improvements"
title = "Gain"
x = "queue_depth"
y = "iops"
where = { read_fraction = 1.0 }
reference = "published"
"""


@pytest.mark.engine
def test_the_last_level_of_a_factor_over_each_other_is_listed_above_published_improvements(tmp_path: Path) -> None:
    results = execute(expand(parse(LEVELS), open_target(SLOW)), tmp_path / "set")
    rows = texts(table_of(collect([results]).chapters[0], "Gain"))
    own, cited = rows[:2], rows[2:]
    assert [(row[0], row[1], row[2]) for row in own] == [("4", "1", "read fraction 1"), ("4", "2", "read fraction 1")]
    assert [row[4] for row in own] == ["4×", "2×"]
    assert [(row[0], row[4]) for row in cited] == [
        ("Optane SSD (P4800X)", "1 to 3.1×"),
        ("Z-SSD (SZ985)", "1 to 1.16×"),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "reference", "reason"),
    [
        ("limits", "load", "", "requires published values, but names none"),
        ("limits", "load", 'reference = "published"', "part `main` has none"),
        ("improvements", "gain", 'reference = "published"', "no column `gain`"),
    ],
)
def test_views_of_published_values_without_them_are_errors_of_the_study(
    kind: str, value: str, reference: str, reason: str
) -> None:
    text = LIMITS.format(csv="aerospike_act.csv", value=value, kind=kind, reference=reference)
    with pytest.raises(StudyError, match=reason):
        parse(text)
