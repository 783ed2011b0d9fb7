"""`iosonde verify`: check that verified data is still intact."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from iosonde.cli import reference
from iosonde.cli.messages import messages
from iosonde.cli.tables import AsJson, print_json
from iosonde.errors import EngineError, IosondeError, TargetError

FAULTS = {
    "lost": "an acknowledged write is missing",
    "torn": "a write is incomplete",
    "misdirected": "data belongs to another offset",
    "stale": "older data is present",
    "flipped": "bits differ from what was written",
    "foreign": "not written by a verified run",
}


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="File or device written with `verify`, or a directory with files kept by iosonde."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check data that an earlier run wrote with `verify`.

    Works after a kill or a power failure during writing: every acknowledged write (after a power failure: every durable
    one) must be present. Exits with 4 if any sector is wrong. The target is only read.
    """
    found = [_check(place, quiet=as_json) for place in _places(target)]
    if as_json:
        print_json(found)
    else:
        for each in found:
            _print(each)
    if any(sum(each["faults"].values()) for each in found):
        raise typer.Exit(reference.EXIT_WRONG_DATA)


def _places(target: Path) -> list[Path]:
    """The file, or the directories with verified files: the one named, and those that iosonde created in it."""
    if not target.exists():
        raise TargetError(f"`{target}` does not exist", hint="name a file or directory kept by a run with `verify`")
    if not target.is_dir():
        return [target]
    from iosonde.storage.safety.journal_entry import OWN_DIRECTORY

    own = sorted(path for path in target.iterdir() if OWN_DIRECTORY.fullmatch(path.name) and path.is_dir())
    places = [place for place in [target, *own] if any(_journals(place))]
    if not places:
        raise TargetError(
            f"`{target}` has no data written with `verify`",
            hint="run a study with `--set verify=after` or `--set verify=during`, and keep its files with `--keep`",
        )
    return places


def _journals(directory: Path) -> Iterator[Path]:
    """Journals with content; an empty one belongs to a file that was later written without verification."""
    return (path for path in directory.glob("*.verify") if path.stat().st_size)


def _check(place: Path, *, quiet: bool) -> dict[str, Any]:
    """Let the engine read it."""
    from iosonde.execution.engine import find_engine
    from iosonde.storage.targets.workspace import journal_directory
    from iosonde.units import format_bytes

    command = [str(find_engine()), "--verify", str(place)]
    if place.is_block_device():
        command += ["--journal-directory", str(journal_directory(str(place.absolute())))]
    try:
        engine = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace")
    except OSError as error:
        raise EngineError(
            f"cannot start `{command[0]}`: {error.strerror}", hint="`iosonde doctor` shows where it is looked for"
        ) from error
    event: dict[str, Any] = {}
    with engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            event = json.loads(line)
            if event.get("edge") == "progress" and not quiet:
                messages.info(f"{format_bytes(event['bytes'])} of `{place}` read")
    match event.get("event"):
        case "verification":
            return {"target": str(place), **{name: value for name, value in event.items() if name != "event"}}
        case "error":
            raise IosondeError(event["message"], where=event["context"], hint=event["hint"])
        case _:
            raise EngineError(
                f"the engine exited with status {engine.returncode} before reporting a result",
                hint=f"run it directly: `iosonde-engine --verify {place}`",
            )


def _print(result: dict[str, Any]) -> None:
    from iosonde.units import format_bytes

    checked = f"{result['target']}: {format_bytes(result['checked_bytes'])} checked"
    if result["unknown_bytes"]:
        checked += f" ({format_bytes(result['unknown_bytes'])} without a journal entry)"
    wrong = {name: count for name, count in result["faults"].items() if count}
    print(f"{checked}, {sum(wrong.values()) or 'no'} wrong {'sector' if sum(wrong.values()) == 1 else 'sectors'}")
    for name, count in wrong.items():
        print(f"  {count} {'sector' if count == 1 else 'sectors'} {name}: {FAULTS[name]}")
    for finding in result["findings"]:
        print(
            f"  {finding['path']} at {finding['offset_bytes']}, {finding['bytes']} bytes {finding['fault']}: "
            f"{finding['found']}, expected {finding['expected']}"
        )
    listed = sum(finding["bytes"] for finding in result["findings"]) // 512
    if listed < sum(wrong.values()):
        print(f"  {listed} of {sum(wrong.values())} wrong sectors are listed")
