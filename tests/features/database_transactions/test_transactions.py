"""Transactions: parameters, the specs they become, and findings about logs, durability and limits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from iosonde.errors import StudyError
from iosonde.features.database_transactions.questions import (
    Durability,
    LogGain,
    ServerLimit,
    durability,
    log_gain,
    server_limit,
    think_time,
)
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.metrics.verdict.verdict import Kind
from iosonde.planning import load
from iosonde.results.schema import SHARED_LOG_DEVICE
from iosonde.storage import open_target
from iosonde.study.workload import named, servers

TPCC, COMMIT = named("tpcc"), named("commit")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "check_place", lambda *_: None)


def spec_of(workload: Any, **parameters: Any) -> dict[str, Any]:
    streams = {"main": workload.build(parameters)}
    return workload.resolve(streams, open_target("/tmp"), seed=7, run_id="c0001-r1")["workload"]


def test_a_spec_measures_the_restored_database_and_a_load_measures_nothing() -> None:
    spec = spec_of(TPCC, warehouses=20, terminals=8, duration="30s", ramp="5s", isolation="serializable")
    assert spec["database"] == {"kind": "existing"}
    assert spec["check"] == {"before": False, "after": True}
    assert (spec["warehouses"], spec["measurement"]["terminals"]) == (20, 8)
    assert spec["measurement"]["isolation"] == "serializable"
    assert re.fullmatch("/tmp/iosonde-[0-9a-f]{8}/postgresql-.*", spec["server"]["address"]["path"])
    assert spec["measurement"]["acknowledged"] is None
    loading = TPCC.load_spec({"run_id": "c0001-r1", "workload": spec}, {"load_jobs": 6})["workload"]
    assert loading["database"] == {"kind": "loaded", "reload": False, "jobs": 6}
    assert loading["check"] == {"before": True, "after": False}
    assert loading["measurement"] is None
    assert all(loading[name] == spec[name] for name in ("server", "warehouses", "seed"))
    killed = spec_of(COMMIT, clients=4, duration="20s", kill_server_after="2s")["measurement"]
    assert killed["server_loss"] == "end"
    assert re.fullmatch("/tmp/(iosonde-[0-9a-f]{8})/acknowledged-[0-9a-f]{8}", killed["acknowledged"]["directory"])
    built = TPCC.build({"postgresql": "shared_buffers=128MB;fsync=off"})
    assert built.settings == {"shared_buffers": "128MB", "fsync": "off"}, "in the units of the server"


def test_databases_are_named_by_their_contents_and_shared_if_settings_do_not_shape_the_data() -> None:
    def path(**parameters: Any) -> str:
        return Path(spec_of(TPCC, **parameters)["server"]["address"]["path"]).parents[1].name

    assert path(postgresql={"shared_buffers": "1GB"}) == path(postgresql={"shared_buffers": "2GB"})
    of_mariadb = [path(server="mariadb", mariadb={"innodb_page_size": size}) for size in ("8k", "16k")]
    assert of_mariadb[0] != of_mariadb[1]
    assert path(warehouses=1) != path(warehouses=2)
    first, second = (spec_of(TPCC, server_url="postgresql://me@db", warehouses=2)["server"] for _ in range(2))
    assert first["database"] == second["database"]
    assert first["database"].startswith("iosonde_")
    assert first["address"] == {"kind": "tcp", "host": "db", "port": 5432}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"arrival": "poisson"}, "needs a `rate`"),
        ({"rate": 100}, "`rate` is for an open loop"),
        ({"kill_server_after": "20s", "duration": "10s"}, "beyond the end"),
        ({"server_url": "postgresql://me@db", "memory_limit": "1GiB"}, "cannot be limited"),
        ({"server_url": "postgresql://me@db", "postgresql": {"fsync": "off"}}, "are not changed"),
        ({"server_url": "postgresql://me@db", "kill_server_after": "2s"}, "kills no server"),
        ({"arrival": "constant", "rate": 10, "think": "standard"}, "no think time"),
        ({"postgresql": {"a b": 1}}, "the setting `a b`"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        TPCC.build(parameters)


# Findings -------------------------------------------------------------------------------------------------------------


def question(
    study: str, cases: dict[str, dict[str, Any]], values: dict[str, list[float]], verdict: Kind, **outcomes: Any
) -> Question:
    """About tpmC of cases on PostgreSQL; the verdict is that of the runs of case `b`."""
    asked = load(study)
    same = {"part": asked.analysis[0].part, "server": "postgresql", "warehouses": 4, "think": "none"}
    rows = [
        {"case_id": case, "part": same["part"], "control": False, "run_id": f"{case}{i}", "repeat": i,
         "stream": "terminals", "operation": "all", "metric": "tpmc", "value": value}
        for case, each in values.items() for i, value in enumerate(each)
    ]  # fmt: skip
    return Question(
        study=asked,
        analysis=asked.analysis[0],
        cases=pl.DataFrame([{"case_id": case, **same, **levels} for case, levels in cases.items()]),
        runs=pl.DataFrame(rows),
        support=Support(verdicts={"b": Counter({verdict: 3})}),
        **outcomes,
    )


def log_question(apart: list[float], together: list[float], kind: Kind) -> Question:
    cases = {"a": {"log": "with the data", "terminals": 16}, "b": {"log": "apart", "terminals": 16}}
    return question("jo2024-postgresql-log", cases, {"a": together, "b": apart}, kind)


def test_the_gain_of_a_separate_log_has_an_interval_and_names_the_next_limit() -> None:
    [found] = log_gain(log_question([1370, 1380, 1390, 1375], [1000, 1005, 995, 1000], "lock-limited"))
    assert isinstance(found, LogGain)
    assert (found.decision, found.limit) == ("higher", "lock-limited")
    assert 1.36 < found.ratio.value < 1.40
    assert "published: 1.4 times (Jo et al. 2024" in found.evidence


def test_a_gain_over_a_server_that_its_client_limited_is_at_most_that() -> None:
    log = log_question([1370, 1380, 1390, 1375], [1000, 1005, 995, 1000], "lock-limited")
    verdicts: Counter[Kind] = Counter({"harness-limited": 4})
    shared = next(case for case in log.cases["case_id"] if case != "b")
    [found] = log_gain(replace(log, support=Support(verdicts={"b": Counter({"device-limited": 4}), shared: verdicts})))
    assert isinstance(found, LogGain)
    assert found.bounds == ("at most",)
    assert re.search(r"to a separate device: \S.* at most 1\.38 times", found.sentence)


@pytest.mark.parametrize(("warned", "is_same_device"), [(["b0", "b1", "b2", "b3"], True), (["b0", "b1"], False)])
def test_a_log_on_the_device_of_the_data_is_no_separate_device(warned: list[str], *, is_same_device: bool) -> None:
    question = log_question([1370, 1380, 1390, 1375], [1000, 1005, 995, 1000], "lock-limited")
    runs = question.runs.select("run_id", "case_id")
    warnings = pl.DataFrame({"run_id": warned, "code": [SHARED_LOG_DEVICE] * len(warned)})
    [found] = log_gain(replace(question, outcomes=runs, warnings=warnings))
    assert isinstance(found, LogGain)
    assert found.is_same_device == is_same_device
    assert ("to another directory of the same device raises" in found.sentence) == is_same_device


def test_lost_commits_are_summed_over_kills_and_a_server_that_does_not_restart_is_not_left_out() -> None:
    failed, settings = "PostgreSQL did not start", ["on", "on", "on", "off", "never"]
    cases = pl.DataFrame(
        {"case_id": ["on", "off", "never"], "part": ["settings"] * 3, "server": ["postgresql"] * 3,
         "setting": ["commit=on", "commit=off", "fsync=off"]}
    )  # fmt: skip
    outcomes = pl.DataFrame(
        {"case_id": settings, "part": ["settings"] * 5, "acknowledged_commits": [100, 200, None, 150, None],
         "lost_commits": [0, 0, None, 12, None], "recovery_seconds": [0.5, 1.5, None, 0.25, None],
         "recovery_error": [None, None, failed, None, failed]}
    )  # fmt: skip
    study = load("durability")
    question = Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(), outcomes=outcomes)
    found = {each.settings[0]: each for each in durability(question) if isinstance(each, Durability)}
    facts = {name: (each.acknowledged, each.lost, each.runs, each.unverified) for name, each in found.items()}
    assert facts == {
        "PostgreSQL, commit=off": (150, 12, 1, 0),
        "PostgreSQL, commit=on": (300, 0, 3, 1),
        "PostgreSQL, fsync=off": (0, 0, 1, 1),
    }
    on, never = found["PostgreSQL, commit=on"], found["PostgreSQL, fsync=off"]
    assert on.sentence.endswith("SIGKILL: 0 of 300; not known after 1 of 3 kills (PostgreSQL did not start)")
    assert never.sentence.endswith("SIGKILL: not known after 1 of 1 kill (PostgreSQL did not start)")
    assert never.recovery_s is None and "no server recovered" in never.evidence


def limit_question(verdict: Kind, because: str) -> Question:
    outcomes = pl.DataFrame({"case_id": ["a", "b"], "verdict": ["x", verdict], "verdict_because": ["", because]})
    values = {"a": [900.0, 910, 905], "b": [1600.0, 1610, 1590]}
    cases = {"a": {"terminals": 4}, "b": {"terminals": 16}}
    return question("jo2024-postgresql", cases, values, verdict, outcomes=outcomes)


def test_the_highest_throughput_of_a_server_comes_with_its_limit_and_the_reason() -> None:
    [found] = server_limit(limit_question("lock-limited", "transactions waited for locks 42 % of the time"))
    assert isinstance(found, ServerLimit)
    assert (found.value.value, found.limit, found.case_ids) == (1600, "lock-limited", ("b",))
    assert found.value.certain
    assert found.sentence.endswith("limited by lock waits: transactions waited for locks 42 % of the time")


def test_a_limit_of_a_minority_of_runs_is_not_named() -> None:
    asked = limit_question("device-limited", "the device was busy 90 % of the time")
    verdicts: Counter[Kind] = Counter({"device-limited": 1, "undetermined": 1, "lock-limited": 1})
    [found] = server_limit(replace(asked, support=Support(verdicts={"b": verdicts})))
    assert isinstance(found, ServerLimit)
    assert found.limit == "undetermined"
    log = log_question([1370, 1380, 1390], [1000, 1005, 995], "lock-limited")
    [gain] = log_gain(replace(log, support=Support(verdicts={"b": verdicts})))
    assert isinstance(gain, LogGain)
    assert gain.limit == "undetermined" and "is then" not in gain.sentence


def test_results_without_think_times_are_labelled() -> None:
    metrics = pl.DataFrame({"case_id": ["a"]})
    [found] = think_time(pl.DataFrame({"case_id": ["a"], "think": ["none"]}), metrics)
    assert "TPC-C-like, no think time" in found.sentence
    assert think_time(pl.DataFrame({"case_id": ["a"], "think": ["standard"]}), metrics) == []
    assert think_time(pl.DataFrame({"case_id": ["failed"], "think": ["none"]}), metrics) == []
    assert think_time(pl.DataFrame({"case_id": ["a"]}), metrics) == []
