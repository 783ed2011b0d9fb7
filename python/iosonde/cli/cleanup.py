"""`iosonde cleanup`: remove what earlier runs left behind."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    kept: Annotated[bool, typer.Option("--kept", help="Also what was left on purpose (`--keep`).")] = False,
) -> None:
    """Remove files and directories that iosonde made and could not remove, after a crash, a kill or a power cut.

    Only what iosonde noted before making it is touched, and only while it is still the same thing.
    """
    from iosonde.storage import cleanup

    cleaned = cleanup(kept=kept)
    for each in cleaned:
        print(f"{each.path}: {each.reason}")
    if not cleaned:
        print("nothing was left behind")
    if any(each.failed for each in cleaned):
        raise typer.Exit(1)
