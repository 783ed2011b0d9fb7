"""The kind of target `toy:`, without storage; the layer that writes a mark, and its removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iosonde.storage import VirtualTarget
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, Entry, JournalKind
from iosonde.storage.targets.target import BuiltLayer, LayerKind, ShippedTarget, TargetKind
from toy.setup import ToySetup


def _open(text: str) -> VirtualTarget:
    return VirtualTarget(name=text, kind="null", size_bytes=1 << 30)


def _shipped() -> list[ShippedTarget]:
    return [ShippedTarget(name="toy:box", title="A box", class_="toys")]


TARGETS = (TargetKind(prefix="toy", open=_open, shipped=_shipped),)


@dataclass(frozen=True, kw_only=True)
class ToyLayer(BuiltLayer):
    file: Path


def build(devices: Sequence[Path], further: Sequence[Path], toy: ToySetup, name: str) -> ToyLayer:
    [device] = devices
    file = MOUNTS / name / "toy"
    journal.created(file, "toy mark", facts={"mark": str(toy.mark)})
    file.write_text(str(toy.mark))
    return ToyLayer(device=device, file=file, facts={"mark": toy.mark})


LAYERS = (LayerKind(part=ToySetup, journal_kind="toy mark", check_possible=lambda toy: None, build=build),)


def _undo(entry: Entry) -> None:
    Path(entry.path).unlink(missing_ok=True)


UNDO = (
    JournalKind(
        what="toy mark",
        path=rf"{MOUNTS}/{OWN_DIRECTORY.pattern}/toy",
        facts={"mark": "[0-9]+"},
        undo=_undo,
    ),
)
