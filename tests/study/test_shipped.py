"""The shipped studies: they do what their texts state, and follow the published method exactly."""

from __future__ import annotations

import csv
import functools
import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
from jsonschema_rs import Draft202012Validator

from iosonde.data import reference_file, shipped
from iosonde.plan import Case, Plan, Setup
from iosonde.planning import expand
from iosonde.planning import load as load_study
from iosonde.results import plan_shapes
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
    """A place for a database server."""

    def backend(self) -> None:  # type: ignore[override]
        return None

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        return {"kind": "file_per_job", "directory": "/mnt/iosonde-01234567", "size_bytes": size_bytes}


class EightMemories(EightDevices):
    """A place for swap and mapped files."""

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


MEMORIES = EightMemories(name="/mnt", kind="directory", size_bytes=4096 * GIB)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of studies on database servers ask their programs whether they accept the settings; swap needs root."""
    monkeypatch.setattr("iosonde.features.swap_areas.area.check_possible", lambda: None)
    monkeypatch.setattr("iosonde.features.swap_areas.settings.check_possible", lambda _: None)
    monkeypatch.setattr("iosonde.storage.control_groups.control_group.hierarchy", lambda: None)
    monkeypatch.setattr("iosonde.workload.sql_server.check_place", lambda *_: None)
    monkeypatch.setattr("iosonde.features.key_value_stores.memcached.settings.check_place", lambda *_: None)
    monkeypatch.setattr("iosonde.features.object_stores.spec.check_place", lambda *_: None)
    monkeypatch.setattr("iosonde.features.database_transactions.spec.watched_devices", lambda *_: [])


def target_for(study: Study) -> EightDevices:
    if study.workload in ("paging", "graph", "objects") or study.name in (
        "cache-tiers",
        "memory-extension",
        "failover",
    ):
        return MEMORIES
    return FILES if study.workload in ("tpcc", "commit") else NULL


@functools.cache
def load(name: str) -> Study:
    """Each study is read once for all tests."""
    return load_study(name)


@functools.cache
def plan_of(name: str, profile: str, repeats: int | None = None) -> Plan:
    settings = {"server_url": "s3://127.0.0.1:1"} if name == "s3" else {}
    return expand(load(name), target_for(load(name)), profile=profile, settings=settings, repeats=repeats)


def cases_of(name: str, profile: str, part: str) -> list[Case]:
    return [case for case in plan_of(name, profile).cases if case.part == part]


def levels(cases: list[Case], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(case.levels[name] for name in names) for case in cases}


def parameters(cases: list[Case], name: str) -> set[Any]:
    return {case.parameters[name] for case in cases}


def rows(reference: Reference) -> list[dict[str, str]]:
    with reference_file(reference.csv).open(newline="") as file:
        found = list(csv.DictReader(file))
    return [row for row in found if all(row[name] == str(value) for name, value in reference.where.items())]


def joined(row: dict[str, str], column: str) -> str:
    """A column of a CSV, or several that make up one factor."""
    return "+".join(row[part] for part in column.split("+"))


def test_the_studies_of_the_readme_exist_and_quick_comes_first() -> None:
    names = list(shipped())
    assert names[0] == "quick" and names[1:] == sorted(names[1:])
    assert {
        "act",
        "davidovic2019-grid",
        "han2021-device",
        "jo2024-mixed",
        "latency-curve",
        "master2010-degradation",
        "master2010-iops",
        "master2010-surface",
        "write-stress",
    } <= set(names)


@pytest.mark.parametrize("name", shipped())
def test_a_study_is_named_like_its_file_and_has_all_applicable_profiles(name: str) -> None:
    study = load(name)
    assert study.name == name
    assert [*study.profiles] == ["quick", "standard"] + ["paper"] * (study.source != "")
    # Conclusions of a feature's procedure have findings, tables and figures of their own.
    assert (study.views and study.analysis) or any(part.procedure for part in study.parts)


@pytest.mark.parametrize("name", shipped())
def test_every_value_of_a_view_is_a_metric(name: str) -> None:
    from iosonde.metrics.registry import METRICS

    study = load(name)
    asked = {view.y for view in study.views} | {each.metric for each in study.analysis}
    asked |= {view.x for view in study.views if view.kind == "tradeoff" and view.x}
    asked |= {metric for reference in study.references for metric in reference.held.values()}
    asked |= {metric for view in study.views for metric in view.metrics}
    assert asked <= set(METRICS)


def _within_rounds(part: Part, factor: str) -> list[Any]:
    return list(part.rounds.factors.get(factor, ())) if part.rounds else []


@pytest.mark.parametrize("name", shipped())
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
            values = {
                named[joined(row, column)] if named else joined(row, column)
                for row in published
                if not named or joined(row, column) in named
            }
            known = {str(case.levels[factor]) for case in cases if factor in case.levels}
            known |= {str(level) for part in study.parts for level in _within_rounds(part, factor)}
            assert {str(value) for value in values} <= known


@pytest.mark.parametrize("name", shipped())
@pytest.mark.engine
def test_the_engine_knows_every_spec(name: str) -> None:
    schema = json.loads(subprocess.run([real_engine(), "--schema"], capture_output=True, check=True).stdout)["spec"]
    validator = Draft202012Validator(schema)
    for profile in load(name).profiles:
        plan = plan_of(name, profile, 1)
        assert [error.message for spec in plan.specs() for error in validator.iter_errors(spec)] == []


@pytest.mark.parametrize("name", shipped())
def test_the_plan_of_a_study_passes_the_checks_of_readers(name: str) -> None:
    """They refuse a plan whose parameters and procedures have other types than iosonde writes."""
    plan = plan_of(name, "standard")
    read = Plan.model_validate_json(plan.model_dump_json())
    assert plan_shapes.mismatch(read) == ""


@pytest.mark.parametrize("name", shipped())
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


def test_the_latency_curve_runs_from_10_to_110_percent_of_what_was_found() -> None:
    plan = plan_of("latency-curve", "standard")
    assert {(load,) for load in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)} == levels(
        plan.adaptive, "load"
    )
    assert {case.procedure.text for case in plan.adaptive if case.procedure} == {"rate derived from maximum"}
    assert parameters([case for case in plan.cases if case.part == "maximum"], "arrival") == {"closed"}


def test_quick_takes_two_minutes_and_writes_four_gib_at_most(tmp_path_factory: pytest.TempPathFactory) -> None:
    target = open_target(str(tmp_path_factory.mktemp("target")))
    for profile in load("quick").profiles:
        plan = expand(load("quick"), target, profile=profile)
        assert plan.cost.seconds <= 110, "a slow disk takes longer over the layout than the plan assumes"
        assert plan.cost.write_bytes is not None
        assert plan.cost.write_bytes <= 4 * GIB
        assert plan.repeats >= 3


def test_davidovic2019_has_the_grid_of_table_iii() -> None:
    cases = cases_of("davidovic2019-grid", "paper", "grid")
    study = load("davidovic2019-grid")
    grid = {(int(row["block_bytes"]), int(row["queue_depth"]), row["op"]) for row in rows(study.references[0])}
    assert len(grid) == 340
    assert levels(cases, "block_size", "queue_depth", "operation") == grid
    assert parameters(cases, "span") == {32 * GIB}
    assert parameters(cases, "access") == {"sequential"}
    assert parameters(cases, "io_mode") == {"direct"}


def test_master2010_has_the_surface_and_the_threads_of_the_paper() -> None:
    sizes = [4096 << power for power in range(7)]
    threads = [1 << power for power in range(8)]
    strided = cases_of("master2010-surface", "paper", "strided")
    assert levels(strided, "block_size", "jobs", "operation") == set(product(sizes, threads, ("read", "write", "mix")))
    assert parameters(strided, "read_fraction") == {1.0, 0.0, 0.5}
    assert parameters(strided, "stride_blocks") == {17}
    random = cases_of("master2010-surface", "paper", "random")
    assert levels(random, "block_size", "jobs", "operation") == set(product(sizes, threads, ("read", "write")))
    iops = cases_of("master2010-iops", "paper", "threads")
    assert levels(iops, "jobs", "operation") == set(product(threads, ("read", "write")))
    assert parameters(iops, "block_size") == {4096}
    for cases in (strided, random, iops):
        assert parameters(cases, "span_sharing") == {"split"}
    assert plan_of("master2010-surface", "paper").repeats == plan_of("master2010-iops", "paper").repeats == 5
    specs = [run.spec["workload"]["streams"][0] for run in plan_of("master2010-surface", "paper").runs]
    strides = [
        spec["access"]["stride_bytes"] // spec["block_sizes"][0]["bytes"]
        for spec in specs
        if spec["access"]["kind"] == "strided"
    ]
    assert set(strides) == {17}


def test_master2010_and_han2021_do_one_blocking_io_at_a_time_in_each_thread() -> None:
    for name in ("master2010-surface", "master2010-iops", "han2021-device"):
        study = load(name)
        assert (study.measurement["backend"], study.measurement.get("queue_depth", 1)) == ("sync", 1)


def test_han2021_has_64_jobs_with_a_file_of_4_gib_each() -> None:
    cases = cases_of("han2021-device", "paper", "device")
    published = {(row["pattern"], row["op"], row["io_path"]) for row in rows(load("han2021-device").references[0])}
    assert levels(cases, "access", "operation", "io_mode") == published
    names = ("jobs", "files", "span", "block_size", "limit_bytes", "duration")
    assert [parameters(cases, name) for name in names] == [
        {64},
        {"per_job"},
        {4 * GIB},
        {512 << 10},
        {256 * GIB},
        {None},
    ]
    assert plan_of("han2021-device", "paper").repeats == 5


def test_han2021_has_the_levels_and_numbers_of_devices_of_the_figures() -> None:
    cases = [case for case in cases_of("han2021-raid", "paper", "raid") if case.levels["array"] != "single"]
    with reference_file("han2021_fig1to5_raid.csv").open(newline="") as file:
        published = {(row["raid_level"], int(row["devices"])) for row in csv.DictReader(file)}
    assert levels(cases, "array", "devices") == published
    ways = set(product(("sequential", "random"), ("read", "write"), ("buffered", "direct")))
    assert levels(cases, "access", "operation", "io_mode") == ways
    assert [parameters(cases, name) for name in ("jobs", "span", "block_size", "chunk", "file_system")] == [
        {64},
        {4 * GIB},
        {512 << 10},
        {512 << 10},
        {"ext4"},
    ]
    assert plan_of("han2021-raid", "paper").repeats == 5


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


def test_davidovic2019_has_all_of_table_iii() -> None:
    cases = cases_of("davidovic2019-raid0", "paper", "grid")
    with reference_file("davidovic2019_raid0.csv").open(newline="") as file:
        published = {
            (int(row["drives"]), int(row["block_bytes"]), int(row["queue_depth"]), row["op"])
            for row in csv.DictReader(file)
        }
    measured = {
        (case.parameters["devices"], case.levels["block_size"], case.levels["queue_depth"], case.levels["operation"])
        for case in cases
    }
    assert measured == published
    assert parameters(cases, "chunk") == {16 << 10}


def test_jo2024_has_a_mix_of_70_percent_reads_over_queue_depth() -> None:
    cases = cases_of("jo2024-mixed", "paper", "depth")
    rounds = load("jo2024-mixed").parts[0].rounds
    assert rounds and {64, 1} <= set(rounds.factors["queue_depth"])
    assert (parameters(cases, "read_fraction"), parameters(cases, "block_size")) == ({0.7}, {4096})
    assert parameters(cases, "precondition") == {128 << 10}


def test_a_study_contains_no_commands_and_no_paths() -> None:
    """Whatever a stranger's study holds, it is parameters that iosonde knows: `plan` shows all that it can do."""
    allowed = set(Study.model_fields)
    for name in shipped():
        assert set(load(name).model_dump()) <= allowed
    assert not allowed & {"command", "path", "target", "script", "environment"}


@pytest.mark.engine
def test_an_installation_finds_them_in_the_package(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "python/iosonde", tmp_path / "iosonde")
    script = "from iosonde.data import shipped\nfrom iosonde.planning import load\nprint(*(load(name).name for name in shipped()))"
    asked = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(tmp_path)}
    )
    assert asked.stdout.split() == list(shipped())


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_the_memory_limit_of_lmdb_is_half_of_the_data_and_the_engine(profile: str) -> None:
    study = effective(load("memory-extension"), profile=profile, settings={})
    [part] = [each for each in study.parts if each.name == "lmdb"]
    levels = [each for each in part.factors["place"] if isinstance(each, Level) and each.label.startswith("half")]
    data_bytes = int(str(part.measurement["records"])) * 4096  # A value of 4,000 bytes has an overflow page of its own.
    own_bytes = 16 << 20
    for each in levels:
        limit_bytes = parse_size(str(each.set["memory_limit"]))
        assert 0.5 * data_bytes <= limit_bytes <= 0.55 * data_bytes + own_bytes
