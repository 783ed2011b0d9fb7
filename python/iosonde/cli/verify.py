"""`iosonde verify`: whether a target still holds what a run under verification wrote there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from iosonde.errors import EngineError, IosondeError, TargetError

FAULTS = {
    "lost": "an acknowledged write never arrived",
    "torn": "a write arrived in part",
    "misdirected": "data of another place",
    "stale": "older data came back",
    "flipped": "bits are not those that were written",
    "foreign": "not written by a run under verification",
}


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A file or device that was written with `verify`, or a directory in which iosonde left such files.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Read everything that a run with `verify` wrote, and say whether it is still there.

    Also after a kill or a power cut in the middle of writing: what had been acknowledged (after a power cut: as
    durable) must be there. Ends with exit code 1 if anything is wrong. Nothing is written to the target.
    """
    found = [_check(place, quiet=as_json) for place in _places(target)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for each in found:
            _print(each)
    if any(sum(each["faults"].values()) for each in found):
        raise typer.Exit(1)


def _places(target: Path) -> list[Path]:
    """The file, or the directories that hold verified files: the one named, and those that iosonde made in it."""
    if not target.exists():
        raise TargetError(f"there is no `{target}`", hint="name a file or a directory that a run with `verify` left")
    if not target.is_dir():
        return [target]
    from iosonde.storage.journal_entry import OWN_DIRECTORY

    own = sorted(path for path in target.iterdir() if OWN_DIRECTORY.fullmatch(path.name) and path.is_dir())
    places = [place for place in [target, *own] if any(_journals(place))]
    if not places:
        raise TargetError(
            f"`{target}` holds nothing that was written with verification",
            hint="measure with `--set verify=after` or `--set verify=during`, and keep the files with `--keep`",
        )
    return places


def _journals(directory: Path) -> Iterator[Path]:
    """Journals that know something; an emptied one stands for a file that was written without verification since."""
    return (path for path in directory.glob("*.verify") if path.stat().st_size)


def _check(place: Path, *, quiet: bool) -> dict[str, Any]:
    """Let the engine read it; progress goes to standard error."""
    from iosonde.execution.engine import find_engine
    from iosonde.storage.workspace import journal_directory
    from iosonde.units import format_bytes

    command = [str(find_engine()), "--verify", str(place)]
    if place.is_block_device():
        command += ["--journal-directory", str(journal_directory(str(place.absolute())))]
    try:
        engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise EngineError(
            f"cannot start `{command[0]}`: {error.strerror}", hint="`iosonde doctor` looks for it"
        ) from error
    event: dict[str, Any] = {}
    with engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            event = json.loads(line)
            if event.get("edge") == "progress" and not quiet:
                typer.echo(f"{format_bytes(event['bytes'])} of `{place}` read", err=True)
    match event.get("event"):
        case "verification":
            return {"target": str(place), **{name: value for name, value in event.items() if name != "event"}}
        case "error":
            raise IosondeError(event["message"], where=event["context"], hint=event["hint"])
        case _:
            raise EngineError(
                f"the engine ended without an answer, with status {engine.returncode}",
                hint=f"try it by hand: `iosonde-engine --verify {place}`",
            )


def _print(result: dict[str, Any]) -> None:
    from iosonde.units import format_bytes

    checked = f"{result['target']}: {format_bytes(result['checked_bytes'])} checked"
    if result["unknown_bytes"]:
        checked += f", and {format_bytes(result['unknown_bytes'])} of which nothing is known"
    wrong = {name: count for name, count in result["faults"].items() if count}
    typer.echo(f"{checked}; " + ("all is as it was written" if not wrong else "not all is as it was written"))
    for name, count in wrong.items():
        typer.echo(f"  {count} {'sector' if count == 1 else 'sectors'} {name}: {FAULTS[name]}")
    for finding in result["findings"]:
        typer.echo(
            f"  {finding['path']} at {finding['offset_bytes']}, {finding['bytes']} bytes {finding['fault']}: "
            f"{finding['found']}, expected {finding['expected']}"
        )
    told = sum(finding["bytes"] for finding in result["findings"]) // 512
    if told < sum(wrong.values()):
        typer.echo(f"  and more: {told} of {sum(wrong.values())} wrong sectors are listed")
