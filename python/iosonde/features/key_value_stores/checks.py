"""Libraries of stores, for `iosonde doctor`."""

from __future__ import annotations

import ctypes.util

from iosonde.core.check import Check
from iosonde.tools import find


def _rocksdb() -> Check:
    """The library that the engine loads by default."""
    library = ctypes.util.find_library("rocksdb")
    if library is None:
        return Check(
            name="RocksDB",
            state="note",
            found="librocksdb.so not found; needed for the store `rocksdb`",
            advice="install Debian's `librocksdb7.8`, or set `library` in the study",
        )
    return Check(name="RocksDB", state="ok", found=f"{library}")


def _wiredtiger() -> Check:
    """The library that the engine loads by default, and what its shim is compiled with."""
    library, missing = find("wiredtiger"), {"wiredtiger-header": "libwiredtiger-dev", "cc": "gcc"}
    packages = [package for name, package in missing.items() if not find(name)]
    if library is None or packages:
        return Check(
            name="WiredTiger",
            state="note",
            found=f"{library or 'libwiredtiger.so not found'}; `wiredtiger` needs library, header and compiler",
            advice=f"install Debian's {' and '.join(f'`{each}`' for each in packages or ['libwiredtiger-dev'])}",
        )
    return Check(name="WiredTiger", state="ok", found=library)


CHECKS = (lambda: [_rocksdb(), _wiredtiger()],)
