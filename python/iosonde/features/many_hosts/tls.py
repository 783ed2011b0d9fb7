"""Who may connect to schedulers and workers: TLS by Dask's own `Security`, where every side shows a certificate.

Dask does not distinguish what a certificate may be used for: any holder of one can run any program on the workers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from iosonde.errors import TargetError

if TYPE_CHECKING:
    from distributed import Security

ROLES = ("client", "scheduler", "worker")
CLOCKS_DIFFER = timedelta(days=2)
"""By which the clock of a host may be behind that of this machine."""
VALID = timedelta(days=365)
"""The longest study."""


def check_scheduler(spec: str) -> None:
    """`TargetError` for what is not the address of a scheduler either."""
    try:
        parts = urlsplit(spec)
        _ = parts.port  # Checked when it is read.
        scheme, host = parts.scheme, parts.hostname
    except ValueError:
        scheme = host = ""
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


def configured(role: str) -> Security:
    """The certificate of this side, as the configuration of Dask names it."""
    from distributed import Security

    security = Security(require_encryption=True)  # type: ignore[no-untyped-call]
    files = security.get_tls_config_for_role(role)  # type: ignore[no-untyped-call]
    settings = {"ca_file": "ca-file", "cert": f"{role}.cert", "key": f"{role}.key"}
    for name, setting in settings.items():
        # The key may be in the file of the certificate.
        if (name != "key" or files[name]) and not (files[name] and Path(files[name]).is_file()):
            raise TargetError(
                f"`tls://` requires the setting `distributed.comm.tls.{setting}` of Dask to name a file; "
                f"got {f'`{files[name]}`' if files[name] else 'none'}",
                hint="set it in `~/.config/dask/`, or in an environment variable (docs/hosts.md)",
            )
    try:
        security.get_connection_args(role)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise TargetError(
            f"the certificate and key of `distributed.comm.tls.{role}` cannot be used: {error}",
            hint="check that the files are in PEM format, that key and certificate belong together, and that you may "
            "read them",
        ) from error
    return security


def of_session(certificate: str, key: str) -> Security:
    """One certificate for all sides, which is its own authority."""
    from distributed import Security

    return Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=certificate,
        **{f"tls_{role}_cert": certificate for role in ROLES},
        **{f"tls_{role}_key": key for role in ROLES},
    )


def create() -> tuple[str, str]:
    """Return a new certificate and its private key, in PEM format.

    As `Security.temporary` creates them, whose certificates are not valid yet on a host with a clock that is behind.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "iosonde-session")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()
