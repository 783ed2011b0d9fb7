"""Checkpoints: files of published training jobs, the spec, verdicts, and findings of known values."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hand_made import results, study
from measured import SECOND, record

from iosonde.errors import StudyError, TargetError
from iosonde.features.ai.checkpoint import files_of
from iosonde.features.ai.facts import AiFacts
from iosonde.features.ai.questions import CheckpointTime, checkpoint
from iosonde.features.ai.training import MODELS
from iosonde.features.ai.verdict import judge
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.metrics.verdict.evidence import Total
from iosonde.planning import expand, load
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.study.workload import named

MIB, GIB = 1 << 20, 1 << 30
CHECKPOINT = named("ai_checkpoint")

# Files, with the numbers of DLIO ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "parameters", "ranks", "optimizer_gib", "total_gib"),
    [
        ("8b", 8.03e9, 8, 11.218, 104.7),
        ("70b", 69.88e9, 64, 12.204, 911.2),
        ("405b", 405.85e9, 512, 8.860, 5292),
        ("1t", 1183e9, 1024, 12.913, 15427),
    ],
)
def test_ranks_and_sizes_are_those_of_the_published_training_jobs(
    model: str, parameters: float, ranks: int, optimizer_gib: float, total_gib: float
) -> None:
    job = MODELS[model]
    assert job.parameters == pytest.approx(parameters, rel=1e-3)
    files = files_of(model, 1.0, ranks)
    assert len(files) == job.ranks == ranks
    assert all(each[-1][0].endswith("_optim_states.pt") for each in files)
    assert {round(sum(each[-1][1]) / GIB, 3) for each in files} == {optimizer_gib}
    assert sum(sum(tensors) for each in files for _, tensors in each) / GIB == pytest.approx(total_gib, rel=5e-4)
    names = [name for each in files for name, _ in each]
    assert len(set(names)) == len(names)


def test_an_optimizer_file_has_three_large_tensors_and_three_small_ones() -> None:
    for model, mebibytes in (("8b", 3829), ("70b", 4165), ("405b", 3024), ("1t", 4407)):
        tensors = files_of(model, 1.0, 1)[0][-1][1]
        assert [round(size / MIB) for size in tensors[::2]] == [mebibytes] * 3
        assert tensors[1::2] == (20 * MODELS[model].hidden,) * 3


def test_with_zero_3_each_rank_has_a_shard_of_the_model_in_one_file() -> None:
    for model, gibibytes in (("8b", 1.870), ("70b", 2.034)):
        files = files_of(model, 1.0, MODELS[model].ranks)
        assert {len(each) for each in files} == {2}
        assert {round(sum(each[0][1]) / GIB, 3) for each in files} == {gibibytes}
    assert [name for name, _ in files_of("70b", 1.0, 64)[63]] == [
        "zero_pp_rank_7_mp_rank_7_model_states.pt",
        "zero_pp_rank_7_mp_rank_7_optim_states.pt",
    ]
    assert len(files_of("8b", 1.0, 1)[0][0][1]) == 32 * 6 + 3


@pytest.mark.parametrize(("model", "count", "mebibytes"), [("405b", 1032, 760), ("1t", 1048, 2191)])
def test_with_zero_1_the_first_data_parallel_ranks_have_a_file_of_each_layer(
    model: str, count: int, mebibytes: int
) -> None:
    files = files_of(model, 1.0, MODELS[model].ranks)
    model_ranks = MODELS[model].tensor * MODELS[model].pipeline
    assert all(len(each) == 1 for each in files[model_ranks:])
    layers = [file for each in files for file in each[:-1]]
    assert len(layers) == count
    assert int(median(sum(tensors) for _, tensors in layers) / MIB) == mebibytes
    last = MODELS[model].layers + 2
    assert layers[0][0] == "layer_0-model_0_model_states.pt"
    assert layers[-1][0] == f"layer_{last}-model_{model_ranks - 1}_model_states.pt"
    assert layers[-1][1] == (2 * MODELS[model].hidden,)


def test_a_scale_keeps_files_and_tensors() -> None:
    whole, scaled = files_of("405b", 1.0, 8), files_of("405b", 0.01, 8)
    for each, small in zip(whole, scaled, strict=True):
        for (name, tensors), (same, less) in zip(each, small, strict=True):
            assert (name, len(tensors)) == (same, len(less))
            assert sum(less) == pytest.approx(sum(tensors) / 100, rel=1e-3)


# Spec -----------------------------------------------------------------------------------------------------------------


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": CHECKPOINT.build({"scale": 1e-4, **parameters})}
    return CHECKPOINT.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_a_spec_has_the_files_of_each_rank(tmp_path: Path) -> None:
    found = spec(tmp_path, ranks=2, mode="background", checkpoint_count=4)
    assert (found["mode"], found["sync"], found["checkpoints"], found["pause_ns"]) == (
        "background",
        True,
        4,
        5 * SECOND,
    )
    assert [[file["name"] for file in rank] for rank in found["ranks"]] == [
        [f"zero_pp_rank_{rank}_mp_rank_0_{kind}_states.pt" for kind in ("model", "optim")] for rank in range(2)
    ]
    assert [stream["jobs"] for stream in CHECKPOINT.streams(found)] == [4], "each rank has a thread that writes"
    assert Path(found["target"]["path"]).parent.parent == tmp_path


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "9b"}, "model"),
        ({"ranks": 9}, "`ranks` must be at most 8 for `8b`; got 9"),
        ({"request_size": "6000B"}, "multiple of 4 KiB"),
        ({"scale": 2}, "scale"),
        ({"mode": "mmap"}, "mode"),
        ({"keep": 0}, "keep"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        CHECKPOINT.build(parameters)


def test_too_little_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The last checkpoints and the next one are there together."""
    with pytest.raises(TargetError, match="no room on") as error:
        expand(load("ai-checkpoint"), open_target(str(tmp_path)), settings={"scale": "1", "keep": "1000"})
    assert "`keep`" in error.value.where
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TargetError, match="stores nothing"):
        expand(load("ai-checkpoint"), open_target("null:1TiB"), profile="quick")


def test_the_quick_profile_is_short_and_small(tmp_path: Path) -> None:
    plan = expand(load("ai-checkpoint"), open_target(str(tmp_path)), profile="quick")
    assert plan.cost.seconds < 180
    assert plan.cost.write_bytes is not None
    assert plan.cost.write_bytes < 6e9


# Facts and verdict ----------------------------------------------------------------------------------------------------


def step(returned_s: float, complete_s: float, median_s: float) -> dict[str, int]:
    times = {"returned_ns": returned_s, "complete_ns": complete_s, "complete_median_ns": median_s}
    return {"begin_ns": 0, **{name: int(seconds * SECOND) for name, seconds in times.items()}}


def run_of(*, cpu_s: float = 0.4, cached: int | None = 0) -> Record:
    """A record of four ranks with two checkpoints of 3 and 1 s and a restore of 2 s."""
    run = record(client_s=cpu_s)
    restore = step(2.0, 2.0, 2.0) | ({} if cached is None else {"cached_bytes": cached})
    ai = {"file_bytes": 1000, "checkpoints": [step(2.0, 3.0, 1.5), step(1.0, 1.0, 0.5)], "restores": [restore]}
    result = {**(run.result or {}), "ai": ai, "backend": {"kind": "sync"}}
    spec = {"workload": {"kind": "ai_checkpoint", "ranks": [[]] * 4}}
    return run.model_copy(update={"result": result, "spec": spec})


def test_the_time_of_training_between_checkpoints_is_not_counted() -> None:
    facts = AiFacts(run_of())
    assert facts.active_ns == 6 * SECOND
    assert facts.slowdown == pytest.approx(1 / 3)
    assert facts.restore_cached_fraction == 0
    assert AiFacts(run_of(cached=None)).restore_cached_fraction is None


@pytest.mark.parametrize(
    ("cpu_s", "waited_s", "cached", "kind"),
    [
        (2.0, 20.0, 0, "device-limited"),
        (2.0, 20.0, None, "device-limited"),
        (11.0, 20.0, 0, "harness-limited"),
        (2.0, 20.0, 500, "cache-served"),
        (2.0, 6.0, 0, "undetermined"),
    ],
)
def test_the_time_of_the_ranks_decides(cpu_s: float, waited_s: float, cached: int | None, kind: str) -> None:
    total = Total(stream="ranks", operation="write", count=9, bytes=9, completion_latency_ns_sum=int(waited_s * SECOND))
    verdict = judge(run_of(cpu_s=cpu_s, cached=cached), [total], 2)
    assert verdict is not None
    assert verdict.kind == kind
    assert verdict.evidence["io_wait_share"] == pytest.approx(waited_s / 24, abs=1e-3)
    assert verdict.evidence["rank_cpu_share"] == pytest.approx(cpu_s / 12, abs=1e-3)


@pytest.mark.parametrize(("spread_s", "kind"), [(0.04, "device-limited"), (0.06, "undetermined")])
def test_hosts_must_start_each_checkpoint_within_5_percent_of_its_time(spread_s: float, kind: str) -> None:
    run = run_of()
    assert run.result
    run.result["ai"]["checkpoints"][1]["begin_spread_ns"] = int(spread_s * SECOND)
    total = Total(stream="ranks", operation="write", count=9, bytes=9, completion_latency_ns_sum=20 * SECOND)
    verdict = judge(run, [total], 2)
    assert verdict and verdict.kind == kind


# Findings -------------------------------------------------------------------------------------------------------------


def around(value: float) -> list[float]:
    return [0.99 * value, value, 1.01 * value]


def times(**changed: float) -> list[CheckpointTime]:
    """Checkpoints that are buffered, and written in the background in half the time."""
    usual = {
        "durable_seconds": 4.0, "returned_seconds": 4.0, "restore_seconds": 3.0, "durable_straggler": 1.5,
    } | changed  # fmt: skip
    values = {f"checkpoint_{name}": {("buffered",): around(value)} for name, value in usual.items()}
    values["checkpoint_bytes"] = {("buffered",): [float(GIB)] * 3}
    background = {**values, "checkpoint_durable_seconds": {("background",): around(2.0)}}
    background["checkpoint_returned_seconds"] = {("background",): around(0.5)}
    for name, each in values.items():
        each |= {("background",): next(iter(background[name].values()))}
    cases, runs = results(["mode"], values, checkpoint_count=10)
    asked = {"kind": "checkpoint", "over": "mode", "metric": "checkpoint_durable_seconds", "part": "main"}
    of = study({"mode": ["buffered", "background"]}, [asked], workload="ai_checkpoint")
    question = Question(study=of, analysis=of.analysis[0], cases=cases, runs=runs, support=Support())
    return [each for each in checkpoint(question) if isinstance(each, CheckpointTime)]


def test_times_of_each_mode_are_stated_the_shortest_until_durable_first() -> None:
    background, buffered = times()
    assert {name: time.value for name, time in background.times.items()} == {
        "returned": 0.5, "durable": 2.0, "restore": 3.0,
    }  # fmt: skip
    assert background.sentence.startswith("Background checkpoints of 1 GiB: returned after 500 ms (95 % CI ")
    assert "; durable after 2 s (95 % CI " in background.sentence
    assert "; the slowest rank takes 1.50 times the median" in background.sentence
    assert buffered.sentence.startswith("Buffered checkpoints of 1 GiB: durable after 4 s (95 % CI ")
    assert not any(each in buffered.sentence for each in ("returned", "page cache", "the last"))


def test_a_restore_that_the_page_cache_served_is_labelled() -> None:
    assert "25 % of it from the page cache" in times(cached_fraction=0.25)[0].sentence
    assert "page cache" not in times(cached_fraction=0.005)[0].sentence


@pytest.mark.parametrize(("slowdown", "is_slower"), [(4.0, True), (1.0, False)])
def test_the_last_checkpoint_in_a_row_is_compared_with_the_first(slowdown: float, is_slower: bool) -> None:
    found = times(slowdown=slowdown)[0]
    assert found.slowdown is not None
    assert (found.slowdown.value, found.slowdown.above(1)) == (pytest.approx(slowdown), is_slower)
    assert "the last of 10 takes" in found.sentence
    assert ("not measurably different" in found.sentence) == (not is_slower)
