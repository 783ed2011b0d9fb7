"""Counters of the NFS server of a machine (kernel `fs/nfsd/stats.c`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

TABLE = Path("/proc/net/rpc/nfsd")


def counters(table: Path = TABLE) -> dict[str, int]:
    """Bytes, calls and threads; empty without a server."""
    with suppress(OSError, ValueError, IndexError, KeyError):
        lines = dict(line.partition(" ")[::2] for line in table.read_text(encoding="utf-8").splitlines())
        read, written = lines["io"].split()[:2]
        return {
            "nfsd_read_bytes": int(read),
            "nfsd_write_bytes": int(written),
            "nfsd_calls": int(lines["rpc"].split()[0]),
            "nfsd_threads": int(lines["th"].split()[0]),
        }
    return {}
