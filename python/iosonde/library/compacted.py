"""Compacted result sets in the cache, which make reading a large library fast; they can be removed at any time.

    $XDG_CACHE_HOME/iosonde/library/HASH/        of the absolute path of a directory with result sets
        summaries/SEGMENT.parquet                   a row for each result set, with the state that it was read in
        metrics/study=NAME/SEGMENT.parquet          a row for each run, stream, operation and metric

Records stay the truth. A result set whose directories have changed since is read again. Its checksums are verified when
it is read, and not again as long as it is in the cache. Nobody else can write there, unlike into a received library.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import polars as pl

from iosonde.cache import cache_directory
from iosonde.library.summary import Summary
from iosonde.text_files import is_utf8

FORMAT = 2
MOST_SEGMENTS = 4096
"""With more files of summaries the cache is built again: each index of new result sets adds some."""
SUMMARIES = {"result_set": pl.String, "state": pl.String, "segment": pl.String, "summary": pl.String}


def place(root: Path) -> Path:
    """Return the directory of the cache for a library."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
    return cache_directory() / "library" / f"{name}-{FORMAT}"


def state_of(directory: Path) -> str:
    """Return what changes when a result set gets a record, a report or another plan; empty where it cannot be read."""
    try:
        found = [(directory / name).stat() for name in ("", "plan.json", "records")]
    except OSError:
        return ""
    return "-".join(f"{each.st_ino}.{each.st_mtime_ns}" for each in found)


def write(cache: Path, summaries: Mapping[str, tuple[str, Summary]], metrics: pl.DataFrame) -> None:
    """Add result sets, with their states, and the metrics of their runs; what cannot be written is read again."""
    segment = f"{time.time_ns():020}-{secrets.token_hex(4)}"
    studies = pl.DataFrame(
        {"result_set": list(summaries), "study": [summary.study for _, summary in summaries.values()]},
        schema={"result_set": pl.String, "study": pl.String},
    )
    rows = [(name, state, segment, summary.model_dump_json()) for name, (state, summary) in summaries.items()]
    with suppress(OSError):
        for (study,), table in metrics.join(studies, on="result_set").group_by("study"):
            folder = cache / "metrics" / f"study={quote(str(study), safe='')}"
            _write(folder / f"{segment}.parquet", table.with_columns(segment=pl.lit(segment)))
        # Last: rows of metrics count only if a summary names their segment.
        _write(cache / "summaries" / f"{segment}.parquet", pl.DataFrame(rows, schema=SUMMARIES, orient="row"))


def _write(path: Path, table: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    table.write_parquet(temporary)
    temporary.replace(path)


def current(cache: Path, states: Mapping[str, str]) -> pl.DataFrame:
    """Return the newest row of each result set that has still the state in which it was read."""
    files = sorted((cache / "summaries").glob("*.parquet"))
    named = {name: state for name, state in states.items() if state and is_utf8(name)}
    now = pl.DataFrame({"result_set": list(named), "state": list(named.values())}, schema_overrides=SUMMARIES)
    nothing = pl.DataFrame(schema=SUMMARIES)
    try:
        rows = pl.concat([nothing, *(pl.read_parquet(file, glob=False) for file in files)])
    except (OSError, pl.exceptions.PolarsError):
        rows = nothing
    if len(files) > MOST_SEGMENTS or (files and not len(rows)):
        shutil.rmtree(cache, ignore_errors=True)
        return nothing
    newest = rows.unique("result_set", keep="last", maintain_order=True)
    return newest.join(now, on=["result_set", "state"], how="semi")


def metric_files(cache: Path, segments: Sequence[str]) -> list[Path]:
    """Return the files of some segments."""
    wanted = set(segments)
    return sorted(path for path in (cache / "metrics").glob("*/*.parquet") if path.stem in wanted)
