"""Block devices that this process holds exclusively (`O_EXCL`), so that no program mounts or assembles them.

The kernel grants a claim to one open file. It is released while another program needs it (mkfs, a mount, an array). An
engine inherits the descriptor instead of claiming again, so the claim lasts as long as either process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import open_device


class Claims:
    """Claims by device number."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self.is_shared = False
        """True if another process of the same study holds the claims, so that this one only opens the devices."""

    def take(self, number: str, name: str) -> None:
        """Claim a device unless it is claimed already; `TargetError` if another program holds it."""
        if number in self._held:
            return
        try:
            self._held[number] = open_device(number, os.O_RDWR | (0 if self.is_shared else os.O_EXCL))
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TargetError(
                    f"`{name}` is claimed exclusively by a mount, an array or another program",
                    hint="`iosonde devices` shows its users; nothing was written to it",
                ) from None
            has_vanished = error.errno in (errno.ENXIO, errno.ENODEV, errno.ENOENT)
            hint = "it was removed since it was checked" if has_vanished else "run iosonde as root"
            raise TargetError(f"cannot open `{name}`: {error.strerror}", hint=hint) from error

    def release(self, number: str) -> None:
        """Let another program claim it."""
        descriptor = self._held.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)

    def release_all(self) -> None:
        """Let other programs claim all of them."""
        for number in list(self._held):
            self.release(number)

    def descriptor(self, number: str) -> int:
        """Of a claimed device."""
        return self._held[number]

    @property
    def numbers(self) -> set[str]:
        """Of all claimed devices."""
        return set(self._held)

    @property
    def descriptors(self) -> list[int]:
        """Of all claims, for an engine to inherit."""
        return list(self._held.values())

    @contextmanager
    def held(self, devices: Mapping[str, str]) -> Iterator[None]:
        """Claim devices, given as names by number, and release all claims at the end."""
        try:
            for number, name in devices.items():
                self.take(number, name)
            yield
        finally:
            self.release_all()
