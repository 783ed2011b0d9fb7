"""Key-value stores through the engine: what comes back, what is counted, whose a database is."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from stores import (
    EACH_ONCE,
    EMPTY,
    EXISTING,
    LOADED,
    SEQUENTIAL,
    STORES,
    Spec,
    carry_out,
    loop_device,
    spec,
    started,
    stream,
)

COUNT = 2000
MARK = "iosonde-database.json"
LATEST = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "latest", "theta": 0.99}}


def reading_all(**changes: Any) -> Spec:
    return stream("reader", "read", choice=EACH_ONCE, limit_operations=COUNT, **changes)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestEveryStore:
    def test_a_loaded_database_has_every_record_and_is_kept(self, store: str, tmp_path: Path) -> None:
        run = spec(store, tmp_path, reading_all(jobs=2))
        first, second = carry_out(run), carry_out(run)
        for output in (first, second):
            assert output.count("reader", "read") == output.checks("values") == COUNT
            assert output.checks("missing") == output.checks("corrupted") == 0
            assert output.warnings == []
            assert output.store["kind"] == output.result["backend"]["kind"] == store
            assert output.store["version"]
            assert output.store["options"]
            assert output.store["record_bytes"] == COUNT * 116
            assert output.store["database_bytes"] > COUNT * 116
            assert output.intervals[0]["store"].keys() == output.store["statistics_at_end"].keys() != set()
        assert first.phases == [("layout", "begin"), ("layout", "end")]
        assert first.result["layout"] == {"written_bytes": COUNT * 116, "kept_bytes": 0}
        assert second.phases == []
        assert second.result["layout"] == {"written_bytes": 0, "kept_bytes": COUNT * 116}
        assert (first.store["kept"], second.store["kept"]) == (False, True)
        mark = json.loads((tmp_path / MARK).read_text())
        mark["made_of"]["contents"] -= 1
        (tmp_path / MARK).write_text(json.dumps(mark))
        assert not carry_out(run).store["kept"], "one of another version is loaded again"

    def test_a_measured_load_leaves_a_complete_database(self, store: str, tmp_path: Path) -> None:
        """symas2018 and db_bench measure the load, and read from what it left."""
        writer = stream("load", "update", choice=SEQUENTIAL, batch=7, limit_operations=COUNT)
        load = carry_out(spec(store, tmp_path, writer, database=EMPTY, settle_at_end=True))
        assert load.count("load", "write") == COUNT
        assert sum(entry["bytes"] for entry in load.entries("load", "write")) == COUNT * 116
        assert sum(entry["completion_latency"]["count"] for entry in load.entries("load", "write")) == COUNT
        assert load.phases == [("settle", "begin"), ("settle", "end")]
        read = carry_out(spec(store, tmp_path, reading_all()))
        assert read.store["kept"]
        assert (read.checks("values"), read.checks("corrupted")) == (COUNT, 0)

    def test_readers_and_a_writer_are_measured_apart_and_end_together(self, store: str, tmp_path: Path) -> None:
        reader = stream("readers", "read", jobs=4, limit_operations=4000)
        writer = stream("writer", "update", background=True)
        output = carry_out(spec(store, tmp_path, reader, writer))
        assert output.count("readers", "read") == output.checks("values") == 4000
        assert output.checks("missing") == output.checks("corrupted") == 0
        assert {(job["stream"], job["job"]) for job in output.result["jobs"]} == {
            *(("readers", job) for job in range(4)),
            ("writer", 0),
        }
        again = carry_out(spec(store, tmp_path, reading_all()))
        assert again.store["kept"], "updates leave every record"
        assert again.checks("corrupted") == 0

    def test_iterators_and_scans_go_through_records_in_both_directions(self, store: str, tmp_path: Path) -> None:
        sizes = {"kind": "uniform", "min_bytes": 16, "max_bytes": 5000}
        for direction in ("forward", "reverse"):
            walk = stream("walk", "iterate", direction=direction, limit_operations=COUNT + 5)
            output = carry_out(spec(store, tmp_path, walk, value_size=sizes))
            assert output.count("walk", "read") == output.checks("values") == COUNT + 5
            assert output.checks("corrupted") == 0
        ten = {"scan_records_min": 10, "scan_records_max": 10}
        scans = stream("scans", "scan", choice=SEQUENTIAL, limit_operations=COUNT, **ten)
        output = carry_out(spec(store, tmp_path, scans, value_size=sizes))
        assert output.count("scans", "scan") == COUNT
        assert output.checks("values") == COUNT * 10 - sum(range(10)), "the last scans meet the end"
        assert output.checks("corrupted") == 0

    def test_inserted_records_are_found_and_the_database_is_loaded_again(self, store: str, tmp_path: Path) -> None:
        """YCSB D: what is read most is what was inserted last, by another thread too."""
        mix = stream("d", {"read": 0.9, "insert": 0.1}, choice=LATEST, jobs=2, limit_operations=3000)
        output = carry_out(spec(store, tmp_path, mix))
        assert output.count("d", "write") > 100
        assert output.checks("missing") == output.checks("corrupted") == 0
        assert not carry_out(spec(store, tmp_path, reading_all())).store["kept"]

    def test_the_transition_settles_opens_again_and_empties_the_page_cache(self, store: str, tmp_path: Path) -> None:
        transition = {"settle": True, "reopen": True, "page_cache": "drop"}
        # Of which an opening reads only a little.
        run = spec(store, tmp_path, stream("one", "read", limit_operations=1), transition=transition, value_bytes=4000)
        output = carry_out(run)
        assert output.phases[2:] == [("precondition", "begin"), ("precondition", "end")]
        assert output.store["settle_ns"] > 0
        cached = output.store["cached_bytes_at_start"]
        if cached is not None and command_file_system(tmp_path) != "tmpfs":
            assert cached < output.store["database_bytes"] / 2

    def test_unknown_options_are_refused_with_the_nearest_name_and_nothing_is_written(
        self, store: str, tmp_path: Path
    ) -> None:
        misspelt, meant = {
            "lmdb": ("map_size", "mapsize"),
            "rocksdb": ("write_bufer_size", "write_buffer_size"),
            "wiredtiger": ("leaf_page_size", "leaf_page_max"),
        }[store]
        error = carry_out(spec(store, tmp_path, reading_all(), options={misspelt: 1})).error
        assert error["code"] == "invalid_spec"
        assert error["context"] == f"`store.options.{misspelt}`"
        assert f"`{meant}`" in error["hint"]
        assert list(tmp_path.iterdir()) == []

    def test_things_of_others_are_left_alone(self, store: str, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        for database in (EMPTY, LOADED, EXISTING):
            error = carry_out(spec(store, tmp_path, reading_all(), database=database)).error
            assert error["code"] == "foreign_data"
            assert "`thesis.tex`" in error["message"]
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize("ending", ["stop", "kill"])
    def test_a_run_that_ends_while_it_loads_leaves_a_clean_start(self, store: str, ending: str, tmp_path: Path) -> None:
        engine = started(spec(store, tmp_path, reading_all(), count=50_000_000))  # More than it can load before.
        assert engine.stdout
        while '"layout"' not in engine.stdout.readline():
            pass
        if ending == "kill":
            while not (tmp_path / MARK).exists():
                assert engine.poll() is None
                time.sleep(0.01)
            engine.kill()
            engine.communicate()
        else:
            last = json.loads(engine.communicate('"stop"\n')[0].splitlines()[-1])
            assert (last["event"], last["outcome"]) == ("result", "stopped")
        assert json.loads((tmp_path / MARK).read_text())["state"] == "incomplete"
        if ending == "kill":
            output = carry_out(spec(store, tmp_path, reading_all()))
            assert not output.store["kept"]
            assert output.checks("values") == COUNT
            assert output.checks("missing") == output.checks("corrupted") == 0
            assert sorted(path.name for path in tmp_path.iterdir()) == ["database", MARK]


def command_file_system(path: Path) -> str:
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()


class TestLoads:
    VIRTUAL = {"kind": "virtual"}  # noqa: RUF012

    def run(self, *streams: Spec, **changes: Any) -> Spec:
        return spec("null", self.VIRTUAL, *streams, database=EXISTING, **changes)

    def test_a_rate_limit_is_not_passed(self) -> None:
        """Limits of operations are exact for every batch size."""
        output = carry_out(self.run(stream("writer", "update", rate_limit=2000.0, jobs=2, limit_operations=400)))
        assert output.count("writer", "write") == 400
        assert output.result["end_ns"] - output.result["begin_ns"] > 190_000_000, "398 of them, after the first two"
        assert all(entry["response_latency"] is None for entry in output.entries("writer", "write"))
        writer = stream("writer", "insert", batch=64, jobs=3, limit_operations=1000)
        assert carry_out(self.run(writer)).count("writer", "write") == 1000

    def test_an_open_loop_counts_from_the_intended_start_and_reports_its_schedule(self) -> None:
        writer = stream("writer", "update", arrival={"kind": "constant", "rate": 1000.0}, limit_operations=300)
        output = carry_out(self.run(writer))
        assert all(entry["response_latency"]["count"] == entry["count"] for entry in output.entries("writer", "write"))
        schedule = output.result["jobs"][0]["schedule"]
        assert output.count("writer", "write") == schedule["started"] == 300 <= schedule["due"]

    def test_records_of_a_batch_share_its_latency(self) -> None:
        writer = stream("writer", "update", batch=50, limit_operations=50)
        (entry,) = carry_out(self.run(writer)).entries("writer", "write")
        assert entry["completion_latency"]["count"] == 50
        assert entry["completion_latency"]["min_ns"] == entry["completion_latency"]["max_ns"]

    def test_loading_ten_million_records_needs_no_memory_for_each(self) -> None:
        loaded = {**LOADED, "batch": 1000, "order": "random"}
        run = spec("null", self.VIRTUAL, stream("r", "read", limit_operations=1), database=loaded, count=10_000_000)
        output = carry_out(run)
        assert output.result["layout"]["written_bytes"] == 10_000_000 * 116
        assert output.result["peak_memory_bytes"] < 200e6


class TestRawDevice:
    """LMDB without a file system. It would take any device without asking, so the engine asks."""

    @pytest.fixture
    def device(self, tmp_path: Path):  # type: ignore[no-untyped-def]
        with loop_device(tmp_path / "disk", 64) as device:
            yield device

    @staticmethod
    def on(device: Path) -> Spec:
        return {"kind": "device", "path": str(device), "size_bytes": 64 << 20}

    def test_a_database_is_loaded_and_kept_without_other_files(self, device: Path) -> None:
        run = spec("lmdb", self.on(device), reading_all(jobs=4), stream("w", "update", background=True, rate_limit=100))
        first, second = carry_out(run), carry_out(run)
        for output in (first, second):
            assert output.checks("values") == COUNT
            assert output.checks("missing") == output.checks("corrupted") == 0
            assert COUNT * 116 < output.store["database_bytes"] < 64 << 20
        assert (first.store["kept"], second.store["kept"]) == (False, True)
        assert not list(Path("/dev").glob(f"{device.name}-lock*"))

    def test_a_device_with_a_file_system_is_refused_and_left_as_it_is(self, device: Path) -> None:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        before = device.read_bytes()
        error = carry_out(spec("lmdb", self.on(device), reading_all(), database=EMPTY)).error
        assert error["code"] == "foreign_data"
        assert "an ext2, ext3 or ext4 file system" in error["message"]
        assert device.read_bytes() == before

    def test_data_of_an_unknown_kind_is_refused(self, device: Path) -> None:
        for place in (0, 5000, (64 << 20) - 1):
            with device.open("r+b") as opened:
                os.pwrite(opened.fileno(), b"x", place)
                error = carry_out(spec("lmdb", self.on(device), reading_all())).error
                assert error["code"] == "foreign_data" and "unknown data" in error["message"]
                os.pwrite(opened.fileno(), b"\0", place)

    def test_a_full_device_is_a_full_map(self, device: Path) -> None:
        error = carry_out(spec("lmdb", self.on(device), reading_all(), count=200_000, value_bytes=1000)).error
        assert error["code"] == "map_full"
        assert error["context"] == "phase `layout`"

    def test_another_store_is_unsupported_with_a_reason(self, device: Path) -> None:
        assert carry_out(spec("rocksdb", self.on(device), reading_all())).error["code"] == "unsupported"
        assert not any(device.read_bytes()[: 1 << 20])
