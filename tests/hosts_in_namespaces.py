"""Hosts on a network of their own: OpenSSH servers in network namespaces, with keys that are created for them.

A host is a namespace of processes too, with another boot id, so iosonde takes it for another machine, and all of it
ends when its first process is killed. They share the file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engines import real_engine
from namespaces import private_mounts

COORDINATOR = "10.77.0.1"
_HOST = """\
mount -t proc proc /proc
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount --bind "$1/shadow" /etc/shadow
ip link set lo up
exec "$2" -D -e -f "$1/sshd_config"
"""


@dataclass(frozen=True)
class NamespaceHost:
    name: str
    address: str
    directory: Path
    process: subprocess.Popen[bytes]

    def processes(self) -> dict[int, str]:
        """All of its processes other than the server that waits for connections, by their numbers here."""
        found = {}
        own = _namespace(self._first())
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _namespace(int(entry.name)) == own:
                with suppress(OSError):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        found.pop(self._first(), None)
        return found

    def of(self, what: str) -> list[int]:
        return [pid for pid, command in self.processes().items() if what in command]

    @property
    def inside(self) -> Sequence[str]:
        """The command that runs another one in the network of the host."""
        return ["nsenter", f"--target={self._first()}", "--net"]

    def kill(self) -> None:
        """End the host at once, with all of its processes."""
        with suppress(ProcessLookupError):
            os.kill(self._first(), signal.SIGKILL)

    def hide(self, directory: Path, *, size: str = "50%") -> Path:
        """Mount an empty file system on a directory of the host, and return where its files are for this process."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
        subprocess.run(["nsenter", f"--target={self._first()}", "--mount", *mount], check=True)
        return Path(f"/proc/{self._first()}/root{directory}")

    def signal(self, number: signal.Signals, what: str = "") -> None:
        """Send a signal to all of its processes but the server, or to those with this in their command."""
        for pid in self.of(what):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _first(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0


@dataclass(frozen=True)
class Network:
    directory: Path
    hosts: Sequence[NamespaceHost]
    inside: Sequence[str]
    """The command that runs another one on the coordinator's side."""

    @property
    def spec(self) -> str:
        return f"ssh:{self.directory / 'hosts.toml'}"

    def environment(self) -> dict[str, str]:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "IOSONDE_ENGINE": str(real_engine())}

    def run(self, words: Sequence[object]) -> tuple[int, str]:
        """The exit code of a command on the coordinator's side, and what it wrote to standard error."""
        command = [*self.inside, sys.executable, *map(str, words)]
        done = subprocess.run(command, env=self.environment(), capture_output=True, check=False)
        return done.returncode, done.stderr.decode()

    def link(self, host: NamespaceHost, state: str) -> None:
        subprocess.run([*self.inside, "ip", "link", "set", host.name, state], check=True)


@contextmanager
def network(directory: Path, names: Sequence[str]) -> Iterator[Network]:
    """Hosts with these names."""
    directory.mkdir()
    with ExitStack() as stack:
        hub = stack.enter_context(_process(["unshare", "--net", "sleep", "infinity"]))
        await_(lambda: _namespace(hub.pid, "net") != _namespace(os.getpid(), "net"))
        inside = ["nsenter", f"--target={hub.pid}", "--net"]
        for command in ("link set lo up", "link add bridge type bridge", "link set bridge up"):
            subprocess.run([*inside, "ip", *command.split()], check=True)
        subprocess.run([*inside, "ip", "address", "add", f"{COORDINATOR}/24", "dev", "bridge"], check=True)
        _create_key(directory / "user")
        hosts = [stack.enter_context(_host(directory, name, n, inside)) for n, name in enumerate(names)]
        _write_client(directory, hosts)
        yield Network(directory, hosts, inside)


@contextmanager
def _host(parent: Path, name: str, number: int, inside: Sequence[str]) -> Iterator[NamespaceHost]:
    directory, address = parent / name, f"10.77.0.{number + 2}"
    (directory / "temporary").mkdir(parents=True)
    _create_key(directory / "host")
    # At this level bash does not read ~/.bashrc for commands over SSH: that of a developer may wait for a minute.
    own = {"XDG_STATE_HOME": directory / "state", "TMPDIR": directory / "temporary", "SHLVL": "1"}
    own |= {"PYTHONPATH": Path(__file__).parents[1] / "python", "IOSONDE_ENGINE": real_engine()}
    settings = {
        "HostKey": directory / "host",
        "AuthorizedKeysFile": parent / "user.pub",
        "StrictModes": "no",  # Directories of tests are below one that all may write to.
        "UsePAM": "no",
        "PidFile": "none",
        "SetEnv": " ".join(f"{key}={value}" for key, value in own.items()),
    }
    (directory / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    (directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (directory / "shadow").write_text("root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n")
    mounted = private_mounts(_HOST, directory, "/usr/sbin/sshd")
    with (
        (directory / "log").open("wb") as log,
        _process(["unshare", "--net", "--pid", "--fork", "--kill-child", *mounted], stderr=log) as process,
    ):
        await_(lambda: b"Server listening" in (directory / "log").read_bytes())
        ends = ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid)]
        subprocess.run([*inside, "ip", *ends], check=True)
        subprocess.run([*inside, "ip", "link", "set", name, "master", "bridge", "up"], check=True)
        on_host = ["nsenter", f"--target={process.pid}", "--net"]
        subprocess.run([*on_host, "ip", "address", "add", f"{address}/24", "dev", "eth0"], check=True)
        subprocess.run([*on_host, "ip", "link", "set", "eth0", "up"], check=True)
        yield NamespaceHost(name, address, directory, process)


def _write_client(directory: Path, hosts: Sequence[NamespaceHost]) -> None:
    """The configuration of the user's ssh, which knows the hosts, and the file of `--hosts`."""
    keys = [f"{host.address} {(host.directory / 'host.pub').read_text()}" for host in hosts]
    (directory / "known_hosts").write_text("".join(keys))
    (directory / "ssh_config").write_text(
        f"IdentityFile {directory}/user\nIdentitiesOnly yes\nUserKnownHostsFile {directory}/known_hosts\n"
        "GlobalKnownHostsFile /dev/null\n"
    )
    (directory / "bin").mkdir()
    wrapper = directory / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F "{directory}/ssh_config" "$@"\n')
    wrapper.chmod(0o755)
    user = f'user = "root"\nport = 22\npython = "{sys.executable}"\n'
    tables = [f'[[hosts]]\nname = "{host.name}"\naddress = "{host.address}"\n{user}' for host in hosts]
    (directory / "hosts.toml").write_text("".join(tables))


def _create_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


@contextmanager
def _process(command: Sequence[str | Path], **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _namespace(pid: int, kind: str = "pid") -> int:
    try:
        return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    except OSError:
        return -1


def await_(is_true: Callable[[], bool]) -> None:
    """Wait; five minutes only end a hang."""
    deadline = time.monotonic() + 300
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
