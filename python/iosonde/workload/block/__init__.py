"""Block I/O, the workload of studies that name none.

One file each: what a study may set (`parameters`), how values are written (`notation`), what must fit together
(`rules`), what the target decides (`fitting`), the engine's spec (`spec`), what a run needs (`requirements`) and takes
(`cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.workload import terms
from iosonde.workload.block import requirements, spec
from iosonde.workload.block.fields import SHOWN
from iosonde.workload.block.parameters import BlockParameters
from iosonde.workload.workload import Hints, Workload


class BlockWorkload(Workload[BlockParameters]):
    """Block I/O."""

    name = "block"
    title = "block I/O"
    parameters = BlockParameters
    shown = SHOWN
    io = "blocks"
    hints = Hints(
        smaller="make the span smaller with `--set span=...`",
        less_memory="leave out the largest blocks, the deepest queues or the most jobs, with `--set block_size=...`, "
        "`--set queue_depth=...` or `--set jobs=...`",
    )
    operations = ("read", "write", "trim")
    stated = ("block_size", "access", "io_mode", "read_fraction")
    worded = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "durability")

    fit = staticmethod(requirements.fit)
    resolve, vary, prepare = staticmethod(spec.resolve), staticmethod(spec.vary), staticmethod(spec.prepare)
    requirements = staticmethod(requirements.cost)
    files, journals = staticmethod(requirements.files), staticmethod(requirements.journals)
    room_by = staticmethod(requirements.room_by)
    addressed_bytes = staticmethod(requirements.addressed_bytes)
    buffer_bytes = staticmethod(requirements.buffer_bytes)
    must_align, layout = staticmethod(requirements.must_align), staticmethod(requirements.layout)
    prepares = staticmethod(requirements.prepares)

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


BLOCK = BlockWorkload()


def _flush_words(durability: str) -> str:
    """Name the flushes of writes: `with a flush after each write`."""
    kind, _, every = durability.partition(":")
    if kind != "flush":
        return ""
    return "with a flush after each write" if every == "1" else f"with a flush after every {every} writes"
