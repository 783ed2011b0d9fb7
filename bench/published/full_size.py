"""A model with its own blocks and erasures, on a drive of few blocks, so that tails are those of the whole drive.

A target's `capacity=` makes blocks smaller, which keeps every rate and shortens erasures. Where single erasures are
what is looked for, the blocks stay, and there are fewer of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from simulated import Load, measure

from iosonde.target.drive_model import load_model, models

SUPERBLOCKS = 32
TURNS = 1.5
"""How often random writes replace everything before the drive counts as steady."""


def small(name: str, directory: Path) -> str:
    """The target with that model."""
    model = load_model(name, target=f"sim:{name}")
    capacity = (model.translation.block or 0) * model.media.dies * SUPERBLOCKS or model.capacity
    text = models()[name].read_text(encoding="utf-8")
    text = re.sub('^capacity = ".*"$', f'capacity = "{capacity}"', text, count=1, flags=re.M)
    file = directory / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return f"sim:{file}"


def steady(engine: Path, name: str, directory: Path) -> tuple[str, Path | None]:
    """That target and its state after random writes; none where nothing is collected."""
    model, target = load_model(name, target=f"sim:{name}"), small(name, directory)
    if model.translation.kind == "in_place":
        return target, None
    state = directory / f"{name}.state"
    capacity = load_model(target.removeprefix("sim:"), target=target).capacity
    load = Load(block_bytes=4096, queue_depth=64, read_fraction=0.0)
    measure(
        engine, target, load, seconds=1e5, operations=round(TURNS * capacity / 4096), state=state, interval_seconds=60
    )
    return target, state
