"""Modules of the kernel that setups with network storage need, for `iosonde doctor`."""

from __future__ import annotations

from iosonde.core.check import OTHER_KERNEL, Check
from iosonde.features.network_storage.setups import nvme_tcp
from iosonde.storage.block_layer.kernel_modules import state_of

_MODULES = {
    "NVMe/TCP": (nvme_tcp.MODULES, 'for setups with `fabric = "nvme-tcp"`'),
    "NFS": (("nfs", "nfsd"), 'for setups with `file_system = "nfs"`'),
}


def _checks() -> list[Check]:
    return [_check(name, *each) for name, each in _MODULES.items()]


def _check(name: str, modules: tuple[str, ...], needed: str) -> Check:
    missing = [f"`{each}`" for each in modules if state_of(each) == "missing"]
    if not missing:
        return Check(name=name, state="ok", found=f"{state_of(*modules)}, {needed}")
    found = f"not in this kernel (module{'s' * (len(missing) > 1)} {' and '.join(missing)}), {needed}"
    return Check(name=name, state="note", found=found, advice=OTHER_KERNEL)


CHECKS = (_checks,)
