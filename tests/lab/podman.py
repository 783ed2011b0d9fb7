"""Podman with images, containers and settings of its own, on machines where no container engine has been set up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from namespaces import private_mounts

STORAGE = """
[storage]
driver = "overlay"
graphroot = "{directory}/images"
runroot = "{directory}/run"
"""
ENGINE = """
[containers]
# Podman's own are higher, which a root without CAP_SYS_RESOURCE may not set.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{directory}/tmp"
"""
IN_PRIVATE = """
# crun refuses control groups of both versions; without the mount of version 2 it uses those of version 1.
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
exec podman "$@"
"""


@dataclass(frozen=True)
class Podman:
    """Podman whose files are all in one directory; its mounts are in a namespace of their own."""

    directory: Path

    def __post_init__(self) -> None:
        for name, text in (("storage.conf", STORAGE), ("containers.conf", ENGINE)):
            (self.directory / name).write_text(text.format(directory=self.directory))

    def __call__(self, *arguments: str | Path, succeeds: bool = True) -> str:
        """Run a command of Podman -> its output, which is also shown."""
        settings = {
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
        }
        command = private_mounts(IN_PRIVATE, *arguments)
        output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        sys.stderr.write(f"$ podman {' '.join(map(str, arguments))}\n")
        done = subprocess.run(command, env=os.environ | settings, check=False, **output)  # type: ignore[call-overload]
        sys.stderr.write(done.stdout)
        assert not succeeds or done.returncode == 0, done.stdout[-4000:]
        return str(done.stdout)

    def import_directory(self, root: Path, name: str) -> None:
        """Make an image of a directory."""
        archive = self.directory / "base.tar"
        excluded = [f"--exclude=./{each}/*" for each in ("dev", "var/cache/apt", "var/lib/apt/lists")]
        subprocess.run(["tar", "--create", f"--directory={root}", f"--file={archive}", *excluded, "."], check=True)
        self("import", archive, name)
        archive.unlink()

    def remove(self) -> None:
        """Remove everything."""
        self("rm", "--all", "--force")
        self("rmi", "--all", "--force")
        shutil.rmtree(self.directory, ignore_errors=True)
        for group in Path("/sys/fs/cgroup").glob("*/libpod_parent"):
            with suppress(OSError):  # Empty, unless this machine has containers of its own.
                for each in (*(path for path in group.iterdir() if path.is_dir()), group):
                    each.rmdir()
