"""Summaries of all result sets below a directory, by several processes where there are many to read.

Of a large library only result sets that have changed are read; the others are in the cache (`compacted.py`).

A result set that cannot be read is named and skipped; the others do not suffer.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import IosondeError, ResultsError
from iosonde.library import compacted
from iosonde.library.find import find
from iosonde.library.summary import Summary, summarise
from iosonde.metrics.bulk import bulk_metrics
from iosonde.python_process import module_command
from iosonde.results import ResultSet

BATCH, BATCH_RECORDS = 25, 1000
"""Result sets, and records of them, whose tables are in memory together: 0.5 MiB for each record of ten intervals."""
ALONE = 50
"""Up to this many result sets, further processes and the cache would take longer than they save."""


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


def index(root: Path | str, *, compact: bool = False) -> Index:
    """Summarise every result set below a directory. `ResultsError` where it is not a directory.

    With `compact`, all of them are in the cache afterwards, however few they are.
    """
    directory = Path(root).absolute()
    problems: list[str] = []
    found = list(find(directory, problems))
    cache = compacted.place(directory) if compact or len(found) > ALONE else None
    listed = list(_known(directory, found, cache)) if cache else []
    names = {each.path for each in listed}
    new = [each for each in found if _name(directory, each) not in names]
    workers = 1 if len(new) <= ALONE else len(os.sched_getaffinity(0))
    results = _by_processes(directory, new, cache, workers) if workers > 1 else summaries(directory, new, cache)
    for summary, problem in results:
        if summary:
            listed.append(summary)
        if problem:
            problems.append(problem)
    return Index.of(directory, listed, problems)


def _known(root: Path, found: Sequence[Path], cache: Path) -> Iterator[Summary]:
    """Yield the summaries that are in the cache and up to date."""
    states = {_name(root, each): compacted.state_of(each) for each in found}
    for text in compacted.current(cache, states)["summary"]:
        yield Summary.model_validate_json(text)


def summaries(
    root: Path, directories: Sequence[Path], cache: Path | None = None
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


def _batch(root: Path, directories: Sequence[Path], cache: Path | None) -> Iterator[tuple[Summary | None, str]]:
    # Before they are read: what is written meanwhile makes them out of date.
    states = {_name(root, each): compacted.state_of(each) for each in directories} if cache else {}
    opened: dict[str, ResultSet] = {}
    for directory in directories:
        try:
            results = ResultSet.open_records(directory)
            results.records()
        except IosondeError as error:
            yield None, skipped(directory, error)
        else:
            opened[_name(root, directory)] = results
    if opened:
        yield from summarised(opened, states, cache)


def summarised(
    opened: dict[str, ResultSet], states: Mapping[str, str], cache: Path | None
) -> Iterator[tuple[Summary | None, str]]:
    """Summarise together; where one of them is damaged, each by itself."""
    try:
        metrics = bulk_metrics(opened)
        found = summarise(opened, metrics)
    except Exception as error:  # a record of a stranger may have any value in any place
        if len(opened) == 1:
            [results] = opened.values()
            yield None, skipped(results.directory, error)
            return
        for name, results in opened.items():
            yield from summarised({name: results}, states, cache)
        return
    if cache:
        compacted.write(cache, {each.path: (states[each.path], each) for each in found}, metrics)
    yield from ((each, "") for each in found)


def skipped(directory: Path, error: Exception) -> str:
    if isinstance(error, ResultsError):
        return f"`{directory}` skipped: {error.what}" + (f" ({error.where})" if error.where else "")
    return f"`{directory}` skipped: its records cannot be summarised ({type(error).__name__}: {error})"


def _name(root: Path, directory: Path) -> str:
    return str(directory.relative_to(root))


def _by_processes(
    root: Path, directories: Sequence[Path], cache: Path | None, workers: int
) -> Iterator[tuple[Summary | None, str]]:
    """Divide the directories among processes, interleaved, and collect what each prints."""
    with ExitStack() as stack:
        started = []
        for number in range(workers):
            process = subprocess.Popen(
                module_command("iosonde.library.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "POLARS_MAX_THREADS": "1"},  # there is a process for each CPU already
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdin, "a pipe was requested"
            own = [os.fsdecode(each) for each in directories[number::workers]]
            process.stdin.write(json.dumps([str(root), own, str(cache or "")]).encode())
            process.stdin.close()
            started.append(process)
        # A process whose output is not read stops once the pipe is full.
        readers = stack.enter_context(ThreadPoolExecutor(workers))
        printed = [readers.submit(_lines, process) for process in started]
        for process, lines in zip(started, printed, strict=True):
            for line in lines.result():
                summary, problem = json.loads(line)
                yield (Summary.model_validate(summary) if summary else None), problem
            if process.wait():
                raise ResultsError(
                    f"a process that summarises result sets of `{root}` ended with status {process.returncode}",
                    hint="run the command again; if it fails again, report it with the messages above",
                )


def _lines(process: subprocess.Popen[bytes]) -> list[bytes]:
    assert process.stdout, "a pipe was requested"
    return process.stdout.readlines()
