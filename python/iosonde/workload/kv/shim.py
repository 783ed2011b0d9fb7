"""The C++ shim of RocksDB: compiled on demand against the installed headers, and kept in iosonde's cache.

RocksDB's C interface has no persistent read cache, and allocates an object for each read. The shim
(`data/shim/rocksdb.cc`) adds what is missing. It is code that an engine loads, so the engine receives the open
descriptor of the file that was checked here: it belongs to this user, nobody else can write to it, and its directory
is this user's alone (mode 0700).

The file's name is a hash of all that it depends on: source, compiler, headers and library. A new library gets a new
shim.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from iosonde.cache import cache_directory
from iosonde.data import data_folder

COMPILER = "g++"
SOURCE = "rocksdb.cc"
HEADER = "rocksdb/version.h"
SYMBOL = b"_ZN7rocksdb18NewPersistentCacheE"
"""Start of the name that compilers give to `rocksdb::NewPersistentCache`."""
CPP20_FROM = 10
"""Major version whose headers need C++20."""
TIMEOUT_S = 300
BY_NAME = "librocksdb.so"
DIRECTORIES = (
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
)
"""Where the engine looks for RocksDB (`crates/kv-rocksdb/src/library.rs`); it refuses a shim of another library."""


class UnavailableError(Exception):
    """Why there is no shim: one clause."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


@contextmanager
def opened(library: str | None) -> Iterator[int]:
    """The descriptor of the shim for a library, which is compiled if it is not in the cache.

    `UnavailableError` if there is no compiler, header or suitable library, or if compiling fails.
    """
    descriptor = _opened(library_file(library))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def library_file(library: str | None) -> Path:
    """The file of a library as the engine finds it: the one named, or the newest installed."""
    if library == "bundled":
        raise UnavailableError(
            "a RocksDB that is compiled into the engine cannot be extended", hint="leave out `library`"
        )
    if library and "/" in library:
        return Path(library).resolve()
    pattern = re.compile(rf"{re.escape(library)}()" if library else rf"{re.escape(BY_NAME)}((?:\.\d+)*)")
    found = [
        (tuple(map(int, match[1].split(".")[1:])), path)
        for directory in map(Path, DIRECTORIES)
        if directory.is_dir()
        for path in directory.iterdir()
        if (match := pattern.fullmatch(path.name))
    ]
    if not found:
        raise UnavailableError(
            f"`{library or BY_NAME}` was not found", hint="install RocksDB (Debian and Ubuntu: `librocksdb-dev`)"
        )
    return max(found)[1].resolve()


def _opened(library: Path) -> int:
    _require_symbol(library)
    compiler = shutil.which(COMPILER)
    if not compiler:
        raise UnavailableError(
            f"the compiler `{COMPILER}` was not found", hint=f"install it: `apt-get install {COMPILER}`"
        )
    version, compiler_version = _versions(compiler, library)
    directory = _own_directory()
    try:
        name = f"{_key(compiler, compiler_version, version, library)}.so"
        with suppress(FileNotFoundError):
            return _checked(directory, name)
        _compile(compiler, version, library, directory, name)
        return _checked(directory, name)
    except OSError as error:
        raise UnavailableError(
            f"the shim in `{_path()}` cannot be used: {error.strerror or error}", hint=f"remove `{_path()}`"
        ) from error
    finally:
        os.close(directory)


def _require_symbol(library: Path) -> None:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(SYMBOL) >= 0:
                return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnavailableError(f"`{library}` cannot be read: {reason}", hint="correct `library`") from error
    raise UnavailableError(
        f"`{library}` does not export `rocksdb::NewPersistentCache`",
        hint="use a RocksDB that is built with its utilities, or `db_bench --read_cache_path` as an external command",
    )


@cache
def _versions(compiler: str, library: Path) -> tuple[str, str]:
    """`major.minor.patch` of the headers that the compiler finds, and its own version; asked once in a session."""
    done = _run([compiler, *_include(library), "-dM", "-E", "-x", "c++", "-include", HEADER, os.devnull])
    numbers = dict(re.findall(r"#define ROCKSDB_(MAJOR|MINOR|PATCH) (\d+)", done.stdout))
    if done.returncode or len(numbers) < len(("MAJOR", "MINOR", "PATCH")):
        raise UnavailableError(
            f"the headers of RocksDB (`{HEADER}`) were not found",
            hint="install them: `apt-get install librocksdb-dev`",
        )
    version = ".".join(numbers[name] for name in ("MAJOR", "MINOR", "PATCH"))
    return version, _run([compiler, "-dumpfullversion", "-dumpmachine"]).stdout


def _include(library: Path) -> list[str]:
    """A RocksDB outside the system directories has its headers in `include` beside `lib`; others may not write them."""
    beside = library.parent.parent / "include"
    if beside == Path("/usr/include") or not (beside / HEADER).is_file():
        return []
    for path in (beside, *beside.rglob("*")):
        found = path.stat()
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnavailableError(
                f"the headers in `{beside}` belong to somebody else, or others can write to `{path}`",
                hint="correct their owner and mode",
            )
    return [f"-I{beside}"]


def _key(compiler: str, compiler_version: str, version: str, library: Path) -> str:
    found = library.stat()
    facts = [
        _source().decode(),
        str(Path(compiler).resolve()),
        compiler_version,
        version,
        str(library),
        *map(str, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)),
    ]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def _source() -> bytes:
    return (data_folder("shim") / SOURCE).read_bytes()


def _path() -> Path:
    return cache_directory() / "rocksdb-shim"


def _own_directory() -> int:
    """The descriptor of the directory for shims, which is this user's alone."""
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise UnavailableError(
            f"the directory `{path}` cannot be used: {error.strerror}",
            hint="name another cache directory in `XDG_CACHE_HOME`",
        ) from error
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(directory)
        raise UnavailableError(
            f"`{path}` belongs to somebody else, or others may use it",
            hint=f"remove it, or correct it with `chmod 700 {path}`",
        )
    return directory


def _checked(directory: int, name: str) -> int:
    """The descriptor of a shim that only this user can have written."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    found = os.fstat(descriptor)
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
    if not is_own or stat.S_IMODE(found.st_mode) & 0o022:
        os.close(descriptor)
        raise UnavailableError(
            f"`{_path() / name}` is not a file that only you can write to", hint=f"remove `{_path()}`"
        )
    return descriptor


def _compile(compiler: str, version: str, library: Path, directory: int, name: str) -> None:
    """Compile in the directory, and rename: an interrupted compiler leaves no shim."""
    unfinished = f".{name}.{os.getpid()}"
    place = f"/proc/self/fd/{directory}/{unfinished}"
    standard = "c++20" if int(version.split(".")[0]) >= CPP20_FROM else "c++17"
    try:
        done = _run(
            [
                *(compiler, f"-std={standard}", "-O2", "-w", "-fPIC", "-shared", "-pipe", *_include(library)),
                *("-o", place, "-x", "c++", "-", "-x", "none", str(library), "-Wl,-z,defs"),
            ],
            given=_source(),
            pass_fds=(directory,),
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            problem = next((line for line in lines if "error" in line or "undefined" in line), (lines or ["?"])[-1])
            raise UnavailableError(
                f"`{COMPILER}` cannot compile the shim for RocksDB {version}: {problem.strip()}",
                hint=f"install headers of the version of `{library}`, and see that the disk is not full",
            )
        os.chmod(unfinished, 0o600, dir_fd=directory)
        os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=directory)


def _run(command: list[str], *, given: bytes = b"", pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
            pass_fds=pass_fds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"`{command[0]}` failed: {error}", hint="see whether it runs") from error
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
