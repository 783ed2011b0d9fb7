"""Columns of `runs` about the swap area and settings of a run."""

from __future__ import annotations

from iosonde.features.swap_areas.record import SwapReading
from iosonde.results.column import FLAG, I64, TEXT, U64, facts

COLUMNS = facts(
    lambda record: record.of(SwapReading),
    ("swap_kind", TEXT, "Swap area of the run: `file`, `device` or `zram`; null without one", "area.kind"),
    ("swap_area_bytes", U64, "Size of the swap area, bytes", "area.size_bytes"),
    ("swap_priority", I64, "Priority of the swap area, above that of all others", "area.priority"),
    ("vm_page_cluster", I64, "`vm.page-cluster` during a run with swap settings of its own", "settings.page_cluster"),
    ("zswap_enabled", FLAG, "Whether zswap was on during such a run",
        lambda swap: {"Y": True, "N": False}.get((swap.settings.zswap or {}).get("enabled", ""))),
)  # fmt: skip
