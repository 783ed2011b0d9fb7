"""The command line as tests call it: in a process of its own, or in this one, which saves starting Python."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

CHECKOUT = Path(__file__).parents[1]

Iosonde = Callable[..., "subprocess.CompletedProcess[str]"]
"""Arguments in, exit code and text out."""


def in_own_process(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "iosonde", *map(str, arguments)]
    own = {"PYTHONPATH": str(CHECKOUT / "python"), "COLUMNS": "120", **environment}
    # The limit is for one that hangs: reports take minutes where other work has the CPU.
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command, env=os.environ | own, check=False, **options)  # type: ignore[call-overload, no-any-return]


def in_this_process(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the entry point of the command line with standard streams of its own."""
    from iosonde.cli import main

    command = ["iosonde", *map(str, arguments)]
    streams = [_Bytes(), _Bytes()]
    outputs = dict(
        zip(("stdout", "stderr"), (io.TextIOWrapper(each, encoding="utf-8") for each in streams), strict=True)
    )
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "120", **environment}),
        mock.patch.multiple(sys, argv=command, stdin=io.StringIO(), **outputs),
        _same_signal_handlers(),
    ):
        code = _exit_code(main)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    texts = [stream.getvalue().decode() for stream in streams]
    return subprocess.CompletedProcess(command, code, *texts)


def _exit_code(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


class _Bytes(io.BytesIO):
    """Buffer that stays readable after the streams around it are closed."""

    def close(self) -> None: ...


@contextmanager
def _same_signal_handlers() -> Iterator[None]:
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def on_terminal(command: Sequence[str | Path], directory: Path = CHECKOUT, **environment: str) -> str:
    """Run a program on a pseudo terminal, until it exits with 0; returns what it has shown."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [*map(str, command)], cwd=directory, stdout=theirs, stderr=theirs, stdin=theirs, env=variables
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # The kernel's end of file.
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert process.wait() == 0, shown
    return shown.decode()
