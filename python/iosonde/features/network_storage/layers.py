"""Layers of setups: a device over NVMe/TCP, and a mount of NFS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iosonde.features.network_storage.setup import FabricSetup, NfsSetup
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.storage.targets.layer import LayerKind


def _fabric(devices: Sequence[Path], further: Sequence[Path], asked: FabricSetup, own: str) -> nvme_tcp.Fabric:
    [device] = devices
    return nvme_tcp.build(device, asked, own)


def _nfs(devices: Sequence[Path], further: Sequence[Path], asked: NfsSetup, own: str) -> nfs.NfsMount:
    [device] = devices
    return nfs.build(device, asked, own)


LAYERS = (
    LayerKind(part=FabricSetup, journal_kind=nvme_tcp.JOURNALED, check_possible=nvme_tcp.check_possible, build=_fabric),
    LayerKind(
        part=NfsSetup,
        journal_kind=nfs.EXPORTED,
        further_kinds=(nfs.FILES,),
        check_possible=nfs.check_possible,
        build=_nfs,
    ),
)
