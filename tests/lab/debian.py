"""A fresh Debian in a directory that reaches package registries as this machine does."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from command_line import CHECKOUT
from namespaces import private_mounts

NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    *(str(Path.home() / name) for name in (".config/pip/pip.conf", ".cargo/config.toml", ".m2/settings.xml")),
    "/etc/ssl/certs/ca-certificates.crt",
)
"""Network configuration for package registries; existing files are copied."""
LOCAL_AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""Certificates that the administrator has added, of a proxy for example."""
NETWORK_VARIABLES = re.compile(
    r"(?i)(https?|ftp|no|all)_proxy|PIP_.*|CARGO_(HTTP|NET|REGISTR).*|SSL_CERT_.*|.*_CA_BUNDLE"
)
ENTER = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
exec chroot "$1" /bin/bash -euo pipefail -c "$2"
"""
"""The mounts are in a namespace of their own and end with it. The new root is a mount point: tests create namespaces in it,
and `unshare` sets the propagation of `/`, which nothing but a mount point has."""


@dataclass(frozen=True)
class Debian:
    """A Debian in a directory."""

    root: Path
    directory: str = "/root"
    """Working directory of scripts."""

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script as root; its output is shown as it comes, and returned."""
        settings = {name: value for name, value in os.environ.items() if NETWORK_VARIABLES.fullmatch(name)}
        environment = {
            **settings,
            "HOME": "/root",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        process = subprocess.Popen(
            private_mounts(ENTER, self.root, f"cd {self.directory}\n{script}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            lines.append(line)
        return subprocess.CompletedProcess(process.args, process.wait(), "".join(lines), "")

    def add(self, file: Path) -> None:
        """Copy a file into the working directory."""
        shutil.copy(file, self.root / self.directory.lstrip("/"))


@contextmanager
def fresh_debian(root: Path, *, release: str, packages: str) -> Iterator[Debian]:
    """Install a minimal Debian and packages, and remove it at the end. `root` must not exist yet."""
    sources = debian_sources(release)
    options = ["--variant=minbase", f"--include=ca-certificates,{packages.replace(' ', ',')}".rstrip(",")]
    try:
        # debootstrap mounts file systems in the new root.
        command = private_mounts('exec debootstrap "$@"', *options, release, root, mirror(sources, release))
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        copy_network_settings(root, sources)
        yield Debian(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def debian_sources(release: str) -> list[str]:
    """The apt sources of a release, its updates and its security updates, where this machine has those of its own."""
    fields = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", fields, "Identifier: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    suites = {f"{own}{part}": f"{release}{part}" for part in ("", "-updates", "-security")}
    found = (line.split() for line in lines)
    return sorted({f"deb {uri} {suites[suite]} {part}" for _, uri, suite, part in found if suite in suites})


def mirror(sources: list[str], release: str) -> str:
    """The address that packages of the release come from."""
    found = [line.split()[1] for line in sources if line.split()[2] == release]
    assert found, "apt on this machine has no source of its release of Debian"
    return found[0]


def copy_network_settings(root: Path, sources: list[str]) -> None:
    """Package registries are reached in the same way as on this machine, also from Java, which has its own store."""
    (root / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in sources))
    for certificate in LOCAL_AUTHORITIES.glob("*.crt"):
        shutil.copy(certificate, root / LOCAL_AUTHORITIES.relative_to("/"))
    subprocess.run(["chroot", str(root), "/usr/sbin/update-ca-certificates"], check=True, stdin=subprocess.DEVNULL)
    for name in NETWORK_FILES:
        if Path(name).exists():
            place = root / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, place)
    for path in Path("/etc/apt/apt.conf.d").iterdir():
        if re.search(r"Acquire::\w+(::|.*)(Proxy|Check)", path.read_text(), flags=re.IGNORECASE):
            shutil.copyfile(path, root / "etc/apt/apt.conf.d" / path.name)


def copy_checkout(place: Path) -> None:
    """A clone, with the changes that are not committed yet."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(place)], check=True)
    listed = ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"]
    changed = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, changed.split("\0")):
        source, copy = CHECKOUT / name, place / name
        if source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
        else:
            copy.unlink(missing_ok=True)
