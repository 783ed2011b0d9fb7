"""Flags with which a server has opened its data and log files, which show if direct I/O is in effect.

`/proc/PID/fdinfo` has the flags of each descriptor in octal (proc_pid_fdinfo(5)). Every process of the server is read,
because PostgreSQL has one per connection.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

FLAGS = {"O_DIRECT": os.O_DIRECT, "O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC}

MOST = 20
"""Files of each kind that a record lists."""

OTHERS = ("aria_log", "ddl_", "multi-master", "server.pid", "postmaster")
"""Names of files that hold neither data nor log of the measured engine: other engines' logs, process numbers."""

OTHER_SUFFIXES = (".MAD", ".MAI", ".MYD", ".MYI", ".frm", ".CSV", ".CSM")
"""System tables of MariaDB in other engines."""

LOGS = ("pg_wal", "ib_logfile", "#ib_redo", "wal/", "commitlog/")


def open_files(leader: int, directories: list[Path]) -> list[dict[str, Any]]:
    """Files and devices below these directories that the server has open: path, `data`, `log` or `other`, and flags."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number in [leader, *_descendants(leader)]:
        for path, flags in _descriptors(number):
            root = next((each for each in directories if path.is_relative_to(each)), None)
            if root is None or not (path.is_file() or path.is_block_device()):
                continue
            names = [name for name, bits in FLAGS.items() if flags & bits == bits]
            names = [name for name in names if not (name == "O_DSYNC" and "O_SYNC" in names)]
            relative = str(path.relative_to(root))
            kind = _kind(path)
            found.setdefault((relative, kind), {"file": relative, "kind": kind, "flags": names})
    ordered = sorted(found.values(), key=lambda each: str(each["file"]))
    return [each for kind in ("data", "log", "other") for each in [x for x in ordered if x["kind"] == kind][:MOST]]


def summary(files: list[dict[str, Any]]) -> dict[str, str]:
    """`direct`, `buffered` or `mixed` for data and log files that are open."""
    kinds = {}
    for kind in ("data", "log"):
        direct = {"O_DIRECT" in each["flags"] for each in files if each["kind"] == kind}
        if direct:
            kinds[kind] = "mixed" if len(direct) > 1 else "direct" if direct == {True} else "buffered"
    return kinds


def _kind(path: Path) -> str:
    if any(each in str(path) for each in LOGS):
        return "log"
    return "other" if path.name.startswith(OTHERS) or path.suffix in OTHER_SUFFIXES else "data"


def _descriptors(number: int) -> list[tuple[Path, int]]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{number}/fd").iterdir():
            with suppress(OSError, ValueError):
                lines = Path(f"/proc/{number}/fdinfo/{link.name}").read_text(encoding="utf-8").splitlines()
                flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
                found.append((link.readlink(), flags))
    return found


def _descendants(leader: int) -> list[int]:
    """Children, and theirs."""
    found: list[int] = []
    waiting = [leader]
    while waiting:
        number = waiting.pop()
        with suppress(OSError):
            children = [
                int(word) for word in Path(f"/proc/{number}/task/{number}/children").read_text(encoding="utf-8").split()
            ]
            found += children
            waiting += children
    return found
