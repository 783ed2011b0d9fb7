"""Suites: the format, planning, one A/B run on simulated devices of known ratio, resuming, the report, untrusted files."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Iosonde
from engines import FAKE
from loop_stacks import loop_devices

from iosonde.cli.commands import suite as command
from iosonde.cli.options import run_options
from iosonde.collections.suite import directory as suites
from iosonde.collections.suite import page, planning, summary
from iosonde.collections.suite.planning import Entry, Suite, Value, total_seconds
from iosonde.data import shipped_suites
from iosonde.errors import ResultsError, StudyError, TargetError
from iosonde.metrics.verdict.verdict import TimeUse
from iosonde.plan import Cost
from iosonde.planning import load as load_study
from iosonde.results import ResultSet
from iosonde.storage.safety.guard import NO_CONSENT, Consent
from iosonde.study.effective import effective
from iosonde.study.model import Level

SLOW = "simulated:servers=4,read=100us,write=100us,size=1GiB"
FAST = "simulated:servers=4,read=50us,write=50us,size=1GiB"
DEVICE = """[[entries]]
name = "device"
study = "quick"
parts = ["random"]
title = "Device"
settings = { queue_depth = "1", operation = "read", ramp = "0s", duration = "500ms", interval = "100ms" }
repeats = 3
values = [
  { part = "random", metric = "iops", title = "random reads", published = "2 times", published_range = [1.9, 2.1] },
  { part = "random", metric = "completion_latency_ns_p50", title = "p50 latency" },
  { part = "random", metric = "completion_latency_ns_p50", title = "p50 read latency", operation = "read" },
]"""
DATABASE = """[[entries]]
name = "database"
study = "oltp"
title = "Database"
values = [{ part = "load", metric = "tpmc", title = "TPC-C" }]"""
READS = """[[entries]]
name = "reads"
study = "quick"
parts = ["random"]
repeats = 2
title = "Reads"
settings = { queue_depth = "1", operation = "read", span = "4MiB", ramp = "0s", duration = "200ms", interval = "100ms" }
values = [{ part = "random", metric = "iops", title = "random reads" }]"""
ACT = """[[entries]]
name = "act"
study = "act"
title = "ACT"
settings = { ramp = "100ms", duration = "1s" }
values = [{ part = "certify", metric = "limit", title = "passing load", published = "7.2 times", published_range = [7, 8] }]"""
STORE = """[[entries]]
name = "reads"
study = "ycsb"
title = "Reads"
settings = { phase = "ycsb_c", store = "lmdb", records = "2k", ramp = "0s", duration = "200ms" }
values = [{ part = "core", metric = "ops_per_sec", title = "YCSB C" }]"""
LOG = """[[entries]]
name = "log"
study = "log-device"
title = "Log"
log_device = true
settings = { store = "null", jobs = "1", sync = "false", ramp = "0", ramp_until = "time", duration = "100ms" }
repeats = 3
values = [
  { part = "log", metric = "ops_per_sec", title = "overwrites", where = { sync = false }, levels = { log = ["on data device", "separate"] } },
]"""


def text_of(*entries: str, title: str = "Tiny") -> str:
    return f'name = "tiny"\ntitle = "{title}"\nquestion = "Which is faster?"\n' + "\n".join(entries)


def suite_of(*entries: str) -> Suite:
    return Suite.model_validate(tomllib.loads(text_of(*entries)))


def written(directory: Path, *entries: str) -> Path:
    """The file of a suite, whose title is not one that a page may contain."""
    path = directory / "tiny.toml"
    path.write_text(text_of(*entries, title="Two <script>alert(1)</script> devices"))
    return path


def entry(name: str, study: str = "quick", **changes: object) -> Entry:
    return Entry.model_validate({"name": name, "study": study, "title": name.upper(), "values": [], **changes})


def of_entries(*entries: Entry, name: str = "x") -> Suite:
    return Suite(name=name, title="X", question="?", entries=list(entries))


def directory_of(
    path: Path, suite: Suite, *, target: str = "/dev/a", against: str | None = None, skipped: str = "no such program"
) -> suites.SuiteDirectory:
    """A suite of which no study could be planned, or all if none is `skipped`."""
    names = [each.name for each in suite.entries]
    state = {
        "skipped": dict.fromkeys(names, skipped) if skipped else {},
        "alternating": {} if skipped else dict.fromkeys(names, False),
    }
    description = suites.SuiteFile(suite=suite, target=target, against=against, **state)
    return suites.SuiteDirectory(path=path, description=description)


@pytest.mark.parametrize("name", shipped_suites())
def test_values_of_shipped_suites_are_of_cases_that_the_profiles_have(name: str) -> None:
    suite = planning.load(name)
    for entry in suite.entries:
        study = load_study(entry.study)
        for profile in study.profiles:
            parts = {part.name: part for part in effective(study, profile=profile, settings=entry.settings).parts}
            for value in entry.values:
                factors = parts[value.part].all_factors
                for factor, level in value.where.items():
                    levels = [each.label if isinstance(each, Level) else each for each in factors[factor]]
                    assert str(level) in map(str, levels), f"{entry.name}, profile {profile}: {factor} = {level}"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('name = "tiny"', 'name = "../tiny"'), "should match pattern"),
        (('name = "database"', 'name = "device"'), "two entries are called `device`"),
        (("[1.9, 2.1]", "[2.1, 1.9]"), "the smaller first"),
        (("question =", "answer ="), "Extra inputs|Field required"),
        (('title = "Device"', 'title = "Device"\nlog_device = true'), "must have `levels` if the entry has"),
        (('["random"]', '["sequential"]'), "a part that `parts` does not list"),
    ],
)
def test_a_wrong_suite_is_refused_with_the_reason(tmp_path: Path, change: tuple[str, str], what: str) -> None:
    text = text_of(DEVICE, DATABASE)
    assert change[0] in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(*change))
    with pytest.raises(StudyError, match=what):
        planning.load(str(path))


@pytest.mark.parametrize(
    ("suite", "options", "what"),
    [
        ([DATABASE], {}, "no study of the suite `tiny` can run"),
        ([READS], {"profile": "qick"}, "no study of the suite `tiny` has a profile `qick`"),
        ([READS], {"settings": {"terminalz": "4"}}, "has a factor or parameter `terminalz`"),
        ([READS.replace('"random"', '"radnom"')], {}, "has no part `radnom`"),
        ([LOG], {}, "can run on"),
    ],
)
def test_a_suite_that_cannot_be_planned_is_refused(suite: list[str], options: dict[str, Any], what: str) -> None:
    """Also a misspelt profile: a study without it uses `standard`, and would measure for hours."""
    with pytest.raises(StudyError, match=what):
        planning.plan_suite(suite_of(*suite), SLOW, None, **({"profile": "quick"} | options))
    with pytest.raises(StudyError, match=r"(?s)there is no suite `jo2042`.*did you mean `jo2024`"):
        planning.load("jo2042")


def test_only_the_parts_and_settings_of_an_entry_are_planned() -> None:
    suite = of_entries(entry("device", parts=["random"]), entry("latency", "latency-curve"))
    given = {"operation": "read", "queue_depth": "1"}
    device, latency = planning.plan_suite(suite, SLOW, None, profile="quick", settings=given)
    assert not device.skipped and not latency.skipped
    assert {case.part for case in device.plans["a"].cases if not case.control} == {"random"}
    assert device.plans["a"].settings["operation"] == "read"
    assert "operation" not in latency.plans["a"].settings, "it has no such parameter"
    [overview, *_] = planning.plan_suite(planning.load("buy"), SLOW, None, profile="paper")
    assert overview.plans["a"].profile == "standard"


def test_targets_that_cannot_be_compared_are_refused_at_planning(tmp_path: Path) -> None:
    """Also for a study with a search, which has one plan for each target."""
    with pytest.raises(TargetError, match=r"a measured target with the simulated target `simulated:.*`") as caught:
        planning.plan_suite(suite_of(ACT), str(tmp_path), SLOW, profile="quick")
    assert "--mix-simulated" in caught.value.hint
    planned = planning.plan_suite(suite_of(ACT), SLOW, FAST, profile="quick")
    assert [set(each.plans) for each in planned] == [{"a", "b"}]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    # A device that was not mounted leaves an empty directory on the file system of the other one.
    with pytest.raises(TargetError, match="are on the same file system: this does not compare devices") as caught:
        planning.plan_suite(suite_of(READS), str(tmp_path / "one"), str(tmp_path / "two"))
    assert "are mounted" in caught.value.hint


@pytest.mark.system
@pytest.mark.needs("loop devices", "engine")
def test_consent_is_checked_for_every_study_before_anything_is_created(tmp_path: Path) -> None:
    """One consent is for all studies, and a study is not refused after hours of others."""
    settings = {"queue_depth": "1", "operation": "write", "span": "16MiB"}
    suite = of_entries(*(entry(name, parts=["random"], settings=settings) for name in ("first", "second")))
    with loop_devices(tmp_path, 32 << 20) as [device]:
        target, directory = str(device), tmp_path / "suite"
        planned = planning.plan_suite(suite, target, None, profile="quick")
        required = [line for line in command.plan_lines(suite, planned) if line.startswith("requires")]
        assert required == [f"requires  --destroy {target}"]
        with pytest.raises(TargetError, match="--destroy"):
            suites.create(directory, suite, planned, target, None, NO_CONSENT)
        assert not directory.exists()
        created = suites.create(directory, suite, planned, target, None, Consent(destroy=(target,)))
        assert [path.name for path in created.result_sets.values()] == ["01-first", "02-second"]
        assert not any(device.read_bytes()), "nothing is written before a study runs"


def test_a_plan_has_every_study_with_its_time_or_the_reason_and_hints_once(iosonde: Iosonde, tmp_path: Path) -> None:
    file = written(tmp_path, DEVICE, DATABASE)
    done = iosonde("suite", file, "--target", SLOW, "--profile", "quick", "--plan")
    assert re.search(r"device +\d+ runs, about", done.stdout)
    assert "skipped: a database server needs a file system" in done.stdout
    suite = planning.load("buy")
    planned = planning.plan_suite(suite, SLOW, None, profile="quick")
    skipped = [replace(planned[-1], entry=entry) for entry in suite.entries[-2:]]
    hints = [line for line in command.plan_lines(suite, [*planned[:-2], *skipped]) if line.startswith("hint")]
    assert hints == ["hint      interference, database: name a directory as the target"]


def test_a_plan_has_the_sum_of_bytes_written() -> None:
    """Of a study that is limited only by time, what it writes before measuring is known."""
    suite = suite_of(READS)
    [planned] = planning.plan_suite(suite, SLOW, None, profile="quick")
    plans = [
        planned.plans["a"].model_copy(update={"cost": Cost(seconds=1, write_bytes=written), "layout_bytes": layout})
        for written, layout in ((2**30, 0), (2**30, 2**20), (None, 2**30))
    ]
    of_study = [replace(planned, plans={"a": plan}) for plan in plans]
    assert "writes    2 GiB" in command.plan_lines(suite, of_study[:2])
    assert "writes    3 GiB and more, limited only by time" in command.plan_lines(suite, of_study)


@pytest.mark.engine
@pytest.mark.parametrize(("suite", "profile"), [("buy", "standard"), ("han2021", "standard"), ("han2021", "quick")])
def test_no_study_is_skipped_because_it_needs_an_array(tmp_path: Path, suite: str, profile: str) -> None:
    """Directories are targets of every study, unless this machine lacks a program, a right or the space."""
    against = str(tmp_path) if suite == "han2021" else None
    planned = planning.plan_suite(planning.load(suite), str(tmp_path), against, profile=profile)
    assert not [each.skipped for each in planned if "needs devices" in each.skipped]
    assert total_seconds(planned) <= {"buy": 2, "han2021": 3}[suite] * 3600


@pytest.mark.engine
def test_a_suite_finds_the_known_ratio_and_can_be_resumed(iosonde: Iosonde, tmp_path: Path) -> None:
    directory = tmp_path / "results"
    options = ("--target", SLOW, "--against", FAST, "--profile", "quick")
    file = written(tmp_path, DEVICE, DATABASE)
    stopped = iosonde("suite", file, *options, "-o", directory, "--time-limit", "1ms")
    assert "iosonde resume" in stopped.stderr
    refused = iosonde("resume", directory, "--hosts", "local:2")
    assert refused.returncode == 2 and "is not supported for a suite" in refused.stderr
    document = json.loads(iosonde("resume", directory, "--json").stdout)
    found = {line["value"]: line for line in document["lines"]}
    for name in ("random reads", "p50 latency", "p50 read latency"):
        assert found[name]["outcome"] == "better"
        assert found[name]["improvement"] == pytest.approx(2.0, rel=0.02)
    assert list(document["skipped"]) == ["database"]
    assert document["recommendation"] == [f"{FAST} is better for Device (2.00×)", "Not measured: Database"]
    text = Path(document["report"]).read_text()
    assert "<script" not in text and "Two &lt;script&gt;" in text
    assert text.count("<circle") == 3 and 'class="published"' in text
    assert (directory / "01-device" / "report.html").is_file()
    assert "random reads" in iosonde("report", directory, "-o", tmp_path / "again.html").stdout
    assert (tmp_path / "again.html").is_file()


@pytest.mark.engine
def test_a_library_in_another_place_is_allowed_again_to_resume(iosonde: Iosonde, tmp_path: Path) -> None:
    """The result set could have come from another person, with the library."""
    directory, place, library = tmp_path / "results", tmp_path / "place", tmp_path / "libmine.so"
    place.mkdir()
    shutil.copy(next(Path("/usr/lib").rglob("liblmdb.so.0")), library)
    options = ("--target", place, "--profile", "quick", "--set", f"library={library}", "-o", directory)
    stopped = iosonde("suite", written(tmp_path, STORE), *options, "--time-limit", "1ms")
    assert "iosonde resume" in stopped.stderr
    refused = iosonde("resume", directory)
    assert refused.returncode != 0 and f"--allow-library {library}" in refused.stderr
    assert ResultSet.open(directory / "01-reads").records() == []
    document = json.loads(iosonde("resume", directory, "--allow-library", library, "--json").stdout)
    assert [line["value"] for line in document["lines"]] == ["YCSB C"]
    [record] = ResultSet.open(directory / "01-reads").records()
    assert record.failure is None
    assert record.spec["workload"]["store"]["library"] == str(library)


@pytest.mark.engine
def test_limits_of_searches_are_compared_within_their_precision(iosonde: Iosonde, tmp_path: Path) -> None:
    fast = "simulated:servers=16,read=50us,write=50us,size=1TiB"
    targets = ("--target", "simulated:servers=4,read=100us,write=100us,size=1TiB", "--against", fast)
    options = ("--profile", "quick", "-o", tmp_path / "results", "--json")
    done = iosonde("suite", written(tmp_path, ACT), *targets, *options)
    [line] = json.loads(done.stdout)["lines"]
    assert line["outcome"] == "better"
    assert line["low"] < line["improvement"] < line["high"]
    # Sixteen servers of twice the speed do eight times as much; the quick search is exact to a factor of 1.5.
    assert line["low"] <= 8 <= line["high"]


@pytest.mark.engine
def test_a_log_device_is_compared_with_a_log_on_the_data_device(iosonde: Iosonde, tmp_path: Path) -> None:
    """The study runs on the first target only; the second one has its log."""
    data, log, results = tmp_path / "data", tmp_path / "log", tmp_path / "results"
    data.mkdir()
    log.mkdir()
    options = ("--target", data, "--against", log, "--profile", "quick", "-o", results, "--json")
    [line] = json.loads(iosonde("suite", written(tmp_path, LOG), *options).stdout)["lines"]
    assert line["notes"] == ["log on data device", f"log on {log}"]
    assert [path.name for path in results.iterdir() if path.is_dir()] == ["01-log"]
    description = json.loads((results / "suite.json").read_text())
    description["against"] = "/elsewhere"
    (results / "suite.json").write_text(json.dumps(description))
    with pytest.raises(ResultsError, match="its log is on"):
        suites.SuiteDirectory.open(results)


@pytest.mark.engine
def test_a_comparison_with_a_simulated_device_on_request_is_marked(iosonde: Iosonde, tmp_path: Path) -> None:
    """Studies that are not of block I/O are skipped; the targets do not alternate, because only one takes time."""
    target, results = tmp_path / "device", tmp_path / "results"
    target.mkdir()
    fast = "simulated:servers=4,read=1us,write=1us,size=1GiB"
    options = ("--target", target, "--against", fast, "--profile", "quick", "--repeats", "1", "--mix-simulated")
    done = iosonde("suite", written(tmp_path, READS, DATABASE), *options, "-o", results, "--json")
    document = json.loads(done.stdout)
    assert document["shared"].startswith(f"`{fast}` is simulated: its values are those of a device model")
    [line] = [each for each in document["lines"] if each["value"] == "random reads"]
    assert line["second"] == "1 M IOPS" and line["improvement"] > 0
    assert list(document["skipped"]) == ["database"]
    assert sorted(path.name for path in results.iterdir() if path.is_dir()) == ["01-reads-a", "01-reads-b"]
    text = Path(document["report"]).read_text()
    assert "<strong>Simulated in part.</strong>" in text
    assert "its values are those of a device model, and the others are measured" in text


@pytest.fixture
def two_studies(tmp_path: Path) -> suites.SuiteDirectory:
    values = [{"part": "random", "metric": "iops", "title": "reads"}]
    settings = {"queue_depth": "1", "operation": "read", "ramp": "0s", "duration": "200ms", "interval": "100ms"}
    suite = of_entries(
        *(entry(name, parts=["random"], repeats=1, settings=settings, values=values) for name in ("first", "second"))
    )
    planned = planning.plan_suite(suite, SLOW, None, profile="quick")
    return suites.create(tmp_path / "suite", suite, planned, SLOW, None, NO_CONSENT)


def test_a_wrong_time_limit_is_refused_before_anything_is_created(iosonde: Iosonde, tmp_path: Path) -> None:
    refused = iosonde(
        *("suite", written(tmp_path, DEVICE), "--target", SLOW, "-o", tmp_path / "results", "--time-limit", "soon")
    )
    assert refused.returncode == 2 and "--time-limit" in refused.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.engine
def test_a_study_that_fails_costs_neither_the_others_nor_the_report(
    two_studies: suites.SuiteDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultSet.open(two_studies.path / "01-first").lock(), pytest.raises(typer.Exit) as caught:
        command.carry_out(two_studies, NO_CONSENT, run_options())
    assert caught.value.exit_code == 3
    printed = capsys.readouterr()
    assert "`01-first` is not complete; the suite continues" in printed.err
    assert "FIRST: not measured: no complete runs" in printed.out
    assert re.search(r"^10 k IOPS\s+SECOND, reads$", printed.out, re.M)
    assert (two_studies.path / "report.html").is_file()
    (two_studies.path / "01-first" / "plan.json").write_text("{}")
    first, second = summary.summarize(two_studies).studies
    assert "was modified after it was written" in first.skipped and first.lines[0].outcome == "missing"
    assert (second.skipped, second.lines[0].outcome) == ("", "value")


@pytest.mark.engine
def test_a_suite_is_interrupted(
    two_studies: suites.SuiteDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "iosonde-engine"
    engine.write_text(f'#!/bin/sh\nkill -INT {os.getpid()}\nexec {FAKE} "$@"\n')
    engine.chmod(0o755)
    monkeypatch.setenv("IOSONDE_ENGINE", str(engine))
    with pytest.raises(typer.Exit) as caught:
        command.carry_out(two_studies, NO_CONSENT, run_options(as_json=True))
    assert caught.value.exit_code == 130
    assert [ResultSet.open(path).records() for path in two_studies.result_sets.values()] == [[], []]


EDITS = {
    "another study": (("suite", "entries", 0, "study"), "overview", "its study is `quick`"),
    "the targets exchanged": (("target",), FAST, "and the suite of"),
    "a setting that was not used": (("suite", "entries", 0, "settings", "jobs"), "4", "has no setting `jobs`"),
    "a newer format": (("format",), 2, "is damaged"),
    "another directory": (("alternating",), {"../../tmp": True}, "is damaged"),
    "an incomplete suite": (("suite",), {"name": "x"}, "is damaged"),
}


@pytest.mark.engine
def test_a_description_that_its_result_sets_contradict_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """A page would show values of one study or target under the title of another."""
    suite, directory = suite_of(DEVICE, DATABASE), tmp_path / "suite"
    suites.create(directory, suite, planning.plan_suite(suite, SLOW, FAST, profile="quick"), SLOW, FAST, NO_CONSENT)
    suites.SuiteDirectory.open(directory)
    original = (directory / "suite.json").read_text()
    for (*path, last), value, reason in EDITS.values():
        place = document = json.loads(original)
        for each in path:
            place = place[each]
        place[last] = value
        (directory / "suite.json").write_text(json.dumps(document))
        with pytest.raises(ResultsError, match=reason):
            suites.SuiteDirectory.open(directory)


@pytest.mark.parametrize("linked", [False, True])
def test_a_result_set_that_is_missing_or_a_link_is_refused(tmp_path: Path, linked: bool) -> None:
    """`report` would write into the directory that the link names."""
    described = directory_of(tmp_path / "suite", of_entries(entry("a")), skipped="")
    (tmp_path / "elsewhere").mkdir()
    described.path.mkdir()
    (described.path / "suite.json").write_text(described.description.model_dump_json())
    if linked:
        (described.path / "01-a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResultsError, match="is missing or not a directory"):
        suites.SuiteDirectory.open(described.path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_page_without_results_states_it_and_whether_the_suite_is_the_shipped_one(tmp_path: Path) -> None:
    suite = planning.load("buy")
    changed = suite.model_copy(update={"title": "Buy this one"})
    pages = [page.render(summary.summarize(directory_of(tmp_path, each))) for each in (suite, changed)]
    assert ["differs from the suite" in text for text in pages] == [False, True]
    assert pages[0].count("<strong>Not measured:</strong>") == len(suite.entries)
    assert "<svg" not in pages[0]


def use_of(busy: float, *, cores: float) -> TimeUse:
    return TimeUse(device_busy=busy, application_cores=cores, kernel_cores=0.1, lock_waits=None)


def line_of(metric: str, title: str, name: str = "application", **facts: Any) -> summary.Line:
    value = Value(part="p", metric=metric, title=title, published="2 times", published_range=(2, 2))
    return summary.Line(entry=entry(name, values=[value]), value=value, case="", **facts)


def test_a_page_sorts_improvements_and_names_why_the_small_ones_are_small(tmp_path: Path) -> None:
    studies = []
    for name, ratio, share, cores in (("small", 1.1, 0.2, 2.0), ("large", 3.0, 0.9, 0.4)):
        both = dict.fromkeys(("/a", "/b"), use_of(share, cores=cores))
        limits = dict.fromkeys(both, "device-limited: the disk was busy")
        facts = {"improvement": ratio, "low": ratio - 0.01, "high": ratio + 0.01, "limits": limits, "uses": both}
        line = line_of("ops_per_sec", "rate", name, outcome="better", **facts)
        studies.append(summary.StudySummary(entry=line.entry, lines=[line], answers={}))
    suite = of_entries(*(each.entry for each in studies))
    directory = directory_of(tmp_path, suite, target="/a", against="/b", skipped="")
    found = summary.Summary(directory=directory, studies=studies, simulated=False)
    values, times = page.render(found).split("Where the time goes</h2>")
    assert re.findall("(LARGE|SMALL), rate", values) == ["LARGE", "SMALL"] * 2, "in the figure and in the table"
    assert re.findall("(LARGE|SMALL), rate", times) == ["LARGE", "SMALL"]
    assert values.count('class="published"') == 2 and "2 times" in values
    reason = "the device was busy 20 % of the time, so a faster one gains at most 1.25×; the application used 2.0 cores"
    assert f"1.10× (1.09 to 1.11): {reason}" in times
    assert "the device was busy 90 %" not in times, "a large improvement needs no reason"
    assert times.count("<td>device-limited<small>the disk was busy</small></td>") == 4


@pytest.mark.parametrize(
    ("metric", "outcome", "interval", "busy", "decided"),
    [
        ("ops_per_sec", "better", (1.3, 1.8), (0.03, 0.03), "unexplained"),
        ("ops_per_sec", "better", (1.3, 1.8), (0.5, 0.03), "better"),
        ("ops_per_sec", "better", (1.02, 1.8), (0.03, 0.03), "better"),
        ("ops_per_sec", "worse", (0.4, 0.6), (0.9, 0.2), "unexplained"),
        ("ops_per_sec", "worse", (0.4, 0.6), (0.2, 0.9), "worse"),
        ("iops", "better", (8.0, 9.0), (1.0, 0.1), "better"),
        ("completion_latency_ns_p99", "better", (8.0, 9.0), (0.1, 0.1), "better"),
        ("ops_per_sec", "unclear", (0.9, 1.8), (0.03, 0.03), "unclear"),
    ],
)
def test_a_gain_that_the_time_of_the_device_cannot_explain_is_not_ascribed_to_it(
    metric: str, outcome: Any, interval: tuple[float, float], busy: tuple[float, float], decided: str
) -> None:
    uses = {target: use_of(share, cores=1.0) for target, share in zip(("a", "b"), busy, strict=True)}
    low, high = interval
    found_ratio = {"improvement": (low + high) / 2, "low": low, "high": high}
    line = line_of(metric, "reads", outcome=outcome, uses=uses, **found_ratio)
    found = summary._checked_by_device_time(line, ["a", "b"])
    assert found.outcome == decided
    if decided == "unexplained":
        slower, most = ("a", "1.03") if outcome == "better" else ("b", "1.25")
        assert f"on {slower}, which accounts for {most}× at most" in found.reason
