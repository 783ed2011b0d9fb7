"""Ingest of training data: published loads, scaled data sets, refusals, and the number of accelerators that storage feeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, pstdev
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import results

from iosonde.errors import StudyError, TargetError
from iosonde.features.ai.accelerators import AcceleratorsFed, accelerators_fed
from iosonde.features.ai.facts import AiFacts
from iosonde.features.ai.ingest import MODELS, sample_sizes
from iosonde.features.ai.verdict import accelerators_busy
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target
from iosonde.study.workload import named

pytestmark = pytest.mark.unit

INGEST = named("ai_ingest")
MB = 10**6


def workload(target: Path | str, **parameters: Any) -> Any:
    streams = {"main": INGEST.build(parameters)}
    return INGEST.resolve(streams, open_target(str(target)), seed=1, run_id="r")["workload"]


@pytest.mark.parametrize(
    ("model", "accelerator", "bytes_per_second"),
    [
        ("unet3d", "h100", 3177 * MB),
        ("unet3d", "b200", 6335 * MB),
        ("resnet50", "h100", 204.8 * MB),
        ("cosmoflow", "h100", 808.1 * MB),
        ("retinanet", "b200", 163.0 * MB),
        ("flux", "b200", 76.97 * MB),
        ("dlrm", "b200", 7980 * MB),
    ],
)
def test_an_accelerator_needs_the_published_bandwidth(model: str, accelerator: str, bytes_per_second: float) -> None:
    whole = INGEST.build({"model": model, "accelerator": accelerator})
    assert whole.batch * whole.record_size / whole.compute_time * 1e9 == pytest.approx(bytes_per_second, rel=1e-3)
    assert whole.files * whole.samples_per_file == MODELS[model].files * MODELS[model].samples_per_file


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scale", [0.5, 0.2])
def test_a_scaled_data_set_keeps_record_batch_and_compute_time(model: str, scale: float) -> None:
    whole, small = INGEST.build({"model": model}), INGEST.build({"model": model, "scale": scale})
    kept = ("loader", "record_size", "record_deviation", "batch", "read_threads", "prefetch", "compute_time")
    assert [getattr(small, name) for name in kept] == [getattr(whole, name) for name in kept]
    share = small.files * small.samples_per_file / (whole.files * whole.samples_per_file)
    assert share == pytest.approx(scale, rel=0.02)
    assert sum(INGEST.sizes_of_files(small)) == pytest.approx(share * whole.files * whole.samples_per_file
                                                             * whole.record_size, rel=1e-3)  # fmt: skip


def test_samples_are_fewer_before_readers_would_share_files() -> None:
    assert [getattr(INGEST.build({"scale": 0.01}), name) for name in ("files", "samples_per_file")] == [512, 25]
    given = INGEST.build({"files": 64, "samples_per_file": 3, "scale": 0.01, "loader": "samples", "batch": 2})
    assert (given.files, given.samples_per_file, given.request_size) == (64, 3, 1 << 20)


def test_sizes_of_samples_are_normal_and_positive() -> None:
    sizes = sample_sizes(10_000, 2_828_486, 71_311)
    assert (fmean(sizes), pstdev(sizes)) == (pytest.approx(2_828_486, abs=1), pytest.approx(71_311, rel=0.01))
    wide = sample_sizes(168, 146_600_628, 68_341_808)
    assert len(wide) == 168
    assert (fmean(wide), min(wide)) == (pytest.approx(146_600_628, abs=1), 14_660_063)
    assert sample_sizes(168, 146_600_628, 68_341_808) == wide
    assert list(sample_sizes(100, 4096, 0)) == [4096]


def test_a_spec_has_the_rule_from_which_the_engine_has_all_sizes(tmp_path: Path) -> None:
    parameters = {"model": "unet3d", "files": 5, "samples_per_file": 3, "batch": 1}
    found = workload(tmp_path, **parameters)
    names = ("loader", "files", "samples_per_file", "accelerators", "batch", "read_threads", "prefetch", "compute_ns")
    assert [found[name] for name in names] == ["samples", 5, 3, 1, 1, 4, 2, 323_000_000]
    assert len(found["sample_bytes"]) == 15
    stream = INGEST.build(parameters)
    samples = islice(cycle(found["sample_bytes"]), 15)
    assert [sum(islice(samples, 3)) for _ in range(5)] == INGEST.sizes_of_files(stream)
    directory = Path(found["target"]["path"])
    assert directory.name.startswith("ingest-")
    others = [workload(tmp_path, **parameters, **each) for each in ({"accelerators": 2}, {"record_size": "1MiB"})]
    assert [Path(each["target"]["path"]).name == directory.name for each in others] == [True, False]
    [stream] = INGEST.streams(workload(tmp_path, **parameters, accelerators=2))
    assert (stream["jobs"], stream["queue_depth"], stream["io_mode"]) == (2, 4, "direct")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "resnet"}, r"no training load `resnet`.*did you mean `resnet50`"),
        ({"model": "unet3d", "accelerator": "mi355"}, "no compute time of `unet3d` is published for `mi355`"),
        ({"accelerators": 200}, "200 accelerators need 1,600 files, got 1,024"),
        ({"model": "unet3d", "scale": 0.01, "accelerators": 3}, "3 accelerators need 3 samples, got 2"),
        ({"duration": "1s"}, "at least 10 steps of 224 ms"),
        ({"request_size": "5000B"}, "multiple of 4 KiB"),
        ({"page_cache": "warm"}, "does not use the page cache"),
    ],
)
def test_contradictory_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        INGEST.build(parameters)


def test_another_accelerator_needs_its_compute_time() -> None:
    assert INGEST.build({"accelerator": "own", "compute_time": "100ms"}).compute_time == 100 * MB


def test_a_data_set_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="free") as error:
        expand(load("ai-ingest"), open_target(str(tmp_path)), profile="quick", settings={"scale": "1.0"})
    assert "scale" in str(error.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_the_study_searches_whole_numbers_of_accelerators(tmp_path: Path) -> None:
    plan = expand(load("ai-ingest"), open_target(str(tmp_path)), profile="quick")
    procedures = [case.procedure for case in plan.adaptive]
    assert [procedure and procedure.settings["over"] for procedure in procedures] == ["accelerators"] * 3
    assert all(procedure and procedure.settings["whole"] for procedure in procedures)
    assert plan.layout_bytes < 7 * 10**9
    assert plan.cost.seconds < 300


def test_only_declared_parameters_can_be_searched() -> None:
    text = """
        name = "wrong"
        title = "Wrong"
        question = "?"
        workload = "ai_ingest"

        [[parts]]
        name = "main"
        title = "Main"

        [parts.search]
        over = "batch"
        between = [1, 8]
        holds = "accelerator_utilization >= 0.9"

        [profiles.standard]
    """
    with pytest.raises(StudyError, match="cannot search over `batch`"):
        parse(text)


def accelerator(steps: int, running: int, compute: int, data: int, barrier: int) -> dict[str, int]:
    return {
        "steps": steps,
        "running_ns": running,
        "compute_ns": compute,
        "data_wait_ns": data,
        "barrier_wait_ns": barrier,
    }


THREE = [accelerator(9, 1000, 900, 90, 10), accelerator(9, 1000, 900, 30, 70), accelerator(9, 1000, 900, 20, 80)]


def facts(accelerators: list[dict[str, int]]) -> AiFacts:
    spec = {"workload": {"kind": "ai_ingest", "batch": 4, "compute_ns": 100 * MB, "sample_bytes": [1000, 3000]}}
    return AiFacts(SimpleNamespace(result={"ai": {"accelerators": accelerators}}, spec=spec, parameters={}))  # type: ignore[arg-type]


def test_accelerators_need_the_mean_size_of_their_samples() -> None:
    assert facts(THREE).demand == pytest.approx(3 * 4 * 2000 / 0.1)
    assert facts([]).demand is None


def test_accelerators_that_compute_all_the_time_are_the_limit() -> None:
    def found(accelerators: list[dict[str, int]]) -> Any:
        result = {"ai": {"accelerators": accelerators}}
        return accelerators_busy.find(SimpleNamespace(facts=SimpleNamespace(result=result)))  # type: ignore[arg-type]

    assert found([accelerator(9, 1000, 960, 40, 0)]) == "accelerators computed 96 % of the time"
    assert [found(THREE), found([]), found([accelerator(0, 0, 0, 0, 0)])] == [None] * 3


def answer(
    utilization: Mapping[int, float], *, straggling: float = 1.0, waiting: float = 0.3, hosts: int = 0
) -> AcceleratorsFed:
    def every(value: float) -> dict[tuple[int], list[float]]:
        return {(count,): [value, 1.001 * value, 0.999 * value] for count in utilization}

    metrics = {
        "accelerator_utilization": {
            (count,): [value, 1.001 * value, 0.999 * value] for count, value in utilization.items()
        },
        "accelerator_demand": {(count,): [count * 205.0 * MB] * 3 for count in utilization},
        "bandwidth": every(300.0 * MB),
        "accelerator_straggling": every(straggling),
        "accelerator_data_wait_share": every(waiting),
    }
    study = load("ai-ingest")
    cases, runs = results(["accelerators"], metrics, part="images", model="resnet50", accelerator="h100")
    support = Support(verdicts={case_id: Counter({"device-limited": 3}) for case_id in cases["case_id"]})
    question = Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, support=support, hosts=hosts)
    [found] = accelerators_fed(question)
    assert isinstance(found, AcceleratorsFed)
    return found


def test_storage_feeds_the_largest_number_that_is_used_enough() -> None:
    found = answer({1: 1.0, 2: 0.97, 3: 0.93, 4: 0.81, 6: 0.5})
    assert (found.fed, found.threshold, [count for count, _ in found.levels]) == (3, 0.9, [3, 4])
    assert found.sentence.startswith("Ingest of resnet50 (h100): storage feeds 3 accelerators (utilization 0.93")
    assert found.sentence.endswith("4 accelerators need 820 MB/s, and read 300 MB/s; device-limited")
    assert {("boundary", case_id) for case_id in found.case_ids} <= found.facts


def test_one_accelerator_that_waits_too_long_states_what_it_needs() -> None:
    found = answer({1: 0.4})
    assert (found.fed, [count for count, _ in found.levels]) == (0, [1])
    assert "storage feeds no accelerator (utilization 0.4" in found.sentence
    assert found.sentence.endswith("1 accelerator needs 205 MB/s, and read 300 MB/s; device-limited")


def test_the_number_is_that_of_each_host() -> None:
    found = answer({1: 1.0, 2: 0.97, 3: 0.5}, hosts=2).sentence
    assert "storage feeds 2 accelerators on each of 2 hosts (utilization 0.97" in found
    assert "; 3 accelerators on each of 2 hosts need 615 MB/s" in found
    assert "storage feeds not even 1 accelerator on each of 2 hosts (" in answer({1: 0.4}, hosts=2).sentence


def test_more_than_were_tried_may_be_fed() -> None:
    found = answer({32: 1.0, 64: 0.98})
    assert (found.fed, found.limit) == (64, "")
    assert "storage feeds at least 64 accelerators (utilization 0.98" in found.sentence


def test_a_straggler_is_stated_where_it_waits_long() -> None:
    assert "waited 3.0 times as long for data as the median" in answer({1: 1.0, 2: 0.7}, straggling=3.0).sentence
    assert answer({1: 1.0, 2: 0.7}, straggling=3.0, waiting=0.05).straggling is None
