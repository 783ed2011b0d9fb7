"""Studies of external commands from plan to report: consent, records, metrics, and no leftovers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from command_line import CHECKOUT, Iosonde
from test_supervisor import assert_ends

from iosonde.errors import ResultsError, TargetError
from iosonde.execution.session import execute, resume
from iosonde.findings.comparison.cases import compare
from iosonde.findings.findings import findings
from iosonde.findings.regression import session_of
from iosonde.findings.values import Effect, Extremes
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.plan import Plan, commands
from iosonde.planning import expand, parse
from iosonde.report.content import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.study.model import Study

STUDY = """
name = "echo"
title = "Echo"
question = "Which number is larger?"
workload = "command"
repeats = 3
[measurement]
command = ["sh", "-c", "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo point $((i * {number})); done; echo value {number}"]
version = ["-c", "echo shell 1"]
duration = "100ms"
space = "1MiB"
interval = "100ms"
number = 1
[measurement.metrics.echoed]
title = "Number"
pattern = 'value (\\d+)'
unit = "1/s"
better = "higher"
[measurement.metrics.points]
lines = 'point (\\d+)'
unit = "ns"
better = "lower"
aggregate = "maximum"
[[parts]]
factors.number = [1, 2]
factors.mode = [{ label = "x", set = {} }, { label = "y", set = {} }]
[[views]]
kind = "lines"
title = "Number"
x = "number"
y = "echoed"
[profiles.quick]
[profiles.standard]
"""


def allowed(plan: Plan) -> Consent:
    return Consent(commands=commands.commands_hash(plan))


def planned(directory: Path, text: str = STUDY, **settings: str) -> Plan:
    directory.mkdir(exist_ok=True)
    return expand(parse(text), open_target(str(directory)), settings=settings)


@pytest.fixture(scope="module")
def echoed(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    directory = tmp_path_factory.mktemp("echo")
    plan = planned(directory / "target")
    done = execute(plan, directory / "set", consent=allowed(plan))
    assert not list((directory / "target").iterdir())
    return done


def test_every_run_is_recorded_and_its_named_values_are_metrics_in_tables_and_queries(echoed: ResultSet) -> None:
    records = echoed.records()
    assert len(records) == 12 and {record.outcome for record in records} == {"complete"}
    for record in records:
        assert record.engine["engine"] == "iosonde-supervisor" and record.verdict
        shell = (record.result or {})["command"]["programs"]["sh"]
        assert shell["version"] == "shell 1" and shell["path"] == os.path.realpath("/bin/sh")
        assert len(shell["sha256"]) == 64
        assert (record.result or {})["process"]["wall_ns"] > 0
    runs = run_metrics(echoed)
    values = runs.filter(pl.col("metric") == "echoed", ~pl.col("control"), pl.col("operation") == "all")
    assert sorted(values["value"]) == [1.0] * 6 + [2.0] * 6
    largest = runs.filter(pl.col("metric") == "points", pl.col("case_id").str.contains("number=2"))
    assert set(largest["value"]) == {6.0}, "the maximum of its lines"
    assert not {"iops", "bandwidth", "operations", "completion_latency_ns_mean", "mean_in_flight"} & set(runs["metric"])
    [row] = echoed.sql(
        "SELECT unit, better, median, low, high, n FROM case_metrics "
        "WHERE metric = 'echoed' AND case_id = 'main/number=2/mode=x'"
    ).rows()
    assert row == ("1/s", "higher", 2.0, 2.0, 2.0, 3)
    assert set(echoed.sql("SELECT DISTINCT echoed FROM runs WHERE NOT control")["echoed"]) == {1.0, 2.0}
    assert echoed.sql("SELECT count(*) AS n FROM named_values")["n"].item() == 12 * 4
    over_time = interval_metrics(echoed, metrics=["points"]).filter(pl.col("run_id") == "c0001-r1")
    assert over_time["value"].to_list() == [1.0, 2.0, 3.0]
    assert over_time.filter(pl.col("end_ns") < pl.col("begin_ns")).is_empty()


def test_findings_comparison_and_check_use_named_metrics(echoed: ResultSet) -> None:
    runs = run_metrics(echoed).with_columns(result_set=pl.lit("a"))
    found = findings(Study.model_validate(echoed.plan.study), echoed.cases, runs, runs=echoed.runs)
    extremes = {each.metric: each for each in found if isinstance(each, Extremes)}
    best = extremes["echoed"]
    assert best.best_value.value == 2 and best.worst_value and best.worst_value.value == 1
    assert extremes["points"].best_value.value == 3, "lower is better"
    assert re.fullmatch(r"Number: highest 2 /s .*at number 2, x; lowest 1 /s .*at number 1, x", best.sentence)
    assert re.match(r"[^:]+: lowest 3 ns ", extremes["points"].sentence)
    tables = collect([echoed]).chapters[0].case_tables
    loops = {row[table.heads.index("Loop")].text for table in tables for row in table.rows}
    assert loops == {"not reported"}, "the head of the column names the rest"
    effects = {each.factor: each for each in found if isinstance(each, Effect) and each.metric == "echoed"}
    assert effects["number"].ratio.value == pytest.approx(2) and effects["number"].is_clear
    assert effects["mode"].ratio.value == pytest.approx(1) and not effects["mode"].is_clear
    half = pl.when(pl.col("metric") == "points").then(pl.col("value") / 2).otherwise("value")
    better = runs.with_columns(value=half, result_set=pl.lit("b"))
    cases = {"baseline_cases": echoed.cases, "contender_cases": echoed.cases}
    compared = compare(runs, better, **cases, metrics=("echoed", "points")).select("metric", "ratio").rows()
    assert dict(compared) == {"echoed": pytest.approx(1), "points": pytest.approx(0.5)}
    assert {metric for _, metric in session_of(echoed, "now").values} == {"echoed", "points"}


def test_metrics_that_two_result_sets_define_differently_are_not_combined(echoed: ResultSet, tmp_path: Path) -> None:
    plan = planned(tmp_path / "target", STUDY.replace('unit = "1/s"', 'unit = "B/s"'), number="1", mode="x")
    other = execute(plan.model_copy(update={"repeats": 1}), tmp_path / "set", consent=allowed(plan))
    with pytest.raises(ResultsError, match="another unit or direction"):
        run_metrics([echoed, other])


def test_nothing_runs_without_the_hash_that_plan_prints(iosonde: Iosonde, tmp_path: Path) -> None:
    study, target, marker = tmp_path / "touch.toml", tmp_path / "target", tmp_path / "marker"
    target.mkdir()
    study.write_text(STUDY.replace("echo value", f"touch {marker}; echo value").replace("repeats = 3", "repeats = 1"))
    asked = iosonde("plan", study, "--target", target)
    lines = asked.stdout.splitlines()
    assert any(line.startswith("  command     sh -c ") and f"touch {marker}; echo value 2" in line for line in lines)
    [hash_line] = [line for line in lines if line.startswith("allow ")]
    digits = hash_line.split()[-1]
    for given in ([], ["--allow-commands", "0" * 64], ["--allow-commands", digits[:15]]):
        refused = iosonde("run", study, "--target", target, "-o", tmp_path / "set", *given)
        assert refused.returncode == 1 and "starts external commands" in refused.stderr
        assert not (tmp_path / "set").exists() and not marker.exists()
    done = iosonde("run", study, "--target", target, "-o", tmp_path / "set", "--allow-commands", digits, "--no-report")
    assert done.returncode == 0, done.stderr
    assert marker.exists()


def test_resume_requires_the_hash_of_the_plan_as_it_is(tmp_path: Path) -> None:
    """A result set from somebody else: the hash of the original does not allow what its plan starts now."""
    plan = planned(tmp_path / "target", STUDY.replace("repeats = 3", "repeats = 1"), number="1", mode="x")
    created = ResultSet.create(tmp_path / "set", plan)
    for consent in (Consent(), Consent(commands="f" * 64)):
        with pytest.raises(TargetError, match="starts external commands"):
            resume(created.directory, consent=consent)
    assert not ResultSet.open(created.directory).records()
    for name, message, key, value in (
        ("changed", "is not that of this study", "command", ["sh", "-c", f"touch {tmp_path}/marker"]),
        ("moved", "target", "target", plan.runs[0].spec["workload"]["target"] | {"path": "/etc/command-00000000"}),
    ):
        other = plan.model_copy(deep=True)
        for run in other.runs:
            run.spec["workload"][key] = value
        received = ResultSet.create(tmp_path / name, Plan.model_validate(other.model_dump()))
        with pytest.raises(TargetError, match=message):
            resume(received.directory, consent=allowed(plan))
    assert not (tmp_path / "marker").exists()
    assert len(resume(created.directory, consent=allowed(plan)).records()) == len(plan.runs)


@pytest.mark.needs("root", "memory limits")
def test_a_command_beyond_its_memory_limit_is_out_of_memory(tmp_path: Path) -> None:
    text = STUDY.replace("i=0;", "head -c 300000000 /dev/zero | tail -c 200000000 | wc -c; exit 1; i=0;")
    plan = planned(
        tmp_path / "target", text.replace("repeats = 3", "repeats = 1"), memory_limit="64MiB", number="1", mode="x"
    )
    record = execute(plan, tmp_path / "set", consent=allowed(plan)).records()[0]
    assert record.failure and record.failure.code == "out_of_memory"
    assert "the kernel killed the command" in record.failure.message


SESSION = """
import sys
from iosonde.execution.session import resume
from iosonde.storage.safety.guard import Consent
resume(sys.argv[1], consent=Consent(commands=sys.argv[2]))
"""


def test_after_sigkill_of_iosonde_nothing_runs_and_cleanup_removes_the_rest(tmp_path: Path, iosonde: Iosonde) -> None:
    file = tmp_path / "pid"
    plan = planned(tmp_path / "target", STUDY.replace("i=0;", f"echo $$ > {file}; sleep 1000; i=0;"))
    created = ResultSet.create(tmp_path / "set", plan)
    arguments = [str(created.directory), commands.commands_hash(plan)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    session = subprocess.Popen([sys.executable, "-c", SESSION, *arguments], env=environment)
    while not file.exists() or not file.read_text().endswith("\n"):
        assert session.poll() is None
        time.sleep(0.01)
    session.send_signal(signal.SIGKILL)
    session.wait()
    assert_ends(int(file.read_text()))
    assert list((tmp_path / "target").iterdir())
    done = iosonde("cleanup")
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "target").iterdir())
    assert iosonde("cleanup").stdout.strip() == "nothing to remove"
