"""The engine's spec of a load on objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.errors import StudyError, TargetError
from iosonde.features.object_stores.addresses import bucket
from iosonde.features.object_stores.parameters import USABLE, WHOLE_WORKLOAD, ObjectsParameters
from iosonde.plan import JsonObject
from iosonde.servers.foreign import parse
from iosonde.units import format_bytes
from iosonde.workload.reading import check_agreement
from iosonde.workload.workload import Room, arrival_of, engine_spec

if TYPE_CHECKING:
    from iosonde.storage import Target

POOL = "iosonde"
USER = "admin"


def fit(streams: Mapping[str, ObjectsParameters], target: Room, *, room_bytes: int) -> dict[str, ObjectsParameters]:
    """With the size of devices that object daemons take raw; a simulated device has no room for a cluster."""
    if target.backend() is not None:
        raise TargetError(
            "an object store needs a file system, and a simulated or null device has none",
            hint="name a directory as the target",
        )
    check_agreement(streams, WHOLE_WORKLOAD)
    size = target.osd_bytes()
    return dict(streams) if size is None else {name: _on_devices(each, size) for name, each in streams.items()}


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


def resolve(streams: Mapping[str, ObjectsParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec. A cluster that cannot be started here raises now."""
    streams = fit(streams, target, room_bytes=target.free_bytes())
    whole = whole_of(streams)
    workload: JsonObject = {
        "kind": "objects",
        "store": _bucket(whole) if whole.object_store == "s3" else _pool(whole, target),
        "object_bytes": whole.object_size,
        "objects": whole.objects,
        "content_seed": seed,
        "streams": [_stream(name, stream) for name, stream in streams.items()],
        "ramp_ns": whole.ramp,
        "duration_ns": whole.duration,
        "interval_ns": whole.interval,
        "timeout_ns": whole.timeout,
        "delete_after": whole.delete_after,
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=target.block_devices())


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


def _bucket(whole: ObjectsParameters) -> JsonObject:
    """A bucket that is created for the study."""
    if whole.server_url is None:
        raise StudyError(
            "the object store `s3` requires a running server, and none is named",
            where="by the parameter `server_url`",
            hint="name it with `--server s3://HOST:PORT`",
        )
    url = parse(whole.server_url)
    return bucket(url, f"iosonde-{identity(whole)}", whole.region)


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
    from iosonde.workload.servers import check_reachable

    ceph.locate()
    ceph.check_settings(whole.ceph)
    check_reachable(ceph.ACCOUNTS, target)


def _stream(name: str, stream: ObjectsParameters) -> JsonObject:
    return {
        "name": name,
        "jobs": stream.jobs,
        "queue_depth": stream.queue_depth,
        "operation": stream.operation,
        "arrival": arrival_of(stream.arrival, stream.rate),
        "cpus": stream.cpus,
    }


def whole_of(streams: Mapping[str, ObjectsParameters]) -> ObjectsParameters:
    """The parameters of the run, on which all streams agree."""
    return next(iter(streams.values()))


def identity(whole: ObjectsParameters) -> str:
    """Eight digits that differ between clusters of different composition."""
    facts: list[object] = [whole.osds, whole.replication, whole.placement_groups, whole.osd_size, whole.ceph]
    if whole.object_store == "s3":
        facts = [whole.server_url, whole.region, whole.object_size, whole.objects]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
