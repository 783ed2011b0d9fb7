"""What other packages ask about block I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.workload import terms
from iosonde.workload.description import Description


class BlockDescription(Description):
    """Block I/O."""

    moves_blocks = True
    operations = ("read", "write", "trim")
    worded = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "durability")
    ignored_when_simulated = (
        *("backend", "fallback", "registered_files", "registered_buffers", "submission_polling", "completion_polling"),
        *("data_pointers", "interrupts", "command_timeout", "io_mode", "page_cache"),
    )

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB random buffered reads`; direct I/O is left out."""
        fraction = case.get("read_fraction")
        found = {
            "block_size": terms.size_words(case["block_size"]) if case.get("block_size") is not None else "",
            "access": str(case.get("access") or ""),
            "io_mode": "buffered" if case.get("io_mode") == "buffered" else "",
            "read_fraction": "I/O"
            if fraction is None
            else terms.operation_words(fraction, case.get("trim_fraction") or 0.0),
            "durability": _flush_words(str(case.get("durability") or "")),
        }
        return {name: word for name, word in found.items() if word}


def _flush_words(durability: str) -> str:
    """Name the flushes of writes: `with a flush after each write`."""
    kind, _, every = durability.partition(":")
    if kind != "flush":
        return ""
    return "with a flush after each write" if every == "1" else f"with a flush after every {every} writes"


DESCRIPTION: Description = BlockDescription()
