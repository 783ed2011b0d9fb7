"""Hosts that the text of `--hosts` names, known before any of them is started or asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from iosonde import ssh_hosts
from iosonde.errors import TargetError
from iosonde.features.many_hosts import slurm
from iosonde.text_files import expanded

MOST_LOCAL_HOSTS = 64


@dataclass(frozen=True, kw_only=True)
class NamedHosts:
    """Hosts that run the load, in order."""

    clients: Sequence[str]
    servers: Sequence[str] = ()
    """Hosts of which only the counters are read."""
    note: str = ""
    """Facts about them that are not known yet."""


def named(spec: str) -> NamedHosts | None:
    """Return the hosts of a specification; None for a scheduler, whose workers are known once it is asked."""
    kind, _, rest = spec.partition(":")
    if kind == "local":
        return NamedHosts(clients=[local_name(number) for number in range(local_count(spec, rest))])
    if kind == "ssh":
        listed = ssh_hosts.read(expanded(rest)).hosts
        by_role = {role: [each.called for each in listed if each.role == role] for role in ("client", "server")}
        return NamedHosts(clients=by_role["client"], servers=by_role["server"])
    if kind == "slurm":
        nodes = slurm.read(rest).nodes
        return NamedHosts(
            clients=[f"node{number}" for number in range(1, nodes + 1)],
            note="Slurm chooses the nodes when the job starts; these names are placeholders",
        )
    check_scheduler(spec)
    return None


def local_name(number: int) -> str:
    """The name of a host of `local:N`."""
    return f"host{number}"


def local_count(spec: str, text: str) -> int:
    """Return N of `local:N`."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LOCAL_HOSTS:
        raise TargetError(
            f"`--hosts local:N` requires a number from 1 to {MOST_LOCAL_HOSTS}; got `{spec}`",
            hint="for four processes on this machine: `--hosts local:4`",
        )
    return int(text)


def check_scheduler(spec: str) -> None:
    """`TargetError` for what is not the address of a scheduler either."""
    scheme, host = _parts(spec)
    if scheme == "tcp":
        raise TargetError(
            f"`{spec}` has no authentication: anyone who reaches this scheduler can run any program on its workers",
            hint="start scheduler and workers with certificates, and name it as `tls://HOST:PORT`; or use `ssh:FILE`, "
            "which creates certificates (docs/hosts.md)",
        )
    if scheme != "tls" or not host:
        raise TargetError(
            "`--hosts` must be `local:N`, `ssh:FILE`, `slurm:N` or the address of a Dask scheduler, `tls://HOST:PORT`; "
            f"got `{spec}`",
            hint="for four processes on this machine: `--hosts local:4`",
        )


def _parts(address: str) -> tuple[str, str]:
    """Scheme and host of an address; no host if it is none."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # Checked when it is read.
        return parts.scheme, parts.hostname or ""
    except ValueError:
        return "", ""
