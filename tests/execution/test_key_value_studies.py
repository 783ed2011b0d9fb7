"""Key-value studies as a user carries them out: what is recorded, which errors are reported, and that nothing is left.

Stores, files and control groups are real. What needs root, loop devices or RocksDB is skipped without them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import control_groups
import polars as pl
import pytest
from command_line import CHECKOUT, Iosonde
from engines import real_engine
from mounted import LoopFileSystem
from plans import a_record, without_places
from stores import command, loop_device

from iosonde.cli.reference import EXIT_OK, EXIT_RUNS_FAILED
from iosonde.errors import StudyError, TargetError
from iosonde.execution import execute
from iosonde.features.key_value_stores.facts import COLUMNS, STALLS
from iosonde.features.key_value_stores.observations import CancelledWrites
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import Case, Plan, Run
from iosonde.planning import Against, expand, parse
from iosonde.report.content import comparison
from iosonde.report.content.provenance import headline
from iosonde.report.content.report import collect
from iosonde.report.material.result_sets import gather
from iosonde.results import ResultSet
from iosonde.results.run_facts.run import values
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target
from iosonde.storage.control_groups import control_group
from iosonde.storage.safety.journal import CONTROL_GROUP, entries
from iosonde.storage.safety.journal_entry import TEMPORARY_FILES

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
store = ["lmdb", "rocksdb", "redb", "fjall"]

[[parts]]
name = "both"
measurement = { phase = "readwhilewriting", limit_operations = 2000, jobs = 2 }
[parts.factors]
store = ["lmdb", "rocksdb", "redb", "fjall"]
"""

LARGE_MAP = "lmdb = { mapsize = 4294967296 }\n"
"""Where the CPUs are busy, a reader may hold old pages for long while the writer adds new ones."""

ONE = """
[[parts]]
measurement = { phase = "%s" }
"""


@pytest.fixture(autouse=True)
def _real_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def study(parts: str, measurement: str = "") -> str:
    """The text of a study; of 5000 records by default."""
    records = "" if "records = " in measurement else "records = 5000\n"
    return STUDY.format(measurement=records + measurement, parts=parts)


def plan(place: Path | str, parts: str, measurement: str = "", *, repeats: int = 1) -> Plan:
    measurement, settings = without_places(measurement)
    return expand(parse(study(parts, measurement)), open_target(str(place)), repeats=repeats, settings=settings)


def the_record(done: ResultSet) -> Record:
    [record] = done.records()
    return record


def failure(place: Path, tmp_path: Path, parts: str, measurement: str = "") -> dict[str, str]:
    record = the_record(execute(plan(place, parts, measurement), tmp_path / "results"))
    assert record.outcome == "failed"
    assert record.failure
    assert list(place.iterdir()) == []
    return {"code": record.failure.code, "message": record.failure.message, "hint": record.failure.hint}


@pytest.mark.needs("rocksdb")
def test_four_stores_are_loaded_read_and_accounted_for_and_nothing_is_left(place: Path, tmp_path: Path) -> None:
    done = execute(plan(place, LOAD_AND_READ, LARGE_MAP), tmp_path / "results")
    assert [record.failure for record in done.records()] == [None] * 8
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
    assert loads["operations"].to_list() == [5000] * 4
    found = done.sql("SELECT run_id, count(DISTINCT statistic) AS n FROM store_statistics GROUP BY ALL")
    assert len(found) == 8 and found["n"].min() > 3  # type: ignore[operator]


def test_the_report_has_the_loaded_records_and_the_verification(place: Path, tmp_path: Path) -> None:
    parts = LOAD_AND_READ.replace('["lmdb", "rocksdb", "redb", "fjall"]', '["lmdb"]')
    view = '[[views]]\nkind = "accounts"\ntitle = "Loads"\npart = "load"\nmetrics = ["wall_seconds", "cpu_percent"]\n'
    done = execute(plan(place, parts + view), tmp_path / "results")
    [chapter] = collect([done]).chapters
    titles = [finding.sentence for finding in chapter.findings[0][1]]
    assert any(title.startswith("LMDB loads ") for title in titles)
    assert any(title.startswith("All ") and title.endswith(" values read are correct") for title in titles)
    accounts = next(table for table in chapter.tables if table.title == "Loads")
    assert accounts.rows[0][0].text == "LMDB"
    assert any(table.title.startswith("Statistics of LMDB 0.9") for table in chapter.tables)


def test_reads_of_a_cached_database_are_reported_as_cache_served(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    """The page cache is dropped first: the first read of each record is one of the device, which nothing else uses."""
    place = loop_file_system(size="256M").directory
    measurement = "value_size = 4000\nlmdb = { MDB_NORDAHEAD = true }\n"
    warned = {}
    for operations in (500, 5000, 50_000):
        done = execute(
            plan(place, ONE % "readrandom", f"{measurement}limit_operations = {operations}"),
            tmp_path / str(operations),
        )
        [chapter] = collect([done]).chapters
        titles = [finding.sentence for finding in chapter.findings[0][1]]
        warned[operations] = [title for title in titles if "measure memory more than the device" in title]
    assert (warned[500], warned[5000]) == ([], []), "half of the reads or more are of the device"
    [title] = warned[50_000]
    assert title.startswith("1 of 1 run with reads ")


def test_on_nothing_every_store_is_the_null_store(tmp_path: Path) -> None:
    done = execute(
        plan("null:", ONE % "readrandom", 'memory_limit = "1MiB"\nlimit_operations = 1000'), tmp_path / "results"
    )
    record = the_record(done)
    assert record.outcome == "complete" and record.memory is None
    assert (record.result or {})["store"]["kind"] == "null"


class Corruptor:
    """Flips a byte of one value as soon as the first run has ended."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._done = False

    def run_started(self, run: Run, case: Case) -> None: ...

    def event(self, run: Run, event: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...

    def run_ended(self, run: Run, record: Record) -> None:
        if self._done:
            return
        self._done = True
        [file] = self._place.glob("iosonde-*/lmdb-*/database/data.mdb")
        content = bytearray(file.read_bytes())
        keys = (number.to_bytes(8, "big") + b"0" * 8 for number in range(5000))
        key = next(key for key in keys if content.count(key) == 1)  # Pages keep stale copies of records that moved.
        content[content.find(key) + 16 + 50] ^= 1
        file.write_bytes(content)


def test_a_corrupted_value_is_counted_and_gives_a_warning_and_a_finding(place: Path, tmp_path: Path) -> None:
    both = plan(place, ONE % "readrandom", 'choice = "each_once"\nlimit_operations = 5000', repeats=2)
    done = execute(both, tmp_path / "results", observer=Corruptor(place))
    assert done.runs["values_corrupted"].to_list() == [0, 1]
    warned = ["corrupted_values" in {warning.code for warning in record.warnings} for record in done.records()]
    assert warned == [False, True]
    [chapter] = collect([done]).chapters
    assert "1 of 10,000 values read are corrupt" in [each.sentence for each in chapter.findings[0][1]]


def test_a_full_map_is_a_failed_record(place: Path, tmp_path: Path) -> None:
    found = failure(place, tmp_path, ONE % "load", 'lmdb = { mapsize = "1MiB" }\nvalue_size = 4000')
    assert found["code"] == "map_full" and "mapsize" in found["hint"]


def test_a_misspelt_option_fails_in_the_plan_with_the_nearest_name(place: Path) -> None:
    with pytest.raises(StudyError, match="`lmdb` has no option `map_size`; the nearest name is `mapsize`"):
        plan(place, ONE % "load", "lmdb = { map_size = 1 }")
    assert list(place.iterdir()) == []


def test_a_refused_option_is_reported_once_with_its_hint_and_without_advice_to_retry(
    place: Path, tmp_path: Path, iosonde: Iosonde
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(study(ONE % "load", 'lmdb = { mapsize = "large" }'))
    result = iosonde(
        "run", file, "--target", place, "-o", tmp_path / "r", "--repeats", "3", IOSONDE_ENGINE=str(real_engine())
    )
    text = result.stdout + result.stderr
    assert result.returncode == EXIT_RUNS_FAILED
    assert text.count("  hint: ") == 1 and "`mapsize`" in text
    assert "3 runs refused because of a setting of the study. Correct it and run again" in text
    assert "retry-failed" not in text


def test_a_library_of_another_kind_is_a_failed_record(place: Path, tmp_path: Path) -> None:
    found = failure(place, tmp_path, ONE % "load", 'store = "rocksdb"\nlibrary = "libc.so.6"')
    assert found["code"] == "library" and "is not RocksDB" in found["message"]


def test_a_library_that_lacks_a_function_is_a_failed_record(place: Path, tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text("void rocksdb_open(void) {}\nvoid rocksdb_close(void) {}\n")
    library = tmp_path / "librocksdb.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "old.c"], check=True)
    found = failure(place, tmp_path, ONE % "load", f'store = "rocksdb"\nlibrary = "{library}"')
    assert found["code"] == "library" and "lacks" in found["message"]


def test_a_disk_that_fills_up_is_a_failed_record(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    place = loop_file_system(size="400M").directory
    planned = plan(place, ONE % "load", "records = 20000\nvalue_size = 4000")
    ballast = place / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - (20 << 20))
    record = the_record(execute(planned, tmp_path / "results"))
    assert record.failure and record.failure.code == "no_space"
    assert {path.name for path in place.iterdir()} == {"ballast", "lost+found"}


def test_a_database_that_has_no_room_is_refused_in_words_of_records(
    loop_file_system: Callable[..., LoopFileSystem],
) -> None:
    place = loop_file_system(size="32M").directory
    with pytest.raises(TargetError) as caught:
        plan(place, ONE % "load", "records = 20000\nvalue_size = 4000")
    assert "`records` and `value_size`" in str(caught.value) and "--set records=" in str(caught.value)


def test_a_store_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="a store needs a directory"):
        plan(tmp_path / "file", ONE % "load")
    with pytest.raises(TargetError, match="a simulated device is neither"):
        plan("simulated:", ONE % "load")


@pytest.mark.needs("rocksdb")
def test_a_separate_log_is_on_the_second_target_and_is_removed(place: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="second target"):
        plan(place, ONE % "overwrite", 'store = "rocksdb"\nlog = "apart"')
    second = tmp_path / "second"
    second.mkdir()
    parts, measurement = (
        ONE % "overwrite",
        f'store = "rocksdb"\nlog = "apart"\nlimit_operations = 2000\nlog_target = "{second}"',
    )
    planned = plan(place, parts, measurement)
    [run] = planned.runs
    assert Path(run.spec["workload"]["target"]["log_path"]).parents[1] == second
    record = the_record(execute(planned, tmp_path / "results"))
    assert record.outcome == "complete"
    assert list(place.iterdir()) == list(second.iterdir()) == []
    assert record.target["log"]["name"] == str(second)
    assert "shared_log_device" in [each.code for each in record.warnings]
    material = collect([ResultSet.open(tmp_path / "results")]).chapters[0].material
    shown = dict(headline(material.sources[0], material, []))
    assert shown["Log device"].startswith(f"{second}, on ")


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
    result = iosonde("run", file, "--target", place, "-o", results, IOSONDE_ENGINE=str(real_engine()))
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
@pytest.mark.needs("loop devices")
def test_a_raw_device_with_foreign_data_requires_consent_to_lose_it(tmp_path: Path, iosonde: Iosonde) -> None:
    """LMDB would take it without asking."""
    file = tmp_path / "raw.toml"
    file.write_text(study(ONE % "load"))
    with loop_device(tmp_path / "disk", 400) as device:
        command("mkfs.ext4", "-q", device)
        before = Path(tmp_path / "disk").read_bytes()[: 1 << 20]
        asked = ("run", file, "--target", device, "--destroy", device, "-o", tmp_path / "results")
        refused = iosonde(*asked, IOSONDE_ENGINE=str(real_engine()))
        assert refused.returncode != 0
        assert "contains ext4" in refused.stderr and "--confirm" in refused.stderr
        assert Path(tmp_path / "disk").read_bytes()[: 1 << 20] == before
        taken = iosonde(*asked, "--confirm", str(400 << 20), IOSONDE_ENGINE=str(real_engine()))
        assert taken.returncode == 0, taken.stderr
    record = the_record(ResultSet.open(tmp_path / "results"))
    assert record.outcome == "complete"
    assert record.spec["workload"]["target"]["kind"] == "device"


@pytest.mark.system
class TestMemoryLimit:
    """A control group of the kernel's around the engine."""

    @pytest.mark.needs("root", "memory limits")
    def test_a_run_has_the_proof_that_it_read_from_the_device(self, place: Path, tmp_path: Path) -> None:
        measurement = 'records = 30000\nvalue_size = 4000\nmemory_limit = "64MiB"\nlimit_operations = 500\nlmdb = { MDB_NORDAHEAD = true }'
        done = execute(plan(place, ONE % "readrandom", measurement), tmp_path / "results")
        memory = the_record(done).memory
        assert memory
        assert memory["limit_bytes"] == 64 << 20 and memory["oom_kills"] == 0
        assert 0 < memory["peak_bytes"] <= 64 << 20
        assert memory["statistics"]
        [run] = done.runs.to_dicts()
        assert run["database_bytes"] > 100 << 20
        assert run["memory_limit_bytes"] == 64 << 20
        [chapter] = collect([done]).chapters
        titles = [finding.sentence for finding in chapter.findings[0][1]]
        assert any(title.startswith("The median database was 1.") for title in titles)
        assert_memory_groups_are_removed()

    @pytest.mark.needs("root", "memory limits")
    def test_a_limit_too_small_is_out_of_memory(self, place: Path, tmp_path: Path) -> None:
        found = failure(place, tmp_path, ONE % "readrandom", 'memory_limit = "1MiB"')
        assert found["code"] == "out_of_memory"
        assert "the memory limit of 1 MiB is too small" in found["message"] and "memory_limit" in found["hint"]
        assert_memory_groups_are_removed()

    @pytest.mark.needs("root", "memory limits")
    def test_a_kill_in_the_middle_of_a_load_leaves_nothing_after_cleanup(self, place: Path, tmp_path: Path) -> None:
        file = tmp_path / "long.toml"
        file.write_text(study(ONE % "load", 'records = "20M"\nvalue_size = 16\nmemory_limit = "256MiB"'))
        begin = [sys.executable, "-m", "iosonde", "run", file, "--target", place, "-o", tmp_path / "results"]
        session = subprocess.Popen(
            begin, env={**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}, stderr=subprocess.DEVNULL
        )
        while not list(place.glob("iosonde-*/lmdb-*/database/data.mdb")) and session.poll() is None:
            time.sleep(0.05)
        session.send_signal(signal.SIGKILL)
        session.wait()
        # One control group limits memory; another counts the engine's own I/O where the system has that controller.
        recorded = [(entry.what, Path(entry.path)) for entry in entries()]
        assert {what for what, _ in recorded} == {"directory", CONTROL_GROUP, TEMPORARY_FILES}
        [limiting] = [path for _, path in recorded if path.parent == control_group.hierarchy().directory]
        # The engine ends with its standard input.
        while (limiting / "cgroup.procs").read_text().split():
            time.sleep(0.05)
        assert {cleaned.reason for cleaned in cleanup()} == {"removed", "the temporary file was removed"}
        assert entries() == []
        assert not any(path.exists() for _, path in recorded)
        assert list(place.iterdir()) == []
        again = execute(plan(place, ONE % "load"), tmp_path / "again")
        assert the_record(again).outcome == "complete"

    def test_version_2_is_limited_and_read_by_its_own_files(self, tmp_path: Path) -> None:
        """Files by hand; tests/lab has the kernel's own."""
        (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
        within = control_group.Hierarchy(directory=tmp_path, version=2)
        group = control_group.MemoryGroup.make(1 << 20, within=within)
        [made] = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert (made / "memory.max").read_text() == str(1 << 20)
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
        (made / "memory.peak").write_text("900000\n")
        (made / "memory.swap.peak").write_text("4096\n")
        (made / "memory.events").write_text("low 0\nhigh 0\nmax 17\noom 1\noom_kill 1\n")
        (made / "memory.stat").write_text("anon 4096\nfile 8192\nworkingset_refault_file 3\nunknown 1\n")
        (made / "io.stat").write_text("259:0 rbytes=8192 wbytes=0 rios=2 wios=0 dbytes=0 dios=0\n7:0\n")
        group.add(42)
        assert (made / "cgroup.procs").read_text() == "42"
        assert group.facts() == {
            "version": 2,
            "limit_bytes": 1 << 20,
            "swap_limit_bytes": None,
            "peak_bytes": 900000,
            "swap_peak_bytes": 4096,
            "at_limit": 17,
            "oom_kills": 1,
            "statistics": {"file": 8192, "anon": 4096, "workingset_refault_file": 3},
            "devices": [{"device": "259:0", "read_bytes": 8192, "write_bytes": 0}],
        }
        for file in made.iterdir():
            file.unlink()  # The kernel's files vanish with their directory.
        group.remove()
        assert not made.exists() and entries() == []

    def test_without_its_requirements_a_study_is_refused_before_it_starts(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(control_group, "mounts", lambda: [])
        with pytest.raises(TargetError, match="memory cannot be limited here"):
            plan(place, ONE % "readrandom", 'memory_limit = "64MiB"')


def assert_memory_groups_are_removed() -> None:
    directory = control_group.hierarchy().directory
    assert control_groups.created(directory)
    assert control_groups.remaining(directory) == []


@pytest.mark.needs("rocksdb")
def test_what_a_log_wrote_to_its_own_device_is_counted_with_the_data(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    """The log takes every record once more, and its device is another: the busiest alone would be half the truth."""
    place, second = (loop_file_system(size="400M").directory for _ in range(2))
    measurement = (
        'records = 20000\nvalue_size = 4000\nstore = "rocksdb"\nlog = "apart"\n'
        f'log_target = "{second}"\nload_sync = true\nload_batch = 100\nrocksdb = {{ compression = "kNoCompression" }}'
    )
    done = execute(plan(place, ONE % "load", measurement), tmp_path / "results")
    record = the_record(done)
    numbers = [f"{os.major(each.stat().st_dev)}:{os.minor(each.stat().st_dev)}" for each in (place, second)]
    written = {each["device"]: each["write_bytes"] for each in record.device_totals if each["outermost"]}
    assert written.keys() == set(numbers)
    assert written[numbers[1]] > 20000 * 4016 * 0.9
    assert written[numbers[0]] > 20000 * 4016 * 0.1, "all but the last write buffers, which only the log holds"
    [run] = done.runs.to_dicts()
    assert run["run_device_write_bytes"] == sum(written.values())


@pytest.mark.needs("lmdb")
def test_two_versions_of_a_library_are_compared_in_one_session(place: Path, tmp_path: Path) -> None:
    """The LMDB in the engine and the installed one read databases that each has loaded."""
    parts = ONE % "readrandom"
    planned = expand(
        parse(study(parts, "limit_operations = 2000")),
        open_target(str(place)),
        repeats=3,
        settings={"store": "lmdb"},
        against=Against(settings={"library": "system"}),
    )
    done = execute(planned, tmp_path / "results")
    assert [arm.label for arm in done.arms()] == ["a: library=default", "b: library=system"]
    versions: dict[str, set[str]] = {}
    for record in done.records():
        assert record.result, record.failure
        versions.setdefault(record.arm or "", set()).add(record.result["store"]["version"])
    assert [len(each) for each in versions.values()] == [1, 1] and versions["a"] != versions["b"], versions
    assert next(iter(versions["a"])).startswith("LMDB 0.9.90")
    compared = comparison.pairs(gather([done])[0], metrics=("ops_per_sec",))
    assert compared["repeats_baseline"].to_list() == [3]
    assert set(compared["verdict"]) <= {"better", "worse", "same", "unclear", "excluded"}


OPTIONS_FILE = """
[DBOptions]
  max_background_jobs=3
[CFOptions "default"]
  write_buffer_size=1048576
  compression=kNoCompression
  level0_file_num_compaction_trigger=100
[TableOptions/BlockBasedTable "default"]
  block_size=16384
"""


@pytest.mark.needs("rocksdb")
def test_an_options_file_takes_effect_in_rocksdb(place: Path, tmp_path: Path) -> None:
    """RocksDB writes the options in effect into its database; 20 MB with buffers of 1 MiB are many files."""
    (tmp_path / "OPTIONS-000007").write_text(OPTIONS_FILE)
    load = 'store = "rocksdb"\nvalue_size = 4000\n'
    with_file = f'{load}options_file = "{tmp_path / "OPTIONS-000007"}"'
    found = {}
    for name, measurement in (("file", with_file), ("defaults", load)):
        record = the_record(execute(plan(place, ONE % "load", measurement), tmp_path / name))
        assert record.result, record.failure
        store = record.result["store"]
        found[name] = store["options"], store["statistics_at_end"]["rocksdb.num-files-at-level0"]
    options, files = found["file"]
    wanted = {"write_buffer_size": "1048576", "max_background_jobs": "3", "block_size": "16384"}
    assert {key: options[key] for key in wanted} == wanted
    assert options["compression"] == "kNoCompression"
    assert files > found["defaults"][1], "more flushes, and no compaction before 100 files"


@pytest.mark.needs("rocksdb")
def test_logs_deleted_before_writeback_explain_few_bytes_at_the_device(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    """Each record is written to a log and to a table; a flush deletes its log, which the device never sees."""
    place = loop_file_system(size="400M", direct_io=True).directory
    measurement = (
        'records = 20000\nvalue_size = 4000\nstore = "rocksdb"\n'
        'rocksdb = { compression = "kNoCompression", write_buffer_size = 4194304, disable_auto_compactions = true }'
    )
    done = execute(plan(place, ONE % "load", measurement), tmp_path / "results")
    assert the_record(done).failure is None
    metrics = dict(run_metrics(done).filter(pl.col("operation") == "all").select("metric", "value").iter_rows())
    assert 0.3 < metrics["file_system_write_amplification"] < 0.8, metrics
    assert metrics["cancelled_write_percent"] > 20
    [chapter] = collect([done]).chapters
    [cancelled] = [each for _, found in chapter.findings for each in found if isinstance(each, CancelledWrites)]
    assert cancelled.store == "rocksdb"
    assert cancelled.share + cancelled.received == pytest.approx(1, abs=0.25)
    assert "were written back" in cancelled.sentence


def test_what_reaches_the_device_after_the_measurement_is_counted_where_it_is_the_run_s_own(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
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


def test_a_write_held_back_beyond_the_end_counts_until_the_end(tmp_path: Path) -> None:
    """RocksDB counts a stall when it lets the write go, which was seen to be four seconds after two measured ones."""
    planned = plan("null:", ONE % "overwrite", "limit_operations = 10")
    [run] = planned.runs
    made = a_record(planned, run)
    held = {"statistics_at_start": {STALLS: 100}, "statistics_at_end": {STALLS: 5_592_081}}
    result = {**(made.result or {}), "begin_ns": 0, "end_ns": 2_000_000_000, "store": {**held, "checks": []}}
    facts = values(made.model_copy(update={"result": result}), COLUMNS)
    assert (facts["writing_jobs"], facts["stalled_ns"]) == (1, 2_000_000_000)


def test_a_record_has_the_device_totals_until_all_data_is_durable(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    place = loop_file_system(size="400M").directory
    done = execute(plan(place, ONE % "load", "value_size = 4000"), tmp_path / "results")
    record = the_record(done)
    assert max(device["write_bytes"] for device in record.device_totals) > 5000 * 4016
    metrics = dict(run_metrics(done).filter(pl.col("operation") == "all").select("metric", "value").iter_rows())
    assert metrics["store_write_amplification"] > 1
    assert metrics["device_write_amplification"] > 1
    assert json.loads((tmp_path / "results/records/c0001-r1/record.json").read_text())["device_totals"]
