"""Vector queries: parameters, the spec, and the prediction from the device's own rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hand_made import results

from iosonde.errors import StudyError
from iosonde.features.ai.questions import VectorQueries, vector_queries
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.planning import load
from iosonde.storage import open_target
from iosonde.study.workload import named

pytestmark = pytest.mark.unit

VECTOR = named("ai_vector")


def workload(target: Path | str, **parameters: Any) -> Any:
    streams = {"main": VECTOR.build(parameters)}
    return VECTOR.resolve(streams, open_target(str(target)), seed=1, run_id="r")["workload"]


def test_reads_have_one_size_or_a_range_and_an_index_has_its_directory(tmp_path: Path) -> None:
    one = workload(tmp_path, index_size="1GiB")
    several = workload(tmp_path, index_size="1GiB", read_size="12KiB", smallest_read_size="4KiB", hops=1, beam_width=64)
    assert (one["read_bytes"], several["read_bytes"]) == ([4096, 4096], [4096, 12288])
    targets = [one["target"], several["target"], workload(tmp_path, index_size="2GiB")["target"]]
    names = [Path(each["path"]).name for each in targets]
    assert names[0] == names[1] != names[2]
    assert workload("sim:pm963", index_size="1GiB")["target"] == {"kind": "virtual", "size_bytes": 1 << 30}
    [stream] = VECTOR.streams(one)
    assert (stream["jobs"], stream["io_mode"]) == (1, "direct")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"read_size": "5000B"}, "multiples of 4 KiB"),
        ({"smallest_read_size": "8KiB"}, "larger than `read_size`"),
        ({"index_size": "4KiB", "read_size": "8KiB"}, "larger than `index_size`"),
        ({"cached_fraction": 1.5}, "cached_fraction"),
        ({"hops": 0}, "hops"),
    ],
)
def test_contradictory_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        VECTOR.build(parameters)


def question(rates: dict[int, float], iops: dict[int, float], hosts: int = 0) -> VectorQueries:
    def scattered(value: float) -> list[float]:
        return [value, 1.001 * value, 0.999 * value]

    metrics = {
        "queries_per_sec": {(level,): scattered(rate) for level, rate in rates.items()},
        "reads_per_query": {(level,): [160.0] * 3 for level in rates},
    }
    found = [results(["concurrency"], metrics, part="graph", hops=40, jobs=None)]
    if iops:
        found.append(
            results(["jobs"], {"iops": {(level,): scattered(rate) for level, rate in iops.items()}}, part="device")
        )
    cases, runs = (pl.concat(frames, how="diagonal_relaxed") for frames in zip(*found, strict=True))
    study = load("ai-vector")
    [answer] = vector_queries(
        Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, support=Support(), hosts=hosts)
    )
    assert isinstance(answer, VectorQueries)
    return answer


def test_the_rate_is_compared_with_reads_of_the_same_number_in_flight() -> None:
    found = question({1: 400.0, 10: 900.0, 40: 800.0}, {1: 70_000.0, 10: 160_000.0, 40: 180_000.0})
    assert found.concurrency == 10
    assert found.over_prediction is not None
    assert found.over_prediction.value == pytest.approx(900 * 160 / 160_000, rel=1e-3)
    assert found.sentence.startswith("Vector queries of 40 hops: 900 queries/s")
    assert "0.90 (95 % CI ±0.3 %) of the prediction" in found.sentence


def test_without_reads_of_that_concurrency_there_is_no_prediction() -> None:
    assert question({1: 400.0, 10: 900.0}, {1: 70_000.0}).over_prediction is None
    assert question({1: 400.0}, {}).over_prediction is None


def test_the_concurrency_is_that_of_each_host() -> None:
    assert " at concurrency 1 on each of 4 hosts" in question({1: 400.0}, {}, hosts=4).sentence
