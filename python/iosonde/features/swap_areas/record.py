"""The swap area of a run and the kernel's settings for swap, as its record has them."""

from __future__ import annotations

from iosonde.features.swap_areas.area import AreaReading
from iosonde.features.swap_areas.settings import Changed, Settings
from iosonde.results.schema import RecordPart


class SwapReading(RecordPart):
    """The swap area and settings of a run that has an area, or has changed a setting."""

    name = "swap"

    area: AreaReading | None
    settings: Settings
    changed: list[Changed]


PARTS = (SwapReading,)
