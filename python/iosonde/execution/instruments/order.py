"""Instruments in the order in which they start; they stop in reverse order after the engine has exited.

One file per instrument and one row in `INSTRUMENTS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.core.features import contributed
from iosonde.execution.instruments.block_queue import BlockQueue
from iosonde.execution.instruments.carried_over_state import CarriedOverState
from iosonde.execution.instruments.command_group import CommandGroup
from iosonde.execution.instruments.database_server import DatabaseServer
from iosonde.execution.instruments.device_totals import DeviceTotals
from iosonde.execution.instruments.drive_counters import DriveCounters
from iosonde.execution.instruments.harness_cost import HarnessCost
from iosonde.execution.instruments.instrument import Instrument
from iosonde.execution.instruments.memory_limit import MemoryLimit
from iosonde.execution.instruments.own_io import OwnIo
from iosonde.execution.instruments.prepared_files import PreparedFiles
from iosonde.execution.instruments.purge import Purge
from iosonde.execution.instruments.shared_log_device import SharedLogDevice
from iosonde.execution.instruments.temperatures import Temperatures

_BEFORE_COUNTERS: Sequence[type[Instrument]] = (
    PreparedFiles,
    HarnessCost,
    BlockQueue,
    CarriedOverState,
    SharedLogDevice,
    Temperatures,
    Purge,
    OwnIo,
    DeviceTotals,
    DriveCounters,
)
_OF_FEATURES: Sequence[type[Instrument]] = contributed("instruments", "INSTRUMENTS")
_COUNTERS: Sequence[type[Instrument]] = (MemoryLimit, DatabaseServer, CommandGroup)

INSTRUMENTS: Sequence[type[Instrument]] = (
    *_BEFORE_COUNTERS,
    *_OF_FEATURES,
    *_COUNTERS,
)
"""Those that read counters are last, so that their readings enclose the engine and little else.
`CommandGroup` is the first to stop: the groups of the others must be empty when they are removed."""
