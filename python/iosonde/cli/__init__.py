"""The command line: `iosonde SUBCOMMAND`.

One file a subcommand: `cli/NAME.py` holds a function `command` with typer annotations, whose docstring is its help, or
`group`, a typer application of further subcommands.
These files are imported only when their subcommand is used or all are listed, and import heavy things (pydantic,
polars, duckdb, rich) inside the function, so that `iosonde --help` is instant.

Data goes to stdout, talk to stderr. A mistake by the user ends with `error: ...` and exit code 1, a mistake on the
command line with 2, Ctrl-C with 130.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
import typer.core

from iosonde.errors import IosondeError

COMMANDS = (
    "list",
    "show",
    "plan",
    "run",
    "resume",
    "report",
    "compare",
    "check",
    "sql",
    "export",
    "import",
    "io",
    "verify",
    "doctor",
    "devices",
    "cleanup",
    "lab",
)
"""Every subcommand, in the order in which a newcomer meets them."""


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="iosonde")
    except IosondeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


class _Commands(Mapping[str, Any]):
    """Subcommands by name, imported when they are looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        module = importlib.import_module(f"iosonde.cli.{name}")
        if hasattr(module, "group"):
            return typer.main.get_command(module.group)
        subcommand = typer.Typer(add_completion=False, rich_markup_mode=None)
        subcommand.command(name)(module.command)
        return typer.main.get_command(subcommand)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(typer.core.TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing is ever added to it


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Find out what storage really delivers, and prove it.

    Start with `iosonde list`, see what a study would do with `iosonde plan STUDY --target PATH`, then
    `iosonde run STUDY --target PATH`.
    """
