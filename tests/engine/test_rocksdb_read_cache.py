"""RocksDB's persistent read cache and the C++ shim that it needs: what is compiled, refused, measured and removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from plans import without_places
from stores import EACH_ONCE, spec, stream

from iosonde.errors import StudyError, TargetError
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.session import execute
from iosonde.execution.stop import Stop
from iosonde.features.key_value_stores import shim
from iosonde.metrics.metrics import run_metrics
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.storage import open_target

pytestmark = pytest.mark.needs("rocksdb", "g++", "rocksdb-headers")

CACHE_BYTES = 100 << 20
SMALL_MEMORY = {"block_cache": 65536, "use_direct_reads": True, "compression": "kNoCompression"}
STUDY = """
name = "cached"
title = "Cached"
question = "?"
workload = "kv"
repeats = 1
[measurement]
store = "rocksdb"
records = 4000
value_size = 4000
limit_operations = 8000
interval = "100ms"
rocksdb = { block_cache = 65536, use_direct_reads = true, compression = "kNoCompression" }
{measurement}
[[parts]]
measurement = { phase = "readrandom" }
[profiles.standard]
"""


@pytest.fixture
def descriptor() -> Iterator[int]:
    with shim.opened(shim.ROCKSDB, None) as opened:
        yield opened


@pytest.fixture
def forget_compilers() -> Iterator[None]:
    """Headers and compilers change in a test, and not in a session."""
    shim._versions.cache_clear()
    yield
    shim._versions.cache_clear()


def cached_reads(place: Path, **changes: Any) -> dict[str, Any]:
    """Reads of every record, twice, past a small block cache."""
    for name in ("database", "cache"):
        (place / name).mkdir(exist_ok=True)
    cache = {"path": str(place / "cache"), "size_bytes": CACHE_BYTES, "direct_writes": False}
    target = {"kind": "directory", "path": str(place / "database"), "log_path": None, "read_cache": cache}
    reads = stream("main", "read", choice=EACH_ONCE, limit_operations=8000)
    return spec("rocksdb", target, reads, **{"count": 4000, "value_bytes": 4000, "options": SMALL_MEMORY, **changes})


def driven(run: dict[str, Any], descriptor: int | None) -> EngineRun:
    stop = Stop()
    shims = {} if descriptor is None else {"rocksdb": descriptor}
    try:
        return drive(run, on_event=lambda _: None, stop=stop, engine=real_engine(), shims=shims)
    finally:
        stop.close()


def plan(place: Path, measurement: str) -> Plan:
    measurement, settings = without_places(measurement)
    return expand(parse(STUDY.replace("{measurement}", measurement)), open_target(str(place)), settings=settings)


def test_blocks_that_left_memory_are_read_from_the_cache(tmp_path: Path, descriptor: int) -> None:
    done = driven(cached_reads(tmp_path), descriptor)
    assert done.failure is None and done.result is not None
    store = done.result["store"]
    hits = store["statistics_at_end"]["rocksdb.persistent.cache.hit"]
    assert hits > 3000, "the second pass finds the blocks of the first"
    assert [(check["values"], check["missing"], check["corrupted"]) for check in store["checks"]] == [(8000, 0, 0)]
    assert store["build"]["interface"] == f"C++ shim, compiled with the headers of RocksDB {store['version']}"
    assert store["options"]["persistent_cache"] == f"{CACHE_BYTES} bytes"
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["iosonde-database.json"], "the cache is removed"


def test_without_the_shim_reads_go_through_the_c_interface_and_a_read_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    reads = stream("main", "read", limit_operations=100)
    done = driven(spec("rocksdb", tmp_path / "plain", reads, count=100), None)
    assert done.result is not None and done.result["store"]["build"]["interface"] == "C"
    (tmp_path / "cached").mkdir()
    refused = driven(cached_reads(tmp_path / "cached"), None)
    assert refused.failure is not None
    assert (refused.failure.code, refused.failure.context) == ("library", "`target.read_cache`")


@pytest.mark.usefixtures("forget_compilers")
def test_a_read_cache_that_cannot_be_is_refused_in_the_plan(tmp_path: Path) -> None:
    (tmp_path / "not-rocksdb.so").write_bytes(b"\x7fELF and nothing of RocksDB")
    library, header = tmp_path / "lib/librocksdb.so", tmp_path / "include/rocksdb/version.h"
    for path in (library, header):
        path.parent.mkdir(parents=True)
    library.write_bytes(shim.ROCKSDB.symbol)
    header.touch()
    header.chmod(0o666)
    for measurement, message in (
        ('read_cache = "64MiB"', "at least 100 MiB"),
        ('read_cache = "100MiB"\nread_cache_target = "/nowhere"', "/nowhere"),
        (f'library = "{tmp_path}/not-rocksdb.so"\nread_cache = "100MiB"', "export `rocksdb::NewPersistentCache`"),
        (f'library = "{library}"\nread_cache = "100MiB"', "other users can write to"),
    ):
        with pytest.raises((StudyError, TargetError), match=message):
            plan(tmp_path, measurement)
    study = STUDY.replace('"rocksdb"', '"wiredtiger"', 1).replace("{measurement}", 'read_cache = "100MiB"')
    with pytest.raises(StudyError, match="wiredtiger has no persistent read cache"):
        expand(parse(study), open_target(str(tmp_path)))


def test_a_shim_that_other_users_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptor: int
) -> None:
    compiled = Path(f"/proc/self/fd/{descriptor}").readlink()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = tmp_path / "iosonde/rocksdb-shim"
    own.mkdir(parents=True, mode=0o700)
    copy = own / compiled.name
    shutil.copyfile(compiled, copy)
    copy.chmod(0o620)
    with (
        pytest.raises(shim.UnavailableError, match="not a file that only you can write to"),
        shim.opened(shim.ROCKSDB, None),
    ):
        pass
    copy.unlink()
    copy.symlink_to(compiled)
    with pytest.raises(shim.UnavailableError, match="cannot be used"), shim.opened(shim.ROCKSDB, None):
        pass
    copy.unlink()
    own.chmod(0o755)
    with pytest.raises(shim.UnavailableError, match="other users may use it"), shim.opened(shim.ROCKSDB, None):
        pass
    assert list(own.iterdir()) == []


def test_tiers_are_metrics_and_the_directories_are_removed(tmp_path: Path) -> None:
    for name in ("data", "fast"):
        (tmp_path / name).mkdir()
    planned = plan(tmp_path / "data", f'read_cache = "100MiB"\nread_cache_target = "{tmp_path / "fast"}"')
    done = execute(planned, tmp_path / "results")
    assert [record.failure for record in done.records()] == [None]
    metrics = run_metrics(done)
    found = {
        name: metrics.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("block_cache_hit_ratio", "read_cache_hit_ratio")
    }
    assert all(values and 0 <= values[0] <= 1 for values in found.values())
    assert found["read_cache_hit_ratio"][0] > 0.3
    [record] = done.records()
    assert record.target["read_cache"]["name"] == str(tmp_path / "fast")
    assert not list((tmp_path / "data").iterdir()) and not list((tmp_path / "fast").iterdir())
