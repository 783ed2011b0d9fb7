"""Traces of key-value stores: what their files may contain, how a wrong one is reported, and what becomes of one."""

from __future__ import annotations

import datetime
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from iosonde.errors import StudyError
from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.parameters import KvParameters
from iosonde.features.key_value_stores.workload import KV
from iosonde.storage import open_target

HEADER = "time,operation,key,value_size,ttl\n"
ROWS = "10.0,get,apple,100,\n10.5,set,a-key-of-twenty-bytes,2000,60\n10.5,delete,apple,,\n12.25,get,banana,,\n"

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def rows_of(found: trace.Trace) -> np.ndarray[Any, Any]:
    content = Path(found.path).read_bytes()
    assert content[:8] == b"iostrace"
    assert int.from_bytes(content[24:32], "little") == found.rows
    return np.frombuffer(content[32:], dtype=trace.ROW)


def test_a_csv_file_becomes_rows_with_times_from_the_first(tmp_path: Path) -> None:
    found = trace.converted(written(tmp_path, HEADER + ROWS))
    rows = rows_of(found)
    assert rows["at_ns"].tolist() == [0, 500_000_000, 500_000_000, 2_250_000_000]
    assert rows["request"].tolist() == [0, 1, 2, 0]
    assert rows["value_bytes"].tolist() == [100, 2000, 0, 0]
    assert rows["ttl_s"].tolist() == [0, 60, 0, 0]
    assert rows["key_bytes"].tolist() == [16, 21, 16, 16]
    assert rows["number"][0] == rows["number"][2] != rows["number"][3]
    assert (found.gets, found.sets, found.deletes, found.keys) == (2, 1, 1, 3)
    assert (found.seconds, found.operations) == (2.25, "read/2:update/1:delete/1")
    assert (found.value_bytes, found.largest_value, found.largest_key) == (1050, 2000, 21)
    assert found.has_ttl


def test_values_may_all_be_in_quotes_and_spaces_may_follow_the_last_row(tmp_path: Path) -> None:
    text = '"time","operation","key","value_size"\r\n"1","set","a","100"\r\n"2","get","ä",""\r\n  '
    found = trace.converted(written(tmp_path, text))
    assert rows_of(found)["value_bytes"].tolist() == [100, 0]


def test_gets_of_deleted_keys_are_counted_and_rows_numbered_across_blocks(tmp_path: Path) -> None:
    """State carries over between blocks: there is more than a block of other rows in between."""
    first = ["get,a,,", "set,a,20,", "get,a,,", "delete,a,,", "get,a,,", "get,b,,", "delete,b,,", "get,b,,"]
    between = ["get,another-key,,"] * (trace.BLOCK_BYTES // 18)
    last = ["get,a,,", "set,a,20,", "get,a,,", "get,b,,"]
    rows = [f"0,{each}" for each in [*first, *between, *last]]
    assert trace.converted(written(tmp_path, HEADER + "\n".join(rows))).deleted_gets == 4
    with pytest.raises(StudyError) as raised:
        trace.converted(written(tmp_path, HEADER + "\n".join([*rows, "x,get,k,,"])))
    assert f"row {len(rows) + 1}, column `time`" in raised.value.where


@pytest.mark.parametrize("name", ["t[1].parquet", "t*.parquet", "t?.parquet"])
def test_a_parquet_file_becomes_the_same_rows_also_if_its_name_is_a_pattern(name: str, tmp_path: Path) -> None:
    """Readers of Parquet files take such a name for a pattern, and read others."""
    by_csv = rows_of(trace.converted(written(tmp_path, HEADER + ROWS)))
    seconds = (datetime.timedelta(seconds=each) for each in (0, 0.5, 0.5, 2.25))
    columns: dict[str, Any] = {
        "time": [datetime.datetime(2026, 1, 1) + each for each in seconds],
        "operation": ["get", "set", "delete", "get"],
        "key": ["apple", "a-key-of-twenty-bytes", "apple", "banana"],
        "value_size": [100, 2000, None, None],
        "ttl": [None, 60, None, None],
    }
    for other in ("t1.parquet", "tx.parquet", "t[1]x.parquet"):
        pl.DataFrame({"time": [0.0] * 2, "operation": ["get"] * 2, "key": ["a", "b"]}).write_parquet(tmp_path / other)
    with (tmp_path / name).open("wb") as file:
        pl.DataFrame(columns).write_parquet(file)
    assert rows_of(trace.converted(str(tmp_path / name))).tobytes() == by_csv.tobytes()


@pytest.mark.parametrize(
    ("row", "place", "what"),
    [
        ("x,get,k,1,", "row 2, column `time`", "`x` is not a number"),
        ("9.9,get,k,1,", "row 2, column `time`", "before the time of the row above"),
        ("11,read,k,1,", "row 2, column `operation`", "`read` is not an operation"),
        (f"11,get,{'k' * 251},1,", "row 2, column `key`", "1 to 250 bytes"),
        ("11,set,k,,", "row 2, column `value_size`", "a `set` needs the size"),
        ("11,set,k,99999999999,", "row 2, column `value_size`", "is not a whole number from 0 to 67108864"),
        ("11,set,k,1,2592001", "row 2, column `ttl`", "from 0 to 2592000"),
        ('11,set,"k,1,1', "row 2", "a quote without its end"),
    ],
)
def test_a_wrong_value_is_reported_with_its_row_and_column(row: str, place: str, what: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER}10,get,k,1,\n{row}\n12,get,k,1,\n")
    with pytest.raises(StudyError) as raised:
        trace.converted(path)
    assert what in raised.value.what
    assert f"`{path}`, {place}\n" in raised.value.where
    assert list((tmp_path / "cache/iosonde/traces").iterdir()) == [], "nothing stays of it"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"time,operation,key,valuesize\n", "`valuesize` of the trace is unknown"),
        (b"time,operation,key\n", "no rows"),
        (b"time,operation,key\n0,get,\xff\n", "not UTF-8"),
        (b"PAR1 and no Parquet", "the Parquet file cannot be read"),
        (b"time,operation,key\n" + b"0" * (17 << 20), "a row is longer than"),
    ],
)
def test_a_file_that_is_no_trace_is_reported(content: bytes, what: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as raised:
        trace.converted(written(tmp_path, content))
    assert what in raised.value.what
    assert "docs/traces.md" in raised.value.hint


def test_a_file_is_converted_once_until_it_changes(tmp_path: Path) -> None:
    """Optional columns, quotes and line ends are read; a file that cannot be is reported."""
    path = written(tmp_path, 'key,time,operation\r\n"a,b",0,get\r\nc,1,delete')
    found = trace.converted(path)
    assert (found.rows, found.keys, found.deletes) == (2, 2, 1)
    trace._converted.cache_clear()
    cache = tmp_path / "cache/iosonde/traces"
    before = {each: each.stat().st_mtime_ns for each in cache.iterdir()}
    assert trace.converted(path) == found
    assert {each: each.stat().st_mtime_ns for each in cache.iterdir()} == before, "it was not converted again"
    changed = trace.converted(written(tmp_path, "time,operation,key\n0,get,k"))
    assert (changed.rows, changed.digest == found.digest) == (1, False)
    for name in ("absent", "."):
        with pytest.raises(StudyError, match="cannot read the trace"):
            trace.converted(str(tmp_path / name))


def stream(tmp_path: Path, **parameters: Any) -> KvParameters:
    path = written(tmp_path, HEADER + ROWS)
    found: KvParameters = KV.build({"phase": "trace", "trace": path, **parameters})
    return found


def test_a_trace_becomes_a_stream_at_its_own_times_or_as_fast_as_possible(tmp_path: Path) -> None:
    target = open_target(str(tmp_path))
    at_its_times = stream(tmp_path, store="lmdb", arrival="trace", trace_speed=2)
    spec = KV.resolve({"main": at_its_times}, target, seed=1, run_id="r")["workload"]
    [found] = spec["streams"]
    assert found["arrival"] == {"kind": "trace", "speed": 2}
    assert found["trace"]["rows"] == 4
    assert {each["operation"]: each["weight"] for each in found["operations"]} == {"read": 2, "update": 1, "delete": 1}
    assert spec["database"] == {"kind": "loaded", "reload": True, "order": "sequential", "batch": 1000, "sync": False}
    assert spec["records"]["count"] == 3
    fitted = KV.fit({"main": at_its_times}, target, room_bytes=1 << 40)
    assert KV.cost(fitted).seconds == pytest.approx(1.125)
    fast = KV.resolve({"main": stream(tmp_path, store="lmdb")}, target, seed=1, run_id="r")["workload"]
    assert fast["streams"][0]["arrival"] == {"kind": "closed"}
    notes = KV.notes(fitted)
    assert "2 gets, 1 sets, 1 deletes of about 3 keys over 2.25 s" in notes[0]
    assert notes[1] == "loads about 1 key before the replay: those that a get has a `value_size` for"
    nothing = KV.build({"phase": "trace", "store": "lmdb", "trace": written(tmp_path, f"{HEADER}0,get,a,,")})
    notes_of_nothing = KV.notes(KV.fit({"main": nothing}, target, room_bytes=1 << 40))
    assert any(each.startswith("loads nothing before the replay") for each in notes_of_nothing)
    assert "times to live of the trace have no effect" in notes[2]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"phase": "readrandom"}, 'are for `phase = "trace"`'),
        ({"operations": "read"}, "the trace decides operations"),
        ({"arrival": "poisson", "rate": 100}, "replayed at its own times"),
        ({"store": "memcached", "batch": 8}, "one operation at a time"),
        ({"store": "memcached", "ttl": "1h"}, "the trace has the times to live"),
        ({"trace_speed": 2}, '`trace_speed` is for `arrival = "trace"`'),
        ({"trace": None}, "needs a trace, and none is named"),
    ],
)
def test_what_a_trace_decides_cannot_be_set(parameters: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as raised:
        KV.resolve({"main": stream(tmp_path, **parameters)}, open_target(str(tmp_path)), seed=1, run_id="r")
    assert message in str(raised.value)


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_damaged_trace_is_read_or_refused_and_nothing_else(tmp_path: Path, format_: str) -> None:
    random = np.random.default_rng(1)
    columns = {"time": np.arange(200) / 1000, "operation": ["get", "set"] * 100, "key": [f"k{i}" for i in range(200)]}
    whole = pl.DataFrame(columns)
    path = tmp_path / "whole"
    whole.write_csv(path) if format_ == "csv" else whole.write_parquet(path, row_group_size=64)
    refused = 0
    for number in range(30):
        content = bytearray(path.read_bytes())
        first = len(content) - 500 if number % 2 else 0  # Parquet has its description at the end.
        for place in random.integers(first, len(content), size=3):
            content[place : place + 1] = [b"\0", b'"', b"\r", b",", b"\xff", b"1e400"][random.integers(6)]
        with suppress(StudyError):
            trace.converted(written(tmp_path, bytes(content)))
            continue
        refused += 1
    assert refused
