"""Limits of a device of the lab, as QEMU's throttle takes them."""

from __future__ import annotations

from dataclasses import dataclass

from iosonde.errors import LabError
from iosonde.units import format_bandwidth, format_bytes, format_count


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
    burst_bandwidth: int | None = None
    """Bytes per second while a credit lasts, as of a drive with a cache that fills; above `bandwidth`, to which it
    falls."""
    burst_length_s: int = 0
    """The credit from rest: what it does at `burst_bandwidth` in this many seconds; it recovers at `bandwidth`. Two
    or more: with one QEMU does not hold the burst to any rate."""

    def __post_init__(self) -> None:
        for name, value in (("iops", self.iops), ("bandwidth", self.bandwidth)):
            if value is not None and value < 1:
                raise LabError(f"{name} limit of a lab device must be at least 1; got {value}")

        if (self.burst_bandwidth is None) != (self.burst_length_s == 0):
            raise LabError("a burst requires both a rate and a length", hint="set both, or neither")
        if self.burst_length_s == 1:
            raise LabError("burst length must be at least 2 s; got 1 s")
        if self.burst_bandwidth is not None and not 0 < (self.bandwidth or 0) < self.burst_bandwidth:
            raise LabError("burst rate must be higher than `bandwidth`")

    @property
    def burst_bytes(self) -> float:
        """Bytes of a full load, starting rested, until it falls to `bandwidth`; credit recovers meanwhile."""
        if self.burst_bandwidth is None or self.bandwidth is None:
            return 0.0
        return self.burst_bandwidth**2 * self.burst_length_s / (self.burst_bandwidth - self.bandwidth)

    def throttle_group(self, name: str) -> str:
        """QEMU's `--object` for devices that share these limits."""
        return ",".join([f"throttle-group,id={name}", *(f"x-{key}={n}" for key, n in self.throttle_limits().items())])

    def throttle_limits(self) -> dict[str, int]:
        """QEMU's `ThrottleLimits`."""
        found = {
            "iops-total": self.iops,
            "bps-total": self.bandwidth,
            "bps-total-max": self.burst_bandwidth,
            "bps-total-max-length": self.burst_length_s or None,
        }
        return {key: number for key, number in found.items() if number is not None}

    def __str__(self) -> str:
        parts = [f"{format_count(self.iops)} IOPS"] if self.iops is not None else []
        parts += [format_bandwidth(self.bandwidth)] if self.bandwidth is not None else []
        burst = f" after {format_bytes(round(self.burst_bytes))} at more" if self.burst_bandwidth else ""
        return (" and ".join(parts) or "no limit") + burst
