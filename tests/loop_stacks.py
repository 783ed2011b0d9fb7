"""Loop devices for tests, attached in every way that hides what is below them; all are detached at the end."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from iosonde.storage.block_layer.block_nodes import attached_loops, number_of
from iosonde.storage.targets.loop_devices import _CLR_FD, _CONFIGURE, LoopDevice, _configuration

MIB = 1 << 20
SWAP_BYTES = 40 << 10
"""The smallest that mkswap makes."""


@contextmanager
def loop_devices(directory: Path, *sizes: int) -> Iterator[list[Path]]:
    """Loop devices on sparse files of these sizes, which are removed with them."""
    with ExitStack() as closing:
        found = []
        for number, size in enumerate(sizes):
            image = directory / f"image-{number}"
            with image.open("xb") as file:
                os.truncate(file.fileno(), size)
            closing.callback(image.unlink)
            device = LoopDevice(image)
            closing.callback(device.close)
            found.append(device.path)
        yield found


class Loops:
    """Attaches loop devices, mounts them and makes nodes; `close` undoes all of it, the last first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._undo: list[list[str]] = []
        self._backing: dict[str, str] = {}

    def image(self, name: str = "image", *, size: int = 32 * MIB) -> Path:
        path = self.directory / name
        path.touch()
        os.truncate(path, size)
        return path

    def attach(self, backing: Path, *, offset: int = 0, size: int | None = None, direct: bool = False) -> Path:
        limit = ["--sizelimit", str(size)] if size else []
        mode = ["--direct-io=on"] if direct else []
        device = run("losetup", "--find", "--show", "--offset", offset, *limit, *mode, backing)
        self._undo.append(["losetup", "--detach", device])
        self._backing[device] = backing_name(device)
        return Path(device)

    def replace(self, device: Path, file: Path) -> None:
        """Attach a loop device to another file under its name, at once: other tests take devices that are free."""
        with file.open("r+b") as opened, device.open("rb") as attached:
            fcntl.ioctl(attached, _CLR_FD)
            attached.close()
            configuration = _configuration(opened.fileno(), file, 512, 0)
            deadline = time.monotonic() + 300
            while True:
                try:
                    with device.open("r+b", buffering=0) as free:
                        fcntl.ioctl(free, _CONFIGURE, configuration)
                except OSError:  # A process that looks at all devices has it open, and it is attached until then.
                    assert time.monotonic() < deadline, f"another process has taken {device}"
                    time.sleep(0.001)
                else:
                    break
        self._backing[str(device)] = backing_name(str(device))

    def forget(self, device: Path) -> None:
        """A loop device that was detached by what is tested."""
        self._undo.remove(["losetup", "--detach", str(device)])

    def file_system(self, device: Path, kind: str = "ext4") -> None:
        run(f"mkfs.{kind}", *(["-q", "-F"] if kind == "ext4" else ["-q", "-f"]), device)

    def mount(self, device: Path, name: str = "mounted") -> Path:
        directory = self.directory / name
        directory.mkdir()
        run("mount", device, directory)
        self._undo.append(["umount", str(directory)])
        return directory

    def swap(self, path: Path) -> None:
        """Make a device or file active swap, of which the kernel may use next to nothing."""
        path.chmod(0o600)
        run("mkswap", path, SWAP_BYTES // 1024)
        run("swapon", path)
        self._undo.append(["swapoff", str(path)])

    def partition(self, device: Path, number: int, start: int, size: int) -> Path:
        """A partition that only the kernel knows, without a partition table."""
        run("addpart", device, number, start // 512, size // 512)
        self._undo.append(["delpart", str(device), str(number)])
        return Path(f"{device}p{number}")

    def node(self, device: Path, name: str = "node") -> Path:
        """Another node of a device, as a container's `/dev` has it."""
        path = self.directory / name
        os.mknod(path, stat.S_IFBLK | 0o600, device.stat().st_rdev)
        return path

    def at_end(self, *command: str | Path) -> None:
        """A command that undoes what a test has done itself."""
        self._undo.append(list(map(str, command)))

    def above(self, device: Path) -> Iterator[Path]:
        for status in attached_loops():
            if status.backing_device == number_of(device):
                yield status.node

    def close(self) -> None:
        """Undo everything. A loop device that a process has open is detached when that process closes it: wait for that."""
        deadline = time.monotonic() + 300
        failed: list[str] = []
        while self._undo:
            command = self._undo.pop()
            if command[0] == "losetup" and not self._is_own(command[-1]):
                failed.append(f"{command[-1]} was detached by another process, which must not")
                continue
            if error := until_not_busy(command, deadline):
                failed.append(f"{command}: {error}")  # And undo the rest.
            elif command[0] == "losetup":
                # Its file keeps a file system busy that is unmounted next.
                wait_until_detached(command[-1], self._backing[command[-1]])
        assert not failed, failed

    def _is_own(self, device: str) -> bool:
        """Return True if a loop device still has the backing file attached here, even deleted or moved."""
        backing = backing_name(device)
        return backing == self._backing[device] or backing.startswith(f"{self.directory}/")


def until_not_busy(command: list[str], deadline: float) -> str:
    """The error of a command, empty if there is none. Other tests look at all block devices, and may have one open."""
    while True:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
        if not done.returncode:
            return ""
        if command[0] not in ("delpart", "umount") or "busy" not in done.stderr or time.monotonic() > deadline:
            return done.stderr
        time.sleep(0.05)


def wait_until_detached(device: str, backing: str) -> None:
    """Wait until a loop device has another backing file than this one, or none."""
    deadline = time.monotonic() + 300
    while backing_name(device) == backing:
        assert time.monotonic() < deadline, f"still attached: {device}"
        time.sleep(0.01)


def backing_name(device: str) -> str:
    """Path at which a loop device's backing file was opened; empty if it is detached."""
    try:
        return Path("/sys/block", Path(device).name, "loop/backing_file").read_text()
    except OSError:
        return ""


def run(*command: str | int | Path) -> str:
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """With the directories of root's programs."""
    return {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
