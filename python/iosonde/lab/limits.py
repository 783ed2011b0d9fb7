"""What a device of the lab is held to, as QEMU's throttle takes it."""

from __future__ import annotations

from dataclasses import dataclass

from iosonde.errors import LabError
from iosonde.units import format_bandwidth, format_count


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most a device does, reads and writes together; None for no limit.

    QEMU keeps them with a leaky bucket that holds a tenth of a second's worth: the first moments of a load are faster,
    so measure after a ramp of a second or more.
    """

    iops: int | None = None
    """I/Os per second."""
    bandwidth: int | None = None
    """Bytes per second."""

    def __post_init__(self) -> None:
        for name, value in (("iops", self.iops), ("bandwidth", self.bandwidth)):
            if value is not None and value < 1:
                raise LabError(f"a device of the lab cannot be held to {name} {value}", hint="name 1 or more, or none")

    def throttle_group(self, name: str) -> str:
        """QEMU's `--object` for devices that are held to this together."""
        parts = [f"throttle-group,id={name}"]
        parts += [f"x-iops-total={self.iops}"] if self.iops is not None else []
        parts += [f"x-bps-total={self.bandwidth}"] if self.bandwidth is not None else []
        return ",".join(parts)

    def __str__(self) -> str:
        parts = [f"{format_count(self.iops)} IOPS"] if self.iops is not None else []
        parts += [format_bandwidth(self.bandwidth)] if self.bandwidth is not None else []
        return " and ".join(parts) or "no limit"
