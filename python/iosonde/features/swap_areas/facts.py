"""Columns of `runs` about the swap area and settings of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iosonde.features.swap_areas.area import AreaReading
from iosonde.features.swap_areas.record import SwapReading
from iosonde.features.swap_areas.settings import Settings
from iosonde.results.column import FLAG, I64, TEXT, U64, Column, DType


def _of_area(name: str, dtype: DType, text: str, value: Callable[[AreaReading], Any]) -> Column:
    def read(run: Any) -> Any:
        found = run.record.of(SwapReading)
        return value(found.area) if found and found.area else None

    return Column(name, dtype, text, read)


def _of_settings(name: str, dtype: DType, text: str, value: Callable[[Settings], Any]) -> Column:
    def read(run: Any) -> Any:
        found = run.record.of(SwapReading)
        return value(found.settings) if found else None

    return Column(name, dtype, text, read)


COLUMNS = (
    _of_area(
        "swap_kind",
        TEXT,
        "Swap area of the run: `file`, `device` or `zram`; null without one",
        lambda area: area.kind,
    ),
    _of_area("swap_area_bytes", U64, "Size of the swap area, bytes", lambda area: area.size_bytes),
    _of_area("swap_priority", I64, "Priority of the swap area, above that of all others", lambda area: area.priority),
    _of_settings(
        "vm_page_cluster",
        I64,
        "`vm.page-cluster` during a run with swap settings of its own",
        lambda settings: settings.page_cluster,
    ),
    _of_settings(
        "zswap_enabled",
        FLAG,
        "Whether zswap was on during such a run",
        lambda settings: {"Y": True, "N": False}.get((settings.zswap or {}).get("enabled", "")),
    ),
)
