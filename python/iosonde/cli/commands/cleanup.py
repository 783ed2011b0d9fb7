"""`iosonde cleanup`: remove the leftovers of earlier runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli import options
from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, print_json
from iosonde.errors import TargetError
from iosonde.text_files import expanded


def command(
    kept: Annotated[
        list[Path] | None,
        typer.Option(
            "--kept", metavar="PATH", help="Also remove files kept by --keep at or below this path (repeat per path)."
        ),
    ] = None,
    forget: Annotated[
        list[Path] | None,
        typer.Option(
            "--forget",
            metavar="PATH",
            help="Remove the journal entry of a database on a server that no longer exists (repeat per path). The "
            "database is dropped if the server answers after all.",
        ),
    ] = None,
    hosts: options.Hosts = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove kept files without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove leftovers of crashed or killed runs.

    Removes files, mounts, arrays, loop devices, control groups, database servers, and databases on the user's servers
    (passwords are read from the environment, as in a run) that iosonde recorded before it created them, and only if
    they are unchanged.
    """
    from iosonde.storage import cleanup
    from iosonde.storage.safety.journal_entry import DATABASES

    if hosts:
        if kept or forget:
            raise TargetError(
                "`--hosts` does not support `--kept` and `--forget`", hint="run `iosonde cleanup` on the host itself"
            )
        _on_hosts(hosts, as_json=as_json)
        return
    paths = [expanded(path).absolute() for path in kept or []]
    _check_existence(paths)
    if paths and not (_preview(paths, messages.info if as_json else print) and (yes or _is_confirmed())):
        print("[]" if as_json else "nothing was removed")
        return
    cleaned = cleanup(kept=paths, forget=forget or [])
    if as_json:
        print_json([{"path": str(each.path), "result": each.reason, "failed": each.failed} for each in cleaned])
    else:
        print("\n".join(f"{each.path}: {each.reason}" for each in cleaned) or "nothing to remove")
    if any(each.failed for each in cleaned):
        if any(each.failed and Path(each.path).is_relative_to(DATABASES) for each in cleaned):
            messages.info("If a server no longer exists, `iosonde cleanup --forget PATH` removes its entry.")
        raise typer.Exit(1)


def _on_hosts(hosts: str, *, as_json: bool) -> None:
    from iosonde.execution import session
    from iosonde.execution.session import HostOptions

    cleaned = session.cleanup(HostOptions(hosts=hosts))
    if as_json:
        print_json(cleaned)
    else:
        lines = [": ".join(filter(None, (each["host"], each["path"], each["result"]))) for each in cleaned]
        print("\n".join(lines) or "nothing to remove on any host")
    if any(each["failed"] for each in cleaned):
        raise typer.Exit(1)


def _check_existence(paths: list[Path]) -> None:
    for path in paths:
        if not os.path.lexists(path):
            raise TargetError(
                f"`{path}` does not exist: it was moved or removed, or its file system is not mounted",
                where="in `--kept`",
                hint="`iosonde cleanup` without `--kept` lists all kept files that exist",
            )


def _preview(paths: list[Path], show: Callable[[str], None]) -> bool:
    """Print the kept files that would be removed; return True if there are any."""
    from iosonde.storage.safety.journal import kept_below
    from iosonde.units import format_bytes

    found = kept_below(paths)
    for entry in found:
        path = Path(entry.path)
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        size_bytes = sum(each.lstat().st_blocks * 512 for each in files)
        show(f"would remove the kept {entry.what} {path} ({format_bytes(size_bytes)})")
    if not found:
        show(f"no kept files at or below {', '.join(map(str, paths))}")
    return bool(found)


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        raise TargetError(
            "removing kept files requires confirmation, but standard input is not a terminal",
            hint="add `--yes` in scripts",
        )
    return typer.confirm("Remove them?")
