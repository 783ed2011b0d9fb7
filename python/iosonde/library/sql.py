"""SQL over all result sets below a directory, from their compacted form.

result_sets    a row for each result set: study, target, drives, machine, time, number of runs
metrics        a row for each complete run, stream, operation and metric of `metrics/bulk.py`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.errors import ResultsError
from iosonde.library import compacted
from iosonde.library.indexing import index
from iosonde.library.summary import Summary
from iosonde.results.query_process import Answer, answer_library

FACTS = (
    *("study", "profile", "target", "simulated", "kernel", "software", "started_at", "ended_at"),
    *("complete", "runs", "verdict", "power_on_hours", "percentage_used"),
)
"""Fields of a summary that are columns of `result_sets`."""


def answer(root: Path, query: str) -> Answer:
    """Return the result of one SELECT; `ResultsError` where it fails or there is no result set."""
    found = index(root, compact=True)
    cache = compacted.place(found.root)
    states = {each.path: compacted.state_of(found.root / each.path) for each in found.summaries}
    rows = compacted.current(cache, states)
    if not len(rows):
        raise ResultsError(
            f"`{root}` is no result set and has none below it",
            where="\n  ".join(found.problems[:3]),
            hint="name a result set, or a directory with result sets",
        )
    library = {
        "cache": str(cache),
        "result_sets": [_row(each) for each in found.summaries],
        "segments": rows.select("result_set", "segment").to_dicts(),
        "files": [str(path) for path in compacted.metric_files(cache, rows["segment"].to_list())],
    }
    answered = answer_library(library, query)
    return Answer(rows=answered.rows, problems=[*found.problems, *answered.problems])


def _row(summary: Summary) -> dict[str, Any]:
    devices = {
        name: ", ".join(dict.fromkeys(getattr(each, name) for each in summary.devices))
        for name in ("model", "firmware", "serial")
    }
    return {"result_set": summary.path, **devices, **summary.model_dump(include=set(FACTS))}
