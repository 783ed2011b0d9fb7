"""Purge and fill on block devices: what is discarded is gone, and what a level does not hold is free."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from fills import fills
from test_block_devices import MIB, Disk, _engine, consent, disks

from iosonde.execution import execute
from iosonde.planning import expand
from iosonde.storage import open_target

__all__ = ["_engine", "disks"]


def test_a_lower_level_leaves_free_what_the_higher_one_before_it_wrote(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    disk = disks(32 * MIB)
    disk.write(os.urandom(MIB), at=20 * MIB)
    plan = expand(fills(75, 25), open_target(disk.path))
    result_set = execute(plan, tmp_path / "set", consent=consent(disk))
    records = result_set.records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 6
    assert {record.parameters["purge"] for record in records} == {"trim"}
    disk.digest()  # Everything has reached the image.
    content = disk.image.read_bytes()
    assert len(zlib.compress(content[MIB : 8 * MIB], 1)) > 0.99 * 7 * MIB
    assert not any(content[9 * MIB : 24 * MIB]), "what 75 % and others wrote there was discarded"
    assert disk.image.stat().st_blocks * 512 < 12 * MIB, "and its space is free again"
