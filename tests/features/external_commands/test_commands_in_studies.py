"""Studies of external commands: arguments, variables, metrics, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iosonde.data import adapters
from iosonde.errors import StudyError
from iosonde.features.external_commands.template import fill
from iosonde.metrics.registry import find
from iosonde.plan import Plan, commands
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target
from iosonde.supervisor.parse import at_path, by_pattern, json_document, steps
from iosonde.workload import workloads

STUDY = """
name = "echo"
title = "Echo"
question = "Which number is printed?"
workload = "command"
repeats = 2
[measurement]
command = ["sh", "-c", "echo value {number} {size:KiB}"]
size = "64KiB"
version = []
[measurement.metrics.printed]
pattern = 'value (\\d+)'
unit = "1/s"
better = "higher"
[[parts]]
factors.number = [1, 2]
[profiles.quick]
[profiles.standard]
"""


def planned(tmp_path: Path, text: str = STUDY, **options: Any) -> Plan:
    return expand(parse(text), open_target(str(tmp_path)), **options)


def test_levels_are_substituted_into_arguments(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [run.spec["workload"]["command"] for run in plan.runs if run.repeat == 1 and run.case_id.endswith("=2")] == [
        ["sh", "-c", "echo value 2 64"]
    ]
    assert plan.cases[0].parameters["number"] == 1 and plan.cases[0].parameters["size"] == "64KiB"


def test_a_level_cannot_bring_in_a_placeholder_or_another_argument() -> None:
    assert fill("--x={a}", {"a": "1 --y={directory}"}) == "--x=1 --y={{directory}}"
    assert fill("{{}} {directory} {seed}", {}) == "{{}} {directory} {seed}"
    assert fill("{duration} {duration:ms}", {"duration": "1500ms"}) == "1.5 1500"


COMMAND = 'command = ["sh", "{number}"]\n'
WRONG_COMMANDS = [
    ('command = "fio --x={number}"', "no shell splits a command"),
    ('command = ["sh", "{nothing} {number}"]', "no parameter or variable `nothing`"),
    ('command = ["sh", "{number} {size:parsec}"]\nsize = "1KiB"', "no unit `parsec`"),
    ('command = ["sh", "{number} {size:MiB}"]\nsize = "much"', "`much` cannot be converted"),
    ('command = ["sh", "{number} {"]', "a single brace"),
    (f"{COMMAND}size = 1", "`size` is not a parameter, and no argument uses it"),
    (f"{COMMAND}timout = '5s'", "`timout` is not a parameter, and no argument uses it"),
    ('command = ["sh", "{number} {server_socket}"]', "needs a server"),
    ('command = ["sh\\u0000", "{number}"]', "`command` must not contain control characters, got `sh\\x00`"),
    ('command = ["no-such-program-here", "{number}"]', "`no-such-program-here` was not found"),
    ('command = ["bin/sh", "{number}"]', "`bin/sh` was not found"),
    (COMMAND + 'environment = { "A=B" = "x" }', "`A=B` cannot be set"),
    (COMMAND + 'output = "../x"', "name of a file in the working directory"),
    (COMMAND + 'prepare = ["mkdir"]', "a list of commands"),
    (COMMAND + 'background = [{ start = ["x"] }]', "a background command has `command`"),
    ("duration = '1s'", "there is no `command`"),
]


@pytest.mark.parametrize(("measurement", "message"), WRONG_COMMANDS)
def test_mistakes_in_commands_are_explained(tmp_path: Path, measurement: str, message: str) -> None:
    head, metrics = STUDY[: STUDY.index("command =")], STUDY[STUDY.index("[measurement.metrics") :]
    with pytest.raises(StudyError) as error:
        planned(tmp_path, f"{head}{measurement}\n{metrics}")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ('unit = "1/s"', "one of `json`, `pattern` and `lines`"),
        ("pattern = '('\nunit = \"\"", "not a regular expression"),
        ("pattern = '(a)(b)'\nunit = \"\"", "is called `value`"),
        ("pattern = 'a'\nunit = \"miles\"", "unit"),
        ("json = 'a..b'\nunit = \"\"", "is not a path"),
        ("pattern = 'a'\nunit = \"\"\nscale = 0", "scale"),
    ],
)
def test_mistakes_in_metrics_are_explained(tmp_path: Path, definition: str, message: str) -> None:
    head = STUDY[: STUDY.index("pattern =")]
    with pytest.raises(StudyError) as error:
        planned(tmp_path, head + definition + '\nbetter = "higher"\n' + STUDY[STUDY.index("[[parts]]") :])
    assert "`printed`" in str(error.value) and message in str(error.value)


@pytest.mark.parametrize("name", ["iops", "bandwidth", "run_id", "value"])
def test_a_metric_cannot_take_the_name_of_another(name: str) -> None:
    with pytest.raises(StudyError, match=f"`{name}` is reserved"):
        parse(STUDY.replace("metrics.printed", f"metrics.{name}"))


def test_reading_a_study_declares_its_metrics() -> None:
    parse(STUDY)
    name = "printed"
    known = find(name)
    assert known and (known.unit, known.better, known.title) == ("1/s", "higher", "Printed")


def test_the_hash_is_that_of_everything_that_is_started(tmp_path: Path) -> None:
    first = commands.commands_hash(planned(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    assert commands.commands_hash(planned(tmp_path / "elsewhere")) == first, "it does not depend on the target"
    for changed in (
        planned(tmp_path, STUDY.replace("value {number}", "value  {number}")),
        planned(tmp_path, settings={"number": "1,3"}),
        planned(tmp_path, settings={"timeout": "5s"}),
        planned(tmp_path, STUDY.replace("size =", 'environment = { A = "b" }\nsize =')),
    ):
        assert commands.commands_hash(changed) != first


def test_a_spec_that_was_changed_in_the_plan_changes_the_hash(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    content = json.loads(plan.model_dump_json())
    content["runs"][0]["spec"]["workload"]["command"] = ["sh", "-c", "rm -rf ~"]
    changed = Plan.model_validate(content)
    assert commands.commands_hash(changed) != commands.commands_hash(plan)
    assert not commands.is_allowed(changed, commands.commands_hash(plan))
    assert commands.is_allowed(plan, commands.commands_hash(plan)[:16])
    assert not commands.is_allowed(plan, commands.commands_hash(plan)[:15])


def test_two_streams_and_simulated_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="a command has no streams"):
        planned(tmp_path, STUDY.replace("[[parts]]", '[[parts]]\nstreams = [{ name = "a" }, { name = "b" }]'))
    with pytest.raises(Exception, match="a command needs a directory"):
        expand(parse(STUDY), open_target("null:1GiB"))


@pytest.mark.parametrize("name", adapters())
def test_adapters_are_studies_with_two_profiles_whose_figures_are_metrics(name: str) -> None:
    study = load(name)
    assert study.name == name and study.topic == "commands" and [*study.profiles] == ["quick", "standard"]
    named = set(workloads()["command"].read_value("metrics", study.measurement["metrics"]))
    assert {view.y for view in study.views} | {each.metric for each in study.analysis} <= named


def test_json_paths() -> None:
    document = {"jobs": [{"read": {"iops": 5, "percentile": {"99.0": 7}}}], "on": True}
    assert at_path(document, "jobs[0].read.iops") == 5
    assert at_path(document, 'jobs.0.read.percentile["99.0"]') == 7
    for path, message in {"jobs[1].read": "`1` is missing", "jobs.x": "`x` is missing", "on": "not a number"}.items():
        with pytest.raises(ValueError, match=message):
            at_path(document, path)
    with pytest.raises(ValueError, match="not a path"):
        steps("a[b]")


def test_json_after_other_lines_is_found() -> None:
    assert json_document('note: x\n{"a": 1}\nend') == {"a": 1}
    with pytest.raises(ValueError, match="it is not JSON"):
        json_document("nothing here")


RADOS = """hints = 1
Maintaining 16 concurrent writes of 4194304 bytes to objects of size 4194304 for up to 3 seconds or 0 objects
Object prefix: benchmark_data_host_1234
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       0         0         0         0         0           -           0
    1      16        61        45   179.986       180    0.216478    0.287953
    2      16       112        96   191.982       204    0.277731    0.301512
    3       5       160       155   206.639       236    0.225118    0.289904
Total time run:         3.1415
Total writes made:      160
Write size:             4194304
Object size:            4194304
Bandwidth (MB/sec):     203.724
Stddev Bandwidth:       28.0951
Max bandwidth (MB/sec): 236
Min bandwidth (MB/sec): 180
Average IOPS:           50
Average Latency(s):     0.298874
Stddev Latency(s):      0.0712
"""
"""In the layout of `rados bench` of Ceph 16; the numbers are made up."""


def test_the_parsers_of_rados_bench_read_its_output() -> None:
    from iosonde.supervisor.parse import by_lines

    named = workloads()["command"].read_value("metrics", load("command-rados-bench").measurement["metrics"])
    assert by_pattern(RADOS, named["rados_bandwidth"]["pattern"]) == 203.724
    assert by_pattern(RADOS, named["rados_latency"]["pattern"]) == 0.298874
    lines = [(0, line) for line in RADOS.splitlines()]
    assert [point["value"] for point in by_lines(lines, named["rados_bandwidth_over_time"]["lines"], 0)] == [
        0,
        180,
        204,
        236,
    ]


@pytest.mark.parametrize("name", ["command-spdk-perf", "command-fio-xnvme"])
def test_studies_of_drivers_that_bypass_the_kernel_only_read(name: str) -> None:
    assert {"randread", "--rw=randread"} & set(load(name).measurement["command"])
