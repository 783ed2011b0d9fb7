"""The plan of a study on a target: every case, every run, every default.

A `Plan` is what `iosonde plan` prints, `iosonde run` carries out and `plan.json` keeps. It holds resolved engine specs,
so a run can be repeated by hand: `iosonde-engine < spec.json`.
"""

from iosonde.plan.base import MOST_CASES, MOST_PLANNED_CASES, ArmName, JsonObject, Scalar
from iosonde.plan.case import PREPARATION, Case, Procedure, Run
from iosonde.plan.cost import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.plan.load import target_of
from iosonde.plan.plan import Arm, LeftOut, Plan
from iosonde.plan.setup import (
    FileSystem,
    Fresh,
    Journal,
    Setup,
)
from iosonde.plan.target import OF_WHOLE_DEVICE, Capacity, Destroys, DeviceState, Purge

__all__ = [
    "ASSUMED_BYTES_PER_SECOND",
    "MOST_CASES",
    "MOST_PLANNED_CASES",
    "OF_WHOLE_DEVICE",
    "PREPARATION",
    "Arm",
    "ArmName",
    "Capacity",
    "Case",
    "Cost",
    "Destroys",
    "DeviceState",
    "FileSystem",
    "Fresh",
    "Journal",
    "JsonObject",
    "LeftOut",
    "Plan",
    "Procedure",
    "Purge",
    "Run",
    "Scalar",
    "Setup",
    "target_of",
]
