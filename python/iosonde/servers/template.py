"""The loaded database as a template: the data directory of the stopped server, copied before each run.

Copies share blocks with the template where the file system can do that (reflink); otherwise bytes are copied. Every
file has a checksum from the time of loading, and a copy is compared with it before the server starts. Then the copy is
synced and dropped from the page cache, so that each run starts cold and no page of it is charged to iosonde.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde import directory_tree
from iosonde.errors import ServerError
from iosonde.servers.account import Account
from iosonde.servers.process import bound_to_this_thread, unprivileged

MANIFEST = "manifest.json"
DATA = "data"

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A copy that is identical to its template."""

    seconds: float
    bytes: int
    files: int

    def to_json(self) -> dict[str, Any]:
        return {"seconds": round(self.seconds, 3), "bytes": self.bytes, "files": self.files}


@dataclass(frozen=True, kw_only=True)
class Template:
    """A directory with the data of a stopped server and the checksums of its files."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / DATA

    @property
    def is_complete(self) -> bool:
        """True if loading ended and all checksums are known."""
        return (self.directory / MANIFEST).is_file()

    @property
    def facts(self) -> dict[str, Any]:
        """Facts recorded with it: loading time and its consistency check."""
        facts: dict[str, Any] = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))["facts"]
        return facts

    def seal(self, facts: dict[str, Any]) -> None:
        """Record the checksums of a stopped server's files; from now on the template is complete."""
        _write_back(self.directory)
        files = {name: _checksum(path) for name, path in _files(self.data)}
        written = self.directory / f".tmp-{MANIFEST}"
        written.write_text(json.dumps({"facts": facts, "files": files}, indent=1), encoding="utf-8")
        descriptor = os.open(written, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        written.rename(self.directory / MANIFEST)

    def discard(self) -> None:
        with suppress(FileNotFoundError):
            (self.directory / MANIFEST).unlink()
        with suppress(FileNotFoundError):
            directory_tree.empty(self.data)
            self.data.rmdir()

    def restore(self, place: Path) -> Restored:
        """Copy it to a new path; `ServerError` (`template_damaged`) unless it is what was loaded."""
        started = time.monotonic()
        known: dict[str, list[int]] = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))["files"]
        _copy(self.data, place)
        copied = {name: _checksum(path) for name, path in _files(place)}
        different = sorted(set(known) ^ set(copied) | {name for name in known if known[name] != copied.get(name)})
        if different:
            raise ServerError(
                f"the template of the database is damaged: `{different[0]}` is not what was loaded",
                where=f"in `{self.directory}` ({len(different)} of {len(known)} files differ)",
                hint="it was changed by another program, or the device corrupted it; the next run loads the database "
                "again",
                code="template_damaged",
            )
        _write_back(place)
        for _, path in _files(place):
            _forget(path)
        return Restored(
            seconds=time.monotonic() - started, bytes=sum(size for size, _ in copied.values()), files=len(copied)
        )


def move(source: Path, target: Path, account: Account) -> None:
    """Move a file or directory of a data directory to another target, which does not exist.

    To another file system it is copied by the server's own user: the data directory belongs to that user, and links in
    it could lead root elsewhere.
    """
    is_directory = stat.S_ISDIR(source.lstat().st_mode)
    if is_directory:
        target.mkdir(mode=0o700)
        account.own(target)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target, [*unprivileged(account, bound=True)])
        if is_directory:
            directory_tree.empty(source)
            source.rmdir()
        else:
            source.unlink()
    _write_back(target.parent)


def _copy(source: Path, target: Path, prefix: Sequence[str] = ()) -> None:
    """With owners, times and holes, sharing blocks where possible; `prefix` chooses the user, by default this one."""
    done = subprocess.run(
        [*(prefix or bound_to_this_thread()), "cp", "--archive", "--reflink=auto", "--sparse=auto",
         "--no-target-directory", str(source), str(target)],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
        raise ServerError(
            f"cannot copy the template of the database: {message}",
            where=f"from `{source}` to `{target}`",
            hint="name a target with more room, or use fewer records or warehouses",
            code="no_space" if "No space" in message else "server",
        )


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for parent, _, names in os.walk(directory):
        for name in sorted(names):
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield str(path.relative_to(directory)), path


def _checksum(path: Path) -> list[int]:
    """Size and CRC-32."""
    value, size = 0, 0
    with open(path, "rb", buffering=0, opener=_opened) as file:
        while chunk := file.read(_CHUNK_BYTES):
            value, size = zlib.crc32(chunk, value), size + len(chunk)
    return [size, value]


def _opened(path: str, flags: int) -> int:
    """A file of a server's user, who may have replaced it by a link or a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write_back(directory: Path) -> None:
    """Write back the file system that holds a directory (syncfs(2)): one call for thousands of small files.

    `ServerError` where it fails: files that never reach the device are served from the page cache.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) == 0:
            return
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    raise ServerError(
        f"cannot write the database back to its device: {os.strerror(number)}",
        where=f"in `{directory}`",
        hint="see the kernel log (`dmesg`) for errors of the device",
        code="no_space" if number in (errno.ENOSPC, errno.EDQUOT) else "server",
    )


def _forget(path: Path) -> None:
    """Drop a file that has been written back from the page cache."""
    descriptor = _opened(str(path), os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
