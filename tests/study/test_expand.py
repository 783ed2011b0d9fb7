"""From a study to a plan: which cases, in which order, with which settings, at what cost."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.errors import IosondeError
from iosonde.plan import Plan
from iosonde.planning import expand, load, parse, study_size
from iosonde.storage import open_target
from iosonde.study.model import Study

NULL = open_target("null:1TiB")

STUDY = """
name = "mine"
title = "Mine"
question = "?"
seed = 5

[measurement]
span = "1GiB"
duration = "1s"
ramp = "0"
limit_bytes = "1MiB"

[[parts]]
name = "grid"
[parts.measurement]
jobs = 2
[parts.factors]
block_size = ["512B", "4KiB", "1MiB"]
queue_depth = [1, 4]
operation = [
  { label = "read", set = { read_fraction = 1.0 } },
  { label = "write", set = { read_fraction = 0.0, jobs = 1 } },
]
[[parts.exclude]]
block_size = "512B"
operation = "write"
[[parts.exclude]]
block_size = "1MiB"

[[parts]]
name = "together"
[[parts.streams]]
name = "reader"
set = { read_fraction = 1.0, block_size = "8KiB" }
[[parts.streams]]
name = "writer"
set = { read_fraction = 0.0 }
[parts.factors]
"writer.queue_depth" = [1, 8]

[profiles.standard]
[profiles.quick]
repeats = 2
measurement = { duration = "100ms", block_size = "16KiB", "writer.jobs" = 3 }
factors.queue_depth = [1]
parts.together = { jobs = 4 }
"""


def plan_of(text: str = STUDY, target: str | Path = "null:1TiB", **options: Any) -> Plan:
    return expand(parse(text), open_target(str(target)), **options)


def refusal(text: str = STUDY, target: str | Path = "null:1TiB", **options: Any) -> str:
    with pytest.raises(IosondeError) as caught:
        plan_of(text, target, **options)
    return str(caught.value).replace(str(target), "DIR")


def test_cases_are_the_product_of_the_factors_without_what_is_excluded() -> None:
    grid = [
        f"grid/block_size={size}/queue_depth={depth}/operation={operation}"
        for size, operations in (("512B", ("read",)), ("4KiB", ("read", "write")))
        for depth, operation in itertools.product((1, 4), operations)
    ]
    together = [f"together/writer.queue_depth={depth}" for depth in (1, 8)]
    assert [case.case_id for case in plan_of().cases] == [*grid, *together]
    assert plan_of().cases[0].levels == {"block_size": 512, "queue_depth": 1, "operation": "read"}


def test_later_settings_win_and_a_level_wins_over_all() -> None:
    def parameter(name: str, case: int, **options: Any) -> Any:
        return plan_of(**options).cases[case].parameters[name]

    write = 3
    assert parameter("jobs", 0) == 2, "the part's, over the default"
    assert parameter("jobs", write) == 1, "the level's, over the part's"
    assert parameter("duration", 0) == 10**9
    assert parameter("duration", 0, profile="quick") == 10**8, "the profile's, over the study's"
    assert parameter("duration", 0, profile="quick", settings={"duration": "3s"}) == 3 * 10**9, "the user's, over all"
    assert parameter("block_size", 0, profile="quick") == 512, "a level, also over the profile's"
    assert parameter("jobs", write, settings={"jobs": "7"}) == 1, "a level, also over the user's"


def test_streams_have_their_own_parameters_and_share_the_rest() -> None:
    together = plan_of().cases[-1].parameters
    assert (together["reader.block_size"], together["writer.block_size"]) == (8192, 4096)
    assert (together["reader.queue_depth"], together["writer.queue_depth"]) == (1, 8)
    assert together["duration"] == 10**9
    quick = plan_of(profile="quick").cases[-1].parameters
    assert quick["block_size"] == 16384, "a profile's plain parameter holds for every stream"
    assert quick["jobs"] == 4, "a part's own entry in the profile comes after what the profile says of one stream"
    assert plan_of(settings={"writer.jobs": "3"}).cases[-1].parameters["writer.jobs"] == 3


def test_settings_replace_levels_or_set_a_parameter() -> None:
    settings = {"block_size": "4k,64k", "operation": "write", "queue_depth": "2"}
    plan = plan_of(settings=settings)
    grid = [f"grid/block_size={size}/queue_depth=2/operation=write" for size in ("4KiB", "64KiB")]
    assert [case.case_id for case in plan.cases if case.part == "grid"] == grid
    assert plan.settings == settings
    assert plan_of(settings={"writer.queue_depth": "3"}).cases[-1].levels == {"writer.queue_depth": 3}


@pytest.mark.parametrize(
    ("setting", "what", "hint"),
    [
        ("queue_dept=1", "there is no factor or parameter `queue_dept`", "did you mean `queue_depth`?"),
        ("jobs=1,2", "`jobs` is not a factor of `mine`, so it takes one value", "its factors are `block_size`"),
        ("operation=raed", "the factor `operation` has no level `raed`", "it has `read`, `write`"),
        ("queue_depth=1,1", "the factor `queue_depth` has the level `1` twice", ""),
        ("readr.jobs=2", "there is no stream `readr`", "did you mean `reader`?"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting: str, what: str, hint: str) -> None:
    name, _, value = setting.partition("=")
    text = refusal(settings={name: value})
    assert what in text and hint in text
    assert f"in `--set {setting}`" in text


def test_an_unknown_profile_no_cases_or_one_that_cannot_be_done_are_refused() -> None:
    assert refusal(profile="paper") == "the study `mine` has no profile `paper`\n\nhint: it has `standard`, `quick`"
    only_grid = STUDY.partition('[[parts]]\nname = "together"')[0] + "[profiles.standard]"
    assert "the study `mine` has no cases" in refusal(only_grid, settings={"block_size": "1MiB"})
    text = refusal(settings={"backend": "sync"})
    assert "in case `grid/block_size=512B/queue_depth=4/operation=read` of the study `mine`" in text


def test_the_study_in_the_plan_has_profile_and_settings_worked_in() -> None:
    """A plan can be read without the rules for which setting wins."""
    plan = plan_of(profile="quick", settings={"jobs": "3", "block_size": "4KiB"})
    again = expand(Study.model_validate(plan.study), NULL, profile="quick", repeats=plan.repeats)
    assert [case.model_dump() for case in again.cases] == [case.model_dump() for case in plan.cases]
    assert plan.study["parts"][0]["factors"]["block_size"] == [4096]
    assert plan.study["repeats"] == 2


def test_values_in_views_and_analyses_are_written_like_levels() -> None:
    text = STUDY + (
        '[[views]]\nkind = "lines"\ntitle = "T"\npart = "grid"\nwhere = { block_size = "4KiB", operation = "read" }\n'
        '[[analysis]]\nkind = "peak"\npart = "grid"\nover = "queue_depth"\nwhere = { block_size = "4k" }\n'
    )
    plan = plan_of(text)
    assert plan.study["views"][0]["where"] == {"block_size": 4096, "operation": "read"}
    assert plan.study["analysis"][0]["where"] == {"block_size": 4096}


def test_a_factor_in_time_is_read_back_from_its_levels() -> None:
    text = STUDY.replace("queue_depth = [1, 4]", 'duration = ["100ms", "1s"]').partition("[profiles.quick]")[0]
    plan = plan_of(text, settings={"operation": "read"})
    first, second = plan.cases[:2]
    assert first.case_id == "grid/block_size=512B/duration=100ms/operation=read"
    assert (first.parameters["duration"], second.parameters["duration"]) == (10**8, 10**9)
    again = expand(Study.model_validate(plan.study), NULL)
    assert [case.levels for case in again.cases] == [case.levels for case in plan.cases]


@settings(max_examples=40)
@given(st.integers(1, 9), st.none() | st.integers(1, 12), st.integers(1, 4), st.integers(0, 1000))
def test_every_case_runs_once_before_any_repeats_and_controls_are_evenly_spaced(
    levels: int, every: int | None, repeats: int, seed: int
) -> None:
    text = STUDY.partition("[[parts]]")[0].replace("seed = 5", f"seed = {seed}\nrepeats = {repeats}")
    text += f"[[parts]]\nfactors.queue_depth = {list(range(1, levels + 1))}\n[profiles.standard]\n"
    plan = plan_of(text + (f"[control]\nevery = {every}\n" if every else ""))
    assert [run.order for run in plan.runs] == list(range(len(plan.runs)))
    measured = [run for run in plan.runs if run.case_id != "control"]
    for repeat in range(repeats):
        block = measured[repeat * levels : (repeat + 1) * levels]
        assert {run.repeat for run in block} == {repeat + 1}
        assert len({run.case_id for run in block}) == levels
    if every:
        is_control = [run.case_id == "control" for run in plan.runs]
        assert is_control[0] and is_control[-1]
        gaps = [len(list(group)) for control, group in itertools.groupby(is_control) if not control]
        assert all(gap == every for gap in gaps[:-1]) and gaps[-1] <= every
    assert max(Counter(run.run_id for run in plan.runs).values()) == 1


def test_the_order_depends_on_the_seed_and_on_nothing_else() -> None:
    def order(**options: Any) -> list[str]:
        return [run.run_id for run in plan_of(**options).runs]

    assert order() == order(target="null:2TiB")
    assert order() != order(seed=6)
    assert order(text="shuffle = false\n" + STUDY)[:3] == ["c0001-r1", "c0002-r1", "c0003-r1"]
    blocks = [order()[begin : begin + 8] for begin in (0, 8, 16)]
    assert [run_id[:5] for run_id in blocks[0]] != [run_id[:5] for run_id in blocks[1]]


def test_every_run_has_a_seed_of_its_own_that_every_reader_of_json_has_exactly() -> None:
    seeds = [run.spec["seed"] for run in plan_of().runs]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << 53 for seed in seeds)


def test_costs_add_up(tmp_path: Path) -> None:
    plan = plan_of(target=tmp_path, repeats=2, settings={"queue_depth": "1", "span": "4MiB"})
    written = sum(case.cost.write_bytes or 0 for case in plan.cases) * 2
    assert plan.layout_bytes == 4 << 20
    assert plan.cost.write_bytes == written + plan.layout_bytes
    costs = {case.case_id: case.cost.seconds for case in plan.cases}
    measured = sum(costs[run.case_id] + 0.15 for run in plan.runs)
    assert plan.cost.seconds == pytest.approx(5.5 + measured + plan.layout_bytes / 500e6, abs=1e-3)
    always = plan_of(target=tmp_path, settings={"layout": "always", "span": "4MiB"})
    assert always.layout_bytes == len(always.runs) * (4 << 20)
    per_job = plan_of(target=tmp_path, settings={"files": "per_job", "span": "4MiB", "operation": "read"})
    assert per_job.layout_bytes == 4 * (4 << 20), "main.0, main.1, reader.0 and writer.0"


CONTENTS = """
name = "kinds"
title = "Kinds"
question = "?"
[measurement]
span = "1MiB"
limit_bytes = "1MiB"
[[parts]]
name = "write"
measurement = { read_fraction = 0.0, duplicate_fraction = 1.0, layout = "never" }
[[parts]]
name = "read"
factors = { payload = ["random", "zeros"] }
[[parts]]
name = "same"
measurement = { read_fraction = 0.5, files = "per_job", jobs = 2 }
[profiles.standard]
title = "Standard"
"""


PART_WITH_VERIFICATION = """
[[parts]]
name = "verified"
measurement = { read_fraction = 0.0, verify = "after" }
"""


def test_cases_that_read_data_of_another_kind_than_others_write_lay_it_out_before_each_run(tmp_path: Path) -> None:
    def layouts(text: str) -> dict[str, str]:
        plan = expand(parse(text), open_target(str(tmp_path)))
        found = {case.case_id: case.parameters["layout"] for case in plan.cases}
        assert all(run.spec["workload"]["layout"] == found[run.case_id] for run in plan.runs)
        assert any("because other cases write" in note for note in plan.notes) is ("always" in found.values())
        return found

    assert layouts(CONTENTS) == {
        "write": "never",
        "read/payload=random": "always",
        "read/payload=zeros": "always",
        "same": "missing",
    }, "files of jobs are others"
    alike = CONTENTS.replace(", duplicate_fraction = 1.0", "").replace(', "zeros"', "")
    assert set(layouts(alike).values()) == {"never", "missing"}
    verified = alike.replace('"per_job"', '"per_job", verify = "after"') + PART_WITH_VERIFICATION
    assert [case for case, layout in layouts(verified).items() if layout == "always"] == ["verified"]


def test_a_span_larger_than_the_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    text = refusal(target=tmp_path, settings={"span": "1PiB"})
    assert text.startswith("no room on `DIR`: 1 PiB are needed and ")
    assert "by the parameter `span`, as in case `grid/block_size=512B/queue_depth=1/operation=read`" in text
    assert refusal(target="null:1MiB").startswith("`DIR` is too small: 1 MiB, and 1 GiB are needed")
    assert list(tmp_path.iterdir()) == []


def test_blocks_that_direct_io_cannot_do_here_are_named_with_those_it_can(loop_file_system: Callable[..., Any]) -> None:
    directory = loop_file_system(sector_bytes=4096).directory
    text = STUDY.replace("1GiB", "4MiB")
    refused = refusal(text, directory)
    assert refused.startswith("direct I/O of 512 B is not supported on `DIR`: it takes multiples of 4 KiB")
    assert refused.endswith("hint: leave out unsupported values: `--set block_size=4KiB`")
    plan = plan_of(text, directory, settings={"block_size": "4KiB,1MiB"})
    assert {case.levels.get("block_size") for case in plan.cases} == {4096, None}
    assert plan_of(text, directory, settings={"io_mode": "buffered"}).cases


def test_more_memory_or_cpus_than_this_process_may_use_are_refused(tmp_path: Path) -> None:
    text = refusal(target=tmp_path, settings={"queue_depth": "4096", "block_size": "64MiB", "limit_bytes": "1GiB"})
    assert text.startswith("a run needs 512 GiB of memory; the limit is ")
    assert "in case `grid/block_size=64MiB/queue_depth=4096/operation=read`" in text
    allowed = sorted(os.sched_getaffinity(0))
    missing = max(allowed) + 1
    text = refusal(target=tmp_path, settings={"cpus": str(missing), "limit_bytes": "1MiB"})
    assert text.startswith("`cpus` must be CPUs on which iosonde may run: ") and f"; got {missing}\n" in text


def test_the_time_of_a_simulated_drive_is_a_tenth_in_the_plan_and_its_lengths_are_unchanged() -> None:
    plan = expand(load("quick"), open_target("sim:pm963"), profile="quick")
    costs = {case.case_id: case.cost.seconds for case in plan.cases}
    assert max(costs.values()) == 0.5
    assert plan.cost.seconds == pytest.approx(5.5 + sum(costs[run.case_id] / 10 + 0.05 for run in plan.runs), abs=1e-3)


def test_an_outline_counts_what_the_plan_has_and_needs_no_target() -> None:
    plan, size = expand(load("quick"), NULL), study_size(load("quick"), profile="standard")
    assert (size.cases, size.runs) == (len(plan.cases) - 1, len(plan.runs))
    assert size.seconds == pytest.approx(plan.cost.seconds, abs=1e-3)


def test_each_part_takes_those_of_the_chosen_levels_that_it_has(tmp_path: Path) -> None:
    settings = {"interface": "sync,uring,nvme_user", "operation": "read", "queue_depth": "1,8"}
    study, target = load("jo2024-driver"), open_target(str(tmp_path))
    plan = expand(study, target, profile="quick", settings=settings)
    chosen = {part["name"]: [each["label"] for each in part["factors"]["interface"]] for part in plan.study["parts"]}
    assert chosen == {"single": ["sync", "uring", "nvme_user"], "depth": ["uring", "nvme_user"]}
    with pytest.raises(IosondeError, match="has no level `sync`"):
        expand(study, target, profile="quick", settings={"interface": "sync"})
