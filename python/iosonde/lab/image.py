"""The image of the lab's virtual machine: built once by `lab/build`, kept in the user's cache, found again."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from iosonde.base.cache import cache_directory
from iosonde.data import data_folder
from iosonde.errors import LabError


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
