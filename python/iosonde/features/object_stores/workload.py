"""Whole objects as a workload: parameters, the spec, servers of the user, and what a run needs and takes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import SplitResult

from pydantic import BeforeValidator, Field

from iosonde.errors import StudyError, TargetError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.storage.setups.file_systems import CONTROL_BYTES
from iosonde.study.servers.foreign import ServerKind, ServerUrl
from iosonde.study.workload import store_name
from iosonde.study.workload.reading import (
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    WithRules,
    parse_positive_rate,
)
from iosonde.study.workload.servers import Settings, running_server, url_of
from iosonde.study.workload.workload import (
    Hints,
    Layout,
    Product,
    Rate,
    Spec,
    Workload,
    arrival_of,
    size_words,
    taken,
    whole_of,
)
from iosonde.units import MIB, format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target
    from iosonde.study.servers.server import DatabaseHost


KIB, GIB = 1 << 10, 1 << 30
SMALLEST_OBJECT, LARGEST_OBJECT = 64, 64 * MIB
SMALLEST_OSD = GIB
USABLE = 0.8
"""Share of the object daemons' space that objects may fill: at 0.95 Ceph stops writes."""


S3_URL = url_of("s3", what="an S3 server; write it like `s3://host:9000`")


class ObjectsParameters(WithRules):
    """One stream: `jobs` threads, each with `queue_depth` operations on whole objects in flight."""

    object_store: Literal["ceph", "s3"] = "ceph"
    """`ceph`: a private Ceph cluster that iosonde starts, used through librados. `s3`: a server of yours
    (`server_url`)."""
    server_url: Annotated[str | None, S3_URL] = None
    """S3: the running server, `s3://HOST:PORT` or `http://HOST:PORT` (command line: `--server URL`); the credentials
    are in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`."""
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")] = "us-east-1"
    """S3: region that signatures name."""
    osds: int = Field(1, ge=1, le=16)
    """Object daemons (OSDs), each with BlueStore on a file of the target; with `file_system = "bluestore"` on a device
    of its own."""
    replication: int = Field(1, ge=1, le=16)
    """Copies of each object, on different object daemons."""
    placement_groups: int = Field(32, ge=1, le=1024)
    """Placement groups of the pool."""
    osd_size: Size = 4 * GIB
    """Size of the file of each object daemon, at least 1 GiB; a raw device is used as a whole."""
    ceph: Settings = Field(default_factory=dict)
    """Settings of Ceph by its own names, such as `osd_memory_target`."""
    operation: Literal["write", "sequential_read", "random_read"] = "write"
    """Write whole objects in order, or read them in order or at random; before reads, all objects are written."""
    object_size: Size = 4 * KIB
    """Size of an object, 64 B to 64 MiB."""
    objects: int = Field(1000, ge=1)
    """Number of objects; writes start again with the first one when all are written."""
    jobs: int = Field(1, ge=1, le=256)
    """Threads."""
    queue_depth: int = Field(16, ge=1, le=4096)
    """Operations in flight in each thread."""
    arrival: Literal["closed", "constant", "poisson"] = "closed"
    """Closed loop (the next operation when one completes), or open loop."""
    rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = None
    """Open loop: operations per second of all threads together."""
    ramp: DurationOrZero = 2 * 10**9
    """Load before the measurement."""
    duration: Duration = 10 * 10**9
    """Length of the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    timeout: Duration = 60 * 10**9
    """An operation that takes longer fails, and with it the run; at least 1 s."""
    delete_after: bool = False
    """Delete all objects after the measurement (not measured)."""
    stop_osd_after: DurationOrNone = None
    """Kill one object daemon this long after the start of the measurement, and continue; empty: never."""
    restart_osd_after: DurationOrNone = None
    """Start it again this long after the start of the measurement; recovery is the time until all placement groups are
    `active+clean`. Empty: after the measurement."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs of the client (job `i` on the `i`-th), as a list or `0-3`; empty: any."""

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


def bucket(url: ServerUrl, name: str, region: str) -> dict[str, Any]:
    """A bucket as the spec of a workload on objects has it."""
    return {"kind": "s3", "host": url.host, "port": url.port, "bucket": name, "region": region}


class _S3(ServerKind):
    name = "s3"
    schemes = ("s3", "http", "https")
    port = 80
    noun = "bucket"
    passwords = "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"

    def check(self, parts: SplitResult) -> None:
        if parts.scheme == "https":
            raise ValueError(
                "an S3 server with encryption is not supported: write `http://HOST:PORT` or `s3://HOST:PORT`"
            )
        if parts.username and parts.password is None:
            raise ValueError(f"`{parts.geturl()}` names a user; S3 has credentials in {self.passwords}")

    def password(self) -> None:
        """Its client reads the credentials itself."""

    def client_options(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        return {"region": str(parameters["region"])}

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.object_stores.s3 import DEFAULT_REGION, S3

        return S3(region=options.get("region", DEFAULT_REGION))

    def database_of(self, workload: Mapping[str, Any]) -> str:
        return str(workload["store"]["bucket"])

    def is_used(self, url: ServerUrl, workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
        return bool(workload["store"] == bucket(url, self.database_of(workload), str(parameters["region"])))


SERVERS = (_S3(),)


POOL = "iosonde"
USER = "admin"


def _on_devices(stream: ObjectsParameters, size_bytes: int) -> ObjectsParameters:
    """An object daemon uses all of a device."""
    if stream.object_store != "ceph":
        raise StudyError(
            '`file_system = "bluestore"` is for the cluster that iosonde starts, and `object_store` is '
            f"`{stream.object_store}`",
            hint="leave `file_system` out",
        )
    fitted = stream.model_copy(update={"osd_size": size_bytes})
    if not fitted.has_room():
        raise TargetError(
            f"{fitted.objects} objects with {fitted.replication} copies need more than {USABLE:.0%} of the object "
            f"daemons' devices ({fitted.osds} x {format_bytes(size_bytes)})",
            hint="name larger devices, or use fewer or smaller objects with `--set objects=...`",
        )
    return fitted


def _pool(whole: ObjectsParameters, target: Target) -> JsonObject:
    """The pool of a cluster that is started for each run."""
    check_place(whole, target)
    own = Path(target.spec_target("per_job", 0)["directory"])
    return {
        "kind": "rados",
        "library": None,
        "config_path": str(own / f"ceph-{identity(whole)}" / "data" / "ceph.conf"),
        "user": USER,
        "pool": POOL,
    }


def check_place(whole: ObjectsParameters, target: Target) -> None:
    """Raise unless a cluster can be started on the target. Nothing is written."""
    if target.kind != "directory":
        raise TargetError(
            f"{target.title} is not a directory",
            where="by the parameter `object_store`",
            hint="give each object daemon a raw device with `--set file_system=bluestore`, create a file system for "
            "their files with `--set file_system=ext4`, or name a directory",
        )
    from iosonde.features.object_stores import ceph
    from iosonde.study.workload.servers import check_reachable

    ceph.locate()
    ceph.check_settings(whole.ceph)
    check_reachable(ceph.ACCOUNTS, target)


def identity(whole: ObjectsParameters) -> str:
    """Eight digits that differ between clusters of different composition."""
    facts: list[object] = [whole.osds, whole.replication, whole.placement_groups, whole.osd_size, whole.ceph]
    if whole.object_store == "s3":
        facts = [whole.server_url, whole.region, whole.object_size, whole.objects]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


START_SECONDS = 12.0
"""Creation, start and shutdown of a cluster with one object daemon, as assumed by a plan."""
OSD_SECONDS = 3.0
"""The same for each further object daemon."""
RECOVERY_SECONDS = 10.0
ASSUMED_WRITES_PER_SECOND = 1000

_OPERATIONS = {"write": "writes", "sequential_read": "sequential reads", "random_read": "random reads"}


class ObjectsWorkload(Workload[ObjectsParameters]):
    """Objects of a cluster that iosonde starts, or of a server of the user."""

    name = "objects"
    title = "objects"
    parameters = ObjectsParameters
    shown = ("operation", "object_size", "objects", "jobs", "queue_depth", "duration")
    places = ("server_url",)
    hints = Hints(
        smaller="use smaller object daemons with `--set osd_size=...`, or fewer with `--set osds=1`",
        sized_by="by the parameters `osds` and `osd_size`",
        less_memory="use smaller objects or fewer operations in flight, with `--set object_size=...`, `--set "
        "queue_depth=...` or `--set jobs=...`",
    )
    io = "server"
    is_on_osds = True
    rate = Rate("ops/s", counted="operations", is_ops_per_sec=True)
    operations = ("read", "write")
    subject = "object_store"
    products: Mapping[str, Product] = {
        "ceph": Product(title="Ceph", is_installed=True),
        "s3": Product(title="S3", is_installed=True),
    }
    stated = ("operation",)
    simulated = (
        "an object store needs a file system, and a simulated or null device has none",
        "name a directory as the target",
    )
    of_run = (
        *("object_store", "server_url", "region", "osds", "replication", "placement_groups", "osd_size", "ceph"),
        *("object_size", "objects", "ramp", "duration", "interval", "timeout", "delete_after"),
        *("stop_osd_after", "restart_osd_after"),
    )

    def fit(
        self, streams: Mapping[str, ObjectsParameters], target: Target, *, room_bytes: int
    ) -> Mapping[str, ObjectsParameters]:
        """With the size of devices that object daemons take raw."""
        super().fit(streams, target, room_bytes=room_bytes)
        size = target.osd_bytes()
        return streams if size is None else {name: _on_devices(each, size) for name, each in streams.items()}

    def load(self, streams: Mapping[str, ObjectsParameters], target: Target, *, seed: int) -> JsonObject:
        """A cluster that cannot be started here raises now."""
        whole = whole_of(streams)
        if whole.object_store == "s3":
            url = running_server(whole.server_url, what="object store `s3`", example="s3://HOST:PORT")
            store = bucket(url, f"iosonde-{identity(whole)}", whole.region)
        else:
            store = _pool(whole, target)
        return {
            "store": store,
            "object_bytes": whole.object_size,
            "objects": whole.objects,
            "content_seed": seed,
            "streams": [
                {
                    "name": name,
                    **taken(stream, "jobs", "queue_depth", "operation", "cpus"),
                    "arrival": arrival_of(stream.arrival, stream.rate),
                }
                for name, stream in streams.items()
            ],
            "ramp_ns": whole.ramp,
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "timeout_ns": whole.timeout,
            "delete_after": whole.delete_after,
        }

    def cost(self, streams: Mapping[str, ObjectsParameters]) -> Cost:
        """Time of a run with the cluster's start; what a load writes only time limits."""
        whole = whole_of(streams)
        loads = any(stream.operation != "write" for stream in streams.values())
        stored = whole.stored_bytes()
        loading = max(stored / ASSUMED_BYTES_PER_SECOND, whole.objects / ASSUMED_WRITES_PER_SECOND) if loads else 0.0
        if whole.object_store == "s3":
            return Cost(seconds=loading + (whole.ramp + whole.duration) / 10**9, write_bytes=None)
        creating = whole.osds * (OSD_SECONDS + whole.osd_size / ASSUMED_BYTES_PER_SECOND / 10)
        recovery = RECOVERY_SECONDS if whole.stop_osd_after is not None else 0.0
        seconds = START_SECONDS + creating + loading + recovery + (whole.ramp + whole.duration) / 10**9
        return Cost(seconds=seconds, write_bytes=None)

    def files(self, streams: Mapping[str, ObjectsParameters]) -> dict[str, int]:
        """The files or devices of the object daemons, and the monitor's database; a server of the user has its own."""
        whole = whole_of(streams)
        if whole.object_store == "s3":
            return {}
        return {f"ceph-{identity(whole)}": whole.osds * whole.osd_size + CONTROL_BYTES}

    def buffer_bytes(self, streams: Mapping[str, ObjectsParameters]) -> int:
        """Memory of the operations in flight."""
        return sum(stream.jobs * stream.queue_depth * stream.object_size for stream in streams.values())

    def layout(self, streams: Mapping[str, ObjectsParameters]) -> Layout:
        """Objects are written before they are read, in each run."""
        return "always" if any(stream.operation != "write" for stream in streams.values()) else "never"

    def notes(self, streams: Mapping[str, ObjectsParameters]) -> list[str]:
        """Note of the time to start a cluster before each run."""
        whole = whole_of(streams)
        if whole.object_store == "s3":
            return []
        seconds = START_SECONDS + whole.osds * OSD_SECONDS
        return [
            f"each run starts a new Ceph cluster of {whole.osds} object daemon{'s' if whole.osds > 1 else ''} with "
            f"{format_bytes(whole.osd_size)} each: about {seconds:.0f} s"
        ]

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """The configuration of a cluster is in the target's own directory, and librados is the installed one."""
        store = workload["store"]
        if case.get("server_url"):
            # The consent compares its fields with those of the case.
            return "" if store["kind"] == "s3" else "the spec is of another store than the case"
        own = re.escape(place.spec_target("per_job", 0)["directory"])
        if not re.fullmatch(rf"{own}/ceph-[0-9a-f]{{8}}/data/ceph\.conf", store["config_path"]):
            return f"the cluster's configuration is `{store['config_path']}`, which is not in the plan's target"
        return "the spec names a library" if store.get("library") else ""

    def server(self, workload: Spec) -> str:
        """`ceph`, or `s3` for a server of the user."""
        kind = str(workload["store"]["kind"])
        return "ceph" if kind == "rados" else kind

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB object random reads on Ceph`."""
        size = case.get("object_size")
        operation = str(case.get("operation") or case.get("operation_level") or "")
        return {
            "object_size": f"{size_words(size)} object" if size is not None else "object",
            "operation": _OPERATIONS.get(operation, "operations"),
            "object_store": f"on {store_name(case['object_store'])}",
        }


WORKLOADS = (ObjectsWorkload(),)
