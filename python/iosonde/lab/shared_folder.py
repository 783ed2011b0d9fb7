"""A folder of the host in the guest, through virtiofsd: vhost-user over a socket that only QEMU and it know."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from iosonde.lab.bound_process import end, find_tool, start_bound

_STAGE = "/sys"
"""Hidden from virtiofsd, which does not need it, by the tree that it shares."""

_READ_ONLY = f"""
daemon=$1 listener=$2
shift 2
mount -t tmpfs -o mode=700 iosonde-lab {_STAGE}
mkdir {_STAGE}/root
for point in / "$@"; do
  mount --bind "$point" "{_STAGE}/root$point"
  mount -o remount,bind,ro "{_STAGE}/root$point"
done
exec "$daemon" --fd="$listener" -o source={_STAGE}/root -o cache=always -o sandbox=chroot
"""

_READ_WRITE = """
exec "$1" --fd="$2" -o source="$3" -o cache=auto -o sandbox=chroot
"""


class SharedFolder:
    """A daemon that serves one folder to one guest, and the tag under which the guest mounts it."""

    def __init__(self, tag: str, script: str, arguments: Sequence[str]) -> None:
        self.tag = tag
        daemon = find_tool("virtiofsd")
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the daemon
        listener, self.client = _connected_pair()
        with listener:
            self._daemon = start_bound(
                script,
                *(daemon, str(listener.fileno()), *arguments),
                stderr=self.stderr,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        end(self._daemon)
        self.client.close()
        self.stderr.close()

    def options(self) -> list[str]:
        """QEMU's options; `client` has to be passed on to it."""
        number = self.client.fileno()
        return [
            *("-chardev", f"socket,id={self.tag},fd={number}"),
            *("-device", f"vhost-user-fs-pci,chardev={self.tag},tag={self.tag},queue-size=1024"),
        ]


def read_only_root(points: Sequence[Path]) -> SharedFolder:
    """The host's root file system and those mounted at `points`; not writable, also not for the guest."""
    return SharedFolder("root", _READ_ONLY, [str(point) for point in points])


def read_write(folder: Path) -> SharedFolder:
    """One folder that the guest may write to."""
    return SharedFolder("results", _READ_WRITE, [str(folder)])


def _connected_pair() -> tuple[socket.socket, socket.socket]:
    """A listening socket with one connection waiting, without a name, so that no other process can connect."""
    listener = socket.socket(socket.AF_UNIX)
    client = socket.socket(socket.AF_UNIX)
    with tempfile.TemporaryDirectory(prefix="iosonde-lab-") as folder:
        name = f"{folder}/socket"
        listener.bind(name)
        listener.listen(1)
        client.connect(name)
    return listener, client
