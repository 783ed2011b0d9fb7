"""Studies of external commands: arguments, variables, metrics, what is wrong with them, and verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from study_texts import study_text

from iosonde.data import adapters
from iosonde.engine.supervisor.parse import at_path, json_document, steps
from iosonde.errors import StudyError
from iosonde.execution.session import execute
from iosonde.features.external_commands.verdict import judge
from iosonde.features.external_commands.workload import fill
from iosonde.metrics.registry import find
from iosonde.plan import Plan, commands
from iosonde.planning import expand, load, parse
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.study.workload import workloads

STUDY = study_text(
    "command",
    """command = ["sh", "-c", "echo value {number} {size:KiB}"]
size = "64KiB"
version = []
[measurement.metrics.printed]
pattern = 'value (\\d+)'
unit = "1/s"
better = "higher"
""",
    "factors.number = [1, 2]",
)


def planned(tmp_path: Path, text: str = STUDY, **options: Any) -> Plan:
    return expand(parse(text), open_target(str(tmp_path)), **options)


def test_levels_are_substituted_into_arguments(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [run.spec["workload"]["command"] for run in plan.runs if run.repeat == 1 and run.case_id.endswith("=2")] == [
        ["sh", "-c", "echo value 2 64"]
    ]
    assert plan.cases[0].parameters["number"] == 1 and plan.cases[0].parameters["size"] == "64KiB"
    name = "printed"
    known = find(name)
    assert known and (known.unit, known.better, known.title) == ("1/s", "higher", "Printed")


def test_a_level_cannot_bring_in_a_placeholder_or_another_argument() -> None:
    assert fill("--x={a}", {"a": "1 --y={directory}"}) == "--x=1 --y={{directory}}"
    assert fill("{{}} {directory} {seed}", {}) == "{{}} {directory} {seed}"
    assert fill("{duration} {duration:ms}", {"duration": "1500ms"}) == "1.5 1500"


COMMAND = 'command = ["sh", "{number}"]\n'
WRONG_COMMANDS = [
    ('command = "fio --x={number}"', "no shell splits a command"),
    ('command = ["sh", "{nothing} {number}"]', "no parameter or variable `nothing`"),
    ('command = ["sh", "{number} {size:parsec}"]\nsize = "1KiB"', "no unit `parsec`"),
    ('command = ["sh", "{number} {"]', "a single brace"),
    (f"{COMMAND}size = 1", "`size` is not a parameter, and no argument uses it"),
    ('command = ["sh", "{number} {server_socket}"]', "needs a server"),
    ('command = ["no-such-program-here", "{number}"]', "`no-such-program-here` was not found"),
    (COMMAND + 'environment = { "A=B" = "x" }', "`A=B` cannot be set"),
    (COMMAND + 'output = "../x"', "name of a file in the working directory"),
    (COMMAND + 'prepare = ["mkdir"]', "a list of commands"),
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
        ("pattern = 'a'\nunit = \"\"\nscale = 0", "scale"),
    ],
)
def test_mistakes_in_metrics_are_explained(tmp_path: Path, definition: str, message: str) -> None:
    head = STUDY[: STUDY.index("pattern =")]
    with pytest.raises(StudyError) as error:
        planned(tmp_path, head + definition + '\nbetter = "higher"\n' + STUDY[STUDY.index("[[parts]]") :])
    assert "`printed`" in str(error.value) and message in str(error.value)


@pytest.mark.engine
def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    guide = (CHECKOUT / "docs/commands.md").read_text()
    [text] = re.findall(r"^```toml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    plan = planned(tmp_path, text, repeats=1)
    result_set = execute(plan, tmp_path / "set", consent=Consent(commands=commands.commands_hash(plan)))
    assert [record.failure for record in result_set.records() if record.failure] == []
    values = result_set.sql("SELECT dd_seconds FROM runs")["dd_seconds"]
    assert len(values) == 2 and values.min() > 0  # type: ignore[operator]


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
    plan = planned(tmp_path)
    content = json.loads(plan.model_dump_json())
    content["runs"][0]["spec"]["workload"]["command"] = ["sh", "-c", "rm -rf ~"]
    edited = Plan.model_validate(content)
    assert commands.commands_hash(edited) != first
    assert not commands.is_allowed(edited, first)
    assert commands.is_allowed(plan, first[:16])
    assert not commands.is_allowed(plan, first[:15])


def test_two_streams_simulated_targets_and_the_name_of_another_metric_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="a command has no streams"):
        planned(tmp_path, STUDY.replace("[[parts]]", '[[parts]]\nstreams = [{ name = "a" }, { name = "b" }]'))
    with pytest.raises(Exception, match="a command needs a directory"):
        expand(parse(STUDY), open_target("null:1GiB"))
    for name in ("iops", "run_id"):
        with pytest.raises(StudyError, match=f"`{name}` is reserved"):
            parse(STUDY.replace("metrics.printed", f"metrics.{name}"))


@pytest.mark.parametrize("name", adapters())
def test_adapters_are_studies_with_two_profiles_whose_figures_are_metrics(name: str) -> None:
    study = load(name)
    assert study.name == name and study.topic == "commands" and [*study.profiles] == ["quick", "standard"]
    named = set(workloads()["command"].read_value("metrics", study.measurement["metrics"]))
    assert {view.y for view in study.views} | {each.metric for each in study.analysis} <= named
    if name in ("command-spdk-perf", "command-fio-xnvme"):  # Drivers that bypass the kernel only read.
        assert {"randread", "--rw=randread"} & set(study.measurement["command"])


def test_json_is_found_after_other_lines_and_read_by_paths() -> None:
    document = json_document('note: x\n{"jobs": [{"read": {"iops": 5, "percentile": {"99.0": 7}}}], "on": true}\nend')
    assert at_path(document, "jobs[0].read.iops") == 5
    assert at_path(document, 'jobs.0.read.percentile["99.0"]') == 7
    for path, message in {"jobs[1].read": "`1` is missing", "jobs.x": "`x` is missing", "on": "not a number"}.items():
        with pytest.raises(ValueError, match=message):
            at_path(document, path)
    with pytest.raises(ValueError, match="not a path"):
        steps("a[b]")
    with pytest.raises(ValueError, match="it is not JSON"):
        json_document("nothing here")


# Verdicts -------------------------------------------------------------------------------------------------------------


SECOND = 10**9


def record(*, command_s: float, server_s: float | None = None, busy_s: float = 0.0) -> Record:
    """A run of 10 s; the server has used 5 s of CPU time before."""
    result = {
        **{"begin_ns": 0, "end_ns": 10 * SECOND, "devices": [{"busy_ns": int(busy_s * SECOND)}]},
        "process": {"user_ns": int(command_s * SECOND), "system_ns": 0, "wall_ns": 10 * SECOND},
    }
    edges = {"statistics_at_start": 5.0, "statistics_at_end": 5 + (server_s or 0)}
    server = {edge: {"server_cpu_ns": int(seconds * SECOND)} for edge, seconds in edges.items()}
    return Record.model_construct(result=result, server=None if server_s is None else server)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"command_s": 19.0}, "harness-limited"),
        ({"command_s": 3.0, "server_s": 16.5}, "server-CPU-limited"),
        ({"command_s": 16.5, "server_s": 3.0}, "harness-limited"),
        ({"command_s": 1.0, "busy_s": 9.8}, "device-limited"),
        ({"command_s": 1.0, "server_s": 1.0, "busy_s": 2.0}, "undetermined"),
    ],
)
def test_the_limit_that_is_exceeded_most_decides(facts: dict[str, Any], kind: str) -> None:
    assert judge(record(**facts), [], 2).kind == kind
    found = judge(record(command_s=4.0, server_s=10.0), [], 2).evidence
    assert (found["command_cpu_share"], found["server_cpu_share"]) == (0.2, 0.5)
