"""Block caches that the kernel has, for `iosonde doctor`."""

from __future__ import annotations

from iosonde.core.check import OTHER_KERNEL, Check
from iosonde.features.block_caches import kernel_support


def _checks() -> list[Check]:
    return [_check(each) for each in kernel_support.every()]


def _check(support: kernel_support.Support) -> Check:
    needed = f'for setups with `cache = "{support.kind}"`'
    if support.is_available:
        return Check(name=support.kind, state="ok", found=f"{support.state}, {needed}")
    found = f"not in this kernel ({kernel_support.OPTIONS[support.kind]}), {needed}"
    return Check(name=support.kind, state="note", found=found, advice=OTHER_KERNEL)


CHECKS = (_checks,)
