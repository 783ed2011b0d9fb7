"""Shims of stores' libraries: compiled on demand against the installed headers, and kept in iosonde's cache.

RocksDB's C interface has no persistent read cache, and allocates an object for each read: its shim
(`data/shim/rocksdb.cc`) adds what is missing. WiredTiger's interface is structures whose layout depends on the version:
its shim (`data/shim/wiredtiger.c`) calls them. A shim is code that an engine loads, so the engine receives the open
descriptor of the file that was checked here: it belongs to this user, no other user can write to it, and its directory
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from iosonde.base.cache import cache_directory
from iosonde.base.tools import LIBRARY_DIRECTORIES, run
from iosonde.data import data_folder
from iosonde.errors import StudyError

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Shim:
    """The shim of one library."""

    store: str
    name: str
    """Of the library, in messages."""
    header: str
    macros: str
    """Start of the names of the macros with the header's version."""
    language: Literal["c", "c++"]
    compiler: str
    compiler_package: str
    symbol: bytes
    """Start of the name of a function that the library must export."""
    function: str
    """The same, in messages."""
    otherwise: str
    """Hint for libraries that do not export it."""
    is_linked: bool
    """True if the shim is linked with the library; False if the engine binds it at run time."""

    @property
    def library(self) -> str:
        """File of the library, without a version."""
        return f"lib{self.store}.so"

    @property
    def package(self) -> str:
        """Debian package with library and headers."""
        return f"lib{self.store}-dev"

    @property
    def source(self) -> bytes:
        """The text that is compiled."""
        return (data_folder("shim") / f"{self.store}.{'c' if self.language == 'c' else 'cc'}").read_bytes()

    def options(self, version: str) -> list[str]:
        """Options of the compiler for headers of this version."""
        if self.language == "c":
            return ["-pthread"]
        standard = "-std=c++20" if int(version.split(".")[0]) >= CPP20_FROM else "-std=c++17"
        # Otherwise g++ compares the address of `Get` in each read with that of a base class, which no database has.
        return [standard, "-fno-devirtualize-speculatively"]


CPP20_FROM = 10
"""Major version of RocksDB whose headers need C++20."""

ROCKSDB = Shim(
    store="rocksdb",
    name="RocksDB",
    header="rocksdb/version.h",
    macros="ROCKSDB_",
    language="c++",
    compiler="g++",
    compiler_package="g++",
    symbol=b"_ZN7rocksdb18NewPersistentCacheE",
    function="rocksdb::NewPersistentCache",
    otherwise="use a RocksDB that is built with its utilities, or `db_bench --read_cache_path` as an external command",
    is_linked=True,
)
WIREDTIGER = Shim(
    store="wiredtiger",
    name="WiredTiger",
    header="wiredtiger.h",
    macros="WIREDTIGER_VERSION_",
    language="c",
    compiler="cc",
    compiler_package="gcc",
    symbol=b"wiredtiger_config_validate",
    function="wiredtiger_config_validate",
    otherwise="name WiredTiger's shared library, `libwiredtiger.so`, in `library`",
    is_linked=False,
)
SHIMS = {shim.store: shim for shim in (ROCKSDB, WIREDTIGER)}
"""By store."""


class UnavailableError(Exception):
    """No shim is available; the message is a clause with the reason."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


@contextmanager
def opened(shim: Shim, library: str | None) -> Iterator[int]:
    """The descriptor of a shim for a library, which is compiled if it is not in the cache.

    `UnavailableError` if there is no compiler, header or suitable library, or if compiling fails.
    """
    descriptor = _opened(shim, library_file(shim, library))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check(shim: Shim, library: str | None, *, use: str, parameter: str, otherwise: str = "") -> None:
    """Compile a shim that a run needs for `use`, by a parameter; `StudyError` where that is impossible."""
    try:
        with opened(shim, library):
            pass
    except UnavailableError as error:
        raise StudyError(
            f"{use} cannot be used: {error}", where=f"by the parameter `{parameter}`", hint=f"{error.hint}{otherwise}"
        ) from error


def library_file(shim: Shim, library: str | None) -> Path:
    """The file of a library as the engine finds it: the one named, or the newest installed."""
    if library == "bundled" and shim is ROCKSDB:
        raise UnavailableError(
            "a RocksDB that is compiled into the engine cannot be extended", hint="leave out `library`"
        )
    if library and "/" in library:
        return Path(library).resolve()
    pattern = re.compile(rf"{re.escape(library)}()" if library else rf"{re.escape(shim.library)}((?:\.\d+)*)")
    found = [
        (tuple(map(int, match[1].split(".")[1:])), path)
        for directory in map(Path, LIBRARY_DIRECTORIES)  # The engine refuses a shim of a library elsewhere.
        if directory.is_dir()
        for path in directory.iterdir()
        if (match := pattern.fullmatch(path.name))
    ]
    if not found:
        raise UnavailableError(
            f"`{library or shim.library}` was not found",
            hint=f"install {shim.name} (Debian and Ubuntu: `apt-get install {shim.package}`)",
        )
    return max(found)[1].resolve()


def _opened(shim: Shim, library: Path) -> int:
    _require_symbol(shim, library)
    compiler = shutil.which(shim.compiler)
    if not compiler:
        raise UnavailableError(
            f"the compiler `{shim.compiler}` was not found",
            hint=f"install it: `apt-get install {shim.compiler_package}`",
        )
    version, compiler_version = _versions(shim, compiler, library)
    path = cache_directory() / f"{shim.store}-shim"
    directory = _own_directory(path)
    try:
        found = library.stat()
        facts = [shim.source.decode(), str(Path(compiler).resolve()), compiler_version, version, str(library)]
        facts += map(str, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
        name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32] + ".so"
        with suppress(FileNotFoundError):
            return _checked(directory, path / name)
        _compile(shim, compiler, version, library, directory, name)
        return _checked(directory, path / name)
    except OSError as error:
        raise UnavailableError(
            f"the shim in `{path}` cannot be used: {error.strerror or error}", hint=f"remove `{path}`"
        ) from error
    finally:
        os.close(directory)


def _require_symbol(shim: Shim, library: Path) -> None:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(shim.symbol) >= 0:
                return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnavailableError(f"`{library}` cannot be read: {reason}", hint="correct `library`") from error
    raise UnavailableError(f"`{library}` does not export `{shim.function}`", hint=shim.otherwise)


@cache
def _versions(shim: Shim, compiler: str, library: Path) -> tuple[str, str]:
    """`major.minor.patch` of the headers that the compiler finds, and its own version; asked once in a session."""
    preprocessed = ("-dM", "-E", "-x", shim.language, "-include", shim.header, os.devnull)
    done = _run([compiler, *_include(shim, library), *preprocessed])
    numbers = dict(re.findall(rf"#define {shim.macros}(MAJOR|MINOR|PATCH) (\d+)", done.stdout))
    if done.returncode or len(numbers) < len(("MAJOR", "MINOR", "PATCH")):
        raise UnavailableError(
            f"the headers of {shim.name} (`{shim.header}`) were not found",
            hint=f"install them: `apt-get install {shim.package}`",
        )
    version = ".".join(numbers[name] for name in ("MAJOR", "MINOR", "PATCH"))
    return version, _run([compiler, "-dumpfullversion", "-dumpmachine"]).stdout


def _include(shim: Shim, library: Path) -> list[str]:
    """A library outside the system directories has its headers in `include` next to `lib`, not writable by others."""
    headers = library.parent.parent / "include"
    if headers == Path("/usr/include") or not (headers / shim.header).is_file():
        return []
    for path in (headers, *headers.rglob("*")):
        found = path.stat()
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnavailableError(
                f"the headers in `{headers}` belong to another user, or other users can write to `{path}`",
                hint="correct their owner and mode",
            )
    return [f"-I{headers}"]


def _own_directory(path: Path) -> int:
    """The descriptor of the directory for shims, which is this user's alone."""
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
            f"`{path}` belongs to another user, or other users may use it",
            hint=f"remove it, or correct it with `chmod 700 {path}`",
        )
    return directory


def _checked(directory: int, path: Path) -> int:
    """The descriptor of a shim that only this user can have written."""
    descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    found = os.fstat(descriptor)
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
    if not is_own or stat.S_IMODE(found.st_mode) & 0o022:
        os.close(descriptor)
        raise UnavailableError(f"`{path}` is not a file that only you can write to", hint=f"remove `{path.parent}`")
    return descriptor


def _compile(shim: Shim, compiler: str, version: str, library: Path, directory: int, name: str) -> None:
    """Compile in the directory, and rename: an interrupted compiler leaves no shim."""
    unfinished = f".{name}.{os.getpid()}"
    place = f"/proc/self/fd/{directory}/{unfinished}"
    linked = [str(library)] if shim.is_linked else []
    try:
        done = _run(
            [
                *(compiler, *shim.options(version), "-O2", "-w", "-fPIC", "-shared", "-pipe", *_include(shim, library)),
                *("-o", place, "-x", shim.language, "-", "-x", "none", *linked, "-Wl,-z,defs"),
            ],
            given=shim.source,
            pass_fds=(directory,),
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            problem = next((line for line in lines if "error" in line or "undefined" in line), (lines or ["?"])[-1])
            raise UnavailableError(
                f"`{shim.compiler}` cannot compile the shim for {shim.name} {version}: {problem.strip()}",
                hint=f"install headers of the version of `{library}`, and see that the disk is not full",
            )
        os.chmod(unfinished, 0o600, dir_fd=directory)
        os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=directory)


def _run(command: list[str], *, given: bytes = b"", pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    try:
        return run(command, timeout_s=TIMEOUT_S, given=given, env={**os.environ, "LC_ALL": "C"}, pass_fds=pass_fds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"`{command[0]}` failed: {error}", hint="see whether it runs") from error
