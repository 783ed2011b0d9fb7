"""Many result sets: found below a directory or in object storage, summarised, and queried with SQL.

A result set that cannot be read is named and skipped; the others do not suffer. Many are summarised by several
processes, each of which is this module (`python -m`).

Compacted result sets in the cache make reading a large library fast; they can be removed at any time.

    $XDG_CACHE_HOME/iosonde/collections/library/HASH/        of the absolute path of a directory with result sets
        summaries/SEGMENT.parquet                   a row for each result set, with the state that it was read in
        metrics/study=NAME/SEGMENT.parquet          a row for each run, stream, operation and metric

Records stay the truth. A result set whose directories have changed since is read again. Its checksums are verified when
it is read, and not again as long as it is in the cache. Nobody else can write there, unlike into a received library.
A library in object storage has the same files below `compacted-N`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

import polars as pl
from pydantic import ValidationError

from iosonde.base import object_storage
from iosonde.base.cache import cache_directory
from iosonde.base.object_storage import Storage, is_address
from iosonde.base.python_process import module_command
from iosonde.base.text_files import is_utf8
from iosonde.collections.library.summary import Summary, summarise
from iosonde.errors import IosondeError, ResultsError
from iosonde.metrics.metrics import bulk_metrics
from iosonde.results import ResultSet, query_process
from iosonde.results.files import MARK
from iosonde.results.query_process import Answer

BATCH, BATCH_RECORDS = 25, 1000
"""Result sets, and records of them, whose tables are in memory together: 0.5 MiB for each record of ten intervals."""
ALONE = 50
"""Up to this many result sets, further processes and the cache would take longer than they save."""
FORMAT = 2
COMPACTED = f"compacted-{FORMAT}"
MOST_SEGMENTS = 4096
"""With more files of summaries the cache is built again: each index of new result sets adds some."""
SUMMARIES = {"result_set": pl.String, "state": pl.String, "segment": pl.String, "summary": pl.String}
ELSEWHERE = "collect the result sets again, into another prefix"
FACTS = (
    *("study", "profile", "target", "simulated", "kernel", "software", "started_at", "ended_at"),
    *("complete", "runs", "verdict", "power_on_hours", "percentage_used"),
)
"""Fields of a summary that are columns of `result_sets`."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """The result sets below a directory."""

    root: Path | str
    """An address of object storage is a string."""
    summaries: Sequence[Summary]
    """The newest first."""
    problems: Sequence[str]
    """Result sets and directories that were skipped, each with the reason."""

    @classmethod
    def of(cls, root: Path | str, listed: Iterable[Summary], problems: Sequence[str]) -> Index:
        """Return the index of summaries in any order."""
        ordered = sorted(listed, key=lambda each: each.path)
        newest_first = sorted(ordered, key=lambda each: each.started_at, reverse=True)
        return cls(root=root, summaries=newest_first, problems=problems)


def index(place: Path | str, *, compact: bool = False) -> Index:
    """Summarise every result set below a directory, or at an address of object storage.

    With `compact`, those of a directory are all in the cache afterwards, however few they are. `ResultsError` where
    there is no such directory or library.
    """
    if is_address(place):
        return _stored(str(place))
    directory = Path(place).absolute()
    problems: list[str] = []
    found = list(find(directory, problems))
    cache = Cache.of(directory) if compact or len(found) > ALONE else None
    states = {_name(directory, each): state_of(each) for each in found} if cache else {}
    listed = [Summary.model_validate_json(text) for text in cache.current(states)["summary"]] if cache else []
    names = {each.path for each in listed}
    new = [each for each in found if _name(directory, each) not in names]
    workers = 1 if len(new) <= ALONE else len(os.sched_getaffinity(0))
    results = _by_processes(directory, new, cache, workers) if workers > 1 else _summaries(directory, new, cache)
    for summary, problem in results:
        if summary:
            listed.append(summary)
        if problem:
            problems.append(problem)
    return Index.of(directory, listed, problems)


def _stored(address: str) -> Index:
    storage = object_storage.opened(address)
    rows = newest(storage, "summary")
    if not len(rows):
        raise ResultsError(f"`{address}` has no library", hint=f"`iosonde collect DIR --output {address}` makes one")
    listed, problems = [], []
    for name, text in rows.select("result_set", "summary").iter_rows():
        try:
            # Reports are not collected.
            listed.append(Summary.model_validate_json(text).model_copy(update={"path": name, "report": ""}))
        except ValidationError as error:
            problems.append(f"`{address}`: the summary of `{name}` is damaged: {error.error_count()} errors")
    return Index.of(address, listed, problems)


def find(root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield result sets below `root`, `root` included, in the order of their names; none within another.

    Directories that cannot be read are added to `problems`. `ResultsError` where `root` is not a directory.
    """
    if not root.is_dir():
        raise ResultsError(
            f"`{root}` is not a directory", hint="name the directory that contains result sets, at any depth"
        )
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"`{directory}` cannot be read: {error.strerror}")
            continue
        if any(entry.name == MARK and entry.is_file(follow_symlinks=False) for entry in found):
            yield directory
            continue
        waiting += [Path(entry.path) for entry in reversed(found) if entry.is_dir(follow_symlinks=False)]


def answer(place: Path | str, query: str) -> Answer:
    """Return the result of one SELECT over all result sets; `ResultsError` where it fails or there is no result set.

    result_sets    a row for each result set: study, target, drives, machine, time, number of runs
    metrics        a row for each complete run, stream, operation and metric of `metrics.bulk_metrics`

    DuckDB reads the files of a library in object storage as far as the query requires.
    """
    found = index(place, compact=True)
    if is_address(place):
        storage = object_storage.opened(str(place))
        rows = newest(storage)
        paths = of_segments(storage.find(f"{COMPACTED}/metrics"), rows["segment"])
        files = [storage.url(each) for each in paths]
        where = {"directory": storage.url(f"{storage.root}/{COMPACTED}"), "address": str(place)}
    else:
        directory = Path(found.root)
        cache = Cache.of(directory)
        rows = cache.current({each.path: state_of(directory / each.path) for each in found.summaries})
        files = of_segments(map(str, sorted((cache.path / "metrics").glob("*/*.parquet"))), rows["segment"])
        where = {"directory": str(cache.path)}
    if not len(rows):
        raise ResultsError(
            f"`{place}` is no result set and has none below it",
            where="\n  ".join(found.problems[:3]),
            hint="name a result set, or a directory with result sets",
        )
    library = {
        **where,
        "result_sets": [_row(each) for each in found.summaries],
        "segments": rows.select("result_set", "segment").to_dicts(),
        "files": files,
    }
    answered = query_process.answer(query, library=library)
    return Answer(rows=answered.rows, problems=[*found.problems, *answered.problems])


def _row(summary: Summary) -> dict[str, Any]:
    devices = {
        name: ", ".join(dict.fromkeys(getattr(each, name) for each in summary.devices))
        for name in ("model", "firmware", "serial")
    }
    return {"result_set": summary.path, **devices, **summary.model_dump(include=set(FACTS))}


@dataclass(frozen=True)
class Cache:
    """Compacted result sets of a directory."""

    path: Path

    @classmethod
    def of(cls, root: Path | str) -> Cache:
        """Return that of a directory."""
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        return cls(cache_directory() / "library" / f"{name}-{FORMAT}")

    def add(self, summaries: Mapping[str, tuple[str, Summary]], metrics: pl.DataFrame) -> None:
        """Add result sets, with their states, and the metrics of their runs; what cannot be written is read again."""
        segment = f"{time.time_ns():020}-{secrets.token_hex(4)}"
        studies = pl.DataFrame(
            {"result_set": list(summaries), "study": [summary.study for _, summary in summaries.values()]},
            schema={"result_set": pl.String, "study": pl.String},
        )
        rows = [(name, state, segment, summary.model_dump_json()) for name, (state, summary) in summaries.items()]
        with suppress(OSError):
            for (study,), table in metrics.join(studies, on="result_set").group_by("study"):
                folder = self.path / "metrics" / f"study={quote(str(study), safe='')}"
                _write(folder / f"{segment}.parquet", table.with_columns(segment=pl.lit(segment)))
            # Last: rows of metrics count only if a summary names their segment.
            _write(self.path / "summaries" / f"{segment}.parquet", pl.DataFrame(rows, schema=SUMMARIES, orient="row"))

    def current(self, states: Mapping[str, str]) -> pl.DataFrame:
        """Return the newest row of each result set that has still the state in which it was read."""
        files = sorted((self.path / "summaries").glob("*.parquet"))
        named = {name: state for name, state in states.items() if state and is_utf8(name)}
        now = pl.DataFrame({"result_set": list(named), "state": list(named.values())}, schema_overrides=SUMMARIES)
        nothing = pl.DataFrame(schema=SUMMARIES)
        try:
            rows = pl.concat([nothing, *(pl.read_parquet(file, glob=False) for file in files)])
        except (OSError, pl.exceptions.PolarsError):
            rows = nothing
        if len(files) > MOST_SEGMENTS or (files and not len(rows)):
            shutil.rmtree(self.path, ignore_errors=True)
            return nothing
        return _last_of_each(rows).join(now, on=["result_set", "state"], how="semi")


def _write(path: Path, table: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    table.write_parquet(temporary)
    temporary.replace(path)


def state_of(directory: Path) -> str:
    """Return what changes when a result set gets a record, a report or another plan; empty where it cannot be read."""
    try:
        found = [(directory / name).stat() for name in ("", "plan.json", "records")]
    except OSError:
        return ""
    return "-".join(f"{each.st_ino}.{each.st_mtime_ns}" for each in found)


def of_segments(paths: Iterable[str], segments: Iterable[str]) -> list[str]:
    """Return the paths of files that are those of some segments."""
    wanted = set(segments)
    return [path for path in paths if PurePath(path).stem in wanted]


def _last_of_each(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.unique("result_set", keep="last", maintain_order=True)


def newest(storage: Storage, *columns: str) -> pl.DataFrame:
    """Return the newest row of each result set of a library in object storage."""
    wanted = ["result_set", "segment", *columns]
    empty = pl.DataFrame(schema={name: SUMMARIES[name] for name in wanted})
    contents = storage.read(storage.find(f"{COMPACTED}/summaries"))
    try:
        rows = pl.concat([empty, *(pl.read_parquet(io.BytesIO(each), columns=wanted) for each in contents)])
    except pl.exceptions.PolarsError as error:
        raise ResultsError(f"a summary in `{storage.address}` is damaged: {error}", hint=ELSEWHERE) from error
    return _last_of_each(rows.sort("segment"))


def _summaries(
    root: Path, directories: Sequence[Path], cache: Cache | None = None
) -> Iterator[tuple[Summary | None, str]]:
    """Yield a summary or the reason why there is none for each directory, and add them to the cache."""
    for batch in _batches(directories):
        yield from _batch(root, batch, cache)


def _batches(directories: Sequence[Path]) -> Iterator[list[Path]]:
    """Divide directories so that neither they nor their records are too many; one alone may have more records."""
    batch: list[Path] = []
    records = 0
    for directory in directories:
        try:
            own = len(os.listdir(directory / "records"))  # noqa: PTH208  # names alone, which is fast
        except OSError:
            own = 0
        if batch and (len(batch) == BATCH or records + own > BATCH_RECORDS):
            yield batch
            batch, records = [], 0
        batch.append(directory)
        records += own
    if batch:
        yield batch


def _batch(root: Path, directories: Sequence[Path], cache: Cache | None) -> Iterator[tuple[Summary | None, str]]:
    # Before they are read: what is written meanwhile makes them out of date.
    states = {_name(root, each): state_of(each) for each in directories} if cache else {}
    opened: dict[str, ResultSet] = {}
    for directory in directories:
        try:
            results = ResultSet.open_records(directory)
            results.records()
        except IosondeError as error:
            yield None, _skipped(directory, error)
        else:
            opened[_name(root, directory)] = results
    if opened:
        yield from summarised(opened, states, cache)


def summarised(
    opened: dict[str, ResultSet], states: Mapping[str, str], cache: Cache | None
) -> Iterator[tuple[Summary | None, str]]:
    """Summarise together; where one of them is damaged, each by itself."""
    try:
        metrics = bulk_metrics(opened)
        found = summarise(opened, metrics)
    except Exception as error:  # a record of a stranger may have any value in any place
        if len(opened) == 1:
            [results] = opened.values()
            yield None, _skipped(results.directory, error)
            return
        for name, results in opened.items():
            yield from summarised({name: results}, states, cache)
        return
    if cache:
        cache.add({each.path: (states[each.path], each) for each in found}, metrics)
    yield from ((each, "") for each in found)


def _skipped(directory: Path, error: Exception) -> str:
    if isinstance(error, ResultsError):
        return f"`{directory}` skipped: {error.what}" + (f" ({error.where})" if error.where else "")
    return f"`{directory}` skipped: its records cannot be summarised ({type(error).__name__}: {error})"


def _name(root: Path, directory: Path) -> str:
    return str(directory.relative_to(root))


def _by_processes(
    root: Path, directories: Sequence[Path], cache: Cache | None, workers: int
) -> Iterator[tuple[Summary | None, str]]:
    """Divide the directories among processes, interleaved, and collect what each prints."""

    def printed(own: Sequence[Path]) -> list[bytes]:
        request = [str(root), [os.fsdecode(each) for each in own], str(cache.path) if cache else ""]
        done = subprocess.run(
            module_command("iosonde.collections.library.indexing"),
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},  # there is a process for each CPU already
            check=False,
        )
        if done.returncode:
            raise ResultsError(
                f"a process that summarises result sets of `{root}` ended with status {done.returncode}",
                hint="run the command again; if it fails again, report it with the messages above",
            )
        return done.stdout.splitlines()

    with ThreadPoolExecutor(workers) as threads:
        for lines in threads.map(printed, [directories[number::workers] for number in range(workers)]):
            for summary, problem in map(json.loads, lines):
                yield (Summary.model_validate(summary) if summary else None), problem


def main() -> None:
    """Read the root and the directories as JSON, and print a summary or the reason for none of each on a line."""
    root, directories, cache = json.load(sys.stdin)
    found = _summaries(Path(root), [Path(each) for each in directories], Cache(Path(cache)) if cache else None)
    for summary, problem in found:
        print(json.dumps([summary.model_dump() if summary else None, problem]), flush=True)


if __name__ == "__main__":
    main()
