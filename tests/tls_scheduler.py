"""A Dask scheduler with TLS, as users start one, with a new certificate that is its own authority."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask

from iosonde.features.many_hosts import tls

ROLES = ("client", "scheduler", "worker")


def configuration(directory: Path) -> dict[str, str]:
    """Create a certificate in a new directory, and return the settings of Dask that name it."""
    directory.mkdir()
    certificate, key = tls.create()
    (directory / "certificate.pem").write_text(certificate)
    (directory / "key.pem").write_text(key)
    found = {"distributed.comm.tls.ca-file": str(directory / "certificate.pem")}
    for role in ROLES:
        found[f"distributed.comm.tls.{role}.cert"] = str(directory / "certificate.pem")
        found[f"distributed.comm.tls.{role}.key"] = str(directory / "key.pem")
    return found


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {"DASK_" + name.upper().replace(".", "__").replace("-", "_"): value for name, value in settings.items()}


@contextlib.contextmanager
def scheduler(settings: Mapping[str, str], scratch: Path, *, host: str = "127.0.0.1") -> Iterator[Any]:
    from distributed import LocalCluster, Security

    with dask.config.set({**settings, "temporary-directory": str(scratch)}):
        security = Security(require_encryption=True)
        here = {"protocol": "tls://", "host": host, "dashboard_address": "127.0.0.1:0", "security": security}
        with LocalCluster(n_workers=0, processes=False, **here) as cluster:
            yield cluster
