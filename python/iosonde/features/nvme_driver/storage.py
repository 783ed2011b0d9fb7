"""The journal entry of a controller that is bound to vfio; its path is that of the file that selects its driver."""

from __future__ import annotations

from iosonde.features.nvme_driver import handover
from iosonde.storage import pcie
from iosonde.storage.safety.journal import OWN_DIRECTORY, JournalKind

UNDO = (
    JournalKind(
        what=handover.JOURNALED,
        path=rf"/sys/bus/pci/devices/{pcie.ADDRESS}/driver_override",
        facts={"serial": r".*", "namespaces": r"[a-z0-9 ]*", "own": OWN_DIRECTORY.pattern},
        ends_with_boot=True,
        undo=handover.undo,
    ),
)
