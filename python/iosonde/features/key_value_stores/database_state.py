"""The state of databases between runs: log-structured stores start each run from the state after loading.

Overwrites leave such a store with levels that are compacted long after the run, so the next run on the same database
would measure what an earlier one left, in shuffled order. A database whose last run wrote is restored: from the
checkpoint that the engine made of it before its first writes, or by loading it again where there is none. With
`carry_over` it is not, and the record gets a warning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.features.key_value_stores.phases import LOG_STRUCTURED, WRITES
from iosonde.plan import Case, JsonObject, Run

EARLIER_SESSION = "an earlier session"


class Databases:
    """Records which run last wrote to each database since it was loaded."""

    def __init__(self) -> None:
        self._written_by: dict[str, str] = {}
        self._seen: set[str] = set()

    def prepare(self, run: Run, case: Case) -> tuple[JsonObject, str]:
        """The spec of a run, which restores the database if needed; and the run whose state it carries over, if any."""
        workload = run.spec["workload"]
        path = _path(workload)
        if path is None:
            return run.spec, ""
        if path not in self._seen and Path(path).exists():
            self._written_by[path] = EARLIER_SESSION
        self._seen.add(path)
        writer = self._written_by.get(path, "")
        database = workload["database"]
        if not writer or database["kind"] != "loaded" or database["reload"]:
            return run.spec, ""
        if case.parameters.get("carry_over"):
            return run.spec, writer
        return {**run.spec, "workload": {**workload, "database": {**database, "restore": True}}}, ""

    def ended(self, run: Run) -> None:
        """Note whether the run has loaded its database, and whether it wrote to it."""
        workload = run.spec["workload"]
        path = _path(workload)
        if path is None:
            return
        if workload["database"]["kind"] == "empty":  # The run was the load.
            self._written_by.pop(path, None)
            return
        if workload["database"].get("reload") or workload["database"].get("restore"):
            self._written_by.pop(path, None)
        if any(each["operation"] in WRITES for stream in workload["streams"] for each in stream["operations"]):
            self._written_by[path] = run.run_id


def _path(workload: dict[str, Any]) -> str | None:
    """The directory of a log-structured store's database; None for all other workloads."""
    if (workload.get("store") or {}).get("kind") not in LOG_STRUCTURED:
        return None
    path: str | None = workload["target"].get("path")
    return path
