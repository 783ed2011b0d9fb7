"""Result sets of earlier formats are read with the current names."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from iosonde.plan import Plan
from iosonde.plan.cost import Cost
from iosonde.results import former_names
from iosonde.results.schema import RecordVerdict
from iosonde.study.model import Study

FORMER: dict[str, Any] = {
    "study": {
        "name": "old",
        "title": "Old",
        "question": "?",
        "on_member_failure": "go_on",
        "parts": [
            {
                "name": "search",
                "search": {
                    **{"over": "rate", "between": [1, 2], "holds": "iops > 1", "agree": "most"},
                    **{"beside": ["iops > 2"], "beside_rule": "both"},
                },
            },
            {"name": "shares", "found": {"rate": {"part": "search"}}},
            {"name": "rounds", "rounds": {"most": 7}},
        ],
        "profiles": {"quick": {"most_rounds": 3}},
        "analysis": [{"kind": "promise", "part": "rounds", "over": "devices"}],
    },
    **{"study_name": "old", "profile": "quick", "target": "null:", "seed": 1, "repeats": 1, "runs": []},
    **{"destroys": [], "layout_bytes": 0, "settings": {}, "own": "iosonde-12345678"},
    "cost": Cost(seconds=0, write_bytes=0).model_dump(),
    "cases": [
        {
            **{"case_id": name, "part": "main", "control": False, "levels": {}, "parameters": {}},
            "cost": Cost(seconds=0, write_bytes=0).model_dump(),
            "procedure": {
                **{"kind": name, "settings": settings, "most_runs": 7, "text": ""},
                "spec": {"run_id": name, "workload": {}},
            },
        }
        for name, settings in [
            ("found", {"found": {}}),
            ("rounds", {"most": 7}),
            ("search", {"beside": [], "beside_rule": "", "agree": "most"}),
        ]
    ],
}


def test_keys_of_former_plans_are_renamed() -> None:
    plan = Plan.model_validate(former_names.plan(copy.deepcopy(FORMER)))
    assert plan.created_name == "iosonde-12345678"
    assert [(each.procedure.kind, each.procedure.max_runs) for each in plan.cases if each.procedure] == [
        ("derived", 7),
        ("rounds", 7),
        ("search", 7),
    ]
    assert [each.procedure.settings for each in plan.cases if each.procedure] == [
        {"derived": {}},
        {"max_rounds": 7},
        {"also_check": [], "also_check_rule": "", "agree": "majority"},
    ]
    study = Study.model_validate(plan.study)
    search, shares, rounds = study.parts
    assert search.search and rounds.rounds
    assert (search.search.agree, search.search.also_check, search.search.also_check_rule) == (
        "majority",
        ["iops > 2"],
        "both",
    )
    assert (list(shares.derived), rounds.rounds.max_rounds, study.profiles["quick"].max_rounds) == (["rate"], 7, 3)
    assert (study.analysis[0].kind, study.on_member_failure) == ("array_efficiency", "continue")


def test_a_current_plan_is_unchanged() -> None:
    plan = Plan.model_validate(former_names.plan(copy.deepcopy(FORMER)))
    written = json.loads(plan.model_dump_json())
    assert former_names.plan(copy.deepcopy(written)) == written


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ("disk", "device-limited"),
        ("tool", "harness-limited"),
        ("cache", "cache-served"),
        ("unclear", "undetermined"),
        ("undetermined", "undetermined"),
    ],
)
def test_verdicts_of_former_records_are_renamed(recorded: str, kind: str) -> None:
    verdict = former_names.record({"verdict": {"kind": recorded, "because": [], "evidence": {}}})["verdict"]
    assert RecordVerdict.model_validate(verdict).kind == kind


def test_codes_of_former_warnings_are_renamed() -> None:
    former = [{"code": "places_free", "message": ""}, {"code": "short_run", "message": ""}]
    codes = [each["code"] for each in former_names.record({"warnings": former})["warnings"]]
    assert codes == ["queue_underutilized", "short_run"]


@pytest.mark.parametrize("within", [("server",), ("result", "store")])
def test_statistics_in_former_records_are_renamed(within: tuple[str, ...]) -> None:
    former: Any = {"statistics_at_begin": {"commits": 1}, "statistics_at_end": {}, "cached_bytes_at_begin": 3}
    current: Any = {"statistics_at_start": {"commits": 1}, "statistics_at_end": {}, "cached_bytes_at_start": 3}
    for name in reversed(within):
        former, current = {name: former}, {name: current}
    assert former_names.record(former) == current


def test_setups_in_former_records_are_renamed() -> None:
    former = {"setup": {"asked": {"array": "raid0"}, "on": {"name": "/mnt"}, "made_for": "1", "made_at": "now"}}
    current = {"requested": {"array": "raid0"}, "target": {"name": "/mnt"}, "created_for": "1", "created_at": "now"}
    assert former_names.record(former) == {"setup": current}


def test_states_of_block_caches_in_former_records_are_renamed() -> None:
    former = {"setup": {"cache": {"prepared": {"state": "warm", "asked_hit_ratio": 0.9}}}}
    current = {"setup": {"cache": {"prepared": {"state": "warm", "requested_hit_ratio": 0.9}}}}
    assert former_names.record(former) == current


def test_other_keys_of_former_records_are_renamed() -> None:
    drive = {"name": "sda", "begin": {"untold": "no NVMe drive"}, "end": {"media": {}}}
    assert former_names.record({"ended": "it was steady", "drives": [drive]}) == {
        "end_reason": "steady",
        "drives": [{"name": "sda", "start": {"not_reported": "no NVMe drive"}, "end": {"media": {}}}],
    }


@pytest.mark.parametrize("damaged", [None, [], "text", {"study": [], "cases": {}}, {"cases": [1]}])
def test_damaged_plans_and_records_are_left_to_the_checks_of_their_types(damaged: Any) -> None:
    assert former_names.plan(damaged) == former_names.record(damaged) == damaged
