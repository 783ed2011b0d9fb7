"""The only way to the terminal: control characters in data never reach it.

Titles, device names, records and SQL results come from files and hardware of others. An escape sequence in them
could change the terminal's title, hide text, or type commands. So everything that is printed is filtered here; rich's
own styles are written after the filter.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from iosonde.errors import IosondeError
from iosonde.foreign_text import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


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
