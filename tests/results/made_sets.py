"""Small result sets with everything that a record can hold, for tests that change their files."""

from __future__ import annotations

from pathlib import Path

from plans import MIB, a_failure, a_record, hand_plan, tables

from iosonde.results import ResultSet

OWN = "iosonde-00000001"


def unfinished(directory: Path, target: Path) -> Path:
    """Write a result set on a directory target; two of its four runs are missing, so that `resume` has work."""
    file = {"kind": "file", "path": str(target / OWN / "data"), "size_bytes": MIB}
    plan = hand_plan(name=str(target), target=file, backend={"kind": "sync"}, layout="missing", verify=None)
    result_set = ResultSet.create(directory, plan.model_copy(update={"created_name": OWN}))
    with result_set.lock():
        for run in plan.runs[:2]:
            result_set.write(a_record(plan, run), *tables(run.run_id, [1000, 2000]))
    return directory


def measured(directory: Path) -> Path:
    """Write a result set of three complete runs and a failed one, with an environment and a warning."""
    result_set = ResultSet.create(directory, hand_plan(name="null:1MiB"))
    with result_set.lock():
        environment = result_set.write_environment({"machine": {"cpu": "x", "cores": 2}, "software": {"kernel": "6.1"}})
        *complete, failed = result_set.plan.runs
        for run in complete:
            record = a_record(
                result_set.plan,
                run,
                environment=environment,
                warnings=[{"code": "short_run", "message": "too short", "hint": "longer"}],
                verdict={"kind": "undetermined", "because": ["too short"], "evidence": {"intervals": 1.0}},
                target={"kind": "null", "name": "null:1MiB", "size_bytes": 1 << 20, "devices": []},
            )
            result_set.write(record, *tables(run.run_id, [1000 + 10 * i for i in range(40)]))
        result_set.write(a_failure(result_set.plan, failed), *tables(failed.run_id))
    return directory
