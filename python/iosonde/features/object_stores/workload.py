"""Whole objects as a workload: what a run needs, what it takes, and how its spec is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.features.object_stores import spec
from iosonde.features.object_stores.parameters import ObjectsParameters
from iosonde.features.object_stores.spec import identity, whole_of
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.storage.setups.bluestore import CONTROL_BYTES
from iosonde.units import format_bytes
from iosonde.workload import size_words, store_name
from iosonde.workload.workload import Hints, Layout, Product, Rate, Spec, Workload

if TYPE_CHECKING:
    from iosonde.storage import Target

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
    fit = staticmethod(spec.fit)
    resolve = staticmethod(spec.resolve)

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

    def rules(self, workload: Spec) -> str:
        """The store does the I/O."""
        return "server"

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
