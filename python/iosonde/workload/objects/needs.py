"""What a run on objects needs of its target, and what it takes; streams must be fitted to the target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.storage.setups.bluestore import CONTROL_BYTES
from iosonde.units import format_bytes
from iosonde.workload.interface import Layout
from iosonde.workload.objects.parameters import ObjectsParameters

Streams = Mapping[str, ObjectsParameters]

START_SECONDS = 12.0
"""Creation, start and shutdown of a cluster with one object daemon, as assumed by a plan."""
OSD_SECONDS = 3.0
"""The same for each further object daemon."""
RECOVERY_SECONDS = 10.0
ASSUMED_WRITES_PER_SECOND = 1000


def whole_of(streams: Streams) -> ObjectsParameters:
    """The parameters of the run, on which all streams agree."""
    return next(iter(streams.values()))


def identity(whole: ObjectsParameters) -> str:
    """Eight digits that differ between clusters of different composition."""
    facts: list[object] = [whole.osds, whole.replication, whole.placement_groups, whole.osd_size, whole.ceph]
    if whole.object_store == "s3":
        facts = [whole.server_url, whole.region, whole.object_size, whole.objects]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def cost(streams: Streams) -> Cost:
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


def files(streams: Streams) -> dict[str, int]:
    """The files or devices of the object daemons, and the monitor's database; a server of the user has its own."""
    whole = whole_of(streams)
    if whole.object_store == "s3":
        return {}
    return {f"ceph-{identity(whole)}": whole.osds * whole.osd_size + CONTROL_BYTES}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room is needed."""
    return "by the parameters `osds` and `osd_size`"


def addressed_bytes(streams: Streams) -> int:
    """Bytes of the target that the cluster takes."""
    return sum(files(streams).values())


def buffer_bytes(streams: Streams) -> int:
    """Memory of the operations in flight."""
    return sum(stream.jobs * stream.queue_depth * stream.object_size for stream in streams.values())


def must_align(stream: ObjectsParameters) -> dict[str, list[int]]:
    """Nothing: BlueStore aligns its own direct I/O."""
    return {}


def layout(streams: Streams) -> Layout:
    """Objects are written before they are read, in each run."""
    return "always" if any(stream.operation != "write" for stream in streams.values()) else "never"


def prepares(stream: ObjectsParameters) -> bool:
    """Never: every run starts with a new cluster."""
    return False


def notes(streams: Streams) -> list[str]:
    """What starting a cluster before each run costs."""
    whole = whole_of(streams)
    if whole.object_store == "s3":
        return []
    seconds = START_SECONDS + whole.osds * OSD_SECONDS
    return [
        f"each run starts a new Ceph cluster of {whole.osds} object daemon{'s' if whole.osds > 1 else ''} with "
        f"{format_bytes(whole.osd_size)} each: about {seconds:.0f} s"
    ]
