"""fio's engines: through which backend their load is done here, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Backend = Literal["uring", "sync", "null"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One of fio's engines."""

    backend: Backend | None
    """None for a load that is no block I/O on a file or device: its section is left out."""
    buffered: Backend | None = None
    """The backend with `direct=0`, where that is another one."""
    differs: str = ""
    """Note for readers of the results, if the load is carried out differently."""


def find(name: str) -> Engine | None:
    """The engine of that name."""
    return ENGINES.get(name)


def _each(names: str, backend: Backend | None, differs: str = "") -> dict[str, Engine]:
    return {name: Engine(backend=backend, differs=differs) for name in names.split()}


ENGINES: dict[str, Engine] = {
    **_each("io_uring", "uring"),
    # Linux AIO completes a buffered request before io_submit(2) returns.
    "libaio": Engine(backend="uring", buffered="sync"),
    # glibc processes the requests of one file descriptor one after the other, in one thread.
    **_each("posixaio", "sync", "I/O is done by `pread` and `pwrite`, one at a time as in glibc"),
    **_each("solarisaio windowsaio guasi", "uring", "I/O goes through io_uring"),
    **_each("psync sync pvsync pvsync2 vsync", "sync"),
    **_each("mmap splice", "sync", "I/O is done by `pread` and `pwrite`"),
    **_each("null cpp_null", "null"),
    **_each(
        "io_uring_cmd xnvme libblkio libcufile libhipfile",
        "uring",
        "I/O goes through the file or block device by io_uring",
    ),
    **_each(
        "sg libpmem dev-dax pmemblk mtd libzbc",
        "sync",
        "I/O is done on the file or block device by `pread` and `pwrite`",
    ),
    **_each("net netsplice rdma librpma_apm_client librpma_apm_server", None, "it sends data over a network"),
    **_each("librpma_gpspm_client librpma_gpspm_server", None, "it sends data over a network"),
    **_each(
        "rados rbd gfapi gfapi_async http libhdfs nbd nfs libiscsi dfs ime_psync ime_psyncv ime_aio",
        None,
        "it uses a network protocol; iosonde measures files and devices",
    ),
    **_each("cpuio exec page_fault", None, "it does no I/O"),
    **_each(
        "filecreate filestat filedelete filexattr dircreate dirstat dirdelete ftruncate falloc e4defrag fileoperations",
        None,
        "it measures file and directory operations, not reads and writes",
    ),
    **_each("external", None, "it is a separate program"),
}
