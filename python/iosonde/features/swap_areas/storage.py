"""The journal entries of swap areas and of changed settings."""

from __future__ import annotations

from iosonde.features.swap_areas import area, settings
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, JournalKind
from iosonde.storage.setups import machine_settings

_OWN = OWN_DIRECTORY.pattern

UNDO = (
    JournalKind(
        what=area.JOURNALED,
        path=rf"{MOUNTS}/{_OWN}/swap-area",
        facts={
            "kind": r"file|device|zram",
            "area": rf"/.+/{_OWN}-setup/swap|/dev/.+",
            "identity": r"[0-9]+:[0-9]+(:[0-9]+)?",
            "own": _OWN,
        },
        undo=area.undo,
    ),
    JournalKind(
        what=settings.JOURNALED,
        path=r"/proc/sys/vm/page-cluster|/sys/module/zswap/parameters/enabled",
        facts={"value": r"[0-9]{1,3}|Y|N", "own": rf"({_OWN})?", "disk": ""},
        ends_with_boot=True,
        undo=machine_settings.undo,
    ),
)
