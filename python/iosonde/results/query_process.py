"""A query of the user's in a process of its own, limited in memory and stopped at any time.

DuckDB looks at interrupts and at its memory limit between chunks of rows only, and a single chunk can take minutes and
gigabytes (`SELECT repeat('a', 1000000) FROM range(1000000)`). A process can be killed. Its temporary files, the answer
included, are in a directory that is removed afterwards.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from iosonde.base.memory import available_bytes, resident_bytes
from iosonde.base.python_process import module_command
from iosonde.base.tools import Process
from iosonde.errors import IosondeError, ResultsError
from iosonde.results import query
from iosonde.results.result_set import ResultSet
from iosonde.results.shapes import interpreting
from iosonde.storage.targets.temporary_files import scratch as scratch_directory
from iosonde.units import format_bytes

MOST_MEMORY_BYTES = 8 << 30
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a query."""

    rows: pl.DataFrame
    problems: list[str]
    """Damaged, modified or foreign files of the result set, which were skipped."""


def answer(query: str, *, directory: Path | None = None, library: Mapping[str, Any] | None = None) -> Answer:
    """Return the result of one SELECT over a result set, or a library (`query.answer_library`).

    `ResultsError` where it fails or needs too much memory.
    """
    request = {"query": query, "directory": str(directory), "library": library, "parent": os.getpid()}
    with scratch_directory() as scratch:
        reply = _ask(request, scratch)
        if error := reply.get("error"):
            raise ResultsError(error["what"], where=error["where"], hint=error["hint"])
        with (scratch / "answer").open("rb") as file:  # A path would be taken for a pattern.
            return Answer(rows=pl.read_ipc(file), problems=reply["problems"])


def _ask(request: dict[str, Any], scratch: Path) -> dict[str, Any]:
    with (scratch / "messages").open("wb") as messages:
        process = Process(
            module_command("iosonde.results.query_process"),
            stdin=subprocess.PIPE,
            stderr=messages,
            env={**os.environ, "TMPDIR": str(scratch)},
            process_group=0,  # Ctrl-C is for this process, which then kills the other.
        )
    try:
        assert process.stdin, "a pipe was requested"
        with suppress(BrokenPipeError):  # Its exit status shows what happened.
            process.stdin.write(json.dumps({**request, "scratch": str(scratch)}).encode())
            process.stdin.close()
        _wait(process)
    finally:
        process.kill()
        process.wait()
    try:
        reply: dict[str, Any] = json.loads((scratch / "reply").read_bytes())
    except FileNotFoundError:
        lines = (scratch / "messages").read_text(errors="replace", encoding="utf-8").strip().splitlines()
        status = process.returncode
        end = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        raise ResultsError(
            f"the query failed: its process {end}",
            where=lines[-1] if lines else "",
            hint="simplify the query, or export the tables with `iosonde export`",
        ) from None
    return reply


def _wait(process: Process) -> None:
    """Wait for its exit; `ResultsError` as soon as it takes too much memory."""
    limit = min(MOST_MEMORY_BYTES, available_bytes() * 3 // 4)
    while not process.exits_within(_POLL_S):
        if resident_bytes(process.pid) > limit:
            raise ResultsError(
                f"the query needs more than {format_bytes(limit)} of memory",
                hint="aggregate, select fewer columns, or add `LIMIT`; `iosonde export` writes tables to files",
            )


def main() -> None:
    """Answer the query on standard input: rows, problems or an error as files in the scratch directory."""
    request = json.load(sys.stdin)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:
        return  # It died before prctl(2).
    scratch = Path(request["scratch"])
    reply: dict[str, Any]
    try:
        if library := request["library"]:
            rows, problems = query.answer_library(library, request["query"]), []
        else:
            result_set = ResultSet.open(request["directory"])
            with interpreting([result_set.directory]):
                rows = query.answer(result_set, request["query"])
            problems = result_set.problems
        rows.write_ipc(scratch / "answer")
        reply = {"problems": problems}
    except IosondeError as error:
        reply = {"error": {"what": error.what, "where": error.where, "hint": error.hint}}
    except MemoryError:
        reply = {"error": {"what": "the query needs too much memory", "where": "", "hint": "add `LIMIT`"}}
    (scratch / "reply").write_text(json.dumps(reply), encoding="utf-8")


if __name__ == "__main__":
    main()
