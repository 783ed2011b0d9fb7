"""KV caches: bytes of tokens, traces, models of requests, specs, and what a study states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hand_made import results

from iosonde.errors import StudyError, TargetError
from iosonde.features.ai import kv_trace
from iosonde.features.ai.kv_cache import AiKvCacheParameters
from iosonde.features.ai.questions import KvBreakEven, KvWear, kv_cache
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.planning import load
from iosonde.storage import open_target
from iosonde.study.workload import named

pytestmark = pytest.mark.unit

KV = named("ai_kv_cache")
KIB = 1024


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def workload(target: Path | str, **parameters: Any) -> Any:
    streams = {"main": KV.build({"requests": 50, "scale": 0.001, **parameters})}
    return KV.resolve(streams, open_target(str(target)), seed=1, run_id="r")["workload"]


@pytest.mark.parametrize(
    ("model", "token_bytes"),
    [
        ("llama2-7b", 512 * KIB),
        ("llama3.1-8b", 128 * KIB),
        ("mistral-7b", 128 * KIB),
        ("llama3-70b", 320 * KIB),
        ("llama3.1-405b", 504 * KIB),
        ("qwen2.5-7b", 56 * KIB),
        ("qwen3-8b", 144 * KIB),
        ("qwen3-32b", 256 * KIB),
        ("gpt-oss-120b", 72 * KIB),
        ("gpt-oss-20b", 48 * KIB),
        ("deepseek-v3", 70_272),
        ("deepseek-r1", 70_272),
    ],
)
def test_tokens_of_models_have_the_known_bytes(model: str, token_bytes: int) -> None:
    assert AiKvCacheParameters(model=model).token_bytes == token_bytes
    assert AiKvCacheParameters(model=model, element_size=1, tensor_parallel=2).token_bytes == token_bytes / 4


def test_a_scale_shrinks_blocks_and_keeps_their_number() -> None:
    whole = KV.build({"capacity": "640GiB"})
    assert (whole.block_bytes, whole.capacity_blocks) == (64 << 20, 10_240)
    scaled = KV.build({"capacity": "640GiB", "scale": 1 / 128})
    assert (scaled.block_bytes, scaled.capacity_blocks, scaled.file_bytes) == (512 * KIB, 10_240, 5 << 30)
    own = KV.build({"model": "mine", "layers": 10, "layer_elements": 1024, "block_tokens": 16})
    assert own.full_block_bytes == 10 * 1024 * 2 * 16


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "llama3.1-8"}, "llama3.1-8b"),
        ({"model": "mine", "layers": 3}, "layer_elements"),
        ({"capacity": "1MiB"}, "at least one block"),
        ({"model": "llama2-7b", "block_tokens": 4096}, "at most 1 GiB"),
        ({"requests": 10, "warm_requests": 10}, "must be below"),
        ({"endurance": "600TB"}, "600TBW"),
        ({"speed": 0}, "speed"),
    ],
)
def test_contradictory_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        KV.build(parameters)


def test_endurance_is_written_bytes_or_drive_writes_per_day() -> None:
    assert KV.build({"endurance": "600TBW"}).endurance_bytes(None) == 600e12
    assert KV.build({"endurance": "0.5DWPD"}).endurance_bytes(2 * 10**12) == 0.5 * 2e12 * 365 * 5
    assert KV.build({"endurance": "0.5DWPD"}).endurance_bytes(None) is None
    assert KV.build({"endurance": "none"}).endurance_bytes(10**12) is None


LINES = (
    {"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 9, 50]},
    {"timestamp": 1000, "input_length": 512, "output_length": 5, "hash_ids": [7]},
    {"timestamp": 2500, "input_length": 1025, "output_length": 5, "hash_ids": [7, 9, 3]},
)


def written(tmp_path: Path, *lines: Any) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_trace_becomes_times_and_blocks_numbered_by_their_first_occurrence(tmp_path: Path) -> None:
    found = kv_trace.converted(written(tmp_path, *LINES), 512)
    words = np.fromfile(found.path, dtype="<u8").tolist()
    assert words[0].to_bytes(8, "little") == b"ioskvrq1"
    assert words[1:] == [4, 3, 0, 0, 1_500_000_000, 3, 1, 3, 0, 1, 2, 0, 0, 1, 3]
    assert (found.rows, found.blocks_until(0, None, 1.0)) == (3, (1.5, 7))
    assert found.blocks_until(1, 10**9, 2.0) == (0.75, 4)
    assert found.blocks_until(0, 10**9, 1.0) == (1.0, 4)
    table = tmp_path / "trace.parquet"
    pl.DataFrame(LINES).write_parquet(table)
    assert np.fromfile(kv_trace.converted(str(table), 512).path, dtype="<u8").tolist() == words


@pytest.mark.parametrize(
    ("lines", "message", "line"),
    [
        ([LINES[2], LINES[0]], "1000 ms after 2500 ms", 2),
        ([LINES[0], {**LINES[1], "hash_ids": []}], "has 0 `hash_ids` for 512 tokens", 2),
        ([{"timestamp": 0, "hash_ids": [1]}], "input_length", 1),
        ([{**LINES[0], "input_length": 0}], "input_length", 1),
        ([{**LINES[0], "input_length": 512}], "has 3 `hash_ids` for 512 tokens", 1),
        ([LINES[0], "{]\n"], "JSON", 2),
        ([{**LINES[0], "timestamp": -1}], "timestamp", 1),
        ([{**LINES[0], "timestamp": None}], "timestamp", 1),
        ([], "no requests", None),
    ],
)
def test_an_invalid_trace_is_refused_with_its_line_before_anything_is_written(
    tmp_path: Path, lines: list[Any], message: str, line: int | None
) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        kv_trace.converted(written(tmp_path, *lines), 512)
    assert line is None or f"line {line}\n" in str(caught.value.where)
    assert not kv_trace.directory().exists()


def test_a_parquet_file_without_a_column_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "trace.parquet"
    pl.DataFrame(LINES).drop("timestamp").write_parquet(table)
    with pytest.raises(StudyError, match='unable to find column "timestamp"') as caught:
        kv_trace.converted(str(table), 512)
    assert "\n" not in caught.value.what


def test_requests_need_a_cache_directory(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    for find in (
        lambda: kv_trace.drawn("synthetic-like", 5, 1),
        lambda: kv_trace.converted(written(tmp_path, *LINES), 512),
    ):
        with pytest.raises(TargetError, match=r"cannot keep the trace in .*: Not a directory"):
            find()


def test_a_missing_trace_and_too_many_warm_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        kv_trace.converted(str(tmp_path / "absent"), 512)
    with pytest.raises(StudyError, match="3 requests"):
        workload(tmp_path, trace=written(tmp_path, *LINES), warm_requests=3)


@pytest.mark.parametrize(
    ("model", "requests", "blocks", "hits", "per_second"),
    [("conversation-like", 12_031, 24.0, 0.366, 3.4), ("synthetic-like", 3993, 30.5, 0.640, 3.9)],
)
def test_models_are_near_the_published_traces(
    model: str, requests: int, blocks: float, hits: float, per_second: float
) -> None:
    """Mean blocks of a request, hits of a cache without limit, and requests per second."""
    trace = kv_trace.drawn(model, requests, 1)
    words = np.fromfile(trace.path, dtype="<u8").tolist()
    looked_up = sum(words[3 + trace.rows : 3 + 2 * trace.rows])
    assert looked_up / trace.rows == pytest.approx(blocks, rel=0.1)
    assert 1 - words[1] / looked_up == pytest.approx(hits, rel=0.06)
    assert trace.rows / (words[2 + trace.rows] / 1e9) == pytest.approx(per_second, rel=0.12)
    assert kv_trace.drawn(model, requests, 1) == trace
    assert kv_trace.drawn(model, requests, 2).digest != trace.digest


def test_the_spec_has_blocks_and_a_trace_in_the_cache_directory(tmp_path: Path) -> None:
    found = workload(tmp_path, layout="renamed", io_mode="buffered", durability="fsync", dram="1GiB", batch="serial")
    assert (found["block_bytes"], found["capacity_blocks"], found["dram_blocks"]) == (65_536, 10_240, 16)
    assert [found[name] for name in ("layout", "is_direct", "sync", "is_parallel")] == ["renamed", False, True, False]
    case = {"requests": 50}
    assert KV.problem(found, case, open_target(str(tmp_path))) == ""
    elsewhere = {**found, "trace": {**found["trace"], "path": "/etc/passwd"}}
    assert "outside" in KV.problem(elsewhere, case, open_target(str(tmp_path)))
    names = {Path(workload(tmp_path, layout=layout)["target"]["path"]).name for layout in ("flat", "slots")}
    assert len(names) == 1
    assert [(stream["name"], stream["jobs"]) for stream in KV.streams(found)] == [("loads", 4), ("stores", 4)]
    assert workload("sim:pm963")["target"] == {"kind": "virtual", "size_bytes": 10_240 * 65_536}


def test_a_converted_trace_that_was_removed_is_converted_again_unless_the_trace_has_changed(tmp_path: Path) -> None:
    place = open_target(str(tmp_path))
    given: dict[str, Any] = {"trace": written(tmp_path, *LINES), "block_tokens": 512}
    for parameters in ({"requests": 50, "traffic": "synthetic-like", "traffic_seed": 3}, given):
        planned = workload(tmp_path, **parameters)
        converted = Path(planned["trace"]["path"])
        words = converted.read_bytes()
        converted.unlink()
        assert KV.problem(planned, parameters, place) == ""
        assert converted.read_bytes() == words
    written(tmp_path, LINES[0])
    assert KV.problem(planned, given, place) == "", "the one that was planned is still there"
    converted.unlink()
    with pytest.raises(StudyError, match="not the one that was planned"):
        KV.problem(planned, given, place)
    Path(given["trace"]).unlink()
    with pytest.raises(StudyError, match="No such file"):
        KV.problem(planned, given, place)


def found(metrics: dict[str, dict[str, float]], **parameters: Any) -> list[Any]:
    def scattered(value: float) -> list[float]:
        return [value, 1.001 * value, 0.999 * value]

    of_cells = {
        metric: {(level,): scattered(value) for level, value in cells.items()} for metric, cells in metrics.items()
    }
    of_case = {"traffic": "conversation-like", "model": "llama3.1-8b", **parameters}
    cases, runs = results(["arrangement"], of_cells, part="layouts", **of_case)
    study = load("ai-kv-cache")
    analysis = study.analysis[0]
    return list(kv_cache(Question(study=study, analysis=analysis, cases=cases, runs=runs, support=Support())))


METRICS = {
    "kv_break_even": {"slots": 12_300.0, "flat directory": 12_300.0, "rename": 9000.0},
    "kv_hit_fraction": {"slots": 0.25},
    "kv_storage_hit_fraction": {"slots": 0.21},
    "kv_common_hit_fraction": {"slots": 0.042},
    "kv_writes_per_read": {"slots": 3.74},
    "kv_write_bytes_per_day": {"slots": 275.0 * 2**40},
}


def test_a_study_states_the_break_even_speed_and_the_wear() -> None:
    speed, wear = found(METRICS)
    assert isinstance(speed, KvBreakEven)
    assert [name for name, _ in speed.levels] == ["slots", "flat directory", "rename"]
    assert speed.tied == 2
    assert speed.sentence.startswith("KV cache of llama3.1-8b: loading beats recomputation if prefill")
    assert "loading beats recomputation if prefill is slower than 12.3 k tokens/s" in speed.sentence
    assert isinstance(wear, KvWear)
    assert (wear.common, wear.life_years) == (pytest.approx(0.042, rel=0.01), None)
    assert wear.dram == pytest.approx(0.04, rel=0.02)
    for part in ("25.0 % hits", "4.2 % of the block common", "3.74 blocks written", "275 TiB", "--set endurance="):
        assert part in wear.sentence
    speed, wear = found({**METRICS, "kv_drive_life_years": {"slots": 2.13}}, scale=1 / 256, speed=5.0)
    assert speed.sentence.startswith(
        "KV cache of llama3.1-8b with blocks of 0.00391 of their size, at 2.0 % of the bandwidth of the trace: loading"
    )
    assert wear.sentence.startswith("KV cache of llama3.1-8b: 25.0 % hits"), "hits and wear are those of full blocks"
    assert "drive life 2.13 years" in wear.sentence
