"""Key-value studies as a user carries them out: what is recorded, which errors are reported, and that nothing is left.

Stores, files and control groups are real. What needs root, loop devices or RocksDB is skipped without them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import control_groups
import polars as pl
import pytest
from command_line import Iosonde
from leftovers import killed_once
from mounted import LoopFileSystem
from plans import a_record, without_places

from iosonde.cli.reference import EXIT_OK, EXIT_RUNS_FAILED
from iosonde.errors import StudyError, TargetError
from iosonde.execution.session import execute
from iosonde.features.key_value_stores.facts import COLUMNS, STALLS
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.report.content import collect
from iosonde.report.provenance import headline
from iosonde.results import ResultSet
from iosonde.results.run_facts import values
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target
from iosonde.storage.control_groups import hierarchy
from iosonde.storage.safety.journal import CONTROL_GROUP, TEMPORARY_FILES, entries

Mounts = Callable[..., LoopFileSystem]

STUDY = """
name = "stores"
title = "Stores"
question = "?"
workload = "kv"
repeats = 1
shuffle = false
[measurement]
interval = "100ms"
{measurement}
{parts}
[profiles.standard]
"""

LOAD_AND_READ = """
[[parts]]
name = "load"
measurement = { phase = "load" }
[parts.factors]
store = ["lmdb", "rocksdb"]
[[parts]]
name = "both"
measurement = { phase = "readwhilewriting", limit_operations = 2000, jobs = 2 }
[parts.factors]
store = ["lmdb", "rocksdb"]
[[views]]
kind = "accounts"
title = "Loads"
part = "load"
metrics = ["wall_seconds", "cpu_percent"]
"""

LARGE_MAP = "lmdb = { mapsize = 4294967296 }\n"
"""Where the CPUs are busy, a reader may hold old pages for long while the writer adds new ones."""

ONE = """
[[parts]]
measurement = { phase = "%s" }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def study(parts: str, measurement: str = "") -> str:
    records = "" if "records = " in measurement else "records = 5000\n"
    return STUDY.format(measurement=records + measurement, parts=parts)


def plan(place: Path | str, parts: str, measurement: str = "", *, repeats: int = 1) -> Plan:
    measurement, settings = without_places(measurement)
    return expand(parse(study(parts, measurement)), open_target(str(place)), repeats=repeats, settings=settings)


def the_record(done: ResultSet) -> Record:
    [record] = done.records()
    return record


def titles_of(done: ResultSet) -> list[str]:
    [chapter] = collect([done]).chapters
    return [finding.sentence for finding in chapter.findings[0][1]]


@pytest.mark.needs("rocksdb")
def test_two_stores_are_loaded_read_and_accounted_for_and_nothing_is_left(place: Path, tmp_path: Path) -> None:
    done = execute(plan(place, LOAD_AND_READ, LARGE_MAP), tmp_path / "results")
    assert [record.failure for record in done.records()] == [None] * 4
    assert list(place.iterdir()) == []
    runs = done.runs.filter(pl.col("part") == "both")
    assert runs["database_kept"].all(), "what was loaded first is read then"
    assert runs["values_checked"].min() >= 2000  # type: ignore[operator]
    assert runs["values_corrupted"].sum() == runs["values_missing"].sum() == 0
    metrics = run_metrics(done)
    apart = metrics.filter(pl.col("metric") == "ops_per_sec", pl.col("part") == "both")
    assert {("readers", "read"), ("writer", "write")} <= set(apart.select("stream", "operation").unique().iter_rows())
    assert "iops" not in set(metrics["metric"])
    loads = metrics.filter(pl.col("part") == "load").pivot(
        on="metric", index="run_id", values="value", aggregate_function="max"
    )
    assert (loads["wall_seconds"] > 0).all()
    assert (loads["space_amplification"] > 1).all()
    assert loads["operations"].to_list() == [5000] * 2
    found = done.sql("SELECT run_id, count(DISTINCT statistic) AS n FROM store_statistics GROUP BY ALL")
    assert len(found) == 4 and found["n"].min() > 3  # type: ignore[operator]
    [chapter] = collect([done]).chapters
    titles = titles_of(done)
    assert any(title.startswith("LMDB loads ") for title in titles)
    assert any(title.startswith("All ") and title.endswith(" values read are correct") for title in titles)
    accounts = next(table for table in chapter.tables if table.title == "Loads")
    assert [row[0].text for row in accounts.rows] == ["LMDB", "RocksDB"]
    assert any(table.title.startswith("Statistics of LMDB 0.9") for table in chapter.tables)


def test_a_refused_option_is_reported_once_with_its_hint_and_without_advice_to_retry(
    place: Path, tmp_path: Path, iosonde: Iosonde
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(study(ONE % "load", 'lmdb = { mapsize = "large" }'))
    result = iosonde("run", file, "--target", place, "-o", tmp_path / "r", "--repeats", "3")
    text = result.stdout + result.stderr
    assert result.returncode == EXIT_RUNS_FAILED
    assert text.count("  hint: ") == 1 and "`mapsize`" in text
    assert "3 runs refused because of a setting of the study. Correct it and run again" in text
    assert "retry-failed" not in text


def test_a_database_that_has_no_room_is_refused_in_words_of_records(
    loop_file_system: Mounts,
) -> None:
    place = loop_file_system(size="32M").directory
    with pytest.raises(TargetError) as caught:
        plan(place, ONE % "load", "records = 20000\nvalue_size = 4000")
    assert "`records` and `value_size`" in str(caught.value) and "--set records=" in str(caught.value)


@pytest.mark.system
@pytest.mark.needs("rocksdb", "loop devices")
def test_an_unsupported_combination_is_a_row_with_its_reason_and_no_failure_to_retry(
    place: Path, tmp_path: Path, iosonde: Iosonde
) -> None:
    view = '[[views]]\nkind = "accounts"\ntitle = "Loads"\nmetrics = ["wall_seconds"]\n'
    parts = '[[parts]]\nmeasurement = { phase = "load" }\n[parts.factors]\nstore = ["lmdb", "rocksdb"]\n' + view
    file = tmp_path / "raw.toml"
    file.write_text(study(parts, 'file_system = "none"\nsetup_size = "300MiB"'))
    results = tmp_path / "results"
    result = iosonde("run", file, "--target", place, "-o", results)
    assert result.returncode == EXIT_OK, result.stderr
    assert "1 unsupported combination skipped (see report)" in result.stdout + result.stderr
    assert "retry-failed" not in result.stdout + result.stderr
    done = ResultSet.open(results)
    assert [(record.outcome, record.is_unsupported) for record in done.records()] == [
        ("complete", False),
        ("failed", True),
    ]
    [chapter] = collect([done]).chapters
    table = next(table for table in chapter.tables if table.title == "Loads")
    assert table.heads[-1] == "No result because"
    assert "RocksDB stores a database in files" in table.rows[1][-1].text
    assert list(place.iterdir()) == []


@pytest.mark.system
class TestMemoryLimit:
    @pytest.mark.needs("root", "memory limits")
    def test_a_run_has_the_proof_that_it_read_from_the_device_or_is_out_of_memory(
        self, place: Path, tmp_path: Path
    ) -> None:
        measurement = (
            'records = 30000\nvalue_size = 4000\nmemory_limit = "64MiB"\nlimit_operations = 500\n'
            "lmdb = { MDB_NORDAHEAD = true }"
        )
        done = execute(plan(place, ONE % "readrandom", measurement), tmp_path / "results")
        memory = the_record(done).memory
        assert memory
        assert memory["limit_bytes"] == 64 << 20 and memory["oom_kills"] == 0
        assert 0 < memory["peak_bytes"] <= 64 << 20
        assert memory["statistics"]
        [run] = done.runs.to_dicts()
        assert run["database_bytes"] > 100 << 20
        assert run["memory_limit_bytes"] == 64 << 20
        assert any(title.startswith("The median database was 1.") for title in titles_of(done))
        too_small = plan(place, ONE % "readrandom", 'memory_limit = "1MiB"')
        failure = the_record(execute(too_small, tmp_path / "too-small")).failure
        assert failure and failure.code == "out_of_memory"
        assert "at its memory limit of 1 MiB" in failure.message and "memory_limit" in failure.hint
        assert list(place.iterdir()) == []
        assert_memory_groups_are_removed()

    @pytest.mark.needs("root", "memory limits")
    def test_a_kill_in_the_middle_of_a_load_leaves_nothing_after_cleanup(self, place: Path, tmp_path: Path) -> None:
        large = plan(place, ONE % "load", 'records = "20M"\nvalue_size = 16\nmemory_limit = "256MiB"')
        result_set = ResultSet.create(tmp_path / "results", large)
        killed_once(result_set.directory, lambda: bool(list(place.glob("iosonde-*/lmdb-*/database/data.mdb"))))
        # One control group limits memory; another counts the engine's own I/O where the system has that controller.
        recorded = [(entry.what, Path(entry.path)) for entry in entries()]
        assert {what for what, _ in recorded} == {"directory", CONTROL_GROUP, TEMPORARY_FILES}
        [limiting] = [path for _, path in recorded if path.parent == hierarchy().directory]
        # The engine ends with its standard input.
        while (limiting / "cgroup.procs").read_text().split():
            time.sleep(0.05)
        assert {cleaned.reason for cleaned in cleanup()} == {"removed", "the temporary file was removed"}
        assert entries() == []
        assert not any(path.exists() for _, path in recorded)
        assert list(place.iterdir()) == []


def assert_memory_groups_are_removed() -> None:
    directory = hierarchy().directory
    assert control_groups.created(directory)
    assert control_groups.remaining(directory) == []


@pytest.mark.needs("rocksdb")
def test_what_a_log_wrote_to_its_own_device_is_counted_with_the_data(loop_file_system: Mounts, tmp_path: Path) -> None:
    """The log takes every record once more, and its device is another: the busiest alone would be half the truth."""
    place, second = (loop_file_system(size="400M").directory for _ in range(2))
    with pytest.raises(StudyError, match="second target"):
        plan(place, ONE % "overwrite", 'store = "rocksdb"\nlog = "apart"')
    measurement = (
        'records = 20000\nvalue_size = 4000\nstore = "rocksdb"\nlog = "apart"\n'
        f'log_target = "{second}"\nload_sync = true\nload_batch = 100\nrocksdb = {{ compression = "kNoCompression" }}'
    )
    done = execute(plan(place, ONE % "load", measurement), tmp_path / "results")
    record = the_record(done)
    assert record.target["log"]["name"] == str(second)
    assert {path.name for each in (place, second) for path in each.iterdir()} == {"lost+found"}
    material = collect([done]).chapters[0].material
    assert dict(headline(material.sources[0], material, []))["Log device"].startswith(f"{second}, on ")
    numbers = [f"{os.major(each.stat().st_dev)}:{os.minor(each.stat().st_dev)}" for each in (place, second)]
    written = {each["device"]: each["write_bytes"] for each in record.device_totals if each["outermost"]}
    assert written.keys() == set(numbers)
    assert written[numbers[1]] > 20000 * 4016 * 0.9
    assert written[numbers[0]] > 20000 * 4016 * 0.1, "all but the last write buffers, which only the log holds"
    [run] = done.runs.to_dicts()
    assert run["run_device_write_bytes"] == sum(written.values())


def test_what_reaches_the_device_after_the_measurement_is_counted_where_it_is_the_run_s_own(
    loop_file_system: Mounts, tmp_path: Path
) -> None:
    """Two seconds of writes stay in memory: counted until the end of the measurement, the device took nothing."""
    place = loop_file_system(size="400M").directory
    parts = ONE % "overwrite"
    done = execute(plan(place, parts, "value_size = 4000\nlimit_operations = 3000", repeats=2), tmp_path / "results")
    assert done.runs.sort("repeat")["database_kept"].to_list() == [False, True]
    metrics = run_metrics(done).filter(pl.col("operation") == "all", pl.col("repeat") == 2)
    first = run_metrics(done).filter(pl.col("repeat") == 1, pl.col("metric") == "file_system_write_amplification")
    assert first.is_empty(), "the writes of a run that loaded first cannot be attributed"
    found = dict(metrics.select("metric", "value").iter_rows())
    assert found["file_system_write_amplification"] > 0.5
    together = found["store_write_amplification"] * found["file_system_write_amplification"]
    assert found["device_write_amplification"] == pytest.approx(together)


def test_a_write_held_back_beyond_the_end_counts_until_the_end_and_wrong_values_are_added_up(tmp_path: Path) -> None:
    """RocksDB counts a stall when it lets the write go, which was seen to be four seconds after two measured ones."""
    planned = plan("null:", ONE % "overwrite", "limit_operations = 10")
    [run] = planned.runs
    made = a_record(planned, run)
    held = {"statistics_at_start": {STALLS: 100}, "statistics_at_end": {STALLS: 5_592_081}}
    checks = [{"operation": "read", "values": 9, "missing": 2, "corrupted": 1}] * 2
    result = {**(made.result or {}), "begin_ns": 0, "end_ns": 2_000_000_000, "store": {**held, "checks": checks}}
    facts = values(made.model_copy(update={"result": result}), COLUMNS)
    assert (facts["writing_jobs"], facts["stalled_ns"]) == (1, 2_000_000_000)
    assert [facts[f"values_{name}"] for name in ("checked", "missing", "corrupted")] == [18, 4, 2]
