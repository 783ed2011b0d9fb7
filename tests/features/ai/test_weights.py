"""Loading of weights: sizes of published models, files of the user, refusals, and the strategy that a study recommends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hand_made import results

from iosonde.errors import StudyError, TargetError
from iosonde.features.ai.questions import LoadStrategy, load_strategy
from iosonde.features.ai.weights import SHARD_BYTES, AiWeightsParameters, files_of, generated
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.planning import expand, load
from iosonde.storage import open_target
from iosonde.study.workload import named

pytestmark = pytest.mark.unit

WEIGHTS = named("ai_weights")


def workload(target: Path | str, **parameters: Any) -> Any:
    streams = {"main": WEIGHTS.build(parameters)}
    return WEIGHTS.resolve(streams, open_target(str(target)), seed=1, run_id="r")["workload"]


def safetensors(path: Path, tensors: dict[str, list[int]], *, padding: int = 0) -> Path:
    """A file in the format, with tensors of bytes between the offsets."""
    header = {
        name: {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
        for name, (begin, end) in tensors.items()
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode() + b" " * padding
    size = max(end for _, end in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


@pytest.mark.parametrize(
    ("model", "bytes_of_tensors", "files"),
    [
        ("llama2-7b", 13_476_831_232, 3),
        ("llama3.1-8b", 16_060_522_496, 4),
        ("llama3-70b", 141_107_412_992, 30),
        ("mistral-7b", 14_483_464_192, 3),
        ("qwen2.5-7b", 15_231_233_024, 4),
        ("qwen3-8b", 16_381_470_720, 4),
        ("qwen3-32b", 65_524_246_528, 14),
    ],
)
def test_models_have_the_published_size(model: str, bytes_of_tensors: int, files: int) -> None:
    """`total_size` of `model.safetensors.index.json` of these models; the files are as few as 5 GB each permit."""
    found = generated(model, 1.0)
    assert sum(each.bytes - each.tensors[0] for each in found) == bytes_of_tensors
    assert len(found) == files
    assert all(each.bytes - each.tensors[0] <= SHARD_BYTES for each in found)


def test_a_scaled_model_keeps_its_files_and_tensors() -> None:
    whole, small = generated("llama3.1-8b", 1.0), generated("llama3.1-8b", 0.0625)
    assert [len(each.tensors) for each in small] == [len(each.tensors) for each in whole]
    share = sum(each.bytes for each in small) / sum(each.bytes for each in whole)
    assert share == pytest.approx(0.0625, rel=1e-3)


def test_loads_of_the_same_files_share_their_directory(tmp_path: Path) -> None:
    one = workload(tmp_path)
    same, other = workload(tmp_path, strategy="direct", threads=8), workload(tmp_path, scale=0.5)
    names = [Path(each["target"]["path"]).name for each in (one, same, other)]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("weights-")
    assert (one["generate"], one["strategy"], one["page_cache"]) == (True, "mmap", "drop")
    assert "backend" not in one


def test_files_of_the_user_are_read_in_the_order_of_their_names_and_not_written(tmp_path: Path) -> None:
    second = safetensors(tmp_path / "b.safetensors", {"late": [4096, 8192], "early": [0, 4096], "empty": [0, 0]})
    first = safetensors(tmp_path / "a.safetensors", {"one": [0, 10]}, padding=7)
    (tmp_path / "c.safetensors").symlink_to(first)
    found = workload(tmp_path, files=str(tmp_path / "*.safetensors"))
    assert [Path(each["path"]) for each in found["files"]] == [first, second]
    start = found["files"][1]["tensors"][0]
    assert found["files"][1]["tensors"] == [start, start + 4096]
    assert found["files"][1]["bytes"] == second.stat().st_size == start + 8192
    assert not found["generate"]
    stream = {"main": WEIGHTS.build({"files": str(tmp_path / "*.safetensors")})}
    assert (WEIGHTS.layout(stream), set(WEIGHTS.files(stream).values())) == ("never", {0})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "header of 0 bytes"),
        (b"\xff" * 64, "header of"),
        ((2).to_bytes(8, "little") + b"{}", "describes 0 tensors, 10 of 10 bytes"),
        ((2).to_bytes(8, "little") + b"[]" + bytes(9), "cannot be read"),
        ((9).to_bytes(8, "little") + b"not JSON!" + bytes(9), "cannot be read"),
        (
            (64).to_bytes(8, "little") + b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}'.ljust(64) + bytes(8),
            "1 tensors, 81 of 80 bytes",
        ),
    ],
)
def test_a_file_in_another_format_is_refused_before_anything_is_written(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(StudyError, match=reason) as error:
        expand(load("ai-weights"), open_target(str(tmp_path)), profile="quick", settings={"files": f"{tmp_path}/*"})
    assert "by the parameter `files`" in str(error.value.where)
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]


def test_files_that_do_not_exist_or_are_elsewhere_and_unknown_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no file matches"):
        workload(tmp_path, files=str(tmp_path / "*.bin"))
    with pytest.raises(StudyError, match=r"no model `lama3.1-8b`.*did you mean `llama3.1-8b`"):
        WEIGHTS.build({"model": "lama3.1-8b"})
    with pytest.raises(StudyError, match="multiple of 4 KiB"):
        WEIGHTS.build({"request_size": "5000B"})
    path = safetensors(tmp_path / "a.safetensors", {"one": [0, 10]})
    with pytest.raises(TargetError, match="not on the file system of the target") as error:
        workload("/dev/shm", files=str(path))
    assert f"--target {tmp_path}" in str(error.value.hint)
    with pytest.raises(TargetError, match="is simulated"):
        workload("sim:pm963", files=str(path))
    with pytest.raises(TargetError, match="stores nothing"):
        workload("null:")


def test_a_simulated_drive_has_the_files_one_after_the_other() -> None:
    found = workload("sim:pm963", scale=0.01, strategy="direct")
    sizes = [each.bytes for each in files_of(AiWeightsParameters(scale=0.01))]
    assert found["target"]["kind"] == "virtual"
    assert found["target"]["size_bytes"] == sum(-(-size // (1 << 20)) << 20 for size in sizes)


def recommended(cached: str = "", **rates: list[float]) -> LoadStrategy:
    study = load("ai-weights")
    values = {(name.replace("_", " "),): each for name, each in rates.items()}
    cases, runs = results(["loader"], {"weights_load_rate": values}, part="cold", strategy="mmap", page_cache="drop")
    kinds = {each: "cache-served" if cached and cached in each else "device-limited" for each in cases["case_id"]}
    support = Support(verdicts={case_id: Counter({kind: 3}) for case_id, kind in kinds.items()})
    [found] = load_strategy(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, support=support))
    assert isinstance(found, LoadStrategy)
    return found


def test_the_fastest_strategy_is_compared_with_the_memory_map() -> None:
    found = recommended(mmap=[1.0e9, 1.01e9, 0.99e9], direct=[3.4e9, 3.41e9, 3.39e9], read=[3.4e9, 3.38e9, 3.42e9])
    assert found.over_map is not None
    assert found.over_map.value == pytest.approx(3.4, rel=0.01)
    assert (found.tied, found.is_map_limited_itself) == (2, True)
    assert found.sentence.startswith("Cold loads of weights are fastest with direct (read: not measurably different)")
    assert "the device is the limit; the device is not the limit of the memory map" in found.sentence


def test_a_memory_map_that_is_fastest_has_no_ratio() -> None:
    found = recommended(mmap=[2e9, 2.01e9, 1.99e9], direct=[1e9, 1.01e9, 0.99e9])
    assert (found.over_map, found.tied, found.is_map_limited_itself) == (None, 1, False)
    assert "times" not in found.sentence


def test_a_strategy_that_the_page_cache_served_is_not_recommended() -> None:
    values = {"mmap": [1.0e9, 1.01e9, 0.99e9], "direct": [2e9, 2.01e9, 1.99e9], "read": [9e9, 9.01e9, 8.99e9]}
    assert recommended(**values).levels[0][0] == "read"
    found = recommended(cached="read", **values)
    assert [name for name, _ in found.levels] == ["direct", "mmap"]
    assert "9 GB/s" not in found.sentence
