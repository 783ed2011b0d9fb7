"""The applications that come with iosonde: each has its load, and limits with sources or none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iosonde.collections.qualify import describe, load_application, plan_of, watch_plan
from iosonde.data import applications
from iosonde.errors import StudyError
from iosonde.planning.procedure.condition import limit_of, parse
from iosonde.storage import open_target
from iosonde.storage.opening import VirtualTarget

NAMES = list(applications())
OWN_LIMITS = {
    "llm-serving": {"load_within": "30s"},
    "training": {"checkpoint_every": "30min", "stall_share": "0.05"},
}
"""Settings of applications whose limit is the user's own."""


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_has_a_source_and_is_judged_by_blocks_of_time(name: str) -> None:
    study = load_application(name)
    assert study.name == f"qualify-{name}" and study.source
    assert bool(study.asks) == (name in OWN_LIMITS)
    if study.asks:
        assert "set by you" in describe(study)
        assert {each.source.publisher for each in study.requirement} == {"set by the user"}
        return
    for requirement in study.requirement:
        source = requirement.source
        assert source.title and source.publisher and source.version and source.address.startswith("https://")
        assert requirement.means.endswith(".")
        [part] = [part for part in study.parts if part.name == requirement.part]
        assert limit_of(parse(requirement.holds, streams=[stream.name for stream in part.streams]))
    if not study.requirement:
        assert re.search("no\\s+judgement", study.description)
        assert describe(study) == "none: characterizes"


@pytest.mark.parametrize("name", OWN_LIMITS)
def test_a_limit_of_the_user_must_be_set(name: str, tmp_path: Path) -> None:
    study, target = load_application(name), open_target(str(tmp_path))
    with pytest.raises(StudyError, match="requires values of your own") as error:
        plan_of(study, target)
    assert all(f"--set {asked}=" in str(error.value.hint) for asked in OWN_LIMITS[name])
    assert len(plan_of(study, target, settings=OWN_LIMITS[name]).runs) == study.repeats
    with pytest.raises(StudyError, match="ends by itself"):
        watch_plan(study, target, duration_ns=600 * 10**9, every_ns=60 * 10**9, settings=OWN_LIMITS[name])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_LIMITS])
def test_each_load_can_be_planned_on_a_directory_and_is_measured_for_a_minute_or_as_asked(
    name: str, tmp_path: Path
) -> None:
    study = load_application(name)
    plan = plan_of(study, open_target(str(tmp_path)))
    assert all(run.spec["workload"]["duration_ns"] == 60 * 10**9 and run.until is None for run in plan.runs)
    longer = plan_of(study, open_target(str(tmp_path)), time_limit_ns=600 * 10**9)
    assert all(run.spec["workload"]["duration_ns"] == 600 * 10**9 for run in longer.runs)
    assert all(run.spec["workload"]["interval_ns"] == 10**8 for run in plan.runs)
    assert {case.part for case in plan.cases} >= {each.part for each in study.requirement}


def test_an_unknown_application_is_refused_and_a_file_with_requirements_is_one(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="did you mean `etcd`"):
        load_application("etdc")
    own = tmp_path / "own.toml"
    own.write_text(applications()["etcd"].read_text(encoding="utf-8").replace("10ms", "7ms"), encoding="utf-8")
    assert load_application(str(own)).requirement[0].holds.endswith("7ms")


def test_the_study_of_the_guide_has_the_load_of_postgresql(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", Path("docs/qualify.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    own, shipped = load_application(str(tmp_path / "own.toml")), load_application("postgresql")
    plans = [plan_of(study, open_target(str(tmp_path)), time_limit_ns=10**10) for study in (own, shipped)]
    assert plans[0].cases[0].parameters == plans[1].cases[0].parameters
    assert [each.holds for each in own.requirement] == ["write.iops >= 2000 IOPS"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_LIMITS])
def test_the_plan_of_an_application_without_limits_states_that_nothing_will_be_decided(name: str) -> None:
    study, target = load_application(name), open_target("null:1TiB")
    watch = watch_plan(study, target, duration_ns=600 * 10**9, every_ns=60 * 10**9)
    for plan in (plan_of(study, target, time_limit_ns=20 * 10**9), watch):
        assert any("the result will be undecided" in note for note in plan.notes) is not bool(study.requirement)
    assert (", each judged" in watch.notes[-1]) is bool(study.requirement)


def test_a_time_limit_that_decides_nothing_is_refused_and_one_that_only_fails_is_stated() -> None:
    etcd, target = load_application("etcd"), open_target("null:1TiB")
    with pytest.raises(StudyError, match="must be at least 10 s; got 5 s"):
        plan_of(etcd, target, time_limit_ns=5 * 10**9)
    assert plan_of(etcd, target, time_limit_ns=20 * 10**9).notes == [
        "no limit can pass: a pass requires 1 min of each load"
    ]
    assert not plan_of(etcd, target).notes


@dataclass(frozen=True, kw_only=True)
class _On(VirtualTarget):
    """A target on a file system."""

    system: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        return {"file_system": self.system, "devices": []}


@pytest.mark.parametrize(
    ("application", "system", "note"),
    [
        ("etcd", {"kind": "fuse.server"}, None),
        ("ethereum", {"kind": "fuse.server"}, "limits that cannot pass: `reads/s`; no block device is visible"),
        ("etcd", {"kind": "fuse.mergerfs", "below": {"kind": "tmpfs"}}, "no limit can pass: the target is in memory"),
    ],
)
def test_the_plan_states_what_the_target_leaves_undecided(
    application: str, system: dict[str, Any], note: str | None
) -> None:
    """Nobody sees whether reads on FUSE come from memory; durable writes take the time that the application waits."""
    target = _On(name="null:1TiB", kind="null", size_bytes=1 << 40, system=system)
    notes = plan_of(load_application(application), target).notes
    assert [each.startswith(note or "-") for each in notes] == [True] * bool(note)
