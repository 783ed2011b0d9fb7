"""Every external program, library and data package that iosonde, its tests and its benchmarks use, and child processes.

`scripts/setup` (what to install), `iosonde doctor` (what is missing) and the tests' `needs` markers are derived from
this list; a test fails if it starts a program that is not in it (`tests/tiers.py`). Standard library only,
because `scripts/setup` loads this file before anything is installed.
"""

from __future__ import annotations

import ctypes.util
import os
import select
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["build", "runtime", "dev", "lab"]
"""Building from source; product features; tests and benchmarks; throttled devices and the virtual machine."""

CASSANDRA_PLACES = (
    *("/usr/share/cassandra", "/opt/cassandra/lib", "/opt/iosonde/cassandra", "~/.cache/iosonde/cassandra"),
)
"""Jar files of Cassandra: of its package, of an archive unpacked by hand, and those that `scripts/setup` assembles as
root or as an ordinary user. Servers run under an unprivileged user, who cannot enter root's home directory."""

FERRETDB = "~/.cache/iosonde/ferretdb"
"""The program that `scripts/setup` builds from `packaging/ferretdb`."""

MOTO = "~/.cache/iosonde/moto"
"""The Python environment that `scripts/setup` installs from `packaging/moto`."""

LIBRARY_DIRECTORIES = (
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
)
"""Directories that the engine searches for libraries before the linker (`crates/kv/src/library_directories.txt`)."""

SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of administration programs, which are not on every user's PATH."""


ANSWER_S = 60
"""A device that hangs takes longer, a starved machine does not."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One external dependency."""

    name: str
    """Program on PATH; for a library its name without `lib`; for files the package's common name."""
    packages: tuple[str, ...]
    """Debian and Ubuntu packages that contain it: the first one that the distribution has is installed."""
    kind: Kind
    purpose: str
    version: tuple[str, ...] = ()
    """Arguments that print its version; none where a call without effect is not known."""
    form: Literal["program", "library", "files"] = "program"
    places: tuple[str, ...] = ()
    """Further directories of a program, as patterns; directories or files, one of which must exist."""

    @property
    def is_in_every_debian(self) -> bool:
        """True if its package is part of every installation, so that only its absence is worth a message."""
        return self.packages[0] in _IN_EVERY_DEBIAN

    @property
    def is_for_studies(self) -> bool:
        """True if studies or the lab use it, and not only tests and benchmarks of iosonde."""
        return self.kind in ("runtime", "lab") or self.name in _OF_STUDIES

    @property
    def is_for_setup(self) -> bool:
        return self.name not in _NOT_BY_SETUP

    def find(self) -> str | None:
        """Path of the program, file name of the library or place of the files; None if not installed."""
        match self.form:
            case "library":
                return ctypes.util.find_library(self.name)
            case "files":
                return next((place for place in self.places if Path(place).expanduser().exists()), None)
            case "program":
                # Looked up at each call: setup asks before and after it installs packages.
                found = (str(each) for place in self.places for each in sorted(Path("/").glob(place.lstrip("/"))))
                extra = ":".join([SYSTEM_PATH, *found])
                path = shutil.which(self.name) or shutil.which(self.name, path=extra)
                return None if path is None or os.path.realpath(path) == SNAP else path


SNAP = "/usr/bin/snap"
"""Target of the links to programs of snaps. A snap cannot read temporary files, so it counts as missing."""

_OF_STUDIES = (
    *("fio", "db_bench", "pgbench", "sysbench", "rados", "memcaslap"),
    *("java", "memcached", "postgres", "mariadbd", "mysqld"),
    *("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool"),
)
"""Programs and servers that some studies run, which are installed for the tests of these studies too."""

_NOT_BY_SETUP = ("systemd-detect-virt", "valgrind", "exportfs")
"""Installing the first would change what kind of machine this is, and the last would start a server; no test needs the
second, and the last only inside the lab's machine, whose image has it."""

_IN_EVERY_DEBIAN = ("apt", "bash", "coreutils", "dpkg", "fdisk", "libc-bin", "mount", "util-linux")


def _tool(name: str, package: str, kind: Kind, purpose: str, *version: str) -> Tool:
    return Tool(name=name, packages=tuple(package.split("|")), kind=kind, purpose=purpose, version=version)


def _library(name: str, package: str, kind: Kind, purpose: str) -> Tool:
    return Tool(name=name, packages=tuple(package.split("|")), kind=kind, purpose=purpose, form="library")


_RUNTIME = (
    _tool("mdadm", "mdadm", "runtime", "md arrays", "--version"),
    _tool("btrfs", "btrfs-progs", "runtime", "btrfs arrays", "--version"),
    _tool("mkfs.ext4", "e2fsprogs", "runtime", "ext4 file systems created for a study", "-V"),
    _tool("mke2fs", "e2fsprogs", "runtime", "external journals of ext4", "-V"),
    _tool("mkfs.xfs", "xfsprogs", "runtime", "xfs file systems created for a study", "-V"),
    _tool("mkfs.btrfs", "btrfs-progs", "runtime", "btrfs file systems created for a study", "--version"),
    _tool("mount", "mount", "runtime", "file systems created for a study", "--version"),
    _tool("umount", "mount", "runtime", "file systems created for a study", "--version"),
    _tool("make-bcache", "bcache-tools", "runtime", "block caches of bcache"),
    _tool("dmsetup", "dmsetup", "runtime", "block caches of device mapper", "--version"),
    _tool("modprobe", "kmod", "runtime", "kernel modules of arrays and block caches", "--version"),
    _tool("wipefs", "util-linux", "runtime", "signatures on a block device before it is overwritten", "--version"),
    _tool("mkswap", "util-linux", "runtime", "swap areas", "--version"),
    _tool("swapon", "mount", "runtime", "swap areas", "--version"),
    _tool("swapoff", "mount", "runtime", "swap areas", "--version"),
    _tool("chattr", "e2fsprogs", "runtime", "swap files on btrfs", "-V"),
    _tool("mount.nfs", "nfs-common", "runtime", "mounts of NFS with the options of a case", "-V"),
    _tool("ip", "iproute2", "runtime", 'outages of the path to a server (`outage = "link"`)', "-V"),
    _tool("exportfs", "nfs-kernel-server", "runtime", "exports of this machine's NFS server"),
    _tool("blkid", "util-linux", "runtime", "signatures in `iosonde devices`", "--version"),
    _tool("setpriv", "util-linux", "runtime", "servers without root's privileges, which end with iosonde", "--version"),
    _tool("unshare", "util-linux", "runtime", "an IPC namespace for each server", "--version"),
    _tool("sbatch", "slurm-client", "runtime", "hosts of `--hosts slurm:N`", "--version"),
    _tool("scancel", "slurm-client", "runtime", "hosts of `--hosts slurm:N`", "--version"),
    _tool("squeue", "slurm-client", "runtime", "hosts of `--hosts slurm:N`", "--version"),
    _tool("ssh", "openssh-client", "runtime", "hosts of `--hosts ssh:FILE`", "-V"),
    _tool("systemd-detect-virt", "systemd", "runtime", "the hypervisor in the record", "--version"),
    _library("rocksdb", "librocksdb7.8|librocksdb8.9|librocksdb9.10|librocksdb9.11", "runtime", "the store `rocksdb`"),
    _tool("g++", "g++", "runtime", "RocksDB's persistent read cache and reads into a reused slice", "--version"),
    Tool(
        name="rocksdb-headers",
        packages=("librocksdb-dev",),
        kind="runtime",
        purpose="RocksDB's persistent read cache and reads into a reused slice",
        form="files",
        places=("/usr/include/rocksdb", "/usr/local/include/rocksdb"),
    ),
    _library("wiredtiger", "libwiredtiger0", "runtime", "the store `wiredtiger`"),
    Tool(
        name="wiredtiger-header",
        packages=("libwiredtiger-dev",),
        kind="runtime",
        purpose="the store `wiredtiger`, for which `cc` compiles a shim",
        form="files",
        places=("/usr/include/wiredtiger.h", "/usr/local/include/wiredtiger.h"),
    ),
)

_LAB = (
    _tool("qemu-storage-daemon", "qemu-utils", "lab", "throttled devices (`iosonde lab device`)", "--version"),
    _tool("qemu-system-x86_64", "qemu-system-x86", "lab", "the virtual machine (`iosonde lab run`)", "--version"),
    Tool(
        name="virtiofsd",
        packages=("virtiofsd", "qemu-system-common"),
        kind="lab",
        purpose="directories shared with the virtual machine",
        version=("--version",),
        places=("/usr/lib/qemu", "/usr/libexec"),
    ),
    _tool("nbdkit", "nbdkit", "dev", "tests with a device that loses its write cache, or is slow", "--version"),
    _tool("qemu-img", "qemu-utils", "dev", "tests with a volume that loads its blocks when they are read", "--version"),
    _tool("unshare", "util-linux", "lab", "mounts that only the lab sees", "--version"),
    _tool("truncate", "coreutils", "lab", "drives of the virtual machine", "--version"),
    _tool("losetup", "mount", "lab", "loop devices", "--version"),
    _tool("bash", "bash", "lab", "the script that builds the virtual machine's image", "--version"),
    _tool("apt-get", "apt", "lab", "packages of the virtual machine's image", "--version"),
    _tool("apt-cache", "apt", "lab", "packages of the virtual machine's image", "--version"),
    _tool("dpkg-deb", "dpkg", "lab", "packages of the virtual machine's image", "--version"),
    _tool("cpio", "cpio", "lab", "the virtual machine's image", "--version"),
    _tool("linux.uml", "user-mode-linux", "dev", "tests with NFS in User Mode Linux", "--version"),
    _tool("depmod", "kmod", "lab", "the virtual machine's image", "--version"),
    _tool("debootstrap", "debootstrap", "dev", "the test of an installation on a fresh Debian", "--version"),
    _tool("chroot", "coreutils", "dev", "the test of an installation on a fresh Debian", "--version"),
)

_DEV = (
    _tool("fio", "fio", "dev", "the study `command-fio`, and comparison with fio", "--version"),
    _tool("strace", "strace", "dev", "the test that fio and the engine do the same I/O", "--version"),
    _library("lmdb", "liblmdb0", "dev", "the store `lmdb` with the library of the system, and its tests"),
    _tool("mdb_stat", "lmdb-utils", "dev", "the test of databases of the system's LMDB", "-V"),
    _tool("fio_jsonplus_clat2csv", "fio", "dev", "the test of the fio export"),
    _tool("localedef", "libc-bin|glibc-common", "dev", "tests in locales with other encodings than UTF-8", "--version"),
    Tool(
        name="charmaps",
        packages=("locales", "glibc-locale-source"),
        kind="dev",
        purpose="tests in locales with other encodings than UTF-8",
        form="files",
        places=("/usr/share/i18n/charmaps",),
    ),
    Tool(
        name="fio-examples",
        packages=("fio-examples", "fio"),
        kind="dev",
        purpose="the test that imports all of fio's example jobs",
        form="files",
        places=("/usr/share/doc/fio/examples", "/usr/share/doc/fio-examples"),
    ),
    _tool("chromium", "chromium|chromium-browser", "dev", "tests of the HTML report in a browser", "--version"),
    _tool(
        "chromedriver",
        "chromium-driver|chromium-chromedriver",
        "dev",
        "tests of the HTML report in a browser",
        "--version",
    ),
    _tool("valgrind", "valgrind", "dev", "instructions of a read (`bench/read_code.py`)", "--version"),
    _tool("db_bench", "rocksdb-tools", "dev", "the studies `command-db-bench`, and comparison with db_bench"),
    Tool(
        name="pgbench",
        packages=("postgresql",),
        kind="dev",
        purpose="the study `command-pgbench`",
        version=("--version",),
        places=tuple(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))),
    ),
    _tool("sysbench", "sysbench", "dev", "the studies `command-sysbench`", "--version"),
    _tool("java", "openjdk-17-jre-headless", "dev", "the store `cassandra`, and its tests", "-version"),
    _tool("mvn", "maven", "dev", "Cassandra's jar files, which `scripts/setup` assembles for tests", "--version"),
    Tool(
        name="cassandra",
        packages=("cassandra",),
        kind="dev",
        purpose="the store `cassandra`, and its tests; without it name a distribution with `CASSANDRA_HOME`",
        form="files",
        places=CASSANDRA_PLACES,
    ),
    _tool("memcached", "memcached", "dev", "the store `memcached`, and its tests", "--version"),
    _tool("ceph-mon", "ceph-mon", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    _tool("ceph-mgr", "ceph-mgr", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    _tool("ceph-osd", "ceph-osd", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    _tool("ceph", "ceph-common", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    _tool("ceph-authtool", "ceph-common", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    _tool("monmaptool", "ceph-base", "dev", "clusters of the workload `objects`, and its tests", "--version"),
    Tool(
        name="librados",
        packages=("librados2",),
        kind="dev",
        purpose="the workload `objects`, and its tests",
        form="files",
        places=tuple(f"{each}/librados.so.2" for each in LIBRARY_DIRECTORIES),
    ),
    _tool("rados", "ceph-common", "dev", "the study `command-rados-bench`, and comparison with it", "--version"),
    _tool(
        "memcaslap", "libmemcached-tools", "dev", "the study `command-memcaslap`, and comparison with it", "--version"
    ),
    Tool(
        name="postgres",
        packages=("postgresql",),
        kind="dev",
        purpose="the server of the studies on PostgreSQL, and its tests",
        version=("--version",),
        places=("/usr/lib/postgresql/*/bin",),
    ),
    _tool("mariadbd", "mariadb-server", "dev", "the server of the studies on MariaDB, and its tests", "--version"),
    _tool(
        "mysqld",
        "mariadb-server",
        "dev",
        "MySQL, which the studies on MariaDB use where it is installed instead",
        "--version",
    ),
    _tool("go", "golang-1.26-go|golang-1.25-go|golang-1.24-go", "dev", "FerretDB, built by `scripts/setup`", "version"),
    Tool(
        name="ferretdb",
        packages=("ferretdb",),
        kind="dev",
        purpose="tests of the store `mongodb`: MongoDB's protocol with other storage; built with Go 1.24",
        form="files",
        places=(FERRETDB,),
    ),
    Tool(
        name="moto",
        packages=("moto",),
        kind="dev",
        purpose="tests of S3: a server for tests, which `scripts/setup` installs from the Python Package Index",
        form="files",
        places=(f"{MOTO}/bin/python",),
    ),
    _tool("dumpe2fs", "e2fsprogs", "dev", "tests of ext4 options", "-V"),
    _tool("mkfs.ntfs", "ntfs-3g", "dev", "tests of a file system that a FUSE daemon serves", "--version"),
    _tool("ntfs-3g", "ntfs-3g", "dev", "tests of a file system that a FUSE daemon serves", "--version"),
    _tool("bindfs", "bindfs", "dev", "tests of a directory that a FUSE daemon serves", "--version"),
    _tool("blockdev", "util-linux", "dev", "tests on loop devices", "--version"),
    _tool("addpart", "util-linux", "dev", "tests of partitions", "--version"),
    _tool("delpart", "util-linux", "dev", "tests of partitions", "--version"),
    _tool("partx", "util-linux", "dev", "tests of partitions", "--version"),
    _tool("sfdisk", "fdisk", "dev", "tests of partitions", "--version"),
    _tool("slurmctld", "slurmctld", "dev", "tests of hosts in a Slurm job", "-V"),
    _tool("slurmd", "slurmd", "dev", "tests of hosts in a Slurm job", "-V"),
    _tool("sinfo", "slurm-client", "dev", "tests of hosts in a Slurm job", "--version"),
    _tool("munged", "munge", "dev", "tests of hosts in a Slurm job", "--version"),
    _tool("sshd", "openssh-server", "dev", "tests of hosts that ssh reaches", "-V"),
    _tool("ssh-keygen", "openssh-client", "dev", "tests of hosts that ssh reaches"),
    _tool("tc", "iproute2", "dev", "tests of hosts on a network of their own", "-V"),
    _tool("nsenter", "util-linux", "dev", "tests of hosts on a network of their own", "--version"),
    _tool("git", "git", "dev", "the test that builds the source distribution", "--version"),
    _tool("ldd", "libc-bin", "dev", "the libraries of db_bench", "--version"),
    _tool("taskset", "util-linux", "dev", "benchmarks on one processor", "--version"),
)

_BUILD = (
    _tool("cargo", "cargo", "build", "the engine is compiled from source", "--version"),
    _tool("rustc", "rustc", "build", "the engine is compiled from source", "--version"),
    _tool("cc", "gcc", "build", "the engine is linked with it", "--version"),
    _tool("cargo-fmt", "rustfmt", "dev", "the format check", "--version"),
    _tool("cargo-clippy", "rust-clippy", "dev", "the Rust lints", "--version"),
)

USES: dict[str, dict[str, tuple[str, ...]]] = {
    "arrays": {"md": ("mdadm",), "btrfs": ("btrfs",)},
    "file systems": {"ext4": ("mkfs.ext4",), "xfs": ("mkfs.xfs",), "btrfs": ("mkfs.btrfs",)},
    "block caches": {"bcache": ("make-bcache",), "dm-cache": ("dmsetup",), "dm-writecache": ("dmsetup",)},
    "network storage": {"NVMe/TCP": (), "NFS": ("mount.nfs", "exportfs")},
    "key-value stores": {
        "LMDB": (),
        "RocksDB": ("rocksdb",),
        "WiredTiger": ("wiredtiger", "wiredtiger-header", "cc"),
        "memcached": ("memcached",),
        "Cassandra": ("java", "cassandra"),
    },
    "databases": {"PostgreSQL": ("postgres",), "MariaDB": ("mariadbd",)},
    "object stores": {
        "S3 (running server)": (),
        "Ceph": ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "librados"),
    },
    "other benchmarks": {
        "fio": ("fio",),
        "db_bench": ("db_bench",),
        "pgbench": ("pgbench",),
        "sysbench": ("sysbench",),
        "rados bench": ("rados",),
        "memcaslap": ("memcaslap",),
    },
    "lab": {
        "throttled devices": ("qemu-storage-daemon",),
        "virtual machine": ("qemu-system-x86_64", "virtiofsd", "cpio", "depmod"),
    },
}
"""Products that users measure, by kind, with the tools that each needs."""

GUEST_TOOLS = (
    *("lvm", "nvme", "vgcreate", "vgchange", "lvcreate", "ip", "tc"),
    *("rmmod", "iscsistart", "sshfs"),
)
"""Programs that tests call inside the virtual machine; its image contains their packages (`lab/build`)."""

ESSENTIAL = ("sh", "rm", "stat", "dd", "sleep", "cat", "cp", "env", "uname", "true", "false", "head", "ldconfig")
"""Programs of Debian's essential packages, which every installation has."""

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (*_BUILD, *_RUNTIME, *_LAB, *_DEV)}


def find(name: str) -> str | None:
    """Path of an external program, also where it is only on root's PATH; None if not installed."""
    return TOOLS[name].find()


def missing(kinds: Iterable[Kind]) -> list[Tool]:
    """Tools of these kinds that `scripts/setup` should install."""
    wanted = set(kinds)
    return [tool for tool in TOOLS.values() if tool.kind in wanted and tool.is_for_setup and tool.find() is None]


def ask(*command: str | Path) -> subprocess.CompletedProcess[str] | None:
    """Run a program that only prints something; None if it cannot be run or does not end within `ANSWER_S`."""
    try:
        return run(command, timeout_s=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None


def run(
    command: Sequence[str | Path], *, timeout_s: float, given: bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; after `timeout_s` it is killed, and `subprocess.TimeoutExpired` raised.

    `given` is its input; `options` are those of `subprocess.Popen`.
    """
    with Process(
        command,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    ) as process:
        try:
            printed = process.communicate(given, timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(
        command, process.returncode, *(each.decode("utf-8", errors="replace") for each in printed)
    )


class Process(subprocess.Popen[bytes]):
    """A child process that can be waited for after a signal handler has raised an exception.

    `Popen.wait` with a timeout and `Popen.poll` acquire a lock before the `try` that releases it. An exception in
    between keeps it locked, and the next `wait` never returns: 3 of 1,800 signals on busy CPUs (Python 3.11).
    """

    def exits_within(self, seconds: float) -> bool:
        """Wait for its exit, and collect its status; False if it still runs after that time."""
        if self.returncode is not None:
            return True
        exited = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(exited, select.POLLIN)
            if not poll.poll(max(0.0, seconds) * 1e3):
                return False
        finally:
            os.close(exited)
        super().wait()
        return True

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status; `subprocess.TimeoutExpired` if it still runs after that time."""
        if timeout is not None and not self.exits_within(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return super().wait()

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        return self.returncode if self.exits_within(0) else None


def path_with_system_directories() -> str:
    """The user's PATH, then the directories of administration programs."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
