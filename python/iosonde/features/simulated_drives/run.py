"""Models that can be measured without hardware, for `iosonde doctor`."""

from __future__ import annotations

from iosonde.base.check import Check
from iosonde.features.simulated_drives.model import models


def _checks() -> list[Check]:
    names = ", ".join(models())
    if not names:
        return [Check(name="simulated drives", state="missing", found="no models", advice="reinstall iosonde")]
    return [Check(name="simulated drives", state="ok", found=names, is_use=True)]


CHECKS = (_checks,)
