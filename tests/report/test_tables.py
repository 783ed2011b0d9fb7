"""Tables: published values beside measured ones, statistics of stores, and names and units of values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from recordings import recorded

from iosonde.execution.session import execute
from iosonde.planning import expand, load
from iosonde.report.content import Chapter, collect
from iosonde.report.details import statistics_tables
from iosonde.report.quantities import metric_scale, metric_text
from iosonde.report.table import Table
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def table_of(chapter: Chapter, title: str) -> Table:
    return next(table for table in chapter.tables if table.title.startswith(title))


# Published values.


@pytest.mark.engine
def test_the_last_level_of_a_factor_over_each_other_is_listed_above_published_improvements(tmp_path: Path) -> None:
    published = {
        **{"name": "published", "csv": "jo2024_driver.csv", "source": "Jo 2024, Figure 3", "label": "device"},
        **{"value": "improvement_low", "value_high": "improvement_high", "against": "against"},
    }
    view = {
        **{"kind": "improvements", "title": "Gain", "x": "queue_depth", "y": "iops", "reference": "published"},
        "where": {"read_fraction": 1.0},
    }
    results = recorded("seeded", tmp_path / "set", references=[published], views=[view])
    own, *cited = texts(table_of(collect([results]).chapters[0], "Gain"))
    assert own[:3] == ["16", "1", "read fraction 1"]
    rate = dict(results.sql("SELECT queue_depth, median(value) FROM metrics JOIN cases USING (case_id)"
                            " WHERE metric = 'iops' AND operation = 'all' AND read_fraction = 1 GROUP BY ALL").iter_rows())  # fmt: skip
    assert float(own[4].removesuffix("×")) == pytest.approx(rate[16] / rate[1], rel=0.02)
    assert [(row[0], row[4]) for row in cited] == [
        ("Optane SSD (P4800X)", "1 to 3.1×"),
        ("Z-SSD (SZ985)", "1 to 1.16×"),
    ]


@pytest.mark.engine
def test_the_passing_load_is_listed_between_published_ones_and_its_improvement_above_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))

    def measured(name: str, service: str) -> ResultSet:
        target, short = open_target(f"simulated:{service},size=1TiB"), {"duration": "500ms", "ramp": "0s"}
        return execute(expand(load("act"), target, profile="quick", repeats=1, settings=short), tmp_path / name)

    slow = measured("slow", "servers=4,read=100us,write=200us")
    fast = measured("fast", "servers=16,read=50us,write=50us")
    one = texts(table_of(collect([slow]).chapters[0], "Highest passing load"))
    assert one[0] == ["SmartIOPS DataEngine 6.4 TB", "275", "published"]
    place = one.index(["measured", "16", "measured"])
    assert [row[1] for row in one[place - 1 : place + 2]] == ["24", "16", "11"]
    assert len(one) == 29
    first, second, cited = texts(table_of(collect([slow, fast]).chapters[0], "Improvement of the highest"))
    assert first[1:] == ["-", "", "16", "-"]
    assert second[1] == first[0]
    assert second[4] == f"{float(second[3]) / 16:.3g}×" and float(second[3]) > 16
    assert cited == ["ultra-low-latency drives", "conventional drives", "-", "-", "7.2 to 26×"]


# Statistics of a store or server.

STATISTICS = {"statistics_at_start": {"commits": 7, "deadlocks": 0}, "statistics_at_end": {"commits": 30}}
STORE: dict[str, Any] = {"kind": "rocksdb", "version": "3", **STATISTICS}
SERVER: dict[str, Any] = {"kind": "postgresql", "version": "16.1", **STATISTICS}


def record(kind: str, workload: dict[str, Any], **accounts: Any) -> Record:
    spec = {"workload": {"kind": kind, "measurement": {"terminals": 2}, "streams": [{"jobs": 1}], **workload}}
    result = {"begin_ns": 0, **accounts.pop("result", {})}
    ended = {"outcome": "complete", "control": False}
    return Record.model_construct(
        run_id="r1", case_id="main", part="main", spec=spec, result=result, **ended, **accounts
    )


@pytest.mark.parametrize(
    "of_kind",
    [
        record("kv", {"store": {"kind": "rocksdb"}}, result={"store": STORE}),
        record("commit", {"server": {"kind": "postgresql"}}, server=SERVER),
    ],
)
def test_statistics_start_with_the_values_at_the_start_of_the_measurement(of_kind: Record) -> None:
    frame = pl.DataFrame(
        [
            {"interval": number, "end_ns": (number + 1) * 10**9, "statistic": name, "value": value}
            for number, value in enumerate((10, 30))
            for name, value in (("commits", value), ("deadlocks", 0))
        ]
    )
    source = SimpleNamespace(label="a", results=SimpleNamespace(sql=lambda _: frame), records=[of_kind])
    [table] = statistics_tables(SimpleNamespace(sources=[source]))  # type: ignore[arg-type]
    assert table.heads == ["Statistic", "start", "1 s", "2 s"]
    assert texts(table) == [["commits", "7", "10", "30"]]


# Names and units.


@pytest.mark.engine
def test_the_answer_on_writes_with_flushes_states_the_time_per_durable_write(tmp_path: Path) -> None:
    """With one I/O in flight it is the inverse of the rate, and the flush is the larger part of it."""
    results = recorded("flushes", tmp_path / "set")
    [chapter] = collect([results.only([each.run_id for each in results.records() if each.part == "wal"])]).chapters
    [(_, answer)] = chapter.answers
    found = {finding.kind: finding for finding in answer.summary}
    assert "unloaded latency" not in found
    durable, rate = found["durable writes"], found["throughput"]
    assert durable.time.value * rate.value.value == pytest.approx(1e9, rel=0.02)  # type: ignore[attr-defined]
    assert durable.sentence.startswith("4 KiB sequential writes with a flush after each write, 1 I/O in flight: ")
    assert " per durable write; median flush latency " in durable.sentence


def test_bytes_have_the_largest_binary_unit_that_their_maximum_reaches() -> None:
    """Ticks are round numbers of the unit: 2, 4, 6 MiB, and not 1.907, 3.815, 5.722 MiB."""
    for maximum, unit, divisor in ((1000, "B", 1), (8_000_000, "MiB", 1 << 20), (1 << 30, "GiB", 1 << 30)):
        scale = metric_scale("cache_dirty_bytes_mean", maximum)
        assert scale.title.endswith(f"({unit})") and scale.label is None
        assert (scale.divisor, scale.column) == (
            divisor,
            f"cache_dirty_bytes_mean_{'bytes' if unit == 'B' else unit.lower()}",
        )


def test_tiny_shares_have_no_exponent() -> None:
    for value, text in ((0.0, "0"), (4.82e-6, "<0.0001"), (0.000393, "0.000393"), (0.509, "0.509"), (None, "-")):
        assert metric_text("minor_fault_fraction", value) == text


def test_an_account_of_a_case_without_a_factor_of_others_has_an_empty_cell(tmp_path: Path) -> None:
    view = {"kind": "accounts", "title": "Account", "part": "main", "metrics": ["iops"]}
    [chapter] = collect([recorded("seeded", tmp_path / "set", views=[view])]).chapters
    [source] = chapter.sources
    first, *others = (case for case in source.cases if not case.control)
    source.__dict__["cases"] = [first.model_copy(update={"levels": {}, "parameters": {}}), *others]
    table = next(each for each in chapter.tables if each.title == "Account")
    assert [cell.text for cell in table.rows[0][: table.labels]] == ["", "", "unknown"]
