"""Block devices that this process holds exclusively (`O_EXCL`), so that nobody mounts or assembles them meanwhile.

The kernel gives a claim to one open file. So it is let go for as long as somebody else must have it (mkfs, a mount, an
array), and an engine does not claim again but inherits the descriptor: the claim lasts as long as either of us lives.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.errors import TargetError


class Claims:
    """Claims by device."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, device: Path) -> None:
        """Claim a device, unless that is done; `TargetError` where somebody else has."""
        if device in self._held:
            return
        try:
            self._held[device] = os.open(device, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TargetError(
                    f"`{device}` is held exclusively by somebody else: a mount, an array, another program",
                    hint="`iosonde devices` shows what stands on it; nothing was written to it",
                ) from None
            raise TargetError(f"cannot open `{device}`: {error.strerror}", hint="run iosonde as root") from error

    def let_go(self, device: Path) -> None:
        """Somebody else may claim it now."""
        descriptor = self._held.pop(device, None)
        if descriptor is not None:
            os.close(descriptor)

    def descriptor(self, device: Path) -> int:
        """Of a device that is claimed."""
        return self._held[device]

    @property
    def descriptors(self) -> list[int]:
        """Of all claims, for an engine to inherit."""
        return list(self._held.values())

    @contextmanager
    def lasting(self, devices: list[Path]) -> Iterator[None]:
        """Claim devices, and let everything go at the end."""
        try:
            for device in devices:
                self.take(device)
            yield
        finally:
            for device in list(self._held):
                self.let_go(device)
