"""State of an md array, as the kernel reports it in `/sys/block/mdX/md` (its admin guide, `md.rst`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.storage.block_layer.kernel import read


def state_of(folder: Path) -> dict[str, Any]:
    """Return the present state of an array, by its directory in `/sys`, such as `/sys/block/md127/md`.

    `level`, `raid_disks`, `chunk_bytes`, `array_state`, `degraded` (missing members), `sync_action`, `sync_done` (share
    from 0 to 1, while it synchronises), `sync_bytes_per_second`, and `members` with the state of each.
    """
    facts = {
        "level": read(folder / "level"),
        "raid_disks": _number(folder / "raid_disks"),
        "chunk_bytes": _number(folder / "chunk_size"),
        "array_state": read(folder / "array_state"),
        "degraded": _number(folder / "degraded"),
        "sync_action": read(folder / "sync_action"),
        "sync_done": share_done(read(folder / "sync_completed")),
        "sync_bytes_per_second": _kibibytes(_number(folder / "sync_speed")),
        "members": _members(folder),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def health_of(folder: Path) -> dict[str, int]:
    """Of `state_of` what a member that fails changes: `degraded`, where the level has it."""
    missing = _number(folder / "degraded")
    return {} if missing is None else {"degraded": missing}


def share_done(sync_completed: str) -> float | None:
    """Return the progress of a synchronisation: `1024 / 4096` sectors is a quarter; None where there is none."""
    done, slash, total = sync_completed.partition(" / ")
    if not slash or not done.strip().isdigit() or not total.strip().isdigit() or not int(total):
        return None
    return int(done) / int(total)


def is_synchronising(state: dict[str, Any]) -> bool:
    """Return True if members are being brought up to date."""
    return state.get("sync_action", "idle") not in ("idle", "frozen", "")


def _members(folder: Path) -> dict[str, str]:
    found = sorted(folder.glob("dev-*"))
    return {member.name.removeprefix("dev-"): read(member / "state") for member in found}


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


def _number(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdigit() else None
