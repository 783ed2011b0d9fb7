"""Plans of studies on several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.plan import Plan
from iosonde.planning import Against, expand
from iosonde.storage import open_target
from iosonde.study.model import Study


def planned(
    target: Path | str,
    factors: dict[str, Any] | None = None,
    *,
    against: Path | None = None,
    against_settings: dict[str, str] | None = None,
    part: dict[str, Any] | None = None,
    further: dict[str, Any] | None = None,
    **measurement: Any,
) -> Plan:
    study = {
        "name": "hosts", "title": "Hosts", "question": "?", "repeats": 2,
        "measurement": {"span": "1MiB", "duration": "100ms", **measurement},
        "parts": [
            {"name": "main", "factors": factors or {"queue_depth": [1, 4]}, **(part or {})},
            *([further] if further else []),
        ],
        "profiles": {"quick": {}},
    }  # fmt: skip
    other = open_target(str(against)) if against else None
    arm = Against(target=other, settings=against_settings or {}) if against or against_settings else None
    return expand(Study.model_validate(study), open_target(str(target)), profile="quick", against=arm)
