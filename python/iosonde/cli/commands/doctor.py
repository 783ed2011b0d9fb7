"""`iosonde doctor`: what this machine can measure, what is missing, and what may distort measurements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli.tables import AsJson, print_json, print_table, wrapped
from iosonde.core.check import Check
from iosonde.tools import TOOLS, USES, ask

COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}
_BACKEND = "backend "
_AS_ROOT = ("arrays", "file systems", "block caches", "network storage", "lab")


def command(
    target: Annotated[
        Path,
        typer.Option(
            metavar="PATH", help="Device, file or directory on which I/O backends are tried, without writing to it."
        ),
    ] = Path(),
    is_complete: Annotated[
        bool, typer.Option("--all", help="List every check, with versions and what each is needed for.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what this machine can measure and what is missing.

    Checks the engine, I/O backends, kernel, clock, CPU, memory limits, free space and optional tools. Exits with 1 if
    nothing can be measured.
    """
    from iosonde.cli import machine_checks

    machine, software = machine_checks.machine(target), machine_checks.software()
    if as_json:
        print_json([asdict(check) for check in (*machine, *software)])
    elif is_complete:
        _print_checks((*machine, *software))
    else:
        _print_summary(machine, software)
    if machine[0].state == "missing":
        raise typer.Exit(1)


def _print_checks(checks: Iterable[Check]) -> None:
    rows = [[each.state, each.name, each.found + (f"\n-> {each.advice}" if each.advice else "")] for each in checks]
    print_table(rows, styles=COLOURS)


def _print_summary(machine: Sequence[Check], software: Sequence[Check]) -> None:
    backends = [check for check in machine if check.name.startswith(_BACKEND)]
    problems = [check for check in (*machine, *software) if check.state == "missing"]
    problems += [check for check in machine if check.state == "note" and check not in backends]
    if problems:
        _print_checks(problems)
        print()
    if machine[0].state == "missing":
        print("Nothing can be measured without the engine.")
        return
    lacking = {check.name.removesuffix(" in the kernel"): check for check in software if check.state != "ok"}
    usable = [check.name.removeprefix(_BACKEND) for check in backends if check.state == "ok"]
    rows = [["block I/O", ", ".join(usable)]]
    rows += [[check.name, check.found] for check in software if check.is_use]
    absent: list[tuple[str, list[str]]] = []
    for use, products in USES.items():
        missing = [each for each, tools in products.items() if each in lacking or _not_found(tools)]
        available = ", ".join(each for each in products if each not in missing)
        rows.append([use, f"{available}{_needs_root(use)}" if available else "none"])
        absent += [(use, missing)] if missing else []
    print("Can be measured or used here:")
    print_table([["", *row] for row in rows])
    if absent:
        print("\nNot available here:")
        print_table([["", use, ", ".join(missing)] for use, missing in absent])
        for line in wrapped(_advice([each for _, missing in absent for each in missing], lacking)):
            print(line)
    print("\n`iosonde doctor --all` lists every check with versions. `iosonde list` shows the studies.")


def _needs_root(use: str) -> str:
    return " (as root)" if use in _AS_ROOT and os.geteuid() != 0 else ""


def _not_found(tools: Iterable[str]) -> list[str]:
    return [name for name in tools if TOOLS[name].find() is None]


def _advice(products: Sequence[str], lacking: dict[str, Check]) -> Iterator[str]:
    """Yield one command that installs everything, and what no package of this distribution has."""
    tools = {name for group in USES.values() for each in products for name in _not_found(group.get(each, ()))}
    choices = {TOOLS[name].packages for name in tools}
    known = _packages_of_distribution()
    found = {next((each for each in packages if each in known), "") for packages in choices} if known else set()
    chosen = found - {""} if known else {packages[0] for packages in choices}
    if chosen:
        root = "sudo " if os.geteuid() else ""
        where = "" if known else " (names of Debian)"
        yield f"To install{where}: {root}apt install {' '.join(sorted(chosen))}"
    for packages in sorted(choices):
        if known and not known.intersection(packages):
            names = sorted(name for name in tools if TOOLS[name].packages == packages)
            yield f"No package of this distribution: {', '.join(names)}, for {TOOLS[names[0]].purpose}"
    by_advice: dict[str, list[str]] = {}
    for each in dict.fromkeys(products):
        if each in lacking and each not in TOOLS:
            by_advice.setdefault(lacking[each].advice, []).append(each)
    yield from (f"For {', '.join(names)}: {advice}" for advice, names in by_advice.items())


def _packages_of_distribution() -> set[str]:
    """Names that apt knows; none where it is not installed or has no lists."""
    asked = ask("apt-cache", "pkgnames")
    return set(asked.stdout.split()) if asked is not None and asked.returncode == 0 else set()
