"""The kind of target `toy:`, without storage."""

from __future__ import annotations

from iosonde.storage import VirtualTarget
from iosonde.storage.targets.kind import ShippedTarget, TargetKind


def _open(text: str) -> VirtualTarget:
    return VirtualTarget(name=text, kind="null", size_bytes=1 << 30)


def _shipped() -> list[ShippedTarget]:
    return [ShippedTarget(name="toy:box", title="A box", class_="toys")]


KINDS = (TargetKind(prefix="toy", open=_open, shipped=_shipped),)
