"""Schedulers with TLS: a certificate of their authority is required, on both sides."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dask
import pytest
from cryptography import x509
from strangers import CLOSED, answers_of_dask, listening
from tls_scheduler import configuration, scheduler, variables

from iosonde.errors import TargetError
from iosonde.features.many_hosts import tls
from iosonde.features.many_hosts.carrier import connected

pytestmark = pytest.mark.system


def worker(address: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """A worker that finds its certificate in variables of Dask's configuration."""
    command = [sys.executable, "-m", "iosonde.features.many_hosts.worker", address, "north"]
    return subprocess.Popen(command, env={**os.environ, **variables(settings)}, stderr=subprocess.PIPE)


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=pytest.mark.needs("IPv6"))])
def test_hosts_with_certificates_of_the_same_authority_are_used(tmp_path: Path, host: str) -> None:
    """And listen where they reach the scheduler, on no other address."""
    settings = configuration(tmp_path / "own")
    with scheduler(settings, tmp_path, host=host) as own, worker(own.scheduler_address, settings) as process:
        try:
            with dask.config.set(settings), connected(own.scheduler_address) as found:
                assert [each.name for each in found.hosts] == ["north"]
                assert found.hosts[0].address.startswith(f"tls://{host}:")
                [port] = [each.port for each in listening([process.pid]) if each.address == host.strip("[]")]
                assert len(listening([process.pid])) == 1
                address = f"{host}:{port}"
                assert answers_of_dask([address]) == {address: CLOSED}
                files = (tmp_path / "own/certificate.pem", tmp_path / "own/key.pem")
                assert answers_of_dask([address], certificate=files)[address]["with a certificate"] == "answered"
        finally:
            process.terminate()


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    own, other = configuration(tmp_path / "own"), configuration(tmp_path / "other")
    with scheduler(own, tmp_path) as running:
        address = running.scheduler_address
        with (
            dask.config.set(other),
            pytest.raises(TargetError, match=r"cannot connect to the Dask scheduler at `tls://.*certificate") as caught,
            connected(address),
        ):
            pass
        assert "the same authority" in caught.value.hint
        with worker(address, other) as process:
            assert process.stderr
            errors = process.stderr.read().decode()
            assert process.wait() == 1
            assert f"error: cannot connect to the scheduler at `{address}`: " in errors and "certificate" in errors


def test_a_missing_or_wrong_certificate_and_a_scheduler_without_tls_are_named(tmp_path: Path) -> None:
    settings = configuration(tmp_path / "own")
    for role, run in (("client", _connect), ("worker", _start_worker)):
        for name, problem in ((f"{role}.cert", "got none"), ("ca-file", f"got `{tmp_path}/no.pem`")):
            value = None if problem == "got none" else str(tmp_path / "no.pem")
            changed = {**settings, f"distributed.comm.tls.{name}": value or ""}
            message = run(changed)
            assert f"requires the setting `distributed.comm.tls.{name}` of Dask to name a file; {problem}" in message
    other = configuration(tmp_path / "other")
    key = "distributed.comm.tls.client.key"
    message = _connect({**settings, key: other[key]})
    assert "the certificate and key of `distributed.comm.tls.client` cannot be used: " in message
    assert "`tcp://127.0.0.1:1` has no authentication" in _start_worker({}, "tcp://127.0.0.1:1")


def _connect(settings: dict[str, str]) -> str:
    with dask.config.set(settings), pytest.raises(TargetError) as caught, connected("tls://127.0.0.1:1"):
        pass
    return str(caught.value)


def _start_worker(settings: dict[str, str], address: str = "tls://127.0.0.1:1") -> str:
    with worker(address, settings) as process:
        assert process.stderr
        message = process.stderr.read().decode()
        assert process.wait() == 1
    return message


def test_the_certificate_of_a_session_is_valid_where_a_clock_is_behind() -> None:
    certificate = x509.load_pem_x509_certificate(tls.create()[0].encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - tls.CLOCKS_DIFFER / 2
    assert certificate.not_valid_after_utc > datetime.now(UTC) + tls.VALID / 2
