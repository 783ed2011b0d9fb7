"""Limits that a study identified, as files of other tools: `iosonde export DIR --format limits`.

    NAME.io.cost.model      line for the kernel's `io.cost.model` (Documentation/admin-guide/cgroup-v2.rst)
    NAME.io.cost.qos        line for `io.cost.qos`, with the model's rates as they are
    NAME.io_properties.yaml ScyllaDB's and Seastar's description of a disk, as iotune writes it
    NAME.drive.toml         a simulated drive with these limits, for `--target sim:PATH`

NAME is the id of the case. A value is written only if it follows from a rule that was identified; a file that requires
values which were not identified is not written, with the reason in `NAME.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from iosonde.features.rate_limits.known_limits import Identification, Rule
from iosonde.planning.procedure import conclusions
from iosonde.results.result_set import ResultSet
from iosonde.units import compact_size

_DRIVE_SUFFIX = ".drive.toml"
_WHAT = (
    "Limits that were identified, for other tools: lines for the kernel's `io.cost.model` and `io.cost.qos`, "
    "ScyllaDB's `io_properties.yaml`, and a simulated drive with these limits. Rates are sustained ones"
)

SAME = 0.02
"""Largest difference of a write's cost from that of a read that counts as none."""
_BLOCK = 4096
"""Size of the I/Os that `io.cost.model` counts."""


@dataclass(frozen=True, kw_only=True)
class Sustained:
    """Sustained rates of one operation; None where no rule states them."""

    iops: float | None
    """Of 4 KiB."""
    bytes_per_second: float | None


def of(found: Identification, *, device: str, size_bytes: int) -> Iterator[tuple[str, str]]:
    """Suffix and text of each file; `device` is `MAJOR:MINOR`."""
    if found.stopped_at:
        yield ".txt", "limits are not identified yet: continue the study with `iosonde resume DIR`\n"
        return
    if not found.rules:
        yield ".txt", f"no limit was identified: {found.verdict}; {found.reason}\n"
        return
    reads, writes = sustained(found, "read"), sustained(found, "write")
    missing = [
        f"{name} of {operation}s"
        for operation, rates in (("read", reads), ("write", writes))
        for name, value in (("IOPS", rates.iops), ("bandwidth", rates.bytes_per_second))
        if value is None
    ]
    if missing:
        yield (
            ".txt",
            f"`io.cost.model`, `io.cost.qos` and `io_properties.yaml` require the {', the '.join(missing)}, which no "
            'identified rule states: run the study with `operations = "both"` and a larger `total`\n',
        )
    else:
        yield ".io.cost.model", cost_model(device, reads, writes)
        yield ".io.cost.qos", cost_qos(device)
        yield ".io_properties.yaml", io_properties(reads, writes)
    if size_bytes:
        yield _DRIVE_SUFFIX, drive(found, size_bytes)


def sustained(found: Identification, operation: str) -> Sustained:
    """Sustained rates of an operation, from its own rules or from those of a shared budget."""
    limits = [(rule, cost) for rule in found.rules if (cost := _cost(found, rule, operation)) is not None]
    iops = [rule.rate.value / cost for rule, cost in limits if rule.counts == "operations"]
    moved = [rule.rate.value / cost for rule, cost in limits if rule.counts == "bytes"]
    # An operation of at most a unit is counted once, so a limit on operations in units is one on bytes, too.
    units = [rule.rate.value / cost * rule.unit_bytes for rule, cost in limits if rule.unit_bytes]
    return Sustained(
        iops=min([*iops, *(rate / _BLOCK for rate in moved)], default=None),
        bytes_per_second=min([*moved, *units], default=None),
    )


def _cost(found: Identification, rule: Rule, operation: str) -> float | None:
    """Credits of an operation, in those of the operation that the rule was determined with; None if unknown."""
    if rule.operation == operation:
        return 1.0
    if found.sharing != "shared" or found.write_weight is None:
        return None
    weight = found.write_weight.value
    if abs(weight - 1) <= SAME:
        return 1.0
    return weight if operation == "write" else 1 / weight


def cost_model(device: str, reads: Sustained, writes: Sustained) -> str:
    """The line for `io.cost.model`. A rule does not distinguish random from sequential I/O unless it merges."""
    rates = {
        "rbps": reads.bytes_per_second,
        "rseqiops": reads.iops,
        "rrandiops": reads.iops,
        "wbps": writes.bytes_per_second,
        "wseqiops": writes.iops,
        "wrandiops": writes.iops,
    }
    listed = " ".join(f"{name}={round(value or 0)}" for name, value in rates.items())
    return f"{device} ctrl=user model=linear {listed}\n"


def cost_qos(device: str) -> str:
    """The line for `io.cost.qos`: rates of the model as they are, since a rule does not vary with latency."""
    return f"{device} enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=100.00 max=100.00\n"


def io_properties(reads: Sustained, writes: Sustained) -> str:
    """ScyllaDB's file. The directory is its default: name the one where the volume is mounted."""
    return f"""disks:
  - mountpoint: /var/lib/scylla
    read_iops: {round(reads.iops or 0)}
    read_bandwidth: {round(reads.bytes_per_second or 0)}
    write_iops: {round(writes.iops or 0)}
    write_bandwidth: {round(writes.bytes_per_second or 0)}
"""


def drive(found: Identification, size_bytes: int) -> str:
    """A model for `sim:`."""
    limits = "".join(_limit(found, rule) for rule in found.rules)
    return _DRIVE.format(capacity=size_bytes // _BLOCK * _BLOCK) + limits


def _limit(found: Identification, rule: Rule) -> str:
    quantity = {"rate": rule.rate.value}
    if rule.burst_rate and rule.is_burst_limited and rule.burst_rate.value > rule.rate.value:
        quantity["burst_rate"] = rule.burst_rate.value
    if rule.bucket:
        quantity["bucket"] = rule.bucket.value
    lines = [
        "",
        "[[limit]]",
        f'counts = "{rule.counts}"',
        *(f"{name} = {value:.6g}" for name, value in quantity.items()),
    ]
    if rule.unit_bytes:
        lines.append(f'unit = "{compact_size(rule.unit_bytes)}"')
        lines += ["merge = true"] if rule.merges else []
    other = "write" if rule.operation == "read" else "read"
    cost = _cost(found, rule, other)
    if found.sharing == "separate":
        lines.append(f"{other}_weight = 0")
    elif cost is not None and cost != 1:
        lines.append(f"{other}_weight = {cost:.4g}")
    return "\n".join(lines) + "\n"


def _device(target: dict[str, object]) -> tuple[str, int]:
    """`MAJOR:MINOR` and size of the first device of a target."""
    devices = target.get("devices")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return str(first.get("device", "8:0")), int(first.get("size_bytes", 0) or 0)


class LimitsExport:
    """The format `limits` of `iosonde export`."""

    NAME = "limits"
    WHAT = _WHAT
    SUFFIX = None
    """Files are of cases."""

    def files(self, results: ResultSet) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file."""
        devices = {record.case_id: _device(record.target) for record in results.records()}
        for case, conclusion in conclusions(results):
            found = getattr(conclusion, "found", None)
            if not isinstance(found, Identification) or case.procedure is None:
                continue
            device, size_bytes = devices.get(case.case_id) or next(iter(devices.values()), ("8:0", 0))
            for suffix, text in of(found, device=device, size_bytes=size_bytes):
                yield case.procedure.stem + suffix, text.encode()


_DRIVE = """# A simulated drive with the rate limits that a study identified.
title = "Volume with identified limits"
class = "cloud volume"
capacity = {capacity}
sources = "Limits: identified by iosonde. Drive: assumed, 0.6 ms and enough parallelism that the limits decide."

[media]
channels = 16
dies = 128
channel_bandwidth = "2GB/s"
program = "16KiB"
read_time = "500us"
program_time = "600us"
time_spread = 0.2

[translation]
kind = "in_place"

[buffer]
size = 0

[interface]
read_bandwidth = "10GB/s"
write_bandwidth = "10GB/s"
read_latency = "100us"
write_latency = "100us"
command = "1MiB"
"""

EXPORTS = (LimitsExport(),)
