"""Parameters of block I/O: what may be written, what it becomes, what it costs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from parameter_texts import descriptions

from iosonde.engine import protocol
from iosonde.errors import StudyError
from iosonde.storage import open_target
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.block.notation import mix_of
from iosonde.study.workload.block.parameters import WHOLE_WORKLOAD, BlockParameters
from iosonde.units import compact_size

NULL = open_target("null:1TiB")


def refusal(**parameters: Any) -> str:
    with pytest.raises(StudyError) as caught:
        BLOCK.build(parameters)
    return str(caught.value)


def fitted(target: str | Path = "null:1TiB", **parameters: Any) -> BlockParameters:
    opened = open_target(str(target))
    return BLOCK.fit({"main": BLOCK.build(parameters)}, opened, room_bytes=opened.free_bytes())["main"]


def spec_of(**parameters: Any) -> dict[str, Any]:
    return BLOCK.resolve({"main": BLOCK.build(parameters)}, NULL, seed=7, run_id="c0001-r1")


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    asked = subprocess.run([real_engine(), "--schema"], capture_output=True, check=True)
    return Draft202012Validator(json.loads(asked.stdout)["spec"])


def test_every_parameter_has_a_description() -> None:
    assert [name for name, description in descriptions(BLOCK.parameters).items() if not description] == []
    known = set(BLOCK.parameters.model_fields)
    assert known.issuperset([*WHOLE_WORKLOAD, *BLOCK.sizes, *BLOCK.durations])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("access", "sequental", "did you mean `sequential`? it is one of `sequential`, `random`, `strided`, `aging`"),
        ("block_size", "4 kibs", "`kibs` is not a unit of size"),
        ("block_size", "100", "100 B is not a block"),
        ("block_size", "4KiB/x", "`4KiB/x` is not a mix"),
        ("block_size", "4KiB/0:8KiB/1", "has a weight that is not above 0"),
        ("block_size", [{"size": "4KiB"}], "`{'size': '4KiB'}` is not a part of a mix"),
        ("queue_depth", 0, "it should be greater than or equal to 1"),
        ("span", "120%", "it lies above 0% and up to 100%"),
        ("span", "0", "`span` is smaller than 4 KiB, one block for each job that has a part"),
        ("distribution", "zipf:1", "it is one of `uniform`, `zipfian:THETA`, `hot_cold:HOT_SPAN:HOT_ACCESS`"),
        ("distribution", "zipfian:0", "`theta` of a zipfian distribution is above 0"),
        ("distribution", "hot_cold:2:0.9", "`hot_span` and `hot_access` are fractions between 0 and 1"),
        ("durability", "flush:0", "after a whole number of writes, at least 1"),
        ("durability", "always", "it is one of `none`, `dsync`, `flush:EVERY`"),
        ("duration", 10, "`10` has no unit"),
        ("duration", "0s", "it must be above 0"),
        ("interval", "10ms", "it must be at least `100ms`"),
        ("cpus", "0,1", "`0,1` is not a set of CPUs"),
        ("rate", "0", "`rate` cannot be `0`: it must be above 0"),
        ("rate", "0/1s", "contains no rate above 0"),
        ("rate", "100/0s:200/1s", "it must be above 0"),
        ("active", "10s", "write it like `10s-20s`, `10s-` for the rest, or `0s-5s every 15s`"),
        ("active", "3s-2s", "ends before it starts"),
    ],
)
def test_a_wrong_value_is_refused_with_valid_ones(parameter: str, value: Any, message: str) -> None:
    text = refusal(**{parameter: value})
    assert text.startswith(f"`{parameter}` ") and message in text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"blok_size": "4KiB"}, "there is no parameter `blok_size`\n\nhint: did you mean `block_size`?"),
        ({"access": "strided"}, "strided access needs one of `stride` and `stride_blocks`"),
        ({"access": "strided", "stride": "1KiB", "block_size": "4KiB"}, "`stride` is smaller than `block_size`"),
        ({"access": "strided", "stride": "6KiB", "block_size": "4KiB"}, "`stride` is not a multiple"),
        ({"duration": "none", "limit_operations": 9, "active": "0s-1s"}, "it may stop before its limit"),
        (
            {"duration": "none", "limit_operations": 9, "arrival": "constant", "rate": "9/1s:0/1s"},
            "it may stop before its limit",
        ),
        ({"access": "strided", "stride_blocks": 17, "block_size": "4KiB/1:8KiB/1"}, "undefined for a mix of sizes"),
        ({"access": "sequential", "distribution": "zipfian:0.9"}, "`distribution` is for random access only"),
        ({"access": "sequential", "coverage": "each_once"}, "`coverage` is for random access only"),
        ({"coverage": "each_once", "distribution": "zipfian:0.9"}, "leaves no choice to `distribution`"),
        ({"coverage": "each_once", "block_size": "4KiB/1:8KiB/1"}, "needs a single `block_size`"),
        ({"read_fraction": 0.8, "trim_fraction": 0.3}, "`read_fraction` and `trim_fraction` exceed 1 together"),
        ({"arrival": "poisson"}, '`arrival = "poisson"` needs a `rate`'),
        ({"rate": 1000}, "`rate` is for open loop"),
        ({"backend": "sync", "queue_depth": 2}, "`queue_depth` must be 1 (use more `jobs`)"),
        ({"completion_polling": True, "io_mode": "buffered"}, '`completion_polling` needs `io_mode = "direct"`'),
        ({"duration": "none"}, "it would never end: set `duration`, `limit_bytes`, `limit_spans` or"),
        ({"ramp": "0", "ramp_bytes": "1MiB"}, "`ramp_bytes` ends a `ramp` early"),
        ({"jobs": 4, "limit_operations": 3}, "`limit_operations` is less than one for each job"),
        ({"jobs": 4, "limit_bytes": "8KiB"}, "`limit_bytes` is less than one block for each job"),
        ({"span": "8KiB", "jobs": 4, "span_sharing": "split"}, "`span` is smaller than 16 KiB"),
        ({"offset": "100%"}, "leaves no room behind it"),
        ({"compression_ratio": 0.5}, "`compression_ratio` cannot be `0.5`"),
        ({"duplicate_fraction": 1.1}, "it should be less than or equal to 1"),
        ({"payload": "zeros", "compression_ratio": 2}, "zeros are fully reducible"),
        ({"block_size": 512, "duplicate_fraction": 0.5}, "`block_size` must be a multiple of that"),
        ({"duplicate_size": "2MiB"}, "`duplicate_size` must be a multiple of 4 KiB, at most 1 MiB"),
        ({"verify": "after", "backend": "null"}, "needs a target that keeps data"),
        ({"verify": "after", "trim_fraction": 0.1, "read_fraction": 0.5}, "the contents of trimmed blocks"),
        ({"verify": "after", "payload": "zeros"}, "there are no zeros and no duplicates"),
        ({"verify": "after", "block_size": 1000, "io_mode": "buffered"}, "in whole sectors of 512 B"),
        ({"verify": "after", "purge": "strongest"}, "leave out `purge`, `fill` and `precondition`"),
    ],
)
def test_parameters_that_do_not_fit_together_are_refused(parameters: dict[str, Any], message: str) -> None:
    assert message in refusal(**parameters)


def test_forms_of_text_and_of_toml_mean_the_same() -> None:
    same: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"block_size": "4k"}, {"block_size": 4096}),
        ({"block_size": [{"size": "4KiB", "weight": 7}, {"size": "64KiB", "weight": 3}]}, {"block_size": "4k/7:64k/3"}),
        ({"distribution": {"kind": "zipfian", "theta": 0.99}}, {"distribution": "zipfian:0.99"}),
        ({"durability": {"kind": "flush", "every": 8}}, {"durability": "flush:8"}),
        ({"cpus": "0-2"}, {"cpus": [0, 1, 2]}),
        ({"queue_depth": "4"}, {"queue_depth": 4}),
    ]
    for one, other in same:
        assert BLOCK.build(one) == BLOCK.build(other)


def test_a_spec_has_every_default_written_out() -> None:
    spec = spec_of()
    [stream] = spec["workload"].pop("streams")
    assert stream == {
        **{"name": "main", "jobs": 1, "queue_depth": 1, "io_mode": "direct", "spin_ns": 100_000, "cpus": []},
        "access": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": 4096, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": 1 << 30, "sharing": "shared"},
        **{"durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "payload": {"kind": "random"}},
        **{"limit_bytes": None, "limit_operations": None, "active": None},
    }
    assert spec["workload"] == {
        **{"kind": "block", "target": {"kind": "virtual", "size_bytes": 1 << 30}, "backend": {"kind": "null"}},
        **{"layout": "never", "page_cache": "keep", "verify": None},
        "ramp": {"duration_ns": 2 * 10**9, "bytes": None},
        **{"duration_ns": 10 * 10**9, "interval_ns": 10**9},
    }
    about = (spec["protocol"], spec["run_id"], spec["seed"], spec["observe"])
    assert about == (protocol.VERSION, "c0001-r1", 7, {"block_devices": []})


@pytest.mark.engine
def test_the_engine_knows_every_form_of_spec(schema: Draft202012Validator, tmp_path: Path) -> None:
    """The schema comes from the engine's own types, so a field that one side renames fails here."""
    forms: list[dict[str, Any]] = [
        {},
        {"access": "sequential", "files": "per_job", "span_sharing": "split"},
        {"access": "strided", "stride_blocks": 17, "backend": "sync", "durability": "dsync"},
        {"access": "strided", "stride": "1MiB", "durability": "flush:8", "read_fraction": 0, "payload": "zeros"},
        {"coverage": "each_once", "arrival": "constant", "rate": "1k", "limit_operations": 100, "duration": "none"},
        {"distribution": "zipfian:0.99", "arrival": "poisson", "rate": 10.5, "limit_bytes": "1MiB"},
        {"arrival": "poisson", "rate": "1k/10s:0/5s:500.5/1s", "active": "10s-20s", "spin": "0"},
        {"active": "3s-"},
        {
            "distribution": "hot_cold:0.2:0.8",
            "block_size": "4KiB/70:64KiB/30",
            "trim_fraction": 0.1,
            "read_fraction": 0,
        },
        {"backend": "null", "page_cache": "warm", "layout": "always", "cpus": "0-1"},
        {"backend": "simulated", "servers": 3, "service": "exponential", "ramp_bytes": "1MiB"},
    ]
    for parameters in forms:
        for target in (str(tmp_path), "null:1TiB", "simulated:servers=2"):
            stream = BLOCK.build(parameters)
            spec = BLOCK.resolve({"main": stream}, open_target(target), seed=1, run_id="c0001-r1")
            assert [error.message for error in schema.iter_errors(spec)] == []


def test_a_virtual_target_decides_the_backend_and_a_parameter_its_device() -> None:
    target = "simulated:servers=4,read=50us"
    simulated = fitted(target, backend="uring", queue_depth=8, write_service="10us")
    assert (simulated.backend, simulated.servers, simulated.service) == ("simulated", 4, "constant")
    assert (simulated.read_service, simulated.write_service) == (50_000, 10_000)
    assert fitted(target, servers=2).servers == 2
    assert fitted("null:1GiB").layout == "never"


def test_a_share_of_the_room_becomes_bytes_and_is_divided_among_files(tmp_path: Path) -> None:
    assert fitted("null:1GiB", span="50%").span == 512 << 20
    assert fitted("null:1GiB", span="50%", files="per_job", jobs=4).span == 128 << 20


def test_streams_that_run_together_agree_on_the_run() -> None:
    streams = {"reader": BLOCK.build({"duration": "1s"}), "writer": BLOCK.build({"duration": "2s"})}
    with pytest.raises(StudyError, match="streams that run together differ in `duration`") as caught:
        BLOCK.fit(streams, NULL, room_bytes=1 << 40)
    assert caught.value.hint == "`duration` is set once for the whole run: set it in the measurement"


def test_files_match_those_that_the_engine_creates(tmp_path: Path) -> None:
    def files(**parameters: Any) -> dict[str, int]:
        return BLOCK.files({"main": fitted(tmp_path, **parameters)})

    assert files(span="1MiB", offset="1MiB") == {"data": 2 << 20}
    assert files(span="1MiB", jobs=2, files="per_job") == {"main.0": 1 << 20, "main.1": 1 << 20}
    assert files(span="1MiB", backend="null") == {}
    journal = 4096 + 16 * 256
    verified = {"main": fitted(tmp_path, span="1MiB", verify="after")}
    assert (BLOCK.files(verified), BLOCK.journals(verified)) == ({"data": 1 << 20}, {"data.verify": journal})
    own = {"main": fitted(tmp_path, span="1MiB", jobs=2, files="per_job", verify="after")}
    assert BLOCK.journals(own).keys() == {"main.0.verify", "main.1.verify"}


@dataclass(frozen=True)
class Room:
    """A place of one GiB."""

    kind: str

    def backend(self) -> None:
        return None


@pytest.mark.parametrize("kind", ["directory", "device"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_verified_data_fills_a_device_and_leaves_room_for_its_journals_elsewhere(kind: str, jobs: int) -> None:
    own = {"jobs": jobs, "files": "per_job"} if jobs > 1 else {}
    for offset in ("0", "50%"):
        streams = {"main": BLOCK.build({"span": "100%", "offset": offset, "verify": "after", **own})}
        streams = dict(BLOCK.fit(streams, Room(kind), room_bytes=1 << 30))
        journals = BLOCK.journals(streams) if kind == "directory" else {}
        needed = sum((BLOCK.files(streams) | journals).values())
        assert (1 << 30) - jobs * (5 << 20) - (6 << 20) < needed <= 1 << 30


def test_a_share_starts_and_ends_within_the_room() -> None:
    for offset, span, expected in [("50%", "50%", (512, 512)), ("25%", "50%", (256, 512)), ("75%", "50%", (768, 256))]:
        stream = BLOCK.build({"span": span, "offset": offset})
        (fitted,) = BLOCK.fit({"main": stream}, Room("device"), room_bytes=1 << 30).values()
        assert (fitted.offset >> 20, fitted.span >> 20) == expected


def test_bytes_written_are_known_only_where_something_limits_them(tmp_path: Path) -> None:
    def written(**parameters: Any) -> int | None:
        return BLOCK.cost({"main": fitted(tmp_path, **parameters)}).write_bytes

    assert written(read_fraction=1) == 0
    assert written(read_fraction=0) is None
    assert written(read_fraction=0, limit_bytes="1MiB") is None, "the ramp is not limited"
    assert written(read_fraction=0, limit_bytes="1MiB", ramp="0") == 1 << 20
    assert written(read_fraction=0.5, limit_bytes="1MiB", ramp_bytes="64KiB") == (1 << 20) + (64 << 10)
    assert written(read_fraction=0, limit_operations=10, limit_bytes="1GiB", ramp="0") == 40960
    assert written(read_fraction=0.5, trim_fraction=0.5) == 0
    assert written(read_fraction=0, backend="null") == 0
    due = {"read_fraction": 0, "arrival": "constant", "rate": 1000, "ramp": "2s", "duration": "10s"}
    assert written(**due) == 12_000 * 4096
    assert written(**due, ramp_bytes="1MiB") == 12_000 * 4096, "arrivals of the ramp are carried over"
    assert written(**due, limit_bytes="1MiB") == 2_000 * 4096 + (1 << 20)


@pytest.mark.engine
@pytest.mark.parametrize(
    "load",
    [
        {"rate": 100.5, "durability": "flush:1"},
        {"rate": 3, "durability": "flush:1", "ramp": "0s"},
        {"rate": 997, "durability": "flush:3", "jobs": 4},
    ],
)
def test_an_open_loop_writes_what_is_planned(tmp_path: Path, load: dict[str, Any]) -> None:
    """On a device without delay every arrival is a write or a flush."""
    load = {"read_fraction": 0, "arrival": "constant", "span": "64MiB", "ramp": "2s", "duration": "10s", **load}
    fast = open_target("simulated:servers=4,write=1us,size=1GiB")
    streams = BLOCK.fit({"main": BLOCK.build(load)}, fast, room_bytes=fast.free_bytes())
    spec = json.dumps(BLOCK.resolve(streams, fast, seed=7, run_id="c0001-r1"))
    done = subprocess.run([real_engine()], input=spec.encode(), capture_output=True, check=True)
    events = [each for each in map(json.loads, done.stdout.splitlines()) if each["event"] == "interval"]
    operations = [each for event in events for stream in event["streams"] for each in stream["operations"]]
    written = sum(each["bytes"] for each in operations if each["operation"] == "write")
    assert BLOCK.cost({"main": fitted(tmp_path, **load)}).write_bytes == written


def test_time_is_ramp_and_measurement_or_an_estimate_from_the_limits(tmp_path: Path) -> None:
    def seconds(**parameters: Any) -> float:
        return BLOCK.cost({"main": fitted(tmp_path, **parameters)}).seconds

    assert seconds(ramp="2s", duration="10s") == 12
    assert seconds(ramp="0", duration="none", limit_bytes="500MB", block_size="1MiB") == 1
    assert seconds(ramp="1s", ramp_bytes="250MB", duration="2s", limit_bytes="500MB", block_size="1MiB") == 1.5
    assert seconds(ramp="1s", ramp_bytes="1GB", duration="500ms", limit_bytes="1GB", block_size="1MiB") == 1.5
    assert seconds(ramp="0", duration="10s", limit_bytes=20_000 * 4096) == 1, "small operations are slower"
    assert seconds(ramp="0", duration="none", limit_operations=3000, arrival="constant", rate=1000) == 3


sizes = st.integers(1, 1 << 17).map(lambda sectors: sectors * 512)


@given(st.lists(st.tuples(sizes, st.integers(1, 100)), min_size=2, max_size=5))
def test_a_mix_is_read_back_exactly(parts: list[tuple[int, int]]) -> None:
    text = ":".join(f"{compact_size(size)}/{weight}" for size, weight in parts)
    stream = BLOCK.build({"block_size": text, "span": "1TiB"})
    assert mix_of(stream.block_size) == [(size, float(weight)) for size, weight in parts]


def test_reducible_data_is_in_the_spec_on_request() -> None:
    reducible = spec_of(compression_ratio=2, duplicate_fraction=0.25)["workload"]["streams"][0]["payload"]
    assert reducible == {
        "kind": "reducible",
        "compression_ratio": 2.0,
        "duplicate_fraction": 0.25,
        "duplicate_bytes": 4096,
    }


def test_verification_is_in_the_spec(tmp_path: Path) -> None:
    streams = {"main": BLOCK.build({"verify": "during"})}
    spec = BLOCK.resolve(streams, open_target(str(tmp_path / "data")), seed=1, run_id="r")
    assert spec["workload"]["verify"] == {"when": "during", "journal_directory": None}


def test_verified_streams_do_not_mix_buffered_and_direct_io(tmp_path: Path) -> None:
    streams = {mode: BLOCK.build({"verify": "after", "io_mode": mode}) for mode in ("buffered", "direct")}
    with pytest.raises(StudyError, match="differ in `io_mode`"):
        BLOCK.fit(streams, open_target(str(tmp_path / "data")), room_bytes=1 << 30)
