"""Settings of the kernel's memory management for swap: set for a run, and restored after it.

They are the machine's and not those of a control group. The former value is in the journal before it is changed, and
one session at a time changes it (`machine_settings.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer.kernel import read
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import MEMORY_SETTING, Entry
from iosonde.storage.setups import machine_settings
from iosonde.storage.tools import require_root

FILES = {
    "page_cluster": Path("/proc/sys/vm/page-cluster"),
    "zswap": Path("/sys/module/zswap/parameters/enabled"),
}

ZSWAP = Path("/sys/module/zswap/parameters")
SWAPPINESS = Path("/proc/sys/vm/swappiness")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A file with its value before a run."""

    setting: str
    path: Path
    before: str
    value: str


def check_possible(settings: Mapping[str, Any]) -> None:
    """`TargetError` for a setting that this kernel does not have, or that this user may not change."""
    for name in settings:
        require_root(f"change `{FILES[name]}`")
        if not FILES[name].exists():
            raise TargetError(
                f"this kernel has no `{FILES[name]}`",
                where=f"by the parameter `{name}`",
                hint="leave the parameter out, or use a kernel with it",
            )


def apply(settings: Mapping[str, Any], *, own: str) -> list[Saved]:
    """Set them; `own` names the study."""
    check_possible(settings)
    saved: list[Saved] = []
    try:
        for name, value in settings.items():
            path = FILES[name]
            journal.undo_abandoned(path)
            before = machine_settings.take(path, read(path))
            each = Saved(setting=name, path=path, before=before, value=_text(value))
            journal.created(path, MEMORY_SETTING, facts={"value": each.before, "own": own})
            saved.append(each)
            path.write_text(each.value)
    except TargetError:
        restore(saved)
        raise
    except OSError as error:
        restore(saved)
        raise TargetError(
            f"cannot set `{error.filename}`: {error.strerror or error}",
            hint="only root may change it; a container may not be permitted to",
        ) from error
    return saved


def restore(saved: Sequence[Saved]) -> None:
    """Write the former values back; `TargetError` for what could not be restored."""
    journal.restore([each.path for each in saved])


def undo(entry: Entry) -> None:
    """Write the value of a journal entry back; `OSError` if another session has changed the setting by now."""
    path = Path(entry.path)
    machine_settings.lock(path)
    if path.exists() and read(path) != entry.facts["value"]:
        path.write_text(entry.facts["value"], encoding="utf-8")
    machine_settings.release(path)


def in_effect() -> dict[str, Any]:
    """Settings that decide how the kernel swaps, for the record; null where the kernel has none."""
    return {
        "page_cluster": _number(FILES["page_cluster"]),
        "swappiness": _number(SWAPPINESS),
        "zswap": {file.name: read(file) for file in sorted(ZSWAP.glob("*"))} or None,
        "zram": [_zram(device) for device in sorted(Path("/sys/block").glob("zram*")) if _size(device)],
    }


def _zram(device: Path) -> dict[str, Any]:
    return {"device": device.name, "size_bytes": _size(device), "compressor": read(device / "comp_algorithm")}


def _size(device: Path) -> int:
    return int(read(device / "disksize") or 0)


def _number(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdecimal() else None


def _text(value: Any) -> str:
    return ("Y" if value else "N") if isinstance(value, bool) else str(value)
