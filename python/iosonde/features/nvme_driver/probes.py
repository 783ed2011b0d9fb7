"""The user-level driver on a target. It is not tried, because that takes the drive away from the kernel."""

from __future__ import annotations

import stat
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.execution.engine_programs import ProbedBackend
from iosonde.features.nvme_driver import handover
from iosonde.features.nvme_driver.backends import NAME
from iosonde.features.nvme_driver.consent import missing_options
from iosonde.storage.block_layer.block_nodes import number_of


def _probe(path: Path) -> ProbedBackend:
    """Return whether the controller of a namespace could be handed over."""
    try:
        if not stat.S_ISBLK(path.stat().st_mode):
            reason, hint = "the target is not a namespace of an NVMe drive", "name one as `/dev/nvme0n1`"
            return ProbedBackend(name=NAME, is_available=False, reason=reason, hint=hint)
        controller = handover.controller_of(number_of(path))
        handover.check(controller)
    except TargetError as error:
        return ProbedBackend(name=NAME, is_available=False, reason=error.what, hint=error.hint)
    except OSError as error:
        return ProbedBackend(name=NAME, is_available=False, reason=error.strerror or str(error))
    return ProbedBackend(
        name=NAME,
        is_available=True,
        features=("prp", "polling"),
        note=f"takes the NVMe controller at {controller.address} from the kernel, with "
        f"{', '.join(controller.namespaces)}; its runs need {missing_options(controller)}",
    )


PROBES = (_probe,)
