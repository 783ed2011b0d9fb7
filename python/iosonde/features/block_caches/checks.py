"""Block caches that the kernel has, for `iosonde doctor`."""

from __future__ import annotations

from iosonde.core.check import Check
from iosonde.features.block_caches import kernel_support


def _checks() -> list[Check]:
    return [
        Check(name=each.kind, state="ok", found=f'{each.state}, for setups with `cache = "{each.kind}"`')
        if each.is_available
        else Check(
            name=each.kind,
            state="note",
            found=f'not in this kernel; needed for setups with `cache = "{each.kind}"`',
            advice=kernel_support.advice(each.kind),
        )
        for each in kernel_support.every()
    ]


CHECKS = (_checks,)
