"""`iosonde cleanup` and `verify`: what runs have left, and whether data that they wrote is still intact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from iosonde.base.text_files import expanded
from iosonde.cli import reference
from iosonde.cli.options import AS_JSON, HOSTS, argument, option, switch
from iosonde.cli.terminal import messages, print_json
from iosonde.errors import EngineError, IosondeError, TargetError
from iosonde.units import format_bytes

FAULTS = {
    "lost": "an acknowledged write is missing",
    "torn": "a write is incomplete",
    "misdirected": "data belongs to another offset",
    "stale": "older data is present",
    "flipped": "bits differ from what was written",
    "foreign": "not written by a verified run",
}


def verify_command(
    target: Path = argument(
        "TARGET", "File or device written with `verify`, or a directory with files kept by iosonde."
    ),
    as_json: bool = AS_JSON,
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
    from iosonde.storage.safety.journal import OWN_DIRECTORY

    own = sorted(path for path in target.iterdir() if OWN_DIRECTORY.fullmatch(path.name) and path.is_dir())
    # An empty journal belongs to a file that was later written without verification.
    places = [place for place in [target, *own] if any(path.stat().st_size for path in place.glob("*.verify"))]
    if not places:
        raise TargetError(
            f"`{target}` has no data written with `verify`",
            hint="run a study with `--set verify=after` or `--set verify=during`, and keep its files with `--keep`",
        )
    return places


def _check(place: Path, *, quiet: bool) -> dict[str, Any]:
    """Let the engine read it."""
    from iosonde.execution.engine import find_engine
    from iosonde.storage.targets.workspace import journal_directory

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
    checked = f"{result['target']}: {format_bytes(result['checked_bytes'])} checked"
    if result["unknown_bytes"]:
        checked += f" ({format_bytes(result['unknown_bytes'])} without a journal entry)"
    wrong = sum(result["faults"].values())
    print(f"{checked}, {wrong or 'no'} wrong {'sector' if wrong == 1 else 'sectors'}")
    for name, count in result["faults"].items():
        if count:
            print(f"  {count} {'sector' if count == 1 else 'sectors'} {name}: {FAULTS[name]}")
    for finding in result["findings"]:
        print(
            f"  {finding['path']} at {finding['offset_bytes']}, {finding['bytes']} bytes {finding['fault']}: "
            f"{finding['found']}, expected {finding['expected']}"
        )
    listed = sum(finding["bytes"] for finding in result["findings"]) // 512
    if listed < wrong:
        print(f"  {listed} of {wrong} wrong sectors are listed")


def cleanup_command(
    kept: list[Path] | None = option(
        "PATH", "Also remove files kept by --keep at or below this path (repeat per path)."
    ),
    forget: list[Path] | None = option(
        "PATH",
        "Remove the journal entry of a database on a server that no longer exists (repeat per path). The "
        "database is dropped if the server answers after all.",
    ),
    hosts: str | None = HOSTS,
    yes: bool = switch("--yes", "Remove kept files without asking."),
    as_json: bool = AS_JSON,
) -> None:
    """Remove leftovers of crashed or killed runs.

    Removes files, mounts, arrays, loop devices, control groups, database servers, and databases on the user's servers
    (passwords are read from the environment, as in a run) that iosonde recorded before it created them, and only if
    they are unchanged.
    """
    from iosonde.storage import cleanup
    from iosonde.storage.safety.journal import DATABASES

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
    from iosonde.execution.session import HostOptions, carrier

    cleaned = carrier().cleanup(HostOptions(hosts=hosts))
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
