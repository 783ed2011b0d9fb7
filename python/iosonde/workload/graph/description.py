"""What other packages ask about graph algorithms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iosonde.workload.description import CLOSED, Description, Rules, Spec

_FILE = re.compile(r"[0-9a-f]{8}\.graph")
_ALGORITHMS = {"pagerank": "PageRank", "bfs": "breadth-first search", "components": "connected components"}


class GraphDescription(Description):
    """Graph algorithms."""

    subject = "algorithm"
    worded = ("algorithm", "mode")

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """The jobs of the algorithm, which read the lists."""
        return [{"name": "main", "jobs": workload["jobs"], "arrival": CLOSED, **workload["reading"]}]

    def rules(self, workload: Spec) -> Rules:
        """A job waits for reads, for other jobs, or computes."""
        return "iterations"

    def problem(self, workload: Spec, case: Mapping[str, Any]) -> str:
        """A graph is imported from the file of its case, and its result is not written anywhere."""
        path = workload["graph"]["source"].get("path")
        if path is not None and path != case["edge_list"]:
            return f"the spec imports `{path}`, and the case has another edge list"
        if workload.get("result_path") is not None:
            return f"the spec writes its result to `{workload['result_path']}`"
        return ""

    def file_name(self, workload: Spec) -> str:
        """Each graph has a file of its own."""
        name = Path(workload["target"]["path"]).name
        return name if _FILE.fullmatch(name) else ""

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `PageRank (pull)`."""
        algorithm = str(case["algorithm"])
        mode = f" ({case['mode']})" if algorithm == "pagerank" and case.get("mode") else ""
        return {"algorithm": f"{_ALGORITHMS[algorithm]}{mode}"}


DESCRIPTION: Description = GraphDescription()
