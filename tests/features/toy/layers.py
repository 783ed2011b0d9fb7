"""Writes the mark, which is in the journal first, into a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iosonde.storage.safety import journal
from iosonde.storage.safety.journal_entry import MOUNTS
from iosonde.storage.targets.layer import BuiltLayer, LayerKind
from toy.setup import ToySetup


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
