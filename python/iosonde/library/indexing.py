"""Summaries of all result sets below a directory, by several processes where there are many.

A result set that cannot be read is named and skipped; the others do not suffer.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import IosondeError, ResultsError
from iosonde.library.find import find
from iosonde.library.summary import Summary, summarise
from iosonde.python_process import module_command
from iosonde.results import ResultSet

BATCH = 25
"""Result sets whose tables are in memory together."""
ALONE = 50
"""Up to this many result sets, starting further processes would take longer than it saves."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """The result sets below a directory."""

    root: Path
    summaries: Sequence[Summary]
    """The newest first."""
    problems: Sequence[str]
    """Result sets and directories that were skipped, each with the reason."""


def index(root: Path | str) -> Index:
    """Summarise every result set below a directory. `ResultsError` where it is not a directory."""
    directory = Path(root).absolute()
    problems: list[str] = []
    found = list(find(directory, problems))
    workers = 1 if len(found) <= ALONE else len(os.sched_getaffinity(0))
    results = _by_processes(directory, found, workers) if workers > 1 else summaries(directory, found)
    listed: list[Summary] = []
    for summary, problem in results:
        if summary:
            listed.append(summary)
        if problem:
            problems.append(problem)
    ordered = sorted(listed, key=lambda each: each.path)
    return Index(
        root=directory,
        summaries=sorted(ordered, key=lambda each: each.started_at, reverse=True),
        problems=problems,
    )


def summaries(root: Path, directories: Sequence[Path]) -> Iterator[tuple[Summary | None, str]]:
    """Yield a summary or the reason why there is none for each directory."""
    for start in range(0, len(directories), BATCH):
        yield from _batch(root, directories[start : start + BATCH])


def _batch(root: Path, directories: Sequence[Path]) -> Iterator[tuple[Summary | None, str]]:
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
        yield from _summarised(opened)


def _summarised(opened: dict[str, ResultSet]) -> Iterator[tuple[Summary | None, str]]:
    """Summarise together; where one of them is damaged, each by itself."""
    try:
        yield from ((each, "") for each in summarise(opened))
    except Exception as error:  # a record of a stranger may have any value in any place
        if len(opened) == 1:
            [results] = opened.values()
            yield None, _skipped(results.directory, error)
            return
        for name, results in opened.items():
            yield from _summarised({name: results})


def _skipped(directory: Path, error: Exception) -> str:
    if isinstance(error, ResultsError):
        return f"`{directory}` skipped: {error.what}" + (f" ({error.where})" if error.where else "")
    return f"`{directory}` skipped: its records cannot be summarised ({type(error).__name__}: {error})"


def _name(root: Path, directory: Path) -> str:
    return str(directory.relative_to(root))


def _by_processes(root: Path, directories: Sequence[Path], workers: int) -> Iterator[tuple[Summary | None, str]]:
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
            process.stdin.write(json.dumps([str(root), own]).encode())
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
