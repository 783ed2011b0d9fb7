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
from collections.abc import Iterable, Iterator, Sequence
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
    version: str = ""
    """Argument with which a program prints its version; empty where a call without effect is not known."""
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


_TABLE: dict[Kind, str] = {
    "build": """
        cargo rustc: the engine is compiled from source
        cc/gcc: the engine is linked with it
    """,
    "runtime": """
        mdadm: md arrays
        btrfs/btrfs-progs: btrfs arrays
        mkfs.ext4/e2fsprogs: ext4 file systems created for a study
        mke2fs/e2fsprogs: external journals of ext4
        mkfs.xfs/xfsprogs: xfs file systems created for a study
        mkfs.btrfs/btrfs-progs: btrfs file systems created for a study
        mount umount/mount: file systems created for a study
        make-bcache/bcache-tools: block caches of bcache
        dmsetup: block caches of device mapper
        modprobe/kmod: kernel modules of arrays and block caches
        wipefs/util-linux: signatures on a block device before it is overwritten
        mkswap/util-linux swapon/mount swapoff/mount: swap areas
        chattr/e2fsprogs: swap files on btrfs
        mount.nfs/nfs-common: mounts of NFS with the options of a case
        ip/iproute2: outages of the path to a server (`outage = "link"`)
        exportfs/nfs-kernel-server: exports of this machine's NFS server
        blkid/util-linux: signatures in `iosonde devices`
        setpriv/util-linux: servers without root's privileges, which end with iosonde
        sbatch/slurm-client scancel/slurm-client squeue/slurm-client: hosts of `--hosts slurm:N`
        ssh/openssh-client: hosts of `--hosts ssh:FILE`
        systemd-detect-virt/systemd: the hypervisor in the record
        g++ rocksdb-headers/librocksdb-dev: RocksDB's persistent read cache and reads into a reused slice
        rocksdb/librocksdb7.8|librocksdb8.9|librocksdb9.10|librocksdb9.11: the store `rocksdb`
        wiredtiger/libwiredtiger0: the store `wiredtiger`
        wiredtiger-header/libwiredtiger-dev: the store `wiredtiger`, for which `cc` compiles a shim
    """,
    "lab": """
        qemu-storage-daemon/qemu-utils: throttled devices (`iosonde lab device`)
        qemu-system-x86_64/qemu-system-x86: the virtual machine (`iosonde lab run`)
        virtiofsd/virtiofsd|qemu-system-common: directories shared with the virtual machine
        unshare/util-linux: mounts that only the lab sees
        truncate/coreutils: drives of the virtual machine
        losetup/mount: loop devices
        bash: the script that builds the virtual machine's image
        apt-get/apt apt-cache/apt dpkg-deb/dpkg: packages of the virtual machine's image
        cpio depmod/kmod: the virtual machine's image
    """,
    "dev": """
        cargo-fmt/rustfmt: the format check
        cargo-clippy/rust-clippy: the Rust lints
        nbdkit: tests with a device that loses its write cache, or is slow
        qemu-img/qemu-utils: tests with a volume that loads its blocks when they are read
        linux.uml/user-mode-linux: tests with NFS in User Mode Linux
        debootstrap chroot/coreutils: the test of an installation on a fresh Debian
        objcopy/binutils objdump/binutils sha256sum/coreutils: tests of `scripts/release`
        podman crun: the test of the container image
        fio: the study `command-fio`, and comparison with fio
        strace: the test that fio and the engine do the same I/O
        lmdb/liblmdb0: the store `lmdb` with the library of the system, and its tests
        mdb_stat/lmdb-utils: the test of databases of the system's LMDB
        fio_jsonplus_clat2csv/fio: the test of the fio export
        localedef/libc-bin|glibc-common: tests in locales with other encodings than UTF-8
        charmaps/locales|glibc-locale-source: tests in locales with other encodings than UTF-8
        fio-examples/fio-examples|fio: the test that imports all of fio's example jobs
        chromium/chromium|chromium-browser: tests of the HTML report in a browser
        chromedriver/chromium-driver|chromium-chromedriver: tests of the HTML report in a browser
        valgrind: instructions of a read (`bench/read_code.py`)
        db_bench/rocksdb-tools: the studies `command-db-bench`, and comparison with db_bench
        pgbench/postgresql: the study `command-pgbench`
        sysbench: the studies `command-sysbench`
        java/openjdk-17-jre-headless: the store `cassandra`, and its tests
        mvn/maven: Cassandra's jar files, which `scripts/setup` assembles for tests
        cassandra: the store `cassandra`, and its tests; without it name a distribution with `CASSANDRA_HOME`
        memcached: the store `memcached`, and its tests
        ceph-mon ceph-mgr ceph-osd ceph/ceph-common: clusters of the workload `objects`, and its tests
        ceph-authtool/ceph-common monmaptool/ceph-base: clusters of the workload `objects`, and its tests
        librados/librados2: the workload `objects`, and its tests
        rados/ceph-common: the study `command-rados-bench`, and comparison with it
        memcaslap/libmemcached-tools: the study `command-memcaslap`, and comparison with it
        postgres/postgresql: the server of the studies on PostgreSQL, and its tests
        mariadbd/mariadb-server: the server of the studies on MariaDB, and its tests
        mysqld/mariadb-server: MySQL, which the studies on MariaDB use where it is installed instead
        go/golang-1.26-go|golang-1.25-go|golang-1.24-go: FerretDB, built by `scripts/setup`
        ferretdb: tests of the store `mongodb`: MongoDB's protocol with other storage; built with Go 1.24
        moto: tests of S3: a server for tests, which `scripts/setup` installs from the Python Package Index
        dumpe2fs/e2fsprogs: tests of ext4 options
        mkfs.ntfs/ntfs-3g ntfs-3g: tests of a file system that a FUSE daemon serves
        bindfs: tests of a directory that a FUSE daemon serves
        blockdev/util-linux: tests on loop devices
        addpart/util-linux delpart/util-linux partx/util-linux sfdisk/fdisk: tests of partitions
        slurmctld slurmd sinfo/slurm-client munged/munge: tests of hosts in a Slurm job
        sshd/openssh-server ssh-keygen/openssh-client: tests of hosts that ssh reaches
        tc/iproute2 nsenter/util-linux: tests of hosts on a network of their own
        git: the test that builds the source distribution
        ldd/libc-bin: the libraries of db_bench
        taskset/util-linux: benchmarks on one processor
    """,
}
"""Tools by kind, those for one purpose in a line: NAME, or NAME/PACKAGE|PACKAGE if the packages have other names."""

_VERSION = {
    **dict.fromkeys(("mkfs.ext4", "mke2fs", "mkfs.xfs", "chattr", "mount.nfs", "ip", "ssh", "mdb_stat"), "-V"),
    **dict.fromkeys(("dumpe2fs", "slurmctld", "slurmd", "sshd", "tc"), "-V"),
    **dict.fromkeys(("make-bcache", "exportfs", "fio_jsonplus_clat2csv", "db_bench", "ssh-keygen"), ""),
    **{"java": "-version", "go": "version"},
}
"""Arguments other than `--version`."""

_LIBRARIES = ("rocksdb", "wiredtiger", "lmdb")
_PROGRAM_PLACES = {
    "virtiofsd": ("/usr/lib/qemu", "/usr/libexec"),
    **dict.fromkeys(("pgbench", "postgres"), ("/usr/lib/postgresql/*/bin",)),
}
_FILES = {
    "rocksdb-headers": ("/usr/include/rocksdb", "/usr/local/include/rocksdb"),
    "wiredtiger-header": ("/usr/include/wiredtiger.h", "/usr/local/include/wiredtiger.h"),
    "charmaps": ("/usr/share/i18n/charmaps",),
    "fio-examples": ("/usr/share/doc/fio/examples", "/usr/share/doc/fio-examples"),
    "cassandra": CASSANDRA_PLACES,
    "librados": tuple(f"{each}/librados.so.2" for each in LIBRARY_DIRECTORIES),
    "ferretdb": (FERRETDB,),
    "moto": (f"{MOTO}/bin/python",),
}

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
        "MongoDB (running server)": (),
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

ESSENTIAL = ("sh", "rm", "stat", "dd", "sleep", "cat", "cp", "env", "uname", "true", "false", "head", "ldconfig", "tar")
"""Programs of Debian's essential packages, which every installation has."""


def _tools() -> Iterator[Tool]:
    for kind, lines in _TABLE.items():
        for line in lines.strip().splitlines():
            names, _, purpose = line.strip().partition(": ")
            for each in names.split():
                name, _, packages = each.partition("/")
                yield Tool(
                    name=name,
                    packages=tuple((packages or name).split("|")),
                    kind=kind,
                    purpose=purpose,
                    version=_VERSION.get(name, "--version"),
                    form="library" if name in _LIBRARIES else "files" if name in _FILES else "program",
                    places=_FILES.get(name) or _PROGRAM_PLACES.get(name, ()),
                )


TOOLS: dict[str, Tool] = {tool.name: tool for tool in _tools()}


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
