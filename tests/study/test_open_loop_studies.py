"""The studies of open loop from end to end, on a simulated device whose limits are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engines import real_engine
from mounted import LoopFileSystem

from iosonde.execution.session import execute
from iosonde.findings.questions.scaling import TailGrowth
from iosonde.findings.throughput import OfferedRates
from iosonde.planning import expand, load
from iosonde.planning.procedure import conclusions
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.report.content import Chapter, collect
from iosonde.results import ResultSet
from iosonde.storage import open_target

TARGET = "simulated:servers=4,read=100us,write=200us,size=1TiB"


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def carried_out(name: str, directory: Path, **changes: int) -> tuple[ResultSet, Chapter]:
    plan = expand(load(name), open_target(TARGET), profile="quick", **changes)  # type: ignore[arg-type]
    results = execute(plan, directory / "set")
    assert {record.outcome for record in results.records()} == {"complete"}
    assert results.problems == []
    return results, collect([results]).chapters[0]


def titles(chapter: Chapter, kind: str) -> list[str]:
    return [finding.sentence for _, found in chapter.findings for finding in found if finding.kind == kind]


@pytest.mark.engine
def test_act_finds_the_load_that_a_device_of_known_speed_passes(tmp_path: Path) -> None:
    results, chapter = carried_out("act", tmp_path)
    [(_, found)] = conclusions(results)
    assert isinstance(found, SearchConclusion) and found.value is not None and found.fails_at is not None
    # Four servers do 40,000 reads of 100 us a second, and 1x is 2,000 and a little.
    assert found.value <= 19.6 < found.fails_at <= 1.5 * found.value
    assert titles(chapter, "boundary") == ["ACT's pass rule is met up to load 16, not at 22.63, in runs of 6 s"]
    assert titles(chapter, "also met") == [
        "The same rule on response latency (informative) met at 5 of 7 probes, the highest at load 16"
    ]
    table = next(table for table in chapter.tables if table.title == "Search of the highest load: certify")
    assert [row[0].text for row in table.rows] == ["1", "2", "4", "8", "16", "22.6274", "32"]
    assert [row[1].text for row in table.rows] == ["holds"] * 5 + ["fails"] * 2
    assert table.rows[0][2].text == "✓ 0 % over 1 ms"


def test_act_rounds_records_up_to_what_direct_io_can_do(loop_file_system: Callable[..., LoopFileSystem]) -> None:
    directory = loop_file_system(sector_bytes=4096).directory
    plan = expand(load("act"), open_target(str(directory)), profile="quick", settings={"span": "4MiB"})
    assert plan.cases[0].parameters["records.block_size"] == 4096
    assert plan.cost.write_bytes and plan.cost.write_bytes > 0, "an open loop bounds what is written"


@pytest.mark.engine
def test_the_latency_curve_is_relative_to_the_maximum_and_shows_the_overload(tmp_path: Path) -> None:
    results, chapter = carried_out("latency-curve", tmp_path, repeats=1)
    rates = results.sql("SELECT DISTINCT mix, rate FROM cases WHERE part = 'curve'")
    found = dict(rates.rows())
    assert found["reads"] == pytest.approx(40_000, rel=0.01)
    assert found["70/30"] == pytest.approx(4 / 130e-6, rel=0.02)
    waits = results.sql("SELECT load, achieved FROM (SELECT c.load, max(j.started / j.due) AS achieved FROM cases c"
                        " JOIN runs r USING (case_id) JOIN jobs j USING (run_id) WHERE c.part = 'curve'"
                        " AND c.mix = 'reads' GROUP BY c.load) ORDER BY load")  # fmt: skip
    shares = dict(waits.rows())
    assert shares[1.1] < 0.99 < shares[0.9]
    [offered] = [each for _, found in chapter.findings for each in found if isinstance(each, OfferedRates)]
    assert (sum(not each.kept for each in offered.rates), len(offered.rates)) == (2, 10)
    growths = [each for _, found in chapter.findings for each in found if isinstance(each, TailGrowth)]
    assert {(each.first_level, each.last_level) for each in growths} == {(0.1, 0.9)}


@pytest.mark.engine
def test_write_stress_shows_what_writes_do_to_reads_and_that_they_recover(tmp_path: Path) -> None:
    _, chapter = carried_out("write-stress", tmp_path, repeats=1)
    sequential, random = titles(chapter, "interference")
    # A read waits for the 32 writes that are in flight, four at a time and 200 us each, and takes 100 us itself.
    assert sequential == (
        "p99 response latency of `reads` rises from 100 µs to 1.6 ms (16 times) under load from `writes` "
        "(128 KiB sequential); recovered within 100 ms afterwards"
    )
    assert "(4 KiB random)" in random
