"""QEMU's command line: the guest, its serial ports, and its rate-limited drives."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from iosonde.base.cache import cache_directory
from iosonde.data import data_folder
from iosonde.errors import LabError
from iosonde.lab.bound_process import find_tool, start_bound
from iosonde.lab.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Image:
    """A kernel and its initial file system."""

    directory: Path

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The archive (cpio) that the kernel starts from."""
        return self.directory / "initrd"

    @property
    def packages(self) -> list[str]:
        """Packages in the image, as `package=version`."""
        return (self.directory / "packages").read_text(encoding="utf-8").splitlines()


def image(cache: Path | None = None) -> Image:
    """The image for what Debian has now; built, in half a minute, unless it is there."""
    build = data_folder("lab") / "build"
    try:
        done = subprocess.run(
            # Through bash, because a wheel does not keep the mark that makes a file a program.
            ["bash", build, cache or cache_directory() / "lab"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise LabError(f"cannot run `{build}`: {error.strerror}", hint="the lab needs bash") from error
    if done.returncode:
        what, _, hint = done.stderr.strip().partition("\n\nhint: ")
        raise LabError(what.strip() or f"`{build}` failed", hint=hint)
    return Image(directory=Path(done.stdout.strip()))


Accelerator = Literal["kvm", "tcg"]

ACCELERATORS: dict[Accelerator, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # Fast copies (ERMS) would be carried out byte by byte; the others make each access to memory or user space slower.
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max,-erms,-smap,-smep,-la57"),
}
"""Options for KVM and for emulation of the processor."""

PARAMETERS: dict[Accelerator, str] = {
    "kvm": "",
    "tcg": " mitigations=off init_on_alloc=0 apparmor=0 audit=0 no_timer_check",
}
"""Further kernel parameters. Mitigations, zeroing and security modules cost an emulated kernel much time. Its check of
the timer interrupt fails on a busy host, and with an IOMMU the kernel then panics."""

Stream = Literal["console", "out", "err"]
STREAMS: tuple[Stream, ...] = ("console", "out", "err")
"""The guest's serial ports: the kernel and `lab/init`; standard output and error of the command."""

MOST_DRIVES = 16
FAILING_BYTES = 8 << 20
"""From the block that cannot be read to the end of its namespace."""
_STAGE = "/sys"
_SCRIPT = f"""
size=$1 count=$2
shift 2
mount -t tmpfs -o mode=700 iosonde-lab {_STAGE}
while [ "$count" -gt 0 ]; do
  count=$((count - 1))
  truncate -s "$size" "{_STAGE}/drive$count"
done
exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Drives:
    """NVMe drives, each with limits of its own; their data is in memory."""

    count: int = 8
    size_bytes: int = 256 << 20
    limits: Limits = field(default_factory=Limits)
    unlimited: int = 0
    """Further drives without limits, numbered after the others."""
    pairs: int = 0
    """Further drives without limits, after those, with two namespaces: one with blocks of 512 bytes, of which one
    cannot be read (`failing_byte`), and one with blocks of 4 KiB."""
    keep_data: bool = True
    """Without data, reads return zeroes and the emulated media take no time: for measurements of drivers."""

    @property
    def total(self) -> int:
        """All drives, with limits or without."""
        return self.count + self.unlimited + self.pairs

    @property
    def images(self) -> int:
        """Their images, of which a pair has two."""
        return self.total + self.pairs

    @property
    def failing_byte(self) -> int:
        """Start of a block of the first namespace of a pair that cannot be read."""
        return self.size_bytes - FAILING_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.total <= MOST_DRIVES or min(self.count, self.unlimited, self.pairs) < 0:
            raise LabError(f"number of lab drives must be 0 to {MOST_DRIVES}; got {self.total}")
        if self.size_bytes < 1 << 20 or self.size_bytes % 512:
            raise LabError(
                f"lab drive size must be at least 1 MiB and a multiple of 512 bytes; got {self.size_bytes} bytes",
                hint="choose another size, such as `1GiB`",
            )

    def options(self) -> list[str]:
        return [option for number in range(self.total) for option in self._drive(number)]

    def _drive(self, number: int) -> list[str]:
        if number >= self.count + self.unlimited:
            return self._pair(number)
        limits = self.limits if number < self.count else Limits()
        return [
            *("-object", limits.throttle_group(f"limits{number}")),
            *self._image(number),
            "-blockdev",
            f"driver=throttle,throttle-group=limits{number},file=raw{number},node-name=throttled{number}",
            *("-device", f"nvme,id=nvme{number},serial=IOSONDE-LAB-{number},drive=throttled{number}"),
        ]

    def _pair(self, number: int) -> list[str]:
        """A drive of two namespaces with images of their own, which deallocate."""
        second = number + self.pairs
        failing = {
            "driver": "blkdebug",
            "node-name": f"failing{number}",
            "discard": "unmap",
            "image": f"raw{number}",
            "inject-error": [
                {"event": "none", "iotype": "read", "errno": 5, "once": False, "sector": self.failing_byte // 512}
            ],
        }
        return [
            *self._image(number, discard="unmap"),
            *("-blockdev", json.dumps(failing)),
            *self._image(second, discard="unmap"),
            *("-device", f"nvme,id=nvme{number},serial=IOSONDE-LAB-{number}"),
            *("-device", f"nvme-ns,bus=nvme{number},nsid=1,drive=failing{number}"),
            "-device",
            f"nvme-ns,bus=nvme{number},nsid=2,drive=raw{second},logical_block_size=4096,physical_block_size=4096",
        ]

    def _image(self, number: int, discard: Literal["ignore", "unmap"] = "ignore") -> list[str]:
        image = f"driver=file,filename={_STAGE}/drive{number},aio=threads,discard=unmap"
        if not self.keep_data:
            image = f"driver=null-co,size={self.size_bytes},read-zeroes=on"
        return [
            *("-blockdev", f"{image},node-name=image{number}"),
            *("-blockdev", f"driver=raw,file=image{number},node-name=raw{number},discard={discard}"),
        ]


def start_qemu(
    command: Sequence[str], descriptors: Sequence[int], *, drives: Drives, stderr: int
) -> subprocess.Popen[bytes]:
    """Start QEMU with its drives on a file system that it alone sees."""
    return start_bound(
        _SCRIPT, str(drives.size_bytes), str(drives.images), *command, stderr=stderr, pass_fds=descriptors
    )


def qemu_command(
    image: Image,
    initrd: int,
    accelerator: Accelerator,
    ports: Mapping[Stream, int],
    options: Sequence[str],
    *,
    cpus: int,
    memory: int,
    iommu: bool = False,
    monitor: int | None = None,
) -> list[str]:
    """QEMU's command line; `initrd`, `ports` and `monitor` are descriptors to pass on."""
    serial = [
        option
        for stream in STREAMS
        if stream in ports
        for option in (
            *("-chardev", f"file,id={stream},path=/dev/fd/{ports[stream]}"),
            *("-serial", f"chardev:{stream}"),
        )
    ]
    control = () if monitor is None else ("-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor")
    # With `iommu=pt` it translates only for drives that a program of the guest drives itself (vfio).
    translation = ("-device", "intel-iommu,intremap=on,caching-mode=on") if iommu else ()
    arguments = "console=ttyS0 panic=-1 loglevel=3 tsc=reliable nvme.poll_queues=1" + (
        " intel_iommu=on iommu=pt" if iommu else ""
    )
    arguments += PARAMETERS[accelerator]
    return [
        find_tool("qemu-system-x86_64"),
        *("-machine", "q35,kernel-irqchip=split" if iommu else "q35", *ACCELERATORS[accelerator], *translation),
        *("-smp", str(cpus), "-m", str(memory >> 20), "-nodefaults", "-no-reboot", "-display", "none"),
        *("-object", f"memory-backend-memfd,id=memory,size={memory},share=on", "-numa", "node,memdev=memory"),
        *("-kernel", str(image.kernel), "-initrd", f"/dev/fd/{initrd}"),
        # Emulated, the processor's counter looks unstable, and every look at the clock would leave the guest.
        *("-append", arguments),
        *serial,
        *control,
        *options,
    ]
