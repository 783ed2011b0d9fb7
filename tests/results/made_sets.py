"""Small result sets with everything that a record can hold, for tests that change their files."""

from __future__ import annotations

from pathlib import Path

from plans import a_failure, a_record, hand_plan, tables

from iosonde.results import ResultSet


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
