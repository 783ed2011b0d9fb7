"""Workers on hosts that are reached over SSH.

A process of the OpenSSH client starts each worker, not Dask's `SSHCluster`: that requires asyncssh, another
implementation of SSH than the one that the user has configured, and its workers outlive a coordinator that is killed.

The worker reads the session's key from its standard input, which is the connection, and ends when that is closed.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from iosonde.errors import TargetError
from iosonde.ssh_hosts import SshHost, SshHosts, ssh_problem

END_S = 20.0
"""For workers to end after their connections."""


@dataclass(frozen=True)
class SshWorker:
    """The connection to a worker."""

    host: SshHost
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def problem(self) -> str:
        """Return the reason for which it has ended; empty while it has not."""
        status = self.process.poll()
        if status is None:
            return ""
        return ssh_problem(status, self._output())

    def _output(self) -> bytes:
        self.errors.seek(0)
        return self.errors.read()

    def check(self) -> None:
        """Raise `TargetError` if it has ended."""
        if self.process.poll() is not None:
            raise self.host.error(self.process.returncode, self._output())


@contextmanager
def started(listed: SshHosts, order: dict[str, Any]) -> Iterator[Sequence[SshWorker]]:
    """Workers of a scheduler; at the end they end too."""
    workers: list[SshWorker] = []
    with ExitStack() as stack:
        stack.callback(lambda: _end(workers))
        for host in listed.hosts:
            errors = stack.enter_context(tempfile.TemporaryFile())
            command = host.command(host.python, "-P", "-m", "iosonde.features.many_hosts.ssh_worker")
            try:
                # In a group of its own: Ctrl-C is for the coordinator, which stops the agents.
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, process_group=0
                )
            except OSError as error:
                raise TargetError(f"cannot start `ssh`: {error.strerror}", hint="install OpenSSH's client") from error
            workers.append(SshWorker(host, process, errors))
            message = {**order, "name": host.called, "role": host.role, "scheduler": listed.coordinator}
            assert process.stdin
            with suppress(BrokenPipeError):  # Reported by `check`.
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()
        yield workers


def _end(workers: Sequence[SshWorker]) -> None:
    deadline = time.monotonic() + END_S
    for worker in workers:
        with suppress(BrokenPipeError):
            assert worker.process.stdin
            worker.process.stdin.close()
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # The host cannot be reached; its worker ends without the scheduler.
            worker.process.kill()
            worker.process.wait()
