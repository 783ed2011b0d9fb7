"""Facts about the swap area of a run and its settings in a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iosonde.results.column import FLAG, I64, TEXT, U64, Column, DType
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class SwapFacts:
    """The parts of a record about swap; empty without them."""

    def __init__(self, record: Record) -> None:
        swap: Json = record.swap or {}
        self.area: Json = swap.get("area") or {}
        self.settings: Json = swap.get("settings") or {}


def _row(name: str, dtype: DType, text: str, value: Callable[[SwapFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.of(SwapFacts)))


COLUMNS = (
    _row(
        "swap_kind",
        TEXT,
        "Swap area of the run: `file`, `device` or `zram`; null without one",
        lambda facts: facts.area.get("kind"),
    ),
    _row("swap_bytes", U64, "Size of the swap area, bytes", lambda facts: facts.area.get("size_bytes")),
    _row(
        "swap_priority",
        I64,
        "Priority of the swap area, above that of all others",
        lambda facts: facts.area.get("priority"),
    ),
    _row(
        "vm_page_cluster",
        I64,
        "`vm.page-cluster` during a run with swap settings of its own",
        lambda facts: facts.settings.get("page_cluster"),
    ),
    _row(
        "zswap_enabled",
        FLAG,
        "Whether zswap was on during such a run",
        lambda facts: {"Y": True, "N": False}.get((facts.settings.get("zswap") or {}).get("enabled", "")),
    ),
)
"""Columns of `runs` about swap."""
