"""The applications that come with iosonde: each has its load, and limits with sources or none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iosonde.data import applications
from iosonde.errors import StudyError
from iosonde.procedure.condition import parse
from iosonde.procedure.limits import limit_of
from iosonde.qualify import SharedTime, describe, load_application, plan_of, watch_plan
from iosonde.storage import open_target

NAMES = list(applications())


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_has_a_source_and_can_be_decided_while_the_load_runs(name: str) -> None:
    study = load_application(name)
    assert study.name == f"qualify-{name}" and study.source
    for requirement in study.requirement:
        source = requirement.source
        assert source.title and source.publisher and source.version and source.address.startswith("https://")
        assert requirement.means.endswith(".")
        assert limit_of(parse(requirement.holds, streams=[])), "a run can end early"
        assert requirement.part in {part.name for part in study.parts}
    if not study.requirement:
        assert re.search("no\\s+judgement", study.description)
        assert describe(study) == "no limits stated"


@pytest.mark.parametrize("name", NAMES)
def test_each_load_can_be_planned_on_a_directory_and_ends_when_its_requirements_are_decided(
    name: str, tmp_path: Path
) -> None:
    study = load_application(name)
    plan = plan_of(study, open_target(str(tmp_path)), time_limit_ns=20 * 10**9)
    assert all(run.spec["workload"]["duration_ns"] == 20 * 10**9 for run in plan.runs)
    assert all(run.spec["workload"]["interval_ns"] == 10**8 for run in plan.runs)
    assert {case.part for case in plan.cases} >= {each.part for each in study.requirement}
    for run in plan.runs:
        part = next(case.part for case in plan.cases if case.case_id == run.case_id)
        conditions = [each.holds for each in study.requirement if each.part == part]
        assert (run.until or {}).get("conditions", []) == conditions


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


LOADS = {f"qualify-{name}": 2 for name in ("cockroachdb", "consul", "ethereum", "openshift", "vault")} | {
    "qualify-sap-hana": 6
}
"""Applications with several loads."""


@pytest.mark.parametrize("decided_after_s", [None, 10])
def test_all_applications_are_measured_within_ten_minutes(decided_after_s: int | None) -> None:
    """Loads that are not decided use their whole limit."""
    studies = [study for study in map(load_application, NAMES) if study.requirement]
    now_ns = 0
    shared = SharedTime(studies, limit_ns=None, now_ns=lambda: now_ns)
    assert shared.text == "8 applications with 18 loads, at most about 10 min"
    limits = []
    for study in studies:
        limits.append(shared.limit_of(study))
        length_ns = limits[-1] if decided_after_s is None else decided_after_s * 10**9
        now_ns += LOADS.get(study.name, 1) * (length_ns + 2_200_000_000)
    assert now_ns <= 600 * 10**9
    assert min(limits) > 10 * 10**9 and limits == sorted(limits), "what is not used is left to later loads"
    assert decided_after_s is None or limits[-1] == 60 * 10**9
    of_user = SharedTime(studies, limit_ns=90 * 10**9)
    assert of_user.limit_of(studies[0]) == 90 * 10**9, "it is not shared"


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_of_an_application_without_limits_states_that_nothing_will_be_decided(name: str) -> None:
    study, target = load_application(name), open_target("null:1TiB")
    watch = watch_plan(study, target, duration_ns=600 * 10**9, every_ns=60 * 10**9)
    for plan in (plan_of(study, target, time_limit_ns=20 * 10**9), watch):
        assert any("the result will be undecided" in note for note in plan.notes) is not bool(study.requirement)
    assert (", each judged" in watch.notes[-1]) is bool(study.requirement)
