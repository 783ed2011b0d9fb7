"""Plans of studies on several hosts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

from iosonde.execution.session import HostOptions
from iosonde.plan import Plan
from iosonde.planning import Against, expand
from iosonde.storage import open_target
from iosonde.study.model import Study

LOCAL = HostOptions(hosts="local:2")
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
arrival = "constant"
rate = 100
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


def any_skew(patched: pytest.MonkeyPatch) -> None:
    """Other processes on these CPUs may delay a start; `test_merge_of_hosts.py` has the rule."""
    patched.setattr("iosonde.features.many_hosts.merge.SKEW_FAILURE", math.inf)
    patched.setenv("IOSONDE_ENGINE", str(real_engine()))


def planned(
    target: Path | str,
    factors: dict[str, Any] | None = None,
    *,
    against: Path | None = None,
    against_settings: dict[str, str] | None = None,
    repeats: int = 2,
    shuffle: bool = True,
    part: dict[str, Any] | None = None,
    further: dict[str, Any] | None = None,
    **measurement: Any,
) -> Plan:
    study = {
        "name": "hosts", "title": "Hosts", "question": "?", "repeats": repeats, "shuffle": shuffle,
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


def measured(place: Path, factors: dict[str, Any], *, duration: str = "1s", **options: Any) -> Plan:
    """The plan of runs long enough for several intervals, in the directory `data`."""
    return planned(
        place / "data", factors, io_mode="buffered", ramp="0s", interval="100ms", duration=duration, **options
    )
