"""Suites: the format, planning, one A/B run on simulated devices of known ratio, resuming, the report, untrusted files."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Iosonde
from loop_stacks import loop_devices
from mounted import LoopFileSystem
from pydantic import ValidationError
from servers.conftest import reachable_directory

from iosonde import suite as suites
from iosonde.cli.commands import suite as command
from iosonde.data import shipped_suites
from iosonde.errors import ResultsError, StudyError, TargetError
from iosonde.plan.cost import Cost
from iosonde.planning import load as load_study
from iosonde.results import ResultSet
from iosonde.storage.safety.consent import NO_CONSENT, Consent
from iosonde.storage.targets.file_target import DirectoryTarget
from iosonde.study.effective import effective
from iosonde.study.model import Level
from iosonde.suite import page, summary
from iosonde.suite.model import Entry, Suite, Value
from iosonde.suite.planning import total_seconds
from iosonde.verdict.time_use import TimeUse

SLOW, FAST = (
    "simulated:servers=4,read=100us,write=100us,size=1GiB",
    "simulated:servers=4,read=50us,write=50us,size=1GiB",
)
SUITE = """
name = "tiny"
title = "Two <script>alert(1)</script> devices"
question = "Which is faster?"

[[entries]]
name = "device"
study = "quick"
title = "Device"
settings = { queue_depth = "1", operation = "read" }
repeats = 3
values = [
  { part = "random", metric = "iops", title = "random reads", published = "2 times", published_range = [1.9, 2.1] },
  { part = "random", metric = "completion_latency_ns_p50", title = "p50 latency" },
  { part = "random", metric = "completion_latency_ns_p50", title = "p50 read latency", operation = "read" },
]

[[entries]]
name = "database"
study = "oltp"
title = "Database"
values = [{ part = "load", metric = "tpmc", title = "TPC-C" }]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(SUITE)
    return path


@pytest.mark.unit
@pytest.mark.parametrize("name", shipped_suites())
def test_values_of_shipped_suites_are_of_cases_that_the_profiles_have(name: str) -> None:
    suite = suites.load(name)
    for entry in suite.entries:
        study = load_study(entry.study)
        for profile in study.profiles:
            parts = {part.name: part for part in effective(study, profile=profile, settings=entry.settings).parts}
            for value in entry.values:
                factors = parts[value.part].all_factors
                for factor, level in value.where.items():
                    levels = [each.label if isinstance(each, Level) else each for each in factors[factor]]
                    assert str(level) in map(str, levels), f"{entry.name}, profile {profile}: {factor} = {level}"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (('name = "tiny"', 'name = "../tiny"'), "should match pattern"),
        (('name = "database"', 'name = "device"'), "two entries are called `device`"),
        (("[1.9, 2.1]", "[2.1, 1.9]"), "the smaller first"),
        (("question =", "answer ="), "Extra inputs|Field required"),
        (('title = "Two', "title = Two"), "not TOML"),
    ],
)
def test_a_wrong_suite_is_refused_with_the_reason(tmp_path: Path, change: tuple[str, str], what: str) -> None:
    assert change[0] in SUITE
    path = tmp_path / "wrong.toml"
    path.write_text(SUITE.replace(*change))
    with pytest.raises(StudyError, match=what):
        suites.load(str(path))


@pytest.mark.unit
def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(StudyError, match="there is no suite `jo2042`") as caught:
        suites.load("jo2042")
    assert "did you mean `jo2024`" in str(caught.value)


@pytest.mark.engine
def test_a_suite_finds_the_known_ratio_and_can_be_resumed(iosonde: Iosonde, file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "results"
    options = ("--target", SLOW, "--against", FAST, "--profile", "quick")
    stopped = iosonde("suite", file, *options, "-o", directory, "--time-limit", "1ms")
    assert "iosonde resume" in stopped.stderr
    refused = iosonde("resume", directory, "--hosts", "local:2")
    assert refused.returncode == 2 and "is not supported for a suite" in refused.stderr
    done = iosonde("resume", directory, "--json")
    document = json.loads(done.stdout)
    found = {line["value"]: line for line in document["lines"]}
    for name in ("random reads", "p50 latency", "p50 read latency"):
        assert found[name]["outcome"] == "better"
        assert found[name]["improvement"] == pytest.approx(2.0, rel=0.02)
    assert document["skipped"] == {
        "database": "a database server needs a file system, and a simulated or null device has none"
    }
    assert document["recommendation"] == [f"{FAST} is better for Device (2.00×)", "Not measured: Database"]
    text = Path(document["report"]).read_text()
    assert "<script" not in text
    assert "Two &lt;script&gt;" in text
    assert text.count("<circle") == 3
    assert 'class="published"' in text
    assert (directory / "01-device" / "report.html").is_file()
    again = iosonde("report", directory, "-o", tmp_path / "again.html")
    assert "random reads" in again.stdout
    assert (tmp_path / "again.html").is_file()


REAL = """
name = "real"
title = "Two directories"
question = "Which is faster?"

[[entries]]
name = "reads"
study = "quick"
parts = ["random"]
repeats = 2
title = "Reads"
settings = { queue_depth = "1", arrival = "poisson", rate = "2000", operation = "read", span = "4MiB", ramp = "100ms", duration = "200ms", interval = "100ms" }
values = [{ part = "random", metric = "iops", title = "random reads" }]

[[entries]]
name = "writes"
study = "quick"
parts = ["random"]
repeats = 2
title = "Writes"
settings = { queue_depth = "1", arrival = "poisson", rate = "2000", operation = "write", span = "4MiB", ramp = "100ms", duration = "200ms", interval = "100ms" }
values = [{ part = "random", metric = "iops", title = "random writes" }]
"""


@pytest.mark.engine
def test_a_killed_suite_keeps_its_records_and_is_resumed(iosonde: Iosonde, tmp_path: Path) -> None:
    file, directory = tmp_path / "real.toml", tmp_path / "results"
    file.write_text(REAL)
    place = tmp_path / "place"
    place.mkdir()
    options = ("--target", place, "--against", place, "--profile", "quick", "-o", directory)
    command = [sys.executable, "-m", "iosonde", "suite", str(file), *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(directory.glob("*/records/c*/record.json"))) < 5:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it ended by itself"
    kept = {path: path.read_bytes() for path in directory.glob("*/records/c*/record.json")}
    assert len(kept) >= 5
    done = iosonde("resume", directory, "--json")
    document = json.loads(done.stdout)
    assert {line["value"] for line in document["lines"]} == {"random reads", "random writes"}
    assert not {"missing", "value"} & {line["outcome"] for line in document["lines"]}
    assert {path: path.read_bytes() for path in kept} == kept
    for name in ("01-reads", "02-writes"):
        found = ResultSet.open(directory / name)
        assert sorted(each.run_id for each in found.records()) == sorted(each.run_id for each in found.plan.runs)
        assert {each.outcome for each in found.records()} == {"complete"}
    assert list(place.iterdir()) == []


STORE = """
name = "store"
title = "A store"
question = "How fast is it?"

[[entries]]
name = "reads"
study = "ycsb"
title = "Reads"
settings = { phase = "ycsb_c", store = "lmdb", records = "2k", ramp = "0s", duration = "200ms" }
values = [{ part = "core", metric = "ops_per_sec", title = "YCSB C" }]
"""


@pytest.mark.engine
def test_a_library_in_another_place_is_used_and_allowed_again_to_resume(iosonde: Iosonde, tmp_path: Path) -> None:
    """The result set could have come from another person, with the library."""
    file, directory, place = tmp_path / "store.toml", tmp_path / "results", tmp_path / "place"
    file.write_text(STORE)
    place.mkdir()
    library = tmp_path / "libmine.so"
    shutil.copy(next(Path("/usr/lib").rglob("liblmdb.so.0")), library)
    options = ("--target", place, "--profile", "quick", "--set", f"library={library}", "-o", directory)
    assert "iosonde resume" in iosonde("suite", file, *options, "--time-limit", "1ms").stderr
    refused = iosonde("resume", directory)
    assert refused.returncode != 0
    assert f"--allow-library {library}" in refused.stderr
    assert [each.run_id for each in ResultSet.open(directory / "01-reads").records()] == []
    document = json.loads(iosonde("resume", directory, "--allow-library", library, "--json").stdout)
    assert [line["value"] for line in document["lines"]] == ["YCSB C"]
    [record] = ResultSet.open(directory / "01-reads").records()
    assert record.failure is None
    assert record.spec["workload"]["store"]["library"] == str(library)


@pytest.mark.unit
def test_two_directories_of_one_file_system_are_not_two_devices(tmp_path: Path) -> None:
    """A device that was not mounted leaves an empty directory on the file system of the other one."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    suite = Suite.model_validate(tomllib.loads(REAL))
    with pytest.raises(TargetError, match="are on the same file system: this does not compare devices") as caught:
        suites.plan_suite(suite, str(places[0]), str(places[1]))
    assert "are mounted" in caught.value.hint


@pytest.mark.system
@pytest.mark.needs("loop devices", "disk")
def test_two_file_systems_on_one_device_are_compared_with_a_note(
    iosonde: Iosonde, loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    file, targets = tmp_path / "real.toml", [loop_file_system().directory, loop_file_system().directory]
    file.write_text("[[entries]]".join(REAL.split("[[entries]]")[:2]))  # One of its studies.
    options = ("--target", targets[0], "--against", targets[1], "--profile", "quick", "-o", tmp_path / "results")
    note = "this compares file systems or partitions, not devices"
    planned = iosonde("suite", file, *options, "--plan").stdout
    assert planned.splitlines()[-1].startswith("note      both targets use `")
    document = json.loads(iosonde("suite", file, *options, "--json").stdout)
    assert document["shared"].endswith(note)
    assert not {"missing", "value"} & {line["outcome"] for line in document["lines"]}
    assert f"{note}.</p>" in Path(document["report"]).read_text()


LIMIT = """
name = "limits"
title = "Limits"
question = "Which device passes more?"

[[entries]]
name = "act"
study = "act"
title = "ACT"
values = [{ part = "certify", metric = "limit", title = "passing load", published = "7.2 times", published_range = [7, 8] }]
"""


@pytest.mark.engine
def test_limits_of_searches_are_compared_within_their_precision(iosonde: Iosonde, tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(LIMIT)
    fast = "simulated:servers=16,read=50us,write=50us,size=1TiB"
    targets = ("--target", "simulated:servers=4,read=100us,write=100us,size=1TiB", "--against", fast)
    done = iosonde("suite", file, *targets, "--profile", "quick", "-o", tmp_path / "results", "--json")
    [line] = json.loads(done.stdout)["lines"]
    assert line["outcome"] == "better"
    assert line["low"] < line["improvement"] < line["high"]
    # Sixteen servers of twice the speed do eight times as much; the quick search is exact to a factor of 1.5.
    assert line["low"] <= 8 <= line["high"]


LOG = """
name = "logs"
title = "Log devices"
question = "What does a log device gain?"

[[entries]]
name = "log"
study = "log-device"
title = "Log"
log_device = true
settings = { store = "null", jobs = "1", sync = "false", ramp = "0", ramp_until = "time", duration = "100ms" }
repeats = 3
values = [
  { part = "log", metric = "ops_per_sec", title = "overwrites", where = { sync = false }, levels = { log = ["on data device", "separate"] } },
]
"""


@pytest.mark.engine
def test_a_log_device_is_compared_with_a_log_on_the_data_device(iosonde: Iosonde, tmp_path: Path) -> None:
    """The study runs on the first target only; the second one has its log."""
    file, data, log = tmp_path / "logs.toml", tmp_path / "data", tmp_path / "log"
    file.write_text(LOG)
    data.mkdir()
    log.mkdir()
    options = ("--target", data, "--against", log, "--profile", "quick", "-o", tmp_path / "results", "--json")
    [line] = json.loads(iosonde("suite", file, *options).stdout)["lines"]
    assert line["notes"] == ["log on data device", f"log on {log}"]
    assert line["low"] <= line["improvement"] <= line["high"]
    assert line["outcome"] in ("better", "worse", "same", "unclear", "excluded")
    [directory] = (path for path in (tmp_path / "results").iterdir() if path.is_dir())
    assert directory.name == "01-log"
    description = json.loads((tmp_path / "results" / "suite.json").read_text())
    description["against"] = "/elsewhere"
    (tmp_path / "results" / "suite.json").write_text(json.dumps(description))
    with pytest.raises(ResultsError, match="its log is on"):
        suites.open_directory(tmp_path / "results")


@pytest.mark.unit
def test_a_log_device_needs_a_second_target(tmp_path: Path) -> None:
    suite = suites.Suite.model_validate(tomllib.loads(LOG))
    with pytest.raises(StudyError, match="can run on") as caught:
        suites.plan_suite(suite, str(tmp_path), None, profile="quick")
    assert "a log device needs a second target" in caught.value.where


MIXED = """
name = "mixed"
title = "Mixed"
question = "Which is faster?"

[[entries]]
name = "act"
study = "act"
title = "ACT"
values = [{ part = "certify", metric = "limit", title = "passing load" }]
"""


@pytest.mark.unit
def test_targets_that_cannot_be_compared_are_refused_at_planning(tmp_path: Path) -> None:
    """Also for a study with a search, which has one plan for each target."""
    suite = suites.Suite.model_validate(tomllib.loads(MIXED))
    with pytest.raises(
        TargetError, match=r"cannot compare a measured target with the simulated target `simulated:.*`"
    ) as caught:
        suites.plan_suite(suite, str(tmp_path), SLOW, profile="quick")
    assert "--mix-simulated" in caught.value.hint
    planned = suites.plan_suite(suite, SLOW, FAST, profile="quick")
    assert [set(each.plans) for each in planned] == [{"a", "b"}]


@pytest.mark.engine
def test_a_device_is_compared_with_a_simulated_one_on_request_and_the_page_is_marked(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    """Studies that are not of block I/O are skipped; the targets do not alternate, because only one takes time."""
    file, target, results = tmp_path / "mixed.toml", tmp_path / "device", tmp_path / "results"
    database = '\n[[entries]]\nname = "database"\nstudy = "oltp"\ntitle = "Database"\nvalues = []\n'
    closed = REAL.replace('arrival = "poisson", rate = "2000", ', "")
    file.write_text("[[entries]]".join(closed.split("[[entries]]")[:2]) + database)
    target.mkdir()
    fast = "simulated:servers=4,read=1us,write=1us,size=1GiB"
    options = ("--target", target, "--against", fast, "--profile", "quick", "--repeats", "1")
    document = json.loads(iosonde("suite", file, *options, "--mix-simulated", "-o", results, "--json").stdout)
    assert document["shared"].startswith(f"`{fast}` is simulated: its values are those of a device model")
    [line] = document["lines"]
    assert line["second"] == "1 M IOPS" and line["improvement"] > 1
    assert list(document["skipped"]) == ["database"]
    assert sorted(path.name for path in results.iterdir() if path.is_dir()) == ["01-reads-a", "01-reads-b"]
    text = Path(document["report"]).read_text()
    assert "<strong>Simulated in part.</strong>" in text
    assert "its values are those of a device model, and the others are measured" in text


@pytest.fixture
def two_studies(tmp_path: Path) -> suites.SuiteDirectory:
    """A suite of two studies, none of which has run."""
    studies = [{"name": name, "study": "quick", "title": name, "parts": ["random"], "repeats": 1,
                "settings": {"queue_depth": "1", "operation": "read"},
                "values": [{"part": "random", "metric": "iops", "title": "reads"}]}
               for name in ("first", "second")]  # fmt: skip
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": studies})
    planned = suites.plan_suite(suite, SLOW, None, profile="quick")
    return suites.create(tmp_path / "suite", suite, planned, SLOW, None, NO_CONSENT)


@pytest.mark.system
@pytest.mark.needs("loop devices", "engine")
def test_consent_is_checked_for_every_study_before_anything_is_created(tmp_path: Path) -> None:
    """One consent is for all studies, and a study is not refused after hours of others."""
    studies = [{"name": name, "study": "quick", "title": name, "parts": ["random"], "values": [],
                "settings": {"queue_depth": "1", "operation": "write", "span": "16MiB"}}
               for name in ("first", "second")]  # fmt: skip
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": studies})
    with loop_devices(tmp_path, 32 << 20) as [device]:
        target, directory = str(device), tmp_path / "suite"
        planned = suites.plan_suite(suite, target, None, profile="quick")
        required = [line for line in command.plan_lines(suite, planned) if line.startswith("requires")]
        assert required == [f"requires  --destroy {target}"]
        with pytest.raises(TargetError, match="--destroy"):
            suites.create(directory, suite, planned, target, None, NO_CONSENT)
        assert not directory.exists()
        created = suites.create(directory, suite, planned, target, None, Consent(destroy=(target,)))
        assert [path.name for path in created.all_result_sets()] == ["01-first", "02-second"]
        assert not any(device.read_bytes()), "nothing is written before a study runs"


@pytest.mark.engine
def test_a_study_that_fails_costs_neither_the_others_nor_the_report(
    two_studies: suites.SuiteDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_next = suites.run_next

    def fail_first(path: Path, **options: Any) -> ResultSet:
        if path.name == "01-first":
            raise TargetError("the device is gone")
        return run_next(path, **options)

    monkeypatch.setattr(suites, "run_next", fail_first)
    with pytest.raises(typer.Exit) as caught:
        command.carry_out(two_studies, consent=NO_CONSENT, retry_failed=False, time_limit_s=None, as_json=True)
    assert caught.value.exit_code == 3
    printed = capsys.readouterr()
    assert "error: the device is gone" in printed.err
    assert [line["outcome"] for line in json.loads(printed.out)["lines"]] == ["missing", "value"]
    assert (two_studies.path / "report.html").is_file()


@pytest.mark.engine
def test_a_suite_stops_on_an_interrupt(two_studies: suites.SuiteDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupt(path: Path, **_: Any) -> ResultSet:
        started.append(path.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(suites, "run_next", interrupt)
    with pytest.raises(typer.Exit) as caught:
        command.carry_out(two_studies, consent=NO_CONSENT, retry_failed=False, time_limit_s=None, as_json=True)
    assert (caught.value.exit_code, started) == (130, ["01-first"])


@pytest.mark.engine
def test_a_study_that_cannot_be_summarized_is_shown_with_the_reason(
    two_studies: suites.SuiteDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarize_study = summary._study

    def refuse_first(entry: Entry, *given: Any) -> summary.Study:
        if entry.name == "first":
            raise ResultsError("its results cannot be compared")
        return summarize_study(entry, *given)

    monkeypatch.setattr(summary, "_study", refuse_first)
    first, second = suites.summarize(two_studies).studies
    assert (first.skipped, first.lines[0].outcome) == ("its results cannot be compared", "missing")
    assert first.result_sets == [two_studies.path / "01-first"]
    assert second.skipped == "no complete runs"


@pytest.mark.unit
def test_settings_are_for_the_studies_that_have_the_parameter() -> None:
    studies = {"device": "quick", "latency": "latency-curve"}
    entries = [{"name": name, "study": study, "title": name, "values": []} for name, study in studies.items()]
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": entries})
    given = {"operation": "read", "queue_depth": "1"}
    device, latency = suites.plan_suite(suite, SLOW, None, profile="quick", settings=given)
    assert not device.skipped and not latency.skipped
    assert device.plans["a"].settings["operation"] == "read"
    assert "operation" not in latency.plans["a"].settings
    with pytest.raises(StudyError, match="no study of the suite `x` has a factor or parameter `terminalz`"):
        suites.plan_suite(suite, SLOW, None, profile="quick", settings={"terminalz": "4"})


@pytest.mark.unit
def test_a_profile_that_no_study_has_is_refused() -> None:
    """A study without it uses `standard`, so a misspelt one would measure for hours."""
    suite = suites.load("buy")
    with pytest.raises(StudyError, match="no study of the suite `buy` has a profile `qick`") as caught:
        suites.plan_suite(suite, SLOW, None, profile="qick")
    assert "`quick`, `standard`, `paper`" in caught.value.hint
    [overview, *_] = suites.plan_suite(suite, SLOW, None, profile="paper")
    assert overview.plans["a"].profile == "standard"


@pytest.mark.unit
def test_each_of_several_streams_is_a_line_with_its_name() -> None:
    """Readers and a writer are different loads, and their sum is none."""
    entry = {"name": "a", "study": "write-stress", "title": "A", "values": []}
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": [entry]})
    [planned] = suites.plan_suite(suite, SLOW, None, profile="quick")
    case, other = planned.plans["a"].cases[:2]
    rows = [{"case_id": case.case_id, "stream": stream} for stream in ("all", "reads", "writes")]
    found = summary._of_streams(rows)
    assert [summary._case_text(case, [case], row, found) for row in found] == ["reads", "writes"]
    [alone] = summary._of_streams(rows[1:2])
    assert summary._case_text(case, [case, other], alone, [alone]) == "128 KiB sequential"
    assert summary._of_streams(rows[:1]) == rows[:1]


@pytest.mark.unit
def test_only_the_parts_that_an_entry_names_are_planned() -> None:
    entry = {"name": "a", "study": "quick", "title": "A", "parts": ["random"], "values": []}
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": [entry]})
    [planned] = suites.plan_suite(suite, SLOW, None, profile="quick")
    assert {case.part for case in planned.plans["a"].cases if not case.control} == {"random"}
    wrong = suite.model_copy(update={"entries": [suite.entries[0].model_copy(update={"parts": ["radnom"]})]})
    with pytest.raises(StudyError, match="has no part `radnom`"):
        suites.plan_suite(wrong, SLOW, None, profile="quick")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"log_device": True}, "values must have `levels` if the entry has `log_device`"),
        ({"parts": ["sequential"]}, "a value refers to a part that `parts` does not list"),
    ],
)
def test_an_entry_that_contradicts_its_values_is_refused(changes: dict[str, object], what: str) -> None:
    value = {"part": "random", "metric": "iops", "title": "reads"}
    entry = {"name": "a", "study": "quick", "title": "A", "values": [value], **changes}
    with pytest.raises(ValidationError, match=what):
        suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": [entry]})


@pytest.mark.engine
def test_a_suite_on_one_target_quotes_values(iosonde: Iosonde, file: Path, tmp_path: Path) -> None:
    done = iosonde("suite", file, "--target", SLOW, "--profile", "quick", "-o", tmp_path / "results")
    assert re.search(r"^10 k IOPS\s+Device, random reads$", done.stdout, re.M)
    assert "Database: not measured: a database server needs a file system" in done.stdout


@pytest.mark.unit
def test_a_plan_has_every_study_with_its_time_or_the_reason(iosonde: Iosonde, file: Path) -> None:
    done = iosonde("suite", file, "--target", SLOW, "--profile", "quick", "--plan")
    assert "device" in done.stdout
    assert "skipped: a database server needs a file system" in done.stdout


@pytest.mark.unit
def test_a_plan_states_once_what_would_make_skipped_studies_run() -> None:
    suite = suites.load("buy")
    planned = suites.plan_suite(suite, SLOW, None, profile="quick")
    skipped = [replace(planned[-1], entry=entry) for entry in suite.entries[-2:]]
    hints = [line for line in command.plan_lines(suite, [*planned[:-2], *skipped]) if line.startswith("hint")]
    assert hints == ["hint      interference, database: name a directory as the target"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("costs", "line"),
    [
        ([(2**30, 2**20), (2**30, 0)], "writes    2 GiB"),
        ([(2**30, 0), (None, 2**30)], "writes    2 GiB and more, limited only by time"),
        ([(None, 0)], "writes    0 B and more, limited only by time"),
    ],
)
def test_a_plan_has_the_sum_of_bytes_written(costs: list[tuple[int | None, int]], line: str) -> None:
    """Of a study that is limited only by time, what it writes before measuring is known."""
    entry = {"name": "a", "study": "quick", "title": "A", "parts": ["random"], "values": []}
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": [entry]})
    [planned] = suites.plan_suite(suite, SLOW, None, profile="quick")
    plans = [
        planned.plans["a"].model_copy(
            update={"cost": Cost(seconds=1, write_bytes=written), "layout_bytes": layout_bytes}
        )
        for written, layout_bytes in costs
    ]
    assert line in command.plan_lines(suite, [replace(planned, plans={"a": plan}) for plan in plans])


@pytest.mark.engine
@pytest.mark.parametrize(("suite", "profile"), [("buy", "standard"), ("han2021", "standard"), ("han2021", "quick")])
def test_no_study_is_skipped_because_it_needs_an_array(tmp_path: Path, suite: str, profile: str) -> None:
    """Directories are targets of every study, unless this machine lacks a program, a right or the space."""
    against = str(tmp_path) if suite == "han2021" else None
    planned = suites.plan_suite(suites.load(suite), str(tmp_path), against, profile=profile)
    assert not [each.skipped for each in planned if "needs devices" in each.skipped]
    assert total_seconds(planned) <= {"buy": 2, "han2021": 3}[suite] * 3600


@pytest.mark.engine
@pytest.mark.needs("postgres")
def test_the_suite_buy_takes_at_most_two_hours_with_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the device is, and however little room this machine has."""
    monkeypatch.setattr(DirectoryTarget, "free_bytes", lambda _: 8 << 40)
    place = reachable_directory()
    try:
        planned = suites.plan_suite(suites.load("buy"), str(place), None)
    finally:
        place.rmdir()
    assert [each.skipped for each in planned] == [""] * 5
    assert total_seconds(planned) <= 2 * 3600


@pytest.mark.unit
def test_a_suite_of_which_nothing_can_run_is_refused(tmp_path: Path) -> None:
    suite = Suite.model_validate(
        {
            "name": "none",
            "title": "None",
            "question": "?",
            "entries": [{"name": "database", "study": "oltp", "title": "Database", "values": []}],
        }
    )
    with pytest.raises(StudyError, match="no study of the suite `none` can run"):
        suites.plan_suite(suite, SLOW, None)


@pytest.mark.unit
@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"alternating": {"../../tmp": True}},
        {"suite": {"name": "x"}},
        {"target": None},
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    description = {
        "format": 1,
        "suite": {"name": "x", "title": "X", "question": "?", "entries": [
            {"name": "a", "study": "quick", "title": "A", "values": []}]},
        "target": SLOW,
        "against": None,
        "skipped": {},
        "alternating": {"a": False},
    }  # fmt: skip
    (tmp_path / "suite.json").write_text(json.dumps(description | change))
    with pytest.raises(ResultsError, match="is damaged"):
        suites.open_directory(tmp_path)


@pytest.mark.unit
@pytest.mark.parametrize("linked", [False, True])
def test_a_result_set_that_is_missing_or_a_link_is_refused(tmp_path: Path, linked: bool) -> None:
    """`report` would write into the directory that the link names."""
    entry = {"name": "a", "study": "quick", "title": "A", "values": []}
    suite = suites.Suite.model_validate({"name": "x", "title": "X", "question": "?", "entries": [entry]})
    description = suites.session.SuiteFile(suite=suite, target=SLOW, against=None, skipped={}, alternating={"a": False})
    (tmp_path / "suite").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "suite" / "suite.json").write_text(description.model_dump_json())
    if linked:
        (tmp_path / "suite" / "01-a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResultsError, match="is missing or not a directory"):
        suites.open_directory(tmp_path / "suite")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.unit
def test_a_page_of_a_suite_without_results_states_it(tmp_path: Path) -> None:
    suite = suites.load("jo2024")
    directory = suites.SuiteDirectory(
        path=tmp_path,
        description=suites.session.SuiteFile(
            suite=suite,
            target="/dev/a",
            against="/dev/b",
            skipped={entry.name: "no such program" for entry in suite.entries},
            alternating={},
        ),
    )
    text = page.render(suites.summarize(directory))
    assert text.count("<strong>Not measured:</strong>") == len(suite.entries)
    assert "<svg" not in text


@pytest.mark.unit
def test_a_page_sorts_improvements_and_names_why_the_small_ones_are_small(tmp_path: Path) -> None:
    value = Value(part="p", metric="ops_per_sec", title="rate", published="2 times", published_range=(2, 2))
    entries = [Entry(name=name, study="quick", title=name.upper(), values=[value]) for name in ("small", "large")]
    busy = {"small": (0.2, 2.0), "large": (0.9, 0.4)}
    lines = {
        entry.name: summary.Line(
            entry=entry, value=value, case="", outcome="better", improvement=ratio, low=ratio - 0.01, high=ratio + 0.01,
            limits={target: "device-limited: the disk was busy" for target in ("/a", "/b")},
            uses={
                target: TimeUse(device_busy=share, application_cores=cores, kernel_cores=0.1, lock_waits=None)
                for target in ("/a", "/b")
                for share, cores in (busy[entry.name],)
            },
        )
        for entry, ratio in zip(entries, (1.1, 3.0), strict=True)
    }  # fmt: skip
    suite = Suite(name="x", title="X", question="?", entries=entries)
    description = suites.session.SuiteFile(suite=suite, target="/a", against="/b", skipped={}, alternating={})
    found = summary.Summary(
        directory=suites.SuiteDirectory(path=tmp_path, description=description),
        studies=[summary.StudySummary(entry=entry, lines=[lines[entry.name]], answers={}) for entry in entries],
        simulated=False,
    )
    values, times = page.render(found).split("Where the time goes</h2>")
    assert re.findall("(LARGE|SMALL), rate", values) == ["LARGE", "SMALL"] * 2, "in the figure and in the table"
    assert re.findall("(LARGE|SMALL), rate", times) == ["LARGE", "SMALL"]
    assert values.count('class="published"') == 2 and "2 times" in values
    reason = "the device was busy 20 % of the time, so a faster one gains at most 1.25×; the application used 2.0 cores"
    assert f"1.10× (1.09 to 1.11): {reason}" in times
    assert "the device was busy 90 %" not in times, "a large improvement needs no reason"
    assert times.count("<td>device-limited<small>the disk was busy</small></td>") == 4


EDITS = {
    "another study": (("suite", "entries", 0, "study"), "overview", "its study is `quick`"),
    "the targets exchanged": (("target",), FAST, "and the suite of"),
    "another second target": (("against",), "/dev/elsewhere", "and the suite of"),
    "a setting that was not used": (("suite", "entries", 0, "settings", "jobs"), "4", "has no setting `jobs`"),
}


@pytest.mark.engine
@pytest.mark.parametrize("edit", EDITS)
def test_a_description_that_its_result_sets_contradict_is_refused(file: Path, tmp_path: Path, edit: str) -> None:
    """A page would show values of one study or target under the title of another."""
    suite = suites.load(str(file))
    planned = suites.plan_suite(suite, SLOW, FAST, profile="quick")
    directory = tmp_path / "suite"
    suites.create(directory, suite, planned, SLOW, FAST, NO_CONSENT)
    suites.open_directory(directory)
    (*path, last), value, reason = EDITS[edit]
    document = json.loads((directory / "suite.json").read_text())
    place = document
    for each in path:
        place = place[each]
    place[last] = value
    (directory / "suite.json").write_text(json.dumps(document))
    with pytest.raises(ResultsError, match=reason):
        suites.open_directory(directory)


@pytest.mark.unit
def test_a_suite_that_differs_from_the_one_of_its_name_states_it(tmp_path: Path) -> None:
    suite = suites.load("buy")
    changed = suite.model_copy(update={"title": "Buy this one"})
    pages = [
        page.render(
            suites.summarize(
                suites.SuiteDirectory(
                    path=tmp_path,
                    description=suites.session.SuiteFile(
                        suite=each,
                        target="/dev/a",
                        against=None,
                        skipped={entry.name: "no such program" for entry in each.entries},
                        alternating={},
                    ),
                )
            )
        )
        for each in (suite, changed)
    ]
    assert ["differs from the suite" in text for text in pages] == [False, True]


@pytest.mark.unit
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
    value = Value(part="p", metric=metric, title="reads")
    entry = Entry(name="a", study="quick", title="Application", values=[value])
    uses = {
        target: TimeUse(device_busy=share, application_cores=1.0, kernel_cores=0.1, lock_waits=None)
        for target, share in zip(("a", "b"), busy, strict=True)
    }
    low, high = interval
    line = summary.Line(
        entry=entry, value=value, case="", outcome=outcome, improvement=(low + high) / 2, low=low, high=high, uses=uses
    )
    found = summary._checked_by_device_time(line, ["a", "b"])
    assert found.outcome == decided
    if decided == "unexplained":
        slower, most = ("a", "1.03") if outcome == "better" else ("b", "1.25")
        assert f"on {slower}, which accounts for {most}× at most" in found.reason


@pytest.mark.unit
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([("better", 2.0)], "Application (2.00×)"),
        ([("better", 4.0), ("better", 2.0)], "Application (2.00 to 4.00×)"),
        ([("better", 4.0), ("unclear", 1.0)], "Application (4.00×, 1 of 2 values)"),
        ([("worse", 0.5), ("worse", 0.25)], "Application (2.00 to 4.00×)"),
        ([("better", 2.0), ("same", 1.0), ("worse", 0.5)], "Application (1 of 3 values better, 1 worse)"),
        ([("same", 1.0)], "Application"),
    ],
)
def test_a_recommendation_states_how_much_better_the_target_is(values: list[tuple[Any, float]], text: str) -> None:
    value = Value(part="p", metric="iops", title="reads")
    entry = Entry(name="a", study="quick", title="Application", values=[value])
    lines = [
        summary.Line(entry=entry, value=value, case="", outcome=outcome, improvement=ratio) for outcome, ratio in values
    ]
    assert summary._with_gain("Application", lines) == text
