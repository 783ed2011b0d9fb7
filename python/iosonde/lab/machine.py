"""A virtual machine with rate-limited NVMe drives, which runs a command of this machine.

The guest has Debian's kernel with md, dm, bcache and the file systems; its root is the host's, read-only under an
overlay that forgets, so that it runs the very same engine, Python and studies. One directory is shared for what it is
to bring out. Where KVM does not work, QEMU emulates the processor: ten to thirty times slower, which the drives' limits
hide as long as they are low.
"""

from __future__ import annotations

import os
import select
import selectors
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, get_args

from iosonde.base import memory
from iosonde.errors import LabError
from iosonde.lab.bound_process import end, find_tool, require_root, start_bound
from iosonde.lab.qemu import STREAMS, Accelerator, Drives, Image, Stream, qemu_command, start_qemu
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.units import format_bytes

_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXIT = "iosonde-lab: exit "
_READY = "iosonde-lab: ready"
_PROMPT = b"(qemu) "
_MONITOR_S = 60.0
_MOST_STARTS = 3
"""Until it gets as far as the command."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Size of the machine and time limits."""

    drives: Drives = field(default_factory=Drives)
    memory_bytes: int = 2 << 30
    boot_s: float = 300
    """Until the command starts. Half a minute is usual on a busy machine without KVM."""
    terminal: bool = False
    """True if the command sees a terminal, and so may show progress and colours."""
    iommu: bool = False
    """True if it has an emulated IOMMU, so that a program can control a drive itself (vfio)."""
    silence_s: float | None = None
    """Time without output of the guest once the command runs; None without a limit."""

    def check_room(self) -> None:
        """Raise when this does not fit into memory, full drives included."""
        needed = self.memory_bytes + self.drives.images * self.drives.size_bytes
        free = memory.available_bytes()
        if needed > free:
            raise LabError(
                f"no room for the lab's machine: it takes up to {format_bytes(needed)} of memory, its drives included, "
                f"and {format_bytes(free)} are free",
                hint="name fewer or smaller drives, or less memory",
            )


class Machine:
    """One guest that runs one command. A context manager: whatever is left of it ends with the `with` block.

    `output()` yields the output of the guest until it has ended; then `exit_code` is the command's. The guest finds the
    drives as `/dev/lab/0` and on, and their list, separated by commas, in `$IOSONDE_LAB_DEVICES`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        image: Image,
        results: Path,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        require_root("the lab's machine")
        self.settings = settings or Settings()
        self.settings.check_room()
        self.exit_code: int | None = None
        self.is_ready = False
        self.accelerator = best_accelerator(image)
        self._stack = ExitStack()
        self._image = image
        self._results = results.resolve()
        self._job = _job(command, self._results, environment or {}, self.settings)
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def output(self) -> Iterator[tuple[Stream, bytes]]:
        """Yield output of the guest as it arrives; `LabError` when it dies, or stays silent for too long.

        A guest that does not get as far as the command is started again: an emulated kernel may hang or panic.
        """
        for starts_left in reversed(range(_MOST_STARTS)):
            try:
                yield from self._output()
            except _NotStartedError:
                if starts_left == 0:
                    raise
                self._stack.close()
                self._start()
            else:
                return

    def _output(self) -> Iterator[tuple[Stream, bytes]]:
        with selectors.DefaultSelector() as selector:
            for stream, descriptor in self._ports.items():
                selector.register(descriptor, selectors.EVENT_READ, stream)
            deadline = time.monotonic() + self.settings.boot_s
            while selector.get_map():
                ready = selector.select(None if self._may_be_silent else max(0.0, deadline - time.monotonic()))
                if not ready and not self._may_be_silent:
                    if self.is_ready:
                        self._stderr.write(self.registers().encode())
                        raise self._failed("fell silent")
                    raise self._failed("did not start in time", _NotStartedError)
                for key, _ in ready:
                    if not (data := os.read(key.fd, 1 << 16)):
                        selector.unregister(key.fd)
                        continue
                    if key.data == "console":
                        self._hear(data)
                    if self.is_ready and self.settings.silence_s is not None:
                        deadline = time.monotonic() + self.settings.silence_s
                    yield key.data, data
        self._qemu.wait()
        if self.exit_code is None:
            has_panicked = not self.is_ready and b"Kernel panic" in self._console
            raise self._failed("ended without an exit code", _NotStartedError if has_panicked else LabError)

    def registers(self) -> str:
        """Registers of all virtual processors, by QEMU's monitor; what it has printed so far if it does not answer."""
        heard = b""
        with suppress(OSError):
            self._monitor.settimeout(_MONITOR_S)
            self._monitor.sendall(b"info registers -a\n")
            while heard.count(_PROMPT) < 2:  # Before the command, and after it.
                heard += self._monitor.recv(1 << 16)
        return heard.decode(errors="replace").replace("\r", "")

    @property
    def _may_be_silent(self) -> bool:
        return self.is_ready and self.settings.silence_s is None

    def _start(self) -> None:
        self._console = b""
        try:
            # Files without a name: nothing to remove, however this ends.
            self._stderr, initrd = [self._stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]  # noqa: SIM115
            initrd.write(self._image.initrd.read_bytes() + archive("job", self._job))
            initrd.flush()
            folders = []
            points = map(str, mount_points_of_programs())
            for shared in (("root", _READ_ONLY, *points), ("results", _READ_WRITE, str(self._results))):
                folders.append(_SharedFolder(*shared))
                self._stack.callback(folders[-1].close)
            self._run(initrd.fileno(), folders)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, initrd: int, folders: Sequence[_SharedFolder]) -> None:
        pipes = {stream: os.pipe() for stream in STREAMS}
        for reading, _ in pipes.values():
            self._stack.callback(os.close, reading)
        self._ports = {stream: reading for stream, (reading, _) in pipes.items()}
        writing = {stream: each for stream, (_, each) in pipes.items()}
        self._monitor, monitor = socket.socketpair()
        self._stack.callback(self._monitor.close)
        options = [option for folder in folders for option in folder.options()] + self.settings.drives.options()
        command = qemu_command(
            self._image,
            initrd,
            self.accelerator,
            writing,
            options,
            cpus=min(os.cpu_count() or 1, 4),
            memory=self.settings.memory_bytes,
            iommu=self.settings.iommu,
            monitor=monitor.fileno(),
        )
        self._qemu = start_qemu(
            command,
            [initrd, monitor.fileno(), *writing.values(), *(folder.client.fileno() for folder in folders)],
            drives=self.settings.drives,
            stderr=self._stderr.fileno(),
        )
        monitor.close()
        self._stack.callback(end, self._qemu)
        for each in writing.values():
            os.close(each)

    def _hear(self, data: bytes) -> None:
        self._console = (self._console + data)[-(1 << 16) :]
        for line in self._console.decode(errors="replace").splitlines():
            if line.startswith(_READY):
                self.is_ready = True
            if line.startswith(_EXIT) and line.removeprefix(_EXIT).strip().isdigit():
                self.exit_code = int(line.removeprefix(_EXIT))

    def _failed(self, what: str, kind: type[LabError] = LabError) -> LabError:
        self._stderr.seek(0)
        printed = self._stderr.read().decode(errors="replace").strip()
        last = "\n  ".join(self._console.decode(errors="replace").splitlines()[-15:])
        return kind(
            f"the lab's machine {what}" + (f": {printed}" if printed else ""),
            where=f"last on its console:\n  {last}" if last else "its console is empty",
            hint="a busy machine without KVM is slow: try again when it is idle, or allow more time",
        )


class _NotStartedError(LabError):
    """The guest did not get as far as the command."""


def mount_points_of_programs() -> list[Path]:
    """Mount points of file systems with Python, the engine and iosonde, besides the root."""
    from iosonde.errors import EngineError
    from iosonde.execution.engine import find_engine
    from iosonde.study.workload.workload import Engine

    needed = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent, Path.cwd()]
    if sys.pycache_prefix and Path(sys.pycache_prefix).is_dir():
        needed.append(Path(sys.pycache_prefix))
    engines: Sequence[Engine] = get_args(Engine)
    for program in engines:
        with suppress(EngineError):  # What runs in the guest may need none.
            needed.append(find_engine(program))
    points = {mount.point for path in needed if (mount := mount_of(path)) is not None}
    return sorted(Path(point) for point in points - {"/"})


def _job(command: Sequence[str], results: Path, environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the files that `lab/init` reads in `/job`: its settings, and the command as a script."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in {"PATH": _PATH, **environment}.items()]
    exports.append('export PATH="$PATH:/usr/sbin:/sbin"')  # Where mdadm is, which no user's path need hold.
    return {
        "settings": f"RESULTS={shlex.quote(str(results))}\nDRIVES={settings.drives.total}\n"
        f"TERMINAL={'yes' if settings.terminal else 'no'}\n",
        "command": "\n".join([*exports, f"cd {shlex.quote(str(results))}", f"exec {shlex.join(command)}", ""]),
    }


# The accelerator: that `/dev/kvm` opens and creates machines proves little, because under some hypervisors no kernel
# starts in them. So a trial start decides, once after each boot of the host.


_KVM = Path("/dev/kvm")
_TRIAL_S = 10


def best_accelerator(image: Image) -> Accelerator:
    """KVM if a guest starts with it, else TCG. The answer is kept next to the image."""
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    answer = image.directory / f"accelerator-{boot}"
    if not answer.exists():
        for old in image.directory.glob("accelerator-*"):
            old.unlink(missing_ok=True)
        answer.write_text("kvm" if _starts(image) else "tcg", encoding="utf-8")
    return "kvm" if answer.read_text(encoding="utf-8") == "kvm" else "tcg"


def _starts(image: Image) -> bool:
    """Return True if a guest under KVM exits in time."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as initrd, tempfile.TemporaryFile() as stderr:
        initrd.write(image.initrd.read_bytes() + archive("job", {"settings": "DRIVES=none\n"}))
        initrd.flush()
        command = qemu_command(image, initrd.fileno(), "kvm", {"console": writing}, [], cpus=1, memory=512 << 20)
        qemu = start_qemu(command, [initrd.fileno(), writing], drives=Drives(count=0), stderr=stderr.fileno())
        os.close(writing)
        heard, deadline = b"", time.monotonic() + _TRIAL_S
        try:
            while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                if not (data := os.read(reading, 1 << 16)):
                    break
                heard += data
        finally:
            end(qemu)
            os.close(reading)
    return b"iosonde-lab: exit 0" in heard


# Folders of the host in the guest, through virtiofsd: vhost-user over a socket that only QEMU and it know


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
"""The host's root file system and those mounted at some points; not writable, also not for the guest."""

_READ_WRITE = """
exec "$1" --fd="$2" -o source="$3" -o cache=auto -o sandbox=chroot
"""
"""One folder that the guest may write to."""


class _SharedFolder:
    """A daemon that serves one folder to one guest, and the tag under which the guest mounts it."""

    def __init__(self, tag: str, script: str, *arguments: str) -> None:
        self.tag = tag
        daemon = find_tool("virtiofsd")
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the daemon
        listener, self.client = _connected_pair()
        with listener:
            number = listener.fileno()
            self._daemon = start_bound(
                script, *(daemon, str(number), *arguments), stderr=self.stderr, pass_fds=[number]
            )

    def close(self) -> None:
        end(self._daemon)
        self.client.close()
        self.stderr.close()

    def options(self) -> list[str]:
        """QEMU's options; `client` has to be passed on to it."""
        return [
            *("-chardev", f"socket,id={self.tag},fd={self.client.fileno()}"),
            *("-device", f"vhost-user-fs-pci,chardev={self.tag},tag={self.tag},queue-size=1024"),
        ]


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


# The guest's command: a cpio archive as Linux takes it after its initial file system, in the format "newc" (the
# kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`)


_DIRECTORY = 0o040700
_FILE = 0o100600


def archive(directory: str, files: Mapping[str, str]) -> bytes:
    """Files in one new directory at the root, padded so that it may follow another archive."""
    parts = [_entry(directory, _DIRECTORY, b"")]
    parts += [_entry(f"{directory}/{name}", _FILE, text.encode()) for name, text in files.items()]
    return _padded(b"".join([*parts, _entry("TRAILER!!!", 0, b"")]), 512)


def _entry(name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    # Inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(header + path, 4) + _padded(data, 4)


def _padded(data: bytes, unit: int) -> bytes:
    return data + bytes(-len(data) % unit)
