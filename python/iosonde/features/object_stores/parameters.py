"""The parameters of a load on objects: every field of a stream with its default and description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from iosonde.units import MIB
from iosonde.workload.reading import (
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    WithRules,
    parse_positive_rate,
)
from iosonde.workload.servers import Settings

KIB, GIB = 1 << 10, 1 << 30
SMALLEST_OBJECT, LARGEST_OBJECT = 64, 64 * MIB
SMALLEST_OSD = GIB
USABLE = 0.8
"""Share of the object daemons' space that objects may fill: at 0.95 Ceph stops writes."""


def parse_server_url(value: Any) -> str | None:
    """The address of an S3 server, as it is recorded; or none."""
    if value in (None, "", "none"):
        return None
    from iosonde.servers.foreign import parse

    found = parse(str(value))
    if found.kind != "s3":
        raise ValueError(f"`{found.text}` is not an address of an S3 server; write it like `s3://host:9000`")
    return found.text


class ObjectsParameters(WithRules):
    """One stream: `jobs` threads, each with `queue_depth` operations on whole objects in flight."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    object_store: Literal["ceph", "s3"] = Field(
        "ceph",
        description="`ceph`: a private Ceph cluster that iosonde starts, used through librados. `s3`: a server of "
        "yours (`server_url`).",
    )
    server_url: Annotated[str | None, BeforeValidator(parse_server_url)] = Field(
        None,
        description="S3: the running server, `s3://HOST:PORT` or `http://HOST:PORT` (command line: `--server URL`); "
        "the credentials are in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.",
    )
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")] = Field(
        "us-east-1", description="S3: region that signatures name."
    )
    osds: int = Field(
        1,
        ge=1,
        le=16,
        description="Object daemons (OSDs), each with BlueStore on a file of the target; with "
        '`file_system = "bluestore"` on a device of its own.',
    )
    replication: int = Field(1, ge=1, le=16, description="Copies of each object, on different object daemons.")
    placement_groups: int = Field(32, ge=1, le=1024, description="Placement groups of the pool.")
    osd_size: Size = Field(
        4 * GIB, description="Size of the file of each object daemon, at least 1 GiB; a raw device is used as a whole."
    )
    ceph: Settings = Field(
        default_factory=dict, description="Settings of Ceph by its own names, such as `osd_memory_target`."
    )
    operation: Literal["write", "sequential_read", "random_read"] = Field(
        "write",
        description="Write whole objects in order, or read them in order or at random; before reads, all objects are "
        "written.",
    )
    object_size: Size = Field(4 * KIB, description="Size of an object, 64 B to 64 MiB.")
    objects: int = Field(
        1000, ge=1, description="Number of objects; writes start again with the first one when all are written."
    )
    jobs: int = Field(1, ge=1, le=256, description="Threads.")
    queue_depth: int = Field(16, ge=1, le=4096, description="Operations in flight in each thread.")
    arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed", description="Closed loop (the next operation when one completes), or open loop."
    )
    rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = Field(
        None, description="Open loop: operations per second of all threads together."
    )
    ramp: DurationOrZero = Field(2 * 10**9, description="Load before the measurement.")
    duration: Duration = Field(10 * 10**9, description="Length of the measurement.")
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    timeout: Duration = Field(
        60 * 10**9, description="An operation that takes longer fails, and with it the run; at least 1 s."
    )
    delete_after: bool = Field(False, description="Delete all objects after the measurement (not measured).")
    stop_osd_after: DurationOrNone = Field(
        None,
        description="Kill one object daemon this long after the start of the measurement, and continue; empty: never.",
    )
    restart_osd_after: DurationOrNone = Field(
        None,
        description="Start it again this long after the start of the measurement; recovery is the time until all "
        "placement groups are `active+clean`. Empty: after the measurement.",
    )
    cpus: Cpus = Field(
        default_factory=list, description="CPUs of the client (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )

    def _rules(self) -> list[tuple[bool, str]]:
        is_open = self.arrival != "closed"
        stop, restart = self.stop_osd_after, self.restart_osd_after
        is_s3 = self.object_store == "s3"
        return [
            (not is_s3 and self.server_url is not None, '`server_url` is for `object_store = "s3"`'),
            (is_s3 and stop is not None, "no daemon of a running server is stopped: leave out `stop_osd_after`"),
            (is_s3 and bool(self.ceph), "`ceph` is for the cluster that iosonde starts"),
            (self.replication > self.osds, "each copy is on another object daemon: `replication` is at most `osds`"),
            (self.osd_size < SMALLEST_OSD, "`osd_size` is at least 1 GiB"),
            (not SMALLEST_OBJECT <= self.object_size <= LARGEST_OBJECT, "`object_size` is 64 B to 64 MiB"),
            (is_open and self.rate is None, f'`arrival = "{self.arrival}"` needs a `rate`'),
            (not is_open and self.rate is not None, "`rate` is for an open loop; set `arrival`"),
            (self.timeout < 10**9, "`timeout` is at least 1 s"),
            (stop is not None and stop >= self.duration, "`stop_osd_after` is beyond the end of the measurement"),
            (stop is not None and self.replication < 2,
             "objects of a stopped daemon need a copy: `stop_osd_after` needs `replication` of 2 or more"),
            (restart is not None and (stop is None or not stop < restart < self.duration),
             "`restart_osd_after` is between `stop_osd_after` and the end of the measurement"),
            (not is_s3 and not self.has_room(),
             f"{self.objects} objects with {self.replication} copies need more than {USABLE:.0%} of the object "
             "daemons' space: raise `osd_size`, or lower `objects`"),
        ]  # fmt: skip

    def has_room(self) -> bool:
        """Return True if the object daemons have room for all objects."""
        return self.stored_bytes() <= USABLE * self.osds * self.osd_size

    def stored_bytes(self) -> int:
        """Space that the objects take with all copies; BlueStore allocates units of 4 KiB."""
        return -(-self.object_size // (4 * KIB)) * 4 * KIB * self.objects * self.replication


WHOLE_WORKLOAD = (
    *("object_store", "server_url", "region", "osds", "replication", "placement_groups", "osd_size", "ceph"),
    *("object_size", "objects", "ramp", "duration", "interval", "timeout", "delete_after"),
    *("stop_osd_after", "restart_osd_after"),
)
"""Parameters of the run: streams that run together must agree on them."""
