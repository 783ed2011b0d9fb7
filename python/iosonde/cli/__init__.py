"""The command line: `iosonde SUBCOMMAND`.

Each subcommand is one file: `cli/commands/NAME.py` has a function `command` with typer annotations, whose docstring is
its help, or `group`, a typer application with subcommands of its own. These files are imported when their subcommand is
used. They import heavy packages (pydantic, polars, duckdb, rich) inside functions, to keep their own help fast.

Data goes to standard output, messages to standard error (`messages.py`). `reference.py` lists the exit codes and the
environment variables.
"""

from __future__ import annotations

import gc
import importlib
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Annotated, Any

import typer
import typer.core

from iosonde.cli import memory_limit, reference, terminal
from iosonde.cli.messages import errors_exit, messages, with_messages
from iosonde.errors import IosondeError

COMMANDS = {
    "list": "List the studies, the suites or the simulated drives.",
    "show": "Show a study: question, factors, profiles, source.",
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
        module = importlib.import_module(f"iosonde.cli.commands.{name}")
        if hasattr(module, "group"):
            group: Any = typer.main.get_command(module.group)
            for each in group.commands.values():
                _name_arguments(each)
            return group
        subcommand = typer.Typer(add_completion=False, rich_markup_mode=None)
        command = module.command
        if name in memory_limit.READERS:
            command = memory_limit.limited(command, exit_code=reference.error_code(name))
        subcommand.command(name, context_settings=getattr(module, "CONTEXT", None))(with_messages(command))
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
        memory_limit.require_address_space()
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
        from iosonde.data import applications, shipped

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
    from importlib.metadata import PackageNotFoundError, version

    try:
        print(f"iosonde {version('iosonde')}")
    except PackageNotFoundError:
        print("iosonde (not installed: run from a checkout)")
    raise typer.Exit


@app.callback()
def _iosonde(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Measure storage and explain the results.

    Run `iosonde list` for the studies, `iosonde plan STUDY --target PATH` for what a study would do, and
    `iosonde run STUDY --target PATH` to run it.
    """
