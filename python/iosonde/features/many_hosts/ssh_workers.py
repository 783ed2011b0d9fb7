"""Workers on hosts that are reached over SSH.

A process of the OpenSSH client starts each worker, not Dask's `SSHCluster`: that requires asyncssh, another
implementation of SSH than the one that the user has configured, and its workers outlive a coordinator that is killed.

The worker reports the address from which ssh has connected, on which the scheduler then listens. It reads the session's
key from its standard input, which is the connection, and ends when that is closed.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from iosonde.errors import TargetError
from iosonde.features.many_hosts.worker import CONNECTED_FROM
from iosonde.ssh_hosts import SshHost, SshHosts, ssh_problem
from iosonde.tools import Process

CONNECT_S = 120.0
"""For ssh to connect and Python to start on a host."""
END_S = 20.0
"""For workers to end after their connections."""


@dataclass(frozen=True)
class SshWorker:
    """The connection to a worker."""

    host: SshHost
    process: Process
    errors: IO[bytes]

    def problem(self) -> str:
        """Return the reason for which it has ended; empty while it has not."""
        status = self.process.poll()
        if status is None:
            return ""
        return ssh_problem(status, self._output())

    def read(self) -> bytes:
        """Some output of the host; `TargetError` if it has ended."""
        assert self.process.stdout
        found = os.read(self.process.stdout.fileno(), 4096)
        if not found:
            end([self])
            self.check()
        return found

    def not_started(self) -> TargetError:
        """The error for a host that reports nothing in time."""
        return TargetError(
            f"the worker on host `{self.host.called}` (`{self.host.address}`) did not start within {CONNECT_S:.0f} s",
            hint=f"try `{self.host.by_hand()}`",
        )

    def _output(self) -> bytes:
        self.errors.seek(0)
        return self.errors.read()

    def check(self) -> None:
        """Raise `TargetError` if it has ended."""
        if self.process.poll() is not None:
            raise self.host.error(self.process.returncode, self._output())


@contextmanager
def started(listed: SshHosts) -> Iterator[Sequence[SshWorker]]:
    """Workers that wait for their order; at the end they end too."""
    workers: list[SshWorker] = []
    with ExitStack() as stack:
        stack.callback(lambda: end(workers))
        for host in listed.hosts:
            errors = stack.enter_context(tempfile.TemporaryFile())
            command = host.command(host.python, "-P", "-m", "iosonde.features.many_hosts.worker", "--carrier", "ssh")
            try:
                # In a group of its own: Ctrl-C is for the coordinator, which stops the agents.
                process = Process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, process_group=0
                )
            except OSError as error:
                raise TargetError(f"cannot start `ssh`: {error.strerror}", hint="install OpenSSH's client") from error
            assert process.stdout
            stack.callback(process.stdout.close)
            workers.append(SshWorker(host, process, errors))
        yield workers


def addresses_seen(workers: Sequence[SshWorker]) -> list[str]:
    """Wait for the address of this machine as each host sees it; `TargetError` for a host that reports none in time."""
    outputs, deadline = [b""] * len(workers), time.monotonic() + CONNECT_S
    with selectors.DefaultSelector() as selector:
        for number, worker in enumerate(workers):
            assert worker.process.stdout
            selector.register(worker.process.stdout, selectors.EVENT_READ, number)
        while waiting := [key.data for key in selector.get_map().values()]:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise workers[waiting[0]].not_started()
            for key, _ in ready:
                outputs[key.data] = (outputs[key.data] + workers[key.data].read())[-_KEPT_BYTES:]
                if _SEEN.search(outputs[key.data]):
                    selector.unregister(key.fileobj)
    return [found[1].decode("ascii", errors="replace") for found in map(_SEEN.search, outputs) if found]


_SEEN = re.compile(rb"^" + CONNECTED_FROM.encode() + rb"(.*)\n", re.MULTILINE)
"""Among what the host prints at each login."""
_KEPT_BYTES = 1 << 16


def checked(address: str, host: SshHost) -> str:
    """An address that a host reports, on which the scheduler is to listen; `TargetError` if it is none, or all."""
    with suppress(ValueError):
        if not ipaddress.ip_address(address).is_unspecified:
            return address
    raise TargetError(
        f"host `{host.called}` reports `{address[:60]}` as the address from which ssh connected",
        hint='name an address of this machine that the hosts reach in the file: `coordinator = "10.0.0.1"`',
    )


def give(process: subprocess.Popen[bytes], order: Mapping[str, Any]) -> None:
    """Write an order to a worker, whose end is reported by `check`."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()


def end(workers: Sequence[SshWorker]) -> None:
    """End workers by their connections; may be called again."""
    deadline = time.monotonic() + END_S
    for worker in workers:
        with suppress(BrokenPipeError):
            assert worker.process.stdin
            worker.process.stdin.close()
    for worker in workers:
        if not worker.process.exits_within(deadline - time.monotonic()):
            worker.process.kill()  # The host cannot be reached; its worker ends without the scheduler.
        worker.process.wait()
