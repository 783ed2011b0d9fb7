"""Plans of studies on several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.plan import Plan
from iosonde.planning import Against, expand
from iosonde.storage import open_target
from iosonde.study.model import Study

STUDY = """\
name = "hosts"
title = "Reads of hosts"
question = "How much do they reach?"
repeats = {repeats}
[measurement]
span = "1MiB"
io_mode = "buffered"
ramp = "0s"
interval = "100ms"
duration = "{duration}"
[[parts]]
name = "main"
[parts.factors]
read_fraction = [1.0]
[profiles.quick]
"""
IOSONDE = """\
import math
import iosonde.features.many_hosts.merge as merge
import iosonde.cli
merge.SKEW_FAILURE = math.inf  # Other processes on these CPUs may delay a start.
iosonde.cli.main()
"""
"""A program with the command line of iosonde."""


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
