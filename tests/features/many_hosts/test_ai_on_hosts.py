"""AI loads on several hosts: the load of each, the sum of their results, and what they cannot share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from many_hosts_plans import LOCAL, any_skew

from iosonde.errors import TargetError
from iosonde.execution.admission import Admission
from iosonde.execution.session import execute
from iosonde.features.ai.checkpoint import files_of
from iosonde.features.ai.facts import AiFacts
from iosonde.features.ai.training import MODELS
from iosonde.features.many_hosts import host_plan
from iosonde.features.many_hosts.record import Hosts
from iosonde.features.many_hosts.report import tables
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.report.content import collect
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.study.workload import named

STUDY = """
name = "hosts"
title = "AI loads of hosts"
question = "?"
workload = "ai_weights"
repeats = 1
shuffle = false
[measurement]
interval = "100ms"
[[parts]]
name = "weights"
measurement = { scale = 1e-3, strategy = "read", threads = 2 }
[[parts]]
name = "checkpoint"
workload = "ai_checkpoint"
measurement = { scale = 2e-4, ranks = 3, checkpoint_count = 2, restores = 1, pause = "1s" }
[[parts]]
name = "ingest"
workload = "ai_ingest"
measurement = { scale = 2e-4, accelerators = 2, batch = 20, compute_time = "10ms", ramp = "0s", duration = "4s" }
[[parts]]
name = "vector"
workload = "ai_vector"
measurement = { index_size = "16MiB", concurrency = 3, hops = 5, beam_width = 2, ramp = "0s", duration = "4s" }
[[parts]]
name = "kv"
workload = "ai_kv_cache"
[parts.measurement]
scale = 0.001
requests = 100
warm_requests = 50
speed = 20.0
capacity = "4GiB"
endurance = "100TBW"
[profiles.standard]
"""


def planned(place: Path, study: str = STUDY, **settings: str) -> Plan:
    return expand(parse(study), open_target(str(place)), settings=settings)


def of_part(records: list[Record], part: str) -> Record:
    [found] = [each for each in records if each.case_id.startswith(part)]
    return found


# Plans ----------------------------------------------------------------------------------------------------------------


def only(part: str) -> str:
    """The study with this part alone."""
    head, *parts = STUDY.removesuffix("[profiles.standard]\n").split("[[parts]]")
    [kept] = [each for each in parts if f'name = "{part}"' in each]
    return f"{head}[[parts]]{kept}[profiles.standard]\n"


@pytest.mark.unit
def test_ranks_of_hosts_follow_one_another_and_all_begin_on_the_same_grid(tmp_path: Path) -> None:
    settings = {"model": "405b", "scale": "1e-4"}
    plan = planned(tmp_path, only("checkpoint"), **settings).model_copy(update={"hosts": ["a", "b", "c"]})
    host_plan.check(plan)
    loads = [host_plan.of_host(plan, host).runs[0].spec["workload"] for host in plan.hosts]
    names = [file["name"] for load in loads for rank in load["ranks"] for file in rank]
    assert names == [name for rank in files_of("405b", 1e-4, 9) for name, _ in rank]
    assert [load["grid_ns"] for load in loads] == [10**9] * 3
    assert "grid_ns" not in plan.runs[0].spec["workload"], "a single host pauses"
    for host in plan.hosts:
        Admission.for_plan(host_plan.of_host(plan, host), tmp_path).check_plan()


@pytest.mark.unit
def test_hosts_do_not_have_more_ranks_than_the_job(tmp_path: Path) -> None:
    plan = planned(tmp_path, only("checkpoint")).model_copy(update={"hosts": ["a", "b", "c"]})
    with pytest.raises(TargetError, match=r"`8b` has 8 ranks; 3 hosts with 3 each have more") as refused:
        [host_plan.of_host(plan, host) for host in plan.hosts]
    assert refused.value.hint == "use fewer hosts, or `--set ranks=2`"
    assert MODELS["8b"].ranks == 8


@pytest.mark.unit
@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        ("weights", ""),
        ("ingest", ""),
        ("vector", ""),
        ("checkpoint", "checkpointing on files that hosts share"),
        ("kv", "a KV cache on files that hosts share"),
    ],
)
def test_hosts_share_only_files_that_they_read(tmp_path: Path, part: str, refusal: str) -> None:
    host_plan.check(planned(tmp_path, only(part)))
    shared = planned(tmp_path, only(part), host_files="shared")
    if refusal:
        with pytest.raises(TargetError, match=f"`--hosts` does not support {refusal}"):
            host_plan.check(shared)
    else:
        host_plan.check(shared)
        one, other = (host_plan.of_host(shared.model_copy(update={"hosts": ["a", "b"]}), host) for host in "ab")
        assert one.runs[0].spec["workload"] == other.runs[0].spec["workload"]


# Steps of hosts -------------------------------------------------------------------------------------------------------


def step(begin_ns: int, *ranks_ns: int, returned_ns: int, **more: int) -> dict[str, Any]:
    return {
        "begin_ns": begin_ns, "returned_ns": returned_ns, "complete_ns": max(ranks_ns),
        "complete_median_ns": 0, "rank_complete_ns": sorted(ranks_ns), **more,
    }  # fmt: skip


@pytest.mark.unit
def test_a_step_lasts_from_its_start_on_the_first_host_to_its_end_on_the_last() -> None:
    # The second clock is 1,000 ns behind, and its host began 5 ns later.
    one = {"ai": {"checkpoints": [step(100, 40, 50, returned_ns=30)], "restores": [step(900, 9, returned_ns=9)]}}
    other = {"ai": {"checkpoints": [step(1105, 60, 20, returned_ns=55)], "restores": []}}
    added = {"ai": {"file_bytes": 7, "checkpoints": ["joined"], "restores": ["joined"]}}
    found = named("ai_checkpoint").result_of_hosts(added, [(one, 0), (other, -1000)])["ai"]
    assert found["checkpoints"] == [
        {
            "begin_ns": 100, "begin_spread_ns": 5, "returned_ns": 60, "complete_ns": 65,
            "complete_median_ns": 45, "rank_complete_ns": [25, 40, 50, 65],
        }
    ]  # fmt: skip
    assert (found["restores"], found["file_bytes"]) == ([], 7), "a step that a host did not complete is left out"


@pytest.mark.unit
def test_bytes_from_the_page_cache_are_those_of_all_hosts_if_each_knows_its_own() -> None:
    known, unknown = step(0, 1, returned_ns=1, cached_bytes=3), step(0, 1, returned_ns=1)
    for others, cached in (([known], 6), ([unknown], None)):
        results = [({"ai": {"restores": [each]}}, 0) for each in (known, *others)]
        [restore] = named("ai_checkpoint").result_of_hosts({"ai": {}}, results)["ai"]["restores"]
        assert restore.get("cached_bytes") == cached


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    place = tmp_path_factory.mktemp("hosts")
    (place / "data").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        any_skew(patched)
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        found = execute(planned(place / "data"), place / "set", hosts=LOCAL)
        assert journal.entries() == []
    assert list((place / "data").iterdir()) == []
    assert [record.failure for record in found.records()] == [None] * 5
    return found


def of_hosts(finished: ResultSet, part: str) -> tuple[Record, list[Record]]:
    """The record of all hosts, and that of each."""
    return of_part(list(finished.records()), part), [of_part(list(host.records()), part) for host in finished.hosts()]


@pytest.mark.system
def test_facts_of_hosts_are_added(finished: ResultSet) -> None:
    for part, names in {
        "weights": ("file_bytes", "loaded_bytes"), "ingest": ("file_bytes", "accelerators"),
        "vector": ("file_bytes", "reads"),
    }.items():  # fmt: skip
        total, each = of_hosts(finished, part)
        for name in names:
            one, other = (AiFacts(record).ai[name] for record in each)
            assert AiFacts(total).ai[name] == one + other, f"{part} {name}"
    vector = AiFacts(of_hosts(finished, "vector")[0])
    assert vector.queries and vector.ai["reads"] == 10 * vector.queries, "whatever part of them all hosts measured"
    kv, each_kv = (AiFacts(record).kv for record in of_hosts(finished, "kv")[1])
    all_kv = AiFacts(of_hosts(finished, "kv")[0])
    assert all_kv.kv == {name: kv[name] + each_kv[name] for name in kv} | {"trace_ns": kv["trace_ns"]}
    assert kv["read_blocks"] > 0
    assert all_kv.endurance_bytes is None, "hosts may write to one drive or to several"


@pytest.mark.system
def test_the_load_of_all_hosts_is_recorded(finished: ResultSet) -> None:
    for part, name, count in (("weights", "threads", 4), ("ingest", "accelerators", 4), ("vector", "concurrency", 6)):
        assert of_hosts(finished, part)[0].spec["workload"][name] == count
    total, each = of_hosts(finished, "checkpoint")
    assert total.spec["workload"]["ranks"] == [rank for one in each for rank in one.spec["workload"]["ranks"]]
    assert len(total.spec["workload"]["ranks"]) == 6
    for part in ("weights", "kv", "checkpoint"):
        total, each = of_hosts(finished, part)
        hosts = total.of(Hosts)
        longest = max(one.result["end_ns"] - one.result["begin_ns"] for one in each if one.result)
        assert hosts and hosts.window_ns == longest, "until the last host has ended"
        done = [sum(job["bytes"] for job in one.result["jobs"]) for one in each if one.result]
        assert [share.bytes for share in hosts.shares] == done


@pytest.mark.system
def test_a_checkpoint_of_hosts_ends_with_the_last_of_them(finished: ResultSet) -> None:
    total, each = (of_hosts(finished, "checkpoint")[0], of_hosts(finished, "checkpoint")[1])
    for name, count in (("checkpoints", 2), ("restores", 1)):
        steps = getattr(AiFacts(total), name)
        assert len(steps) == count
        for number, found in enumerate(steps):
            own = [getattr(AiFacts(record), name)[number] for record in each]
            assert len(found["rank_complete_ns"]) == 6
            assert found["complete_ns"] >= max(step["complete_ns"] for step in own)
            assert found["complete_ns"] <= found["begin_spread_ns"] + max(step["complete_ns"] for step in own)


@pytest.mark.system
def test_the_tables_of_hosts_count_operations(finished: ResultSet) -> None:
    [chapter] = collect([finished]).chapters
    heads = [table.heads for table in tables(chapter.material)]
    assert [head[2] for head in heads] == ["Operations/s", "Lowest operations/s"]
