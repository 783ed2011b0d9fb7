"""A virtual machine with rate-limited NVMe drives, which runs a command of this machine.

The guest has Debian's kernel with md, dm, bcache and the file systems; its root is the host's, read-only under an
overlay that forgets, so that it runs the very same engine, Python and studies. One directory is shared for what it is
to bring out. Where KVM does not work, QEMU emulates the processor: ten to thirty times slower, which the drives' limits
hide as long as they are low.
"""

from __future__ import annotations

import os
import selectors
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, get_args

from iosonde.base import memory
from iosonde.errors import LabError
from iosonde.lab.accelerator import best_accelerator
from iosonde.lab.archive import archive
from iosonde.lab.bound_process import end, require_root
from iosonde.lab.image import Image
from iosonde.lab.qemu import STREAMS, Drives, Stream, qemu_command, start_qemu
from iosonde.lab.shared_folder import SharedFolder, read_only_root, read_write
from iosonde.storage.block_layer.mounts import mount_of
from iosonde.units import format_bytes

_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXIT = "iosonde-lab: exit "
_READY = "iosonde-lab: ready"
_PROMPT = b"(qemu) "
_MONITOR_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Size of the machine and time limits."""

    drives: Drives = field(default_factory=Drives)
    memory_bytes: int = 2 << 30
    cpus: int = min(os.cpu_count() or 1, 4)
    boot_s: float = 300
    """Until the command starts. Half a minute is usual on a busy machine without KVM."""
    starts: int = 3
    """Largest number of starts until it gets so far."""
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
        for starts_left in reversed(range(self.settings.starts)):
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
            for share in (partial(read_only_root, mount_points_of_programs()), partial(read_write, self._results)):
                folders.append(share())
                self._stack.callback(folders[-1].close)
            self._run(initrd.fileno(), folders)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, initrd: int, folders: Sequence[SharedFolder]) -> None:
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
            cpus=self.settings.cpus,
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
