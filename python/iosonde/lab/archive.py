"""A cpio archive as Linux takes it after its initial file system: how the guest gets its command.

The format is "newc" (the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`).
"""

from __future__ import annotations

from collections.abc import Mapping

_DIRECTORY = 0o040700
_FILE = 0o100600


def archive(directory: str, files: Mapping[str, str]) -> bytes:
    """Files in one new directory at the root, padded so that it may follow another archive."""
    parts = [_entry(directory, _DIRECTORY, b"")]
    parts += [_entry(f"{directory}/{name}", _FILE, text.encode()) for name, text in files.items()]
    return _padded(b"".join([*parts, _entry("TRAILER!!!", 0, b"")]), 512)


def _entry(name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    # Inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(header + path, 4) + _padded(data, 4)


def _padded(data: bytes, unit: int) -> bytes:
    return data + bytes(-len(data) % unit)
