"""`iosonde cleanup`: remove the leftovers of earlier runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, print_json
from iosonde.errors import TargetError


def command(
    kept: Annotated[
        list[Path] | None,
        typer.Option(
            "--kept", metavar="PATH", help="Also remove files kept by --keep at or below this path (repeat per path)."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove kept files without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove leftovers of crashed or killed runs.

    Files, mounts, arrays, loop devices, database servers and control groups. Control groups of a killed iosonde remain
    until then. Only what iosonde recorded before creating it is removed, and only if it is unchanged.
    """
    from iosonde.storage import cleanup

    paths = [path.expanduser().absolute() for path in kept or []]
    if paths and not (_preview(paths, messages.info if as_json else print) and (yes or _is_confirmed())):
        print("[]" if as_json else "nothing was removed")
        return
    cleaned = cleanup(kept=paths)
    if as_json:
        print_json([{"path": str(each.path), "result": each.reason, "failed": each.failed} for each in cleaned])
    else:
        print("\n".join(f"{each.path}: {each.reason}" for each in cleaned) or "nothing to remove")
    if any(each.failed for each in cleaned):
        raise typer.Exit(1)


def _preview(paths: list[Path], show: Callable[[str], None]) -> bool:
    """Print the kept files that would be removed; whether there are any."""
    from iosonde.storage.journal import kept_below
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
            "kept files are removed only after confirmation, and the input is not a terminal",
            hint="add `--yes` in scripts",
        )
    return typer.confirm("Remove them?")
