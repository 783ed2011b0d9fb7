"""Properties of a file system that new files in it show: what direct I/O (`O_DIRECT`) requires, and trims.

`statx(2)` reports the alignment of direct I/O since Linux 6.1 on some file systems (`STATX_DIOALIGN`). Otherwise it is
tried: a temporary file is read in ever larger pieces until the kernel accepts one. On btrfs that is not conclusive: it
serves unaligned direct reads through the page cache. The file has a name only where one without does not work, as with
FUSE daemons that address files by path.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from iosonde.storage.block_layer.block_nodes import closing
from iosonde.storage.targets import temporary_files

_CANDIDATES = (512, 1024, 2048, 4096)
_PROBES = 4
"""Direct writes that are tried."""
_STATX_DIOALIGN = 0x2000
_AT_EMPTY_PATH = 0x1000
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PROBE_BYTES = 1 << 16
_MADV_POPULATE_READ = 22
"""Map pages as reads of them would, with an error where these end in SIGBUS (Linux 5.14)."""
_DIO_OFFSET_ALIGN_AT = 156
"""Place of `stx_dio_offset_align` in `struct statx` (`linux/stat.h`)."""


def offset_alignment(directory: Path) -> int | None:
    """Bytes that offsets and sizes of direct I/O must be a multiple of, for files in `directory`; None if it has none.

    Raises `OSError` when no file can be made there.
    """
    with contextlib.suppress(OSError), _unnamed_file(directory) as file:
        found = _alignment(file)
        if found is not None:
            return found
    with _named_file(directory) as file:
        return _alignment(file)


def writes_to_page_cache(directory: Path) -> bool | None:
    """Return True if direct writes to new files in `directory` go through the page cache; None if unknown.

    Recent kernels write files with checksums on btrfs that way, so that their contents do not change meanwhile. Others
    do so for a single write whose page they cannot drop at once, so several writes decide.
    """
    for scratch_file in (_unnamed_file, _named_file):
        with contextlib.suppress(OSError), scratch_file(directory) as file:
            return all(_leaves_page(file, page * mmap.PAGESIZE) for page in range(_PROBES))
    return None


def can_trim(directory: Path) -> bool:
    """Return True if the file system frees the blocks of a part of a file, which trims of the engine need as well."""
    try:
        with _unnamed_file(directory) as file:
            os.pwrite(file, bytes(_PROBE_BYTES), 0)
            fallocate = ctypes.CDLL(None, use_errno=True).fallocate
            fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
            return int(fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, 0, _PROBE_BYTES)) == 0
    except OSError:
        return False


def _leaves_page(file: int, offset: int) -> bool:
    """Return True if a direct write at `offset` leaves the mapped page that it replaces in the page cache.

    A direct write invalidates such pages; one through the page cache leaves them.
    """
    os.pwrite(file, b"\xa5" * mmap.PAGESIZE, offset)
    os.fsync(file)
    with mmap.mmap(file, mmap.PAGESIZE, offset=offset) as mapped, mmap.mmap(-1, mmap.PAGESIZE) as buffer:
        mapped.madvise(_MADV_POPULATE_READ)
        with closing(os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_DIRECT)) as direct:
            os.pwritev(direct, [buffer], offset)
        return _is_resident(mapped)


def _is_resident(mapped: mmap.mmap) -> bool:
    """Return True if the only page of a mapping is in the page cache (mincore(2))."""
    libc, state = ctypes.CDLL(None, use_errno=True), ctypes.c_ubyte()
    page = ctypes.c_char.from_buffer(mapped)
    try:
        if libc.mincore(ctypes.byref(page), ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(state)) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    finally:
        del page  # A mapping with pointers to it cannot be closed.
    return bool(state.value & 1)


@contextlib.contextmanager
def _unnamed_file(directory: Path) -> Iterator[int]:
    with tempfile.TemporaryFile(dir=directory, prefix=".iosonde-probe-") as handle:
        yield handle.fileno()


@contextlib.contextmanager
def _named_file(directory: Path) -> Iterator[int]:
    with temporary_files.temporary_names(directory) as names:
        path = directory / names.new()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)
            path.unlink()


def _alignment(file: int) -> int | None:
    reported = _reported_by_statx(file)
    return _found_by_reading(file) if reported is None else reported or None


def _reported_by_statx(file: int) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(256)
    if libc.statx(file, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, answer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", answer, 0)
    (alignment,) = struct.unpack_from("=I", answer, _DIO_OFFSET_ALIGN_AT)
    return int(alignment) if mask & _STATX_DIOALIGN else None


def _found_by_reading(file: int) -> int | None:
    os.pwrite(file, b"\xa5" * 2 * max(_CANDIDATES), 0)
    os.fsync(file)
    try:
        direct = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    with closing(direct), mmap.mmap(-1, max(_CANDIDATES)) as buffer, memoryview(buffer) as view:
        return next((size for size in _CANDIDATES if _can_read(direct, view[:size])), None)


def _can_read(file: int, buffer: memoryview) -> bool:
    try:
        # Not at offset 0, which is aligned to everything.
        return os.preadv(file, [buffer], len(buffer)) == len(buffer)
    except OSError:
        return False
    finally:
        buffer.release()
