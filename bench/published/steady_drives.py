"""Drives that random writes have brought to their steady state, in two sizes, each true to something.

A target's `capacity=` makes blocks smaller, which keeps every rate and shortens erasures: `SMALL` is for rates. Where
single erasures are looked for, blocks stay as they are, and there are fewer of them: `with_own_blocks` is for tails.
"""

from __future__ import annotations

import re
from pathlib import Path

from simulated import Load, measure

from iosonde.features.simulated_drives.model import load_model, models

SMALL = "16GB"
SUPERBLOCKS = 24
TURNS = 1.5
"""Random writes before the drive counts as steady, as a multiple of its capacity."""
PREPARATION_SEED = 2
"""Another than of what is measured, which would else read pages in the order in which they lie."""


def with_own_blocks(name: str, directory: Path) -> str:
    """The target with a model of few blocks."""
    model = load_model(name, target=f"sim:{name}")
    capacity = (model.translation.block or 0) * model.media.dies * SUPERBLOCKS or model.capacity
    text = models()[name].read_text(encoding="utf-8")
    text = re.sub('^capacity = ".*"$', f'capacity = "{capacity}"', text, count=1, flags=re.M)
    file = directory / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return f"sim:{file}"


def steady(engine: Path, target: str, capacity: int, state: Path) -> Path:
    """Its state after random writes."""
    load = Load(block_bytes=4096, queue_depth=64, read_fraction=0.0)
    operations = round(TURNS * capacity / 4096)
    measure(
        engine,
        target,
        load,
        seconds=1e5,
        operations=operations,
        state=state,
        seed=PREPARATION_SEED,
        interval_seconds=60,
    )
    return state
