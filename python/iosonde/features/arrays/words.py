"""Words for levels of arrays inside sentences."""

from __future__ import annotations

from typing import Any


def array_words(level: str) -> str:
    """Name a RAID level: `RAID 5`, `one device`, `the target as it is`."""
    known = {"single": "one device", "target": "the target as it is"}
    return known.get(level, f"RAID {level.removeprefix('raid')}")


def _words(factor: str, level: Any) -> str | None:
    if factor == "array" and isinstance(level, str):
        return array_words(level)
    return f"{level} arrays" if factor == "state" and level in ("healthy", "degraded", "rebuilding") else None


WORDS = (_words,)
