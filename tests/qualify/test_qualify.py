"""`iosonde qualify` on simulated devices of known latency, and on a directory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import Iosonde, in_this_process
from engines import real_engine

from iosonde.collections.qualify import NO_LIMITS, Qualification, exit_code, load_application
from iosonde.data import applications
from iosonde.findings.requirements import Result, results_of
from iosonde.results import ResultSet

pytestmark = pytest.mark.engine

FAST, SLOW, AT_THE_LIMIT = (
    f"simulated:servers=1,write={mean},service=exponential,size=1GiB" for mean in ("500us", "4ms", "2171us")
)
"""A flush has a 99th percentile of 4.605 means: 2.3, 18.4 and 10 ms."""


Decided = tuple["subprocess.CompletedProcess[str]", Path]


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Decided]:
    """etcd on a device of each kind: what was printed, and the directory with `set` and `junit.xml`."""
    found = {}
    for outcome, target in {"pass": FAST, "fail": SLOW, "undecided": AT_THE_LIMIT}.items():
        place = tmp_path_factory.mktemp(outcome)
        output = ("--json", "--quiet", "--junit", place / "junit.xml", "-o", place / "set")
        state = {name: str(place / name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
        done = in_this_process(
            *("qualify", "etcd", "--target", target, *output), IOSONDE_ENGINE=str(real_engine()), **state
        )
        found[outcome] = done, place
    return found


@pytest.mark.parametrize(("outcome", "code"), [("pass", 0), ("fail", 1), ("undecided", 3)])
def test_the_exit_code_json_junit_and_line_agree(
    iosonde: Iosonde, tmp_path: Path, decided: dict[str, Decided], outcome: str, code: int
) -> None:
    done, place = decided[outcome]
    assert (done.returncode, done.stderr) == (code, "")
    [found] = json.loads(done.stdout)
    assert (found["application"], found["outcome"], Path(found["directory"]).name) == ("etcd", outcome, "set")
    p99 = next(each for each in found["results"] if each["requirement"]["name"] == "p99 of fdatasync")
    assert p99["outcome"] == outcome and p99["limit"] == 10e6
    assert (p99["margin"] > 0.5) if outcome == "pass" else (p99["margin"] < 0.1)
    [suite] = ElementTree.parse(place / "junit.xml").getroot()
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases["p99 of fdatasync (required)"] == {"pass": [], "fail": ["failure"], "undecided": ["skipped"]}[outcome]
    assert (suite.get("name"), suite.get("tests")) == ("etcd", "3")
    before = set((place / "set").iterdir())
    again = iosonde("qualify", place / "set", "-q", "--junit", "again.xml")
    assert set((place / "set").iterdir()) == before, "nothing is written"
    assert again.returncode == code and again.stdout.startswith(f"etcd: {outcome}: ")
    assert (tmp_path / "again.xml").read_bytes() == (place / "junit.xml").read_bytes()


def test_a_pass_takes_the_time_that_its_application_states_and_says_what_it_does_not_exclude(
    iosonde: Iosonde, decided: dict[str, Decided]
) -> None:
    shown = iosonde("qualify", decided["pass"][1] / "set").stdout
    assert "Requirements" in shown
    rest = "a slow phase that comes less than once in 1 min was not measured"
    assert re.fullmatch(rf"etcd: pass: p99 of fdatasync 2\.[0-9]+ ms \(< 10 ms\); {rest}", shown.splitlines()[-1])
    for _, place in decided.values():
        [record] = ResultSet.open(place / "set").records()
        assert record.result and record.result["end_ns"] - record.result["begin_ns"] == pytest.approx(60e9, rel=0.01)
    assert "interval contains the limit" in decided["undecided"][0].stdout
    results = ResultSet.open(decided["undecided"][1] / "set")
    for each in (each for each in results_of(results) if each.reason == "the interval contains the limit"):
        assert each.low is not None and each.high is not None and each.low <= each.limit <= each.high


def test_an_application_without_limits_is_measured_and_not_judged(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde("qualify", "postgresql", "--target", FAST, "--time-limit", "1s", "-o", "set")
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("postgresql: undecided: its documentation states no limit; ")
    assert "per durable write" in done.stdout and (tmp_path / "set" / "report.html").is_file()


def test_all_applications_are_in_one_table_and_one_that_cannot_be_measured_does_not_stop_the_others(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    target = "simulated:write=500us,read=300us,size=300MiB"
    done = iosonde(
        *("qualify", "--all", "--target", target, "-o", "all", "--junit", "all.xml"),
        COLUMNS="80",
    )
    assert "8 applications with 22 loads, measured for 22 min in total. No limits" in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80, "it fits on one screen"
    assert "warning: consul: " in done.stderr and "--set span=" in done.stderr
    studies = {name: load_application(name) for name in applications()}
    with_limits = [name for name, study in studies.items() if study.requirement and not study.asks]
    outcomes = {words[0]: words[1] for words in map(str.split, lines) if words[0] in with_limits}
    assert set(outcomes) == set(with_limits) and "zookeeper" not in outcomes
    assert (outcomes["etcd"], outcomes["consul"]) == ("pass", "undecided")
    again = iosonde("qualify", "all", "-q")
    assert done.returncode == (1 if "fail" in outcomes.values() else 3)
    shown = dict(line.split(": ")[:2] for line in again.stdout.splitlines())
    assert again.returncode == (0 if set(shown.values()) == {"pass"} else done.returncode)
    assert shown == {name: outcomes[name] for name in shown} and "etcd" in shown
    suites = {suite.get("name"): suite.get("skipped") for suite in ElementTree.parse(tmp_path / "all.xml").getroot()}
    assert list(suites) == with_limits and suites["consul"] == "1"


@pytest.mark.parametrize(
    ("outcomes", "code"), [(["pass", ""], 0), (["pass", "fail", "undecided"], 1), (["pass", "undecided"], 3), ([""], 3)]
)
def test_applications_without_limits_do_not_count(outcomes: list[str], code: int) -> None:
    """An empty outcome is that of an application without limits."""
    requirement = load_application("etcd").requirement[0]
    found = []
    for each in outcomes:
        outcome: Any = each or "undecided"
        fields: dict[str, Any] = {"case_id": "wal", "outcome": outcome, "metric": "iops", "limit": 1.0}
        fields["comparison"] = "≥"
        results = [Result(requirement=requirement, **fields)] if each else []
        fields = {"application": "a", "title": "A", "target": "t", "directory": None}
        fields["reason"] = "" if each else NO_LIMITS
        found.append(Qualification(outcome=outcome, results=results, **fields))
    assert exit_code(found) == code


def test_wrong_data_fails_whatever_the_latency_is() -> None:
    passed = {"title": "etcd", "target": "/srv", "directory": None, "results": ()}
    reason = "wrong data in 1 of 5 runs"
    found = Qualification(application="etcd", outcome="fail", reason=reason, wrong_runs=1, **passed)
    assert (exit_code([found]), found.line) == (4, f"etcd: fail: {reason}")


def test_without_a_name_the_applications_are_listed(iosonde: Iosonde) -> None:
    listed = iosonde("qualify")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == list(applications())
    found = json.loads(iosonde("qualify", "--json").stdout)
    assert [each["name"] for each in found] == list(applications())
    assert found[0]["description"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["etcd"], "`--target` is required"),
        (["etcd", "--all", "--target", FAST], "omit the name"),
        (["etdc", "--target", FAST], "did you mean `etcd`?"),
        (["."], "is not a result set"),
        (["./", "--target", FAST], "omit `--target`"),
        (["--all", "--target", "/proc"], "error: `/proc` is on `proc`, which stores no data"),
        (["etcd", "--target", FAST, "--time-limit", "0s"], "must be greater than 0"),
        (["etcd", "--target", FAST, "--time-limit", "5s"], "must be at least 10 s; got 5 s"),
        (["etcd", "--target", FAST, "--time-limit", "10s", "-o", "set", "--junit", "."], "cannot write `.`"),
    ],
)
def test_errors_have_an_exit_code_of_their_own(iosonde: Iosonde, arguments: list[str], message: str) -> None:
    """1 would be read as a requirement that is not met, 3 as undecided."""
    done = iosonde("qualify", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_closed_pipe_is_no_decision(tmp_path: Path, decided: dict[str, Decided]) -> None:
    """Python's usual exit code for it is 1."""
    command = [sys.executable, "-m", "iosonde", "qualify", str(decided["fail"][1] / "set")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as started:
        assert started.stdout and started.stderr
        started.stdout.close()
        started.stderr.read()
        assert started.wait() == 2


def test_a_qualification_that_was_interrupted_is_resumed(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde("qualify", "openshift", "--target", FAST, "-o", "set", "-q")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "set" / "records" / ResultSet.open(tmp_path / "set").records()[-1].run_id)
    with ResultSet.open(tmp_path / "set").lock():
        locked = iosonde("resume", "set", "-q")
    assert locked.returncode == 2 and locked.stderr.startswith("error: "), "an error is no decision"
    resumed = iosonde("resume", "set")
    assert resumed.returncode == 0, resumed.stderr
    records = ResultSet.open(tmp_path / "set").records()
    assert len(records) == 2
    assert "Requirements" in resumed.stdout and (tmp_path / "set" / "report.html").is_file()
    assert resumed.stdout.splitlines()[-1].startswith("openshift: pass: ")
    as_json = iosonde("resume", "set", "--quiet", "--json")
    assert json.loads(as_json.stdout) == json.loads(iosonde("qualify", "set", "--json").stdout)


def test_on_a_directory_the_line_gives_the_value_and_the_reason(iosonde: Iosonde, tmp_path: Path) -> None:
    """Others may use the device and the CPUs while this test runs: it expects no pass after 10 s and no outcome else."""
    (tmp_path / "place").mkdir()
    done = iosonde(
        "qualify", "etcd", "--target", tmp_path / "place", "--time-limit", "10s", "-o", "set", "--json", "-q"
    )
    [found] = json.loads(done.stdout)
    assert found["outcome"] != "pass"
    assert done.returncode == {"fail": 1, "undecided": 3}[found["outcome"]]
    for each in found["results"]:
        assert each["value"] > 0 and each["outcome"] != "pass" and each["measured_ns"] > 9e9
        assert each["reason"] or (each["outcome"] == "fail" and each["margin"] < 0)
    assert not list((tmp_path / "place").iterdir())
