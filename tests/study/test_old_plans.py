"""Plans of earlier versions stay readable."""

from __future__ import annotations

import json

from iosonde.plan import Plan, Procedure
from iosonde.plan.cost import Cost


def test_former_names_of_fields_are_read() -> None:
    procedure = Procedure.model_validate({"kind": "search", "settings": {}, "most_runs": 7, "text": "", "spec": {}})
    assert procedure.max_runs == 7
    plan = {
        **{"study": {}, "study_name": "s", "profile": "quick", "target": "null:", "seed": 1, "repeats": 1, "cases": []},
        **{"runs": [], "destroys": [], "layout_bytes": 0, "settings": {}, "own": "iosonde-12345678"},
        "cost": Cost(seconds=0, write_bytes=0).model_dump(),
    }
    read = Plan.model_validate_json(json.dumps(plan))
    assert read.created_name == "iosonde-12345678"
    assert Plan.model_validate_json(read.model_dump_json()) == read
