"""SQL over all result sets below a directory, from their compacted form.

result_sets    a row for each result set: study, target, drives, machine, time, number of runs
metrics        a row for each complete run, stream, operation and metric of `metrics/bulk.py`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from iosonde import object_storage
from iosonde.errors import ResultsError
from iosonde.library import compacted, remote
from iosonde.library.indexing import Index, index
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
    directory = Path(found.root)
    cache = compacted.place(directory)
    states = {each.path: compacted.state_of(directory / each.path) for each in found.summaries}
    rows = compacted.current(cache, states)
    if not len(rows):
        raise ResultsError(
            f"`{root}` is no result set and has none below it",
            where="\n  ".join(found.problems[:3]),
            hint="name a result set, or a directory with result sets",
        )
    files = [str(path) for path in compacted.metric_files(cache, rows["segment"].to_list())]
    return _answer(found, {"directory": str(cache)}, rows, files, query)


def answer_remote(address: str, query: str) -> Answer:
    """The same of a library in object storage, whose files DuckDB reads as far as the query requires."""
    found = remote.index(address)
    storage = object_storage.opened(address)
    rows = remote.newest(storage)
    files = remote.metric_urls(storage, rows["segment"].to_list())
    directory = storage.url(f"{storage.root}/{remote.COMPACTED}")
    return _answer(found, {"directory": directory, "address": address}, rows, files, query)


def _answer(found: Index, place: dict[str, str], rows: pl.DataFrame, files: list[str], query: str) -> Answer:
    library = {
        **place,
        "result_sets": [_row(each) for each in found.summaries],
        "segments": rows.select("result_set", "segment").to_dicts(),
        "files": files,
    }
    answered = answer_library(library, query)
    return Answer(rows=answered.rows, problems=[*found.problems, *answered.problems])


def _row(summary: Summary) -> dict[str, Any]:
    devices = {
        name: ", ".join(dict.fromkeys(getattr(each, name) for each in summary.devices))
        for name in ("model", "firmware", "serial")
    }
    return {"result_set": summary.path, **devices, **summary.model_dump(include=set(FACTS))}
