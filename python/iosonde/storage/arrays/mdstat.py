"""What the kernel reports about an md array in `/sys/block/mdX/md` and `/proc/mdstat`: facts as found, nothing done.

The files are those of the kernel's admin guide, `md.rst`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512
_LINE = re.compile(r"^(?P<name>md[\w/]*) : (?P<rest>.*)$")
_MEMBER = re.compile(r"(?P<name>[\w/!-]+)\[(?P<slot>\d+)\](?P<flags>(?:\([A-Z]\))*)")
_PROGRESS = re.compile(
    r"(?P<action>recovery|resync|reshape|check)\s*=\s*(?P<percent>[\d.]+)%.*?speed=(?P<speed>\d+)K/sec"
)


def state_of(folder: Path) -> dict[str, Any]:
    """How an array is now, by its directory in `/sys`, such as `/sys/block/md127/md`.

    `level`, `raid_disks`, `chunk_bytes`, `array_state`, `degraded` (missing members), `sync_action`, `sync_done` (share
    from 0 to 1, while it synchronises), `sync_bytes_per_second`, and `members` with the state of each.
    """
    facts = {
        "level": _text(folder / "level"),
        "raid_disks": _number(folder / "raid_disks"),
        "chunk_bytes": _number(folder / "chunk_size"),
        "array_state": _text(folder / "array_state"),
        "degraded": _number(folder / "degraded"),
        "sync_action": _text(folder / "sync_action"),
        "sync_done": share_done(_text(folder / "sync_completed")),
        "sync_bytes_per_second": _kibibytes(_number(folder / "sync_speed")),
        "members": _members(folder),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def health_of(folder: Path) -> dict[str, int]:
    """Of `state_of` what a member that fails changes: `degraded`, where the level has it."""
    missing = _number(folder / "degraded")
    return {} if missing is None else {"degraded": missing}


def share_done(sync_completed: str) -> float | None:
    """How far a synchronisation is: `1024 / 4096` sectors is a quarter; None where there is none."""
    done, slash, total = sync_completed.partition(" / ")
    if not slash or not done.strip().isdigit() or not total.strip().isdigit() or not int(total):
        return None
    return int(done) / int(total)


def is_synchronising(state: dict[str, Any]) -> bool:
    """Whether members are being brought up to date."""
    return state.get("sync_action", "idle") not in ("idle", "frozen", "")


def parse(mdstat: str) -> dict[str, dict[str, Any]]:
    """Read `/proc/mdstat` -> by name of the array: `is_active`, `level`, `members` (device to its flags), `status`
    (such as `[4/3] [UUU_]`) and, while it synchronises, `action`, `share_done` and `bytes_per_second`."""
    arrays: dict[str, dict[str, Any]] = {}
    current: dict[str, Any] = {}
    for line in mdstat.splitlines():
        head = _LINE.match(line)
        if head:
            current = arrays.setdefault(head["name"], _array(head["rest"]))
        elif not line.startswith(" "):
            current = {}
        elif status := re.search(r"\[\d+/\d+\] \[[U_]+\]", line):
            current["status"] = status[0]
        elif progress := _PROGRESS.search(line):
            current |= {
                "action": progress["action"],
                "share_done": float(progress["percent"]) / 100,
                "bytes_per_second": int(progress["speed"]) * 1024,
            }
    return arrays


def _array(rest: str) -> dict[str, Any]:
    words = rest.split()
    level = next((word for word in words if re.fullmatch(r"raid\d+|linear", word)), "")
    members = {found["name"]: found["flags"] for found in _MEMBER.finditer(rest)}
    return {"is_active": words[:1] == ["active"], "level": level, "members": members}


def _members(folder: Path) -> dict[str, str]:
    found = sorted(folder.glob("dev-*"))
    return {member.name.removeprefix("dev-"): _text(member / "state") for member in found}


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
