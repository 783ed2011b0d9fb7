"""Transactions: parameters, the specs they become, and findings about logs, durability and limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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
from iosonde.features.database_transactions.spec import load_spec
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load
from iosonde.results.schema import SHARED_LOG_DEVICE
from iosonde.verdict.verdict import Kind
from iosonde.workload import named, sql_server

TPCC, COMMIT = named("tpcc"), named("commit")


class Directory:
    """A directory target, without a file system behind it."""

    kind = "directory"
    name = "/mnt"
    own = "iosonde-01234567"

    def backend(self) -> None:
        return None

    def free_bytes(self) -> int:
        return 1 << 40

    def block_devices(self) -> list[str]:
        return ["8:0"]

    def spec_target(self, files: str, size_bytes: int) -> dict[str, Any]:
        return {"kind": "file_per_job", "directory": "/mnt/iosonde-01234567", "size_bytes": size_bytes}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_server, "check_place", lambda *_: None)


def spec_of(workload: Any, **parameters: Any) -> dict[str, Any]:
    streams = {"main": workload.build(parameters)}
    return workload.resolve(streams, Directory(), seed=7, run_id="c0001-r1")["workload"]


def test_a_spec_measures_the_restored_database_and_a_load_measures_nothing() -> None:
    spec = spec_of(TPCC, warehouses=20, terminals=8, duration="30s", ramp="5s", isolation="serializable")
    assert spec["database"] == {"kind": "existing"}
    assert spec["check"] == {"before": False, "after": True}
    assert (spec["warehouses"], spec["measurement"]["terminals"]) == (20, 8)
    assert spec["measurement"]["isolation"] == "serializable"
    assert spec["server"]["address"]["path"].startswith("/mnt/iosonde-01234567/postgresql-")
    assert spec["measurement"]["acknowledged"] is None
    loading = load_spec({"run_id": "c0001-r1", "workload": spec}, jobs=6)["workload"]
    assert loading["database"] == {"kind": "loaded", "reload": False, "jobs": 6}
    assert loading["check"] == {"before": True, "after": False}
    assert loading["measurement"] is None
    assert all(loading[name] == spec[name] for name in ("server", "warehouses", "seed"))
    killed = spec_of(COMMIT, clients=4, duration="20s", kill_server_after="2s")["measurement"]
    assert killed["server_loss"] == "end"
    assert killed["acknowledged"] == {"directory": "/mnt/iosonde-01234567/acknowledged-01234567"}
    built = TPCC.build({"postgresql": "shared_buffers=128MB;fsync=off"})
    assert built.settings == {"shared_buffers": "128MB", "fsync": "off"}, "in the units of the server"


def test_settings_that_do_not_shape_the_data_share_a_template() -> None:
    path = [spec_of(TPCC, postgresql={"shared_buffers": size})["server"]["address"]["path"] for size in ("1GB", "2GB")]
    assert path[0] == path[1]
    pages = [
        spec_of(TPCC, server="mariadb", mariadb={"innodb_page_size": size})["server"]["address"]["path"]
        for size in ("8k", "16k")
    ]
    assert pages[0] != pages[1]
    assert spec_of(TPCC, warehouses=1)["server"]["address"] != spec_of(TPCC, warehouses=2)["server"]["address"]


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


def test_a_running_server_gets_a_database_named_by_its_contents() -> None:
    first, second = (spec_of(TPCC, server_url="postgresql://me@db", warehouses=2)["server"] for _ in range(2))
    assert first["database"] == second["database"]
    assert first["database"].startswith("iosonde_")
    assert first["address"] == {"kind": "tcp", "host": "db", "port": 5432}


# Findings -------------------------------------------------------------------------------------------------------------


def log_question(apart: list[float], together: list[float], kind: str) -> Question:
    cases = pl.DataFrame(
        {
            "case_id": ["a", "b"], "part": ["log", "log"], "log": ["with the data", "apart"], "terminals": [16, 16],
            "server": ["postgresql"] * 2, "warehouses": [4, 4], "think": ["none"] * 2,
        }
    )  # fmt: skip
    rows = [
        {"case_id": case, "part": "log", "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "terminals",
         "operation": "all", "metric": "tpmc", "value": value}
        for case, values in (("a", together), ("b", apart)) for i, value in enumerate(values)
    ]  # fmt: skip
    study = load("jo2024-postgresql-log")
    return Question(
        study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows),
        support=Support(verdicts={"b": Counter({kind: 3})}),
    )  # fmt: skip


def test_the_gain_of_a_separate_log_has_an_interval_and_names_the_next_limit() -> None:
    [found] = log_gain(log_question([1370, 1380, 1390, 1375], [1000, 1005, 995, 1000], "lock-limited"))
    assert isinstance(found, LogGain)
    assert found.decision == "higher"
    assert 1.36 < found.ratio.value < 1.40
    assert found.sentence.startswith(
        "Moving the write-ahead log of PostgreSQL to a separate device raises tpmC by 38 % (95 % CI 3"
    )
    assert found.sentence.endswith("; PostgreSQL is then limited by lock waits")
    assert "published: 1.4 times (Jo et al. 2024" in found.evidence


@pytest.mark.parametrize(("warned", "is_same_device"), [(["b0", "b1", "b2", "b3"], True), (["b0", "b1"], False)])
def test_a_log_on_the_device_of_the_data_is_no_separate_device(warned: list[str], *, is_same_device: bool) -> None:
    question = log_question([1370, 1380, 1390, 1375], [1000, 1005, 995, 1000], "lock-limited")
    runs = question.runs.select("run_id", "case_id")
    warnings = pl.DataFrame({"run_id": warned, "code": [SHARED_LOG_DEVICE] * len(warned)})
    [found] = log_gain(replace(question, outcomes=runs, warnings=warnings))
    assert isinstance(found, LogGain)
    assert found.is_same_device == is_same_device
    assert ("to another directory of the same device raises" in found.sentence) == is_same_device


def test_a_difference_within_the_noise_is_no_gain() -> None:
    [found] = log_gain(log_question([1000, 1300, 900, 1100], [1000, 1200, 950, 1050], "undetermined"))
    assert isinstance(found, LogGain)
    assert found.decision == "unclear"
    assert "no clear effect on tpmC" in found.sentence


@pytest.mark.parametrize(
    ("apart", "change"),
    [
        ([900, 980, 1060], ": -2 % (95 % CI -"),
        ([960, 1020, 1100], ": 2 % (95 % CI -"),
        ([998, 997, 999], ": 0 % (95 % CI 0–0 %)"),
        ([700], ": -30 %"),
    ],
)
def test_a_change_without_a_direction_in_words_has_a_sign(apart: list[float], change: str) -> None:
    [found] = log_gain(log_question(apart, [1000.0] * len(apart), "undetermined"))
    assert isinstance(found, LogGain)
    assert found.decision in ("unclear", "same")
    assert change in found.sentence


def test_opposite_effects_of_a_separate_log_are_not_pooled() -> None:
    together, apart = {1: 1000, 64: 1000}, {1: 500, 64: 2000}
    ids = [(f"{log}{terminals}", log, terminals) for terminals in (1, 64) for log in ("with the data", "apart")]
    cases = pl.DataFrame(
        {"case_id": [case for case, _, _ in ids], "part": ["log"] * 4, "log": [log for _, log, _ in ids],
         "terminals": [terminals for _, _, terminals in ids], "server": ["postgresql"] * 4, "warehouses": [4] * 4,
         "think": ["none"] * 4}
    )  # fmt: skip
    rows = [
        {"case_id": case, "part": "log", "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "terminals",
         "operation": "all", "metric": "tpmc", "value": share * (apart if log == "apart" else together)[terminals]}
        for case, log, terminals in ids for i, share in enumerate((0.99, 1.0, 1.01))
    ]  # fmt: skip
    study = load("jo2024-postgresql-log")
    [found] = log_gain(Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows)))
    assert isinstance(found, LogGain)
    assert found.decision == "same" and found.opposed is not None
    assert (found.opposed.smallest[1], found.opposed.largest[1]) == (0.5, 2.0)
    assert ": tpmC is higher in 1 and lower in 1 of 2 cells, from 0.50 times with 1 terminal" in found.sentence
    assert "to 2.0 times with 64 terminals" in found.sentence


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


def limit_question(verdict: str, because: str) -> Question:
    terminals = {"a": 4, "b": 16}
    cases = pl.DataFrame(
        {"case_id": list(terminals), "part": ["data"] * 2, "terminals": list(terminals.values()),
         "server": ["postgresql"] * 2, "warehouses": [4, 4], "think": ["none"] * 2}
    )  # fmt: skip
    rows = [
        {"case_id": case, "part": "data", "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "terminals",
         "operation": "all", "metric": "tpmc", "value": value}
        for case, values in (("a", [900, 910, 905]), ("b", [1600, 1610, 1590])) for i, value in enumerate(values)
    ]  # fmt: skip
    outcomes = pl.DataFrame({"case_id": ["a", "b"], "verdict": ["x", verdict], "verdict_because": ["", because]})
    study = load("jo2024-postgresql")
    return Question(
        study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), outcomes=outcomes,
        support=Support(verdicts={"b": Counter({verdict: 3})}),
    )  # fmt: skip


def test_the_highest_throughput_of_a_server_comes_with_its_limit_and_the_reason() -> None:
    [found] = server_limit(limit_question("lock-limited", "transactions waited for locks 42 % of the time"))
    assert isinstance(found, ServerLimit)
    assert (found.value.value, found.limit, found.case_ids) == (1600, "lock-limited", ("b",))
    assert found.value.certain
    assert found.sentence.endswith(
        " with 16 terminals, limited by lock waits: transactions waited for locks 42 % of the time"
    )


def test_a_limit_of_a_minority_of_runs_is_not_named() -> None:
    asked = limit_question("device-limited", "the device was busy 90 % of the time")
    verdicts: Counter[Kind] = Counter({"device-limited": 1, "undetermined": 1, "lock-limited": 1})
    [found] = server_limit(replace(asked, support=Support(verdicts={"b": verdicts})))
    assert isinstance(found, ServerLimit)
    assert found.limit == "undetermined"
    assert found.sentence.endswith(
        "; no limit was found (verdicts of runs: 1 device-limited, 1 undetermined, 1 lock-limited)"
    )
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
