"""The shipped studies: they do what their texts state, and follow the published method exactly."""

from __future__ import annotations

import csv
import functools
import json
import subprocess
from collections import Counter
from itertools import product
from typing import Any

import pytest
from engines import real_engine
from jsonschema_rs import Draft202012Validator

from iosonde.data import reference_file, shipped
from iosonde.metrics.registry import METRICS
from iosonde.plan import Case, Plan, Setup
from iosonde.planning import expand
from iosonde.planning import load as load_study
from iosonde.results import shapes
from iosonde.storage import VirtualTarget, open_target
from iosonde.storage.targets.target import Files
from iosonde.study.effective import effective
from iosonde.study.model import Level, Part, Reference, Study
from iosonde.units import parse_size

GIB = 1 << 30


class EightDevices(VirtualTarget):
    """Takes every setup, and makes none."""

    def device_count(self) -> int:
        return 8

    def with_setup(self, setup: Setup) -> EightDevices:
        return self

    def side_by_side(self, size_bytes: int) -> EightDevices:
        return self


class EightDirectories(EightDevices):
    """A place for servers, swap and mapped files."""

    def backend(self) -> None:  # type: ignore[override]
        return None

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        if files == "per_job":
            return {"kind": "file_per_job", "directory": "/mnt/iosonde-01234567", "size_bytes": size_bytes}
        return {"kind": "file", "path": "/mnt/iosonde-01234567/data", "size_bytes": size_bytes}

    def block_devices(self) -> list[str]:
        return []


NULL = EightDevices(name="null:4TiB", kind="null", size_bytes=4096 * GIB)
FILES = EightDirectories(name="/mnt", kind="directory", size_bytes=4096 * GIB)  # type: ignore[arg-type]

IN_DIRECTORIES = {"cache-tiers", "failover", "memory-extension"}
"""Studies of other workloads than those below whose files cannot be virtual."""
SETTINGS = {"s3": {"server_url": "s3://127.0.0.1:1"}, "jo2024-postgresql-log": {"log_target": "/mnt"}}
SWAP = ("root", "memory limits")
NEEDS: dict[str, tuple[str, ...]] = {
    "cache-tiers": (*SWAP, "memcached"),
    "jo2024-swap": (*SWAP, "memcached"),
    "memory-extension": SWAP,
    "paging": SWAP,
    "commit-latency": ("postgres",),
    "durability": ("postgres", "mariadbd"),
    "oltp": ("postgres", "mariadbd"),
    "han2021-tpcc": ("mariadbd",),
    "jo2024-ceph": ("ceph-osd", "ceph-mon", "ceph-mgr"),
    "jo2024-postgresql": ("postgres", "memory limits"),
    "jo2024-postgresql-log": ("postgres", "memory limits"),
}
"""Plans of these ask programs whether they accept the settings, or the kernel whether it can limit memory."""


def studies(tier: pytest.MarkDecorator) -> list[Any]:
    """The shipped studies as parameters; those that ask a program are system tests."""
    return [
        pytest.param(name, marks=[pytest.mark.system, pytest.mark.needs(*NEEDS[name])] if name in NEEDS else [tier])
        for name in shipped()
    ]


@functools.cache
def load(name: str) -> Study:
    """Each study is read once for all tests."""
    return load_study(name)


@functools.cache
def plan_of(name: str, profile: str) -> Plan:
    """With one repeat, for all tests."""
    study = load(name)
    in_files = study.workload in ("paging", "graph", "objects", "tpcc", "commit") or name in IN_DIRECTORIES
    in_files |= study.workload.startswith("ai_")
    return expand(study, FILES if in_files else NULL, profile=profile, settings=SETTINGS.get(name, {}), repeats=1)


@functools.cache
def validator() -> Draft202012Validator:
    """Of specs, as the engine states its schema."""
    schema = subprocess.run([real_engine(), "--schema"], capture_output=True, check=True).stdout
    return Draft202012Validator(json.loads(schema)["spec"])


def repeats_of(name: str) -> Any:
    return effective(load(name), profile="paper", settings={}).repeats


def cases_of(name: str, profile: str, part: str) -> list[Case]:
    return [case for case in plan_of(name, profile).cases if case.part == part]


def levels(cases: list[Case], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(case.levels[name] for name in names) for case in cases}


def parameters(cases: list[Case], name: str) -> set[Any]:
    return {case.parameters[name] for case in cases}


def assert_fixed(cases: list[Case], **expected: Any) -> None:
    """All cases have these parameters."""
    assert {name: parameters(cases, name) for name in expected} == {name: {each} for name, each in expected.items()}


def rows_of(name: str) -> list[dict[str, str]]:
    with reference_file(name).open(newline="") as file:
        return list(csv.DictReader(file))


def rows(reference: Reference) -> list[dict[str, str]]:
    where = reference.where.items()
    return [row for row in rows_of(reference.csv) if all(row[name] == str(value) for name, value in where)]


def test_quick_comes_first_and_every_publication_has_its_studies() -> None:
    names = list(shipped())
    assert names[0] == "quick" and names[1:] == sorted(names[1:])
    assert {"act", "latency-curve", "symas2018", "write-stress"} <= set(names)
    publications = Counter(name.partition("-")[0] for name in names)
    expected = {"davidovic2019": 2, "han2021": 4, "jo2024": 10, "master2010": 3}
    assert {name: publications[name] for name in expected} == expected


@pytest.mark.parametrize("name", shipped())
def test_a_study_is_named_like_its_file_and_has_all_applicable_profiles_and_known_metrics(name: str) -> None:
    study = load(name)
    assert study.name == name
    assert [*study.profiles] == ["quick", "standard"] + ["paper"] * (study.source != "")
    assert study.device_state is not None
    # Conclusions of a feature's procedure have findings, tables and figures of their own.
    assert (study.views and study.analysis) or any(part.procedure for part in study.parts)
    asked = {view.y for view in study.views} | {each.metric for each in study.analysis}
    asked |= {view.x for view in study.views if view.kind == "tradeoff" and view.x}
    asked |= {metric for reference in study.references for metric in reference.held.values()}
    asked |= {metric for view in study.views for metric in view.metrics}
    assert asked <= set(METRICS)


def _within_rounds(part: Part, factor: str) -> list[Any]:
    return list(part.rounds.factors.get(factor, ())) if part.rounds else []


@pytest.mark.parametrize("name", studies(pytest.mark.unit))
def test_published_values_are_at_levels_of_the_paper_profile(name: str) -> None:
    study = load(name)
    for reference in study.references:
        published = rows(reference)
        assert published
        columns = {part for column in reference.columns for part in column.split("+")}
        assert {*reference.held, *columns} <= set(published[0])
        cases = [case for case in plan_of(name, "paper").cases if not case.control]
        for column, factor in reference.columns.items():
            named = reference.values.get(column)
            values = {"+".join(row[part] for part in column.split("+")) for row in published}
            known = {str(case.levels[factor]) for case in cases if factor in case.levels}
            known |= {str(level) for part in study.parts for level in _within_rounds(part, factor)}
            assert {str(named[each]) for each in values if each in named} <= known if named else values <= known


@pytest.mark.parametrize("name", studies(pytest.mark.engine))
def test_the_engine_knows_every_spec_and_readers_accept_the_plan(name: str) -> None:
    """Readers refuse a plan whose parameters and procedures have other types than iosonde writes."""
    for profile in load(name).profiles:
        specs = plan_of(name, profile).specs()
        assert [error.message for spec in specs for error in validator().iter_errors(spec)] == []
    read = Plan.model_validate_json(plan_of(name, "standard").model_dump_json())
    assert shapes.mismatch_of_plan(read) == ""


@pytest.mark.parametrize("name", studies(pytest.mark.unit))
def test_profiles_keep_the_factors_and_take_no_level_that_the_largest_has_not(name: str) -> None:
    """A profile may take fewer points of the same axis, but no other axis and no other point.

    A point with a label may have other sizes under it: `half` of a larger memory.
    """
    largest = [*load(name).profiles][-1]
    for profile in load(name).profiles:
        few, all_of_them = (plan_of(name, each).study["parts"] for each in (profile, largest))
        for part, whole in zip(few, all_of_them, strict=True):
            assert part["factors"].keys() == whole["factors"].keys()
            for factor, known in whole["factors"].items():
                assert {_point(level) for level in part["factors"][factor]} <= {_point(level) for level in known}


def _point(level: Any) -> Any:
    return (level["label"], *level["set"]) if isinstance(level, dict) else level


def test_act_has_aerospikes_load() -> None:
    """1,000 writes a second of 1,536 B, 85 to a block of 128 KiB, doubled by rewriting blocks that are half stale."""
    [case] = plan_of("act", "paper").cases
    assert case.procedure
    streams = {stream["name"]: stream for stream in case.procedure.spec["workload"]["streams"]}
    asked = {
        name: (stream["block_sizes"][0]["bytes"], stream["mix"]["read_fraction"], stream["durability"]["kind"])
        for name, stream in streams.items()
    }
    assert asked == {
        "records": (1536, 1.0, "none"),
        "block-reads": (131072, 1.0, "none"),
        "block-writes": (131072, 0.0, "dsync"),
    }
    # The plan holds the highest load that the search may try.
    rates = {name: stream["arrival"]["rate"] / 500 for name, stream in streams.items()}
    blocks = 1000 / (131072 // 1536) * 2
    assert rates == pytest.approx({"records": 2000, "block-reads": blocks, "block-writes": blocks}, rel=1e-4)
    assert (case.parameters["duration"], case.parameters["unaligned"]) == (24 * 3600 * 10**9, "round_up")
    rule = [f"records.completion_latency over {bound} in every 1h" for bound in ("1ms < 5%", "8ms < 1%", "64ms < 0.1%")]
    assert case.procedure.settings["holds"] == [*rule, "achieved_rate_fraction >= 0.99"]
    assert case.procedure.settings["also_check"] == [each.replace("completion", "response") for each in rule]


def test_quick_takes_two_minutes_and_writes_four_gib_at_most(tmp_path_factory: pytest.TempPathFactory) -> None:
    target = open_target(str(tmp_path_factory.mktemp("target")))
    for profile in load("quick").profiles:
        plan = expand(load("quick"), target, profile=profile)
        assert plan.cost.seconds <= 110, "a slow disk takes longer over the layout than the plan assumes"
        assert plan.cost.write_bytes is not None
        assert plan.cost.write_bytes <= 4 * GIB
        assert plan.repeats >= 3


def test_davidovic2019_has_the_grids_of_table_iii() -> None:
    cases = cases_of("davidovic2019-grid", "paper", "grid")
    published = rows(load("davidovic2019-grid").references[0])
    grid = {(int(row["block_bytes"]), int(row["queue_depth"]), row["op"]) for row in published}
    assert len(grid) == 340
    assert levels(cases, "block_size", "queue_depth", "operation") == grid
    assert_fixed(cases, span=32 * GIB, access="sequential", io_mode="direct")
    raid0 = cases_of("davidovic2019-raid0", "paper", "grid")
    numbers = ("drives", "block_bytes", "queue_depth")
    arrays = {(*(int(row[name]) for name in numbers), row["op"]) for row in rows_of("davidovic2019_raid0.csv")}
    names = ("block_size", "queue_depth", "operation")
    assert {(case.parameters["devices"], *(case.levels[name] for name in names)) for case in raid0} == arrays
    assert_fixed(raid0, chunk=16 << 10)


def test_master2010_has_the_surface_and_the_threads_of_the_paper() -> None:
    sizes = [4096 << power for power in range(7)]
    threads = [1 << power for power in range(8)]
    strided = cases_of("master2010-surface", "paper", "strided")
    assert levels(strided, "block_size", "jobs", "operation") == set(product(sizes, threads, ("read", "write", "mix")))
    assert parameters(strided, "read_fraction") == {1.0, 0.0, 0.5}
    random = cases_of("master2010-surface", "paper", "random")
    assert levels(random, "block_size", "jobs", "operation") == set(product(sizes, threads, ("read", "write")))
    iops = cases_of("master2010-iops", "paper", "threads")
    assert levels(iops, "jobs", "operation") == set(product(threads, ("read", "write")))
    assert_fixed(strided, span_sharing="split", stride_blocks=17)
    assert_fixed(random, span_sharing="split")
    assert_fixed(iops, span_sharing="split", block_size=4096)
    assert repeats_of("master2010-surface") == repeats_of("master2010-iops") == 5
    streams = [run.spec["workload"]["streams"][0] for run in plan_of("master2010-surface", "paper").runs]
    strides = [each for each in streams if each["access"]["kind"] == "strided"]
    assert {each["access"]["stride_bytes"] / each["block_sizes"][0]["bytes"] for each in strides} == {17}


def test_master2010_and_han2021_do_one_blocking_io_at_a_time_in_each_thread() -> None:
    for name in ("master2010-surface", "master2010-iops", "han2021-device"):
        measurement = load(name).measurement
        assert (measurement["backend"], measurement.get("queue_depth", 1)) == ("sync", 1)


def test_han2021_has_64_jobs_with_files_of_4_gib_and_the_arrays_of_the_figures() -> None:
    cases = cases_of("han2021-device", "paper", "device")
    published = {(row["pattern"], row["op"], row["io_path"]) for row in rows(load("han2021-device").references[0])}
    assert levels(cases, "access", "operation", "io_mode") == published
    asked = {"jobs": 64, "span": 4 * GIB, "block_size": 512 << 10}
    assert_fixed(cases, **asked, files="per_job", limit_bytes=256 * GIB, duration=None)
    arrays = [case for case in cases_of("han2021-raid", "paper", "raid") if case.levels["array"] != "single"]
    figures = {(row["raid_level"], int(row["devices"])) for row in rows_of("han2021_fig1to5_raid.csv")}
    assert levels(arrays, "array", "devices") == figures
    ways = set(product(("sequential", "random"), ("read", "write"), ("buffered", "direct")))
    assert levels(arrays, "access", "operation", "io_mode") == ways
    assert_fixed(arrays, **asked, chunk=512 << 10, file_system="ext4")
    assert repeats_of("han2021-device") == repeats_of("han2021-raid") == 5


def test_han2021_compares_only_published_rates_that_their_latencies_confirm() -> None:
    """The load is closed: rate times latency is the number of threads, in all rows of the two figures but one."""
    [reference] = load("han2021-dbbench").references
    threads = {
        (row["raid_level"], row["workload"]): float(row["million_ops_s"]) * float(row["latency_as_printed"])
        for row in rows(reference.model_copy(update={"where": {}}))
    }
    contradictory = {row for row, value in threads.items() if not 55 < value < 70}
    assert contradictory == {("raid6", "fillrandom")}
    compared = {(row["raid_level"], row["workload"]) for row in rows(reference)}
    assert compared == threads.keys() - contradictory


def test_jo2024_has_a_mix_of_70_percent_reads_over_queue_depth() -> None:
    cases = cases_of("jo2024-mixed", "paper", "depth")
    rounds = load("jo2024-mixed").parts[0].rounds
    assert rounds and {64, 1} <= set(rounds.factors["queue_depth"])
    assert_fixed(cases, read_fraction=0.7, block_size=4096, precondition=128 << 10)


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_the_memory_limit_of_lmdb_is_half_of_the_data_and_the_engine(profile: str) -> None:
    parts = effective(load("memory-extension"), profile=profile, settings={}).parts
    [part] = [each for each in parts if each.name == "lmdb"]
    data_bytes = int(str(part.measurement["records"])) * 4096  # A value of 4,000 bytes has an overflow page of its own.
    for each in part.factors["place"]:
        if isinstance(each, Level) and each.label.startswith("half"):
            assert 0.5 * data_bytes <= parse_size(str(each.set["memory_limit"])) <= 0.55 * data_bytes + (16 << 20)
