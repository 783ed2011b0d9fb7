"""Small result sets with everything that a record can hold, for tests that change their files or read all of them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from plans import MIB, a_failure, a_record, hand_plan, sign, sign_plan, tables
from recordings import recorded

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
            facts = {
                "warnings": [{"code": "short_run", "message": "too short", "hint": "longer"}],
                "verdict": {"kind": "undetermined", "because": ["too short"], "evidence": {"intervals": 1.0}},
                "target": {"kind": "null", "name": "null:1MiB", "size_bytes": 1 << 20, "devices": []},
            }
            record = a_record(result_set.plan, run, environment=environment, **facts)
            result_set.write(record, *tables(run.run_id, [1000 + 10 * i for i in range(40)]))
        result_set.write(a_failure(result_set.plan, failed), *tables(failed.run_id))
    return directory


def made(directory: Path) -> Path:
    """A copy of a result set of four complete runs, below a directory."""
    for name, content in _files_of_a_set().items():
        path = directory / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory / "set"


@functools.cache
def _files_of_a_set() -> dict[Path, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        result_set = ResultSet.create(Path(directory, "set"), hand_plan(name="null:1MiB"))
        with result_set.lock():
            for run in result_set.plan.runs:
                result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
        files = [path for path in result_set.directory.rglob("*") if path.is_file()]
        return {path.relative_to(result_set.directory): path.read_bytes() for path in files}


def on_files(name: str, directory: Path, target: Path) -> Path:
    """Unpack a recorded result set on files, as if they had been below a target directory."""
    recorded_at = recorded(name, directory).plan.target
    for path in (directory / "plan.json", *directory.glob("records/*/record.json")):
        path.write_text(path.read_text().replace(recorded_at, str(target)))
    sign_plan(directory)
    for record in (directory / "records").iterdir():
        sign(record)
    return directory


VARIED: dict[str, Callable[[Path, Path], Path]] = {
    "measured": lambda directory, target: measured(directory),
    "unfinished": unfinished,
    **{name: lambda to, target, name=name: on_files(name, to, target) for name in ("store", "command")},
    **{
        name: lambda to, target, name=name: recorded(name, to).directory
        for name in ("both-loops", "adaptive", "arms", "commit")
    },
}
"""Every kind by name: writes a result set into a new directory, on files of a target directory if it has any."""
