"""The only way to the terminal: control characters in data never reach it.

Titles, device names, records and SQL results come from files and hardware of others. An escape sequence in them
could change the terminal's title, hide text, or type commands. So everything that is printed is filtered here; rich's
own styles are written after the filter.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from iosonde.base.foreign_text import printable
from iosonde.errors import IosondeError, ResultsError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


class Messages:
    """Destination of messages; there is one, `messages`."""

    def __init__(self) -> None:
        self.quiet = False
        self._log: TextIO | None = None

    def configure(self, *, quiet: bool, log: Path | None) -> None:
        """Apply `--quiet` and `--log`."""
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

    def record(self, text: str) -> None:
        """Write to the log file only."""
        if not self._log:
            return
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            self._log.writelines(f"{now} {line}\n" for line in text.splitlines() if line)
            self._log.flush()
        except OSError as error:  # A study must not end because of it.
            name, log, self._log = self._log.name, self._log, None
            with suppress(OSError):
                log.close()
            self.warning(f"warning: cannot write the log file `{name}`: {error.strerror}; continuing without it")


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


def _options(
    *,
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print no progress, only results, warnings and errors."),
    log: Path | None = typer.Option(None, metavar="FILE", help="Append progress and messages to a file, with times."),
) -> None:
    """Declare the options that every subcommand has."""


LEAST_WIDTH, MOST_WIDTH = 40, 120
"""Limits of the width of running text on a terminal."""


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def write_file(path: Path, text: str) -> None:
    """Write a file that the user named."""
    from iosonde.results.files import write_output

    try:
        write_output(path, text.encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write `{path}`: {reason}", hint="name a file in a writable directory") from None


def stdout(*, at_least: int = 0) -> Console:
    """Standard output as a rich console, of the terminal's width or more."""

    file = None if sys.stdout.isatty() else cast(TextIO, Stripped(sys.stdout))
    console = rich_console(file, highlight=False)
    if console.width < at_least:
        console.width = at_least
    return console


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    heads: Sequence[str] = (),
    right: Sequence[int] = (),
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print aligned columns, of which only the last is wrapped, between words.

    `right` are the columns aligned to the right, `styles` the styles of cells with a certain text. A table that does
    not fit is printed wider than the terminal: a word is never broken.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    number = len(heads) or max(map(len, cells), default=0)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(heads))
    for place in range(number):
        table.add_column(
            Text(heads[place]) if heads else "",
            justify="right" if place in right else "left",
            no_wrap=place < number - 1,
        )
    for row in cells:
        table.add_row(*(Text(text, style=(styles or {}).get(text, "")) for text in row))
    stdout(at_least=least_width([list(heads), *cells], number)).print(table)


def least_width(rows: Sequence[Sequence[str]], columns: int) -> int:
    """The width below which a word of the last column, or a cell of another, would be cut."""
    widths = [0] * columns
    for row in rows:
        for place, cell in enumerate(row):
            parts = cell.split() if place == columns - 1 else cell.splitlines()
            widths[place] = max([widths[place], *map(len, parts)])
    return sum(widths) + 2 * columns


class Stripped(io.TextIOBase):
    """A text stream that strips trailing spaces from each line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest = ""

    def write(self, text: str) -> int:
        """Write complete lines, and keep the rest until it is one."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        """Write an incomplete line too."""
        self._stream.write(self._rest)
        self._rest = ""
        self._stream.flush()


def text_width() -> int:
    """Return the width of running text: `COLUMNS`, else the terminal's, within limits; 80 without either."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 80
    return min(max(shutil.get_terminal_size().columns, LEAST_WIDTH), MOST_WIDTH)


def wrap(text: str, *, start: str = "", indent: str = "", width: int | None = None) -> list[str]:
    """Lines of running text, broken between words only: `start` precedes the first of them, `indent` the others."""
    return textwrap.wrap(
        text,
        width or text_width(),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines no longer than the terminal is wide; continued lines are indented further."""
    width = shutil.get_terminal_size().columns
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        yield from wrap(line, indent=indent, width=width) or [""]


def joined_levels(levels: Sequence[str]) -> str:
    """Levels of a factor in one line: separated by spaces, or by semicolons where a label contains spaces."""
    return ("; " if any(" " in level for level in levels) else " ").join(levels)


class FilteredStream(io.TextIOWrapper):
    """A standard stream that prints no control characters."""

    def __init__(self, plain: TextIO) -> None:
        super().__init__(
            plain.buffer, encoding=plain.encoding, errors="backslashreplace", line_buffering=True, write_through=True
        )
        self.plain = plain
        """The stream without the filter, for rich, which filters its own text."""

    def write(self, text: str) -> int:
        """Write the text with visible escapes; `OutputError` if that fails, except into a closed pipe."""
        try:
            super().write(printable(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"cannot write the output: {error.strerror}") from error
        return len(text)


class OutputError(IosondeError):
    """Standard output or standard error cannot be written."""


def install() -> None:
    """Filter standard output and standard error. Those that are closed become `/dev/null`.

    Otherwise the first file that is opened, which may be a device, would have the number of a standard stream, and
    receive what a library prints.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            assert os.open(os.devnull, os.O_RDWR) == descriptor, "the lowest free number is the first"
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # never closed
    if set(os.environ.get("COLUMNS", "")) == {
        "0"
    }:  # To other programs the width of no terminal; rich takes it as given.
        del os.environ["COLUMNS"]
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, FilteredStream):
            stream.flush()
            stream.reconfigure(errors="backslashreplace", write_through=True)
            setattr(sys, name, FilteredStream(stream))


def discard_unwritten() -> None:
    """Let output that cannot be written vanish: Python would try it again at its exit, with exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def rich_console(file: TextIO | None = None, **options: Any) -> Console:
    """Return a rich console on a stream, standard output if none is given, that filters text but not its own styles."""
    from rich.console import Console
    from rich.segment import Segment

    class FilteredConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            """Leave the exit code to the subcommand; rich would exit with 1."""
            raise  # rich is handling it.

    stream = sys.stdout if file is None else file
    return FilteredConsole(file=stream.plain if isinstance(stream, FilteredStream) else stream, **options)
