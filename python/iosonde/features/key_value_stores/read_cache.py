"""RocksDB's persistent read cache: what it needs of this machine, and its directory on a second target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.errors import TargetError
from iosonde.features.key_value_stores import shim
from iosonde.units import format_bytes
from iosonde.workload.servers import open_directory

if TYPE_CHECKING:
    from iosonde.storage import Target


def check_read_cache(library: str | None) -> None:
    """Compile the shim that a read cache needs; `StudyError` where that is impossible."""
    shim.check(
        shim.ROCKSDB,
        library,
        use="RocksDB's persistent read cache",
        parameter="read_cache",
        otherwise="; the adapter `command-db-bench-read-cache` measures it with db_bench instead",
    )


def open_read_cache_directory(read_cache_target: str, size_bytes: int) -> Target:
    """The target that `read_cache_target` names, which must be a directory with room for the cache."""
    target = open_directory(read_cache_target, parameter="read_cache_target")
    if target.free_bytes() < size_bytes:
        raise TargetError(
            f"`{read_cache_target}` has {format_bytes(target.free_bytes())} free, and the read cache takes "
            f"{format_bytes(size_bytes)}",
            where="by the parameter `read_cache_target`",
            hint="make the cache smaller with `--set read_cache=SIZE`, or name another directory",
        )
    return target
