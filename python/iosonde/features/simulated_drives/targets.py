"""The kind of targets `sim:...`."""

from __future__ import annotations

from iosonde.features.simulated_drives.model import load_model, models
from iosonde.features.simulated_drives.state import DriveState
from iosonde.features.simulated_drives.target import open_simulated
from iosonde.storage.targets.kind import ShippedTarget, TargetKind


def _shipped() -> list[ShippedTarget]:
    drives = {f"sim:{name}": load_model(name, target=f"sim:{name}") for name in models()}
    return [ShippedTarget(name=name, title=model.title, class_=model.class_) for name, model in drives.items()]


KINDS = (TargetKind(prefix="sim", open=open_simulated, shipped=_shipped, state=DriveState),)
