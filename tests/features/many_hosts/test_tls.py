"""Schedulers with TLS: a certificate of their authority is required, on both sides."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dask
import pytest
from cryptography import x509

from iosonde.errors import TargetError
from iosonde.features.many_hosts import carrier, tls
from iosonde.features.many_hosts.carrier import connected

pytestmark = pytest.mark.system

ROLES = ("client", "scheduler", "worker")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For connections that are refused: Dask tries them again until then. More than a pause of the machine takes."""
    monkeypatch.setattr(carrier, "ANSWER_S", 10.0)


def configuration(directory: Path) -> dict[str, str]:
    """Settings of Dask with a new certificate, which is its own authority."""
    directory.mkdir()
    certificate, key = tls.create()
    (directory / "certificate.pem").write_text(certificate)
    (directory / "key.pem").write_text(key)
    found = {"distributed.comm.tls.ca-file": str(directory / "certificate.pem")}
    for role in ROLES:
        found[f"distributed.comm.tls.{role}.cert"] = str(directory / "certificate.pem")
        found[f"distributed.comm.tls.{role}.key"] = str(directory / "key.pem")
    return found


@contextlib.contextmanager
def scheduler(settings: dict[str, str], scratch: Path) -> Iterator[str]:
    from distributed import LocalCluster, Security

    with dask.config.set({**settings, "temporary-directory": str(scratch)}):
        security = Security(require_encryption=True)
        here = {"protocol": "tls://", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "security": security}
        with LocalCluster(n_workers=0, processes=False, **here) as cluster:
            yield cluster.scheduler_address


def worker(address: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """A worker that finds its certificate in variables of Dask's configuration."""
    variables = {"DASK_" + name.upper().replace(".", "__").replace("-", "_"): value for name, value in settings.items()}
    command = [sys.executable, "-m", "iosonde.features.many_hosts.worker", address, "north"]
    return subprocess.Popen(
        [*command, "--parent", str(os.getpid())], env={**os.environ, **variables}, stderr=subprocess.PIPE
    )


def test_hosts_with_certificates_of_the_same_authority_are_used(tmp_path: Path) -> None:
    settings = configuration(tmp_path / "own")
    with scheduler(settings, tmp_path) as address, worker(address, settings) as process:
        try:
            with dask.config.set(settings), connected(address, insecure=False) as found:
                assert address.startswith("tls://")
                assert [host.name for host in found.hosts] == ["north"]
                assert found.hosts[0].address.startswith("tls://")
        finally:
            process.kill()


@pytest.mark.usefixtures("impatient")
def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    own, other = configuration(tmp_path / "own"), configuration(tmp_path / "other")
    with scheduler(own, tmp_path) as address:
        with (
            dask.config.set(other),
            pytest.raises(TargetError, match=r"cannot connect to the Dask scheduler at `tls://.*certificate") as caught,
            connected(address, insecure=False),
        ):
            pass
        assert "the same authority" in caught.value.hint
        with worker(address, other) as process:
            assert process.stderr
            errors = process.stderr.read().decode()
            assert process.wait() != 0
            assert "certificate" in errors


@pytest.mark.usefixtures("impatient")
def test_a_scheduler_with_tls_refuses_a_client_without(tmp_path: Path) -> None:
    with (
        scheduler(configuration(tmp_path / "own"), tmp_path) as address,
        pytest.raises(TargetError, match="cannot connect to the Dask scheduler"),
        connected(address.replace("tls:", "tcp:"), insecure=True),
    ):
        pass


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    settings = configuration(tmp_path / "own")
    for role, run in (("client", _connect), ("worker", _start_worker)):
        for name, problem in ((f"{role}.cert", "got none"), ("ca-file", f"got `{tmp_path}/no.pem`")):
            value = None if problem == "got none" else str(tmp_path / "no.pem")
            changed = {**settings, f"distributed.comm.tls.{name}": value or ""}
            message = run(changed)
            assert f"requires the setting `distributed.comm.tls.{name}` of Dask to name a file; {problem}" in message


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    own, other = configuration(tmp_path / "own"), configuration(tmp_path / "other")
    key = "distributed.comm.tls.client.key"
    message = _connect({**own, key: other[key]})
    assert "the certificate and key of `distributed.comm.tls.client` cannot be used: " in message


def _connect(settings: dict[str, str]) -> str:
    with (
        dask.config.set(settings),
        pytest.raises(TargetError) as caught,
        connected("tls://127.0.0.1:1", insecure=False),
    ):
        pass
    return str(caught.value)


def _start_worker(settings: dict[str, str]) -> str:
    with worker("tls://127.0.0.1:1", settings) as process:
        assert process.stderr
        message = process.stderr.read().decode()
        assert process.wait() == 1
    return message


def test_the_certificate_of_a_session_is_valid_where_a_clock_is_behind() -> None:
    certificate = x509.load_pem_x509_certificate(tls.create()[0].encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - tls.CLOCKS_DIFFER / 2
    assert certificate.not_valid_after_utc > datetime.now(UTC) + tls.VALID / 2
