"""Messages: everything a command prints besides its data, on standard error and in the log file.

Data goes to standard output and nowhere else. `--quiet` suppresses progress and information, never errors and warnings.
`--log FILE` receives all of them, each line with its time.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only warnings and errors.")]
Log = Annotated[
    Path | None, typer.Option("--log", metavar="FILE", help="Append progress and messages to a file, with times.")
]


class Messages:
    """Destination of messages; there is one, `messages`."""

    def __init__(self) -> None:
        self.quiet = False
        self._log: TextIO | None = None

    def configure(self, *, quiet: bool, log: Path | None) -> None:
        """Apply `--quiet` and `--log`."""
        from iosonde.errors import IosondeError

        self.close()
        self.quiet = quiet
        try:
            self._log = _open_log(log) if log else None
        except OSError as error:
            raise IosondeError(
                f"cannot write the log file `{log}`: {error.strerror}", hint="name another file with `--log FILE`"
            ) from error

    def close(self) -> None:
        if self._log:
            self._log.close()
        self._log = None

    @property
    def logs(self) -> bool:
        return self._log is not None

    def info(self, text: str) -> None:
        """Progress and information."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)
        self.record(text)

    def warning(self, text: str) -> None:
        """Print a message that `--quiet` does not suppress."""
        print(text, file=sys.stderr, flush=True)
        self.record(text)

    def secret(self, text: str) -> None:
        """Print what others must not read: also with `--quiet`, and never to the log file."""
        print(text, file=sys.stderr, flush=True)

    def _abandon_log(self, error: OSError) -> None:
        """Continue without the log file: a study must not end because of it."""
        name, log, self._log = getattr(self._log, "name", ""), self._log, None
        with suppress(OSError):
            if log:
                log.close()
        self.warning(f"warning: cannot write the log file `{name}`: {error.strerror}; continuing without it")

    def record(self, text: str) -> None:
        """Write to the log file only."""
        if not self._log:
            return
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            self._log.writelines(f"{now} {line}\n" for line in text.splitlines() if line)
            self._log.flush()
        except OSError as error:
            self._abandon_log(error)


def _open_log(path: Path) -> TextIO:
    """Open it to append; with O_NONBLOCK, so that a FIFO without a reader is an error and does not block."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, "a", buffering=1, encoding="utf-8", opener=opener)


messages = Messages()


@contextmanager
def errors_exit(code: int) -> Iterator[None]:
    """Print an error and exit with this code, where 1 has a meaning of its own."""
    from iosonde.errors import IosondeError

    try:
        yield
    except IosondeError as error:
        with suppress(IosondeError):  # Standard error cannot be written: the exit code remains.
            messages.warning(f"error: {error}")
        raise typer.Exit(code) from None
    except BrokenPipeError:  # The reader of the output has ended.
        raise typer.Exit(code) from None


def console() -> Console:
    """Standard error as a rich console; with `--quiet` one that has no live display."""
    from iosonde.cli.terminal import rich_console

    return rich_console(sys.stderr, highlight=False, force_terminal=False if messages.quiet else None)


def with_messages(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a subcommand the options `--quiet` and `--log`."""
    signature = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_options, eval_str=True)

    @functools.wraps(command)
    def configured(*, quiet: bool = False, log: Path | None = None, **options: Any) -> Any:
        messages.configure(quiet=quiet, log=log)
        return command(**options)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    configured.__signature__ = inspect.Signature([*parameters, *shared.parameters.values()])  # type: ignore[attr-defined]
    configured.__annotations__ = {name: each.annotation for name, each in configured.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return configured


def _options(*, quiet: Quiet = False, log: Log = None) -> None:
    """Declare the options that every subcommand has."""
