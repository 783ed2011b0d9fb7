"""The command line: `iosonde SUBCOMMAND`.

Each subcommand is a function `NAME_command` in a file of `cli/commands`, whose docstring is its help and whose defaults
are options of typer, or a `group`, a typer application with subcommands of its own. The options that several have are
those of `RunOptions` (`options.py`). These files are imported when their subcommand is used. They import heavy packages
(pydantic, polars, duckdb, rich) inside functions, to keep their own help fast.

Data goes to standard output, messages to standard error (`messages.py`). `reference.py` lists the exit codes and the
environment variables.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any

import typer
import typer.core

from iosonde.base.memory import SHARE, available_bytes, resident_bytes
from iosonde.cli import reference, terminal
from iosonde.cli.terminal import errors_exit, messages, with_messages
from iosonde.data import applications, shipped
from iosonde.errors import IosondeError
from iosonde.units import format_bytes

COMMANDS = {
    "list": "List the studies, the suites or the simulated drives.",
    "show": "Show a study or an application: question, factors, limits, source.",
    "plan": "Show what a study would do, without doing it.",
    "run": "Run a study and report the results.",
    "qualify": "Decide whether storage is good enough for an application.",
    "suite": "Run a suite of studies and write one report.",
    "fleet": "Run a study on many targets and compare their drives.",
    "resume": "Continue a study: carry out its missing runs.",
    "report": "Write a report of one or more result sets.",
    "compare": "Compare two systems of one study, case by case.",
    "check": "Check result sets for regressions.",
    "collect": "Copy result sets of several machines into one library.",
    "library": "Write an index of all result sets in a directory.",
    "history": "Show every metric over time and where its level changed.",
    "sql": "Query result sets with SQL.",
    "export": "Export a result set to files.",
    "import": "Convert a fio job file or command line to a study.",
    "io": "Run a single measurement.",
    "verify": "Check data that an earlier run wrote with `verify`.",
    "doctor": "Show what this machine can measure and what is missing.",
    "devices": "List block devices and whether they may be overwritten.",
    "cleanup": "Remove leftovers of crashed or killed runs.",
    "lab": "Block devices of known performance.",
    "man": "Print the manual page.",
}
"""Every subcommand with the first sentence of its help, in the order of `iosonde --help`, which imports none."""

_FILES = {
    "studies": "list show import",
    "run": "run resume io",
    "results": "report compare check sql export",
    "library": "collect library history",
    "doctor": "doctor devices",
    "leftovers": "verify cleanup",
}
"""Files of `cli/commands` with several subcommands; of others the name is that of their one subcommand."""

_CONTEXTS = {"import": {"ignore_unknown_options": True}}  # Options of fio are a part of its command line.


def main() -> None:
    """Run the command line."""
    # Imports create many objects and no garbage: collections at the default rate take a tenth of their CPU time.
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
    terminal.install()
    _stop_like_ctrl_c()
    try:
        app(prog_name="iosonde")
    except IosondeError as error:
        with suppress(terminal.OutputError):  # The exit code remains.
            messages.warning(f"error: {error}")
        sys.exit(reference.EXIT_ERROR)
    finally:
        terminal.discard_unwritten()


def _memory_hint() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return "end other programs, or use a smaller study"
    return f"the limit on address space (`ulimit -v`) is {limit >> 10} KiB: raise it"


def _stop_like_ctrl_c() -> None:
    """Remove temporary files also on SIGTERM and SIGHUP, unless the latter is ignored, as by nohup(1)."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


class _Commands(Mapping[str, Any]):
    """Subcommands by name, imported when they are looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        place = next((place for place, names in _FILES.items() if name in names.split()), name)
        module = importlib.import_module(f"iosonde.cli.commands.{place}")
        if name == "lab":
            group: Any = typer.main.get_command(module.group)
            for each in group.commands.values():
                _name_arguments(each)
            return group
        subcommand = typer.Typer(add_completion=False, rich_markup_mode=None)
        command = getattr(module, f"{name}_command")
        if name in _READERS:
            command = _limited(command, exit_code=reference.error_code(name))
        subcommand.command(name, context_settings=_CONTEXTS.get(name))(with_messages(command))
        return _name_arguments(typer.main.get_command(subcommand))

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _name_arguments(command: Any) -> Any:
    """Show arguments by name: typer 0.20 and newer add Python types (`<list[Path]>`) and braces."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""
            if parameter.required:
                name = f"{parameter.metavar}{'...' if parameter.nargs != 1 else ''}"
                parameter._usage_display_name = lambda name=name: name
    return command


class _Group(typer.core.TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing is ever added to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete the name of a subcommand without importing any."""
        # Click, which typer has as a package of its own or as a dependency.
        click = typer.core.TyperGroup.__mro__[1].__module__.rpartition(".")[0]
        completion = importlib.import_module(f"{click}.shell_completion")
        found = [
            completion.CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *super(typer.core.TyperGroup, self).shell_complete(ctx, incomplete)]

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; an error of one that decides has an exit code that is no decision."""
        try:
            return self._invoke(ctx)
        except (IosondeError, MemoryError, BrokenPipeError) as raised:
            code = reference.error_code(ctx.invoked_subcommand)
            with nullcontext() if code == reference.EXIT_ERROR else errors_exit(code):
                if isinstance(raised, MemoryError):
                    raise IosondeError("out of memory", hint=_memory_hint()) from None
                raise  # Another name for it would keep its frames, and the files that they have open.

    def _invoke(self, ctx: Any) -> Any:
        """Run the subcommand; refused values are named without the prefix that pydantic gives its errors."""
        _require_address_space()
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            if getattr(error.param, "name", None) == "study" and not error.message:
                is_run = error.ctx is not None and error.ctx.command.name == "run"
                error.message = _STARTS if is_run else "`iosonde list` lists the studies."
            elif not error.message:
                error.message = (getattr(error.param, "help", None) or "").rstrip(".")
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments offer the commands that most users want."""
        if not args and not ctx.resilient_parsing:
            print(_STARTS)
            raise typer.Exit(reference.EXIT_USAGE)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the command for a study or application that was given in its place."""
        for kind, names, command in (("a study", shipped(), "run"), ("an application", applications(), "qualify")):
            if args[0] in names and args[0] not in self.commands:
                ctx.fail(f"`{args[0]}` is {kind}: `iosonde {command} {args[0]} --target TARGET`")
        return super().resolve_command(ctx, args)


_STARTS = """Commands to begin with:

  iosonde run quick --target .              two-minute overview of this disk
  iosonde run quick --target A --against B  compares two disks
  iosonde qualify etcd --target .           decides if it is good for etcd
  iosonde plan quick --target .             states what a study would do
  iosonde doctor                            lists what this machine can measure
  iosonde list                              lists all studies

`iosonde --help` lists all commands."""


app = typer.Typer(
    cls=_Group,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=reference.epilog(),
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from iosonde.base.python_process import installed_version

    print(f"iosonde {installed_version('iosonde') or '(not installed: run from a checkout)'}")
    raise typer.Exit


@app.callback()
def _iosonde(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Measure storage and explain the results.

    Run `iosonde list` for the studies, `iosonde plan STUDY --target PATH` for what a study would do, and
    `iosonde run STUDY --target PATH` to run it.
    """


# Limits on memory: of this process by the shell, and of subcommands that read result sets.

_READERS = {"report", "compare", "check", "library", "history", "export"}
"""Queries of `sql` have a process of their own, which is limited."""
_POLL_S = 0.05
_ADDRESS_SPACE, _ADDRESS_SPACE_OF_A_CPU = 768 << 20, 64 << 20
"""Libraries and their threads, one a CPU. With less, libraries in Rust end the process without an exception."""


def _require_address_space() -> None:
    """`IosondeError` if `ulimit -v` is lower than what the libraries map."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _ADDRESS_SPACE + _ADDRESS_SPACE_OF_A_CPU * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise IosondeError(
            f"the limit on address space (`ulimit -v`) is {limit >> 10} KiB, but iosonde needs {needed >> 10} KiB",
            hint=f"raise it with `ulimit -v {needed >> 10}`, or in `/etc/security/limits.conf`",
        )


def _limited(command: Callable[..., Any], *, exit_code: int) -> Callable[..., Any]:
    """Let a subcommand end with an error as soon as it needs more than its share of the memory available now."""

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        limit, is_over = int(available_bytes() * SHARE), threading.Event()
        threading.Thread(target=_watch, args=(limit, exit_code, is_over), daemon=True).start()
        try:
            return command(**options)
        finally:
            is_over.set()

    return run


def _watch(limit: int, exit_code: int, is_over: threading.Event) -> None:
    while resident_bytes(os.getpid()) <= limit:
        if is_over.wait(_POLL_S):
            return
    messages.warning(
        f"error: the result sets need more than {format_bytes(limit)} of memory\n\n"
        "hint: read fewer at once, or use a machine with more memory; a small result set that needs this much is "
        "damaged or malicious"
    )
    os._exit(exit_code)
