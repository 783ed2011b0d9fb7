"""Base class of these workloads: where their files are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel
from typing_extensions import TypeVar

from iosonde.errors import TargetError
from iosonde.plan import JsonObject
from iosonde.study.workload.workload import CLOSED, Layout, Spec, Workload, steady_ramp, taken, whole_of
from iosonde.units import MIB

if TYPE_CHECKING:
    from iosonde.storage import Target

P = TypeVar("P", bound=BaseModel)
PAGE_BYTES = 4096
"""Unit of direct I/O."""
REQUEST_BYTES_MAX = 1 << 30


class AiLoad(Workload[P]):
    """A load on files in the target's own directory, or one after the other on a simulated drive."""

    stream_name: ClassVar[str]
    """Name of its one stream, and start of the name of its directory: lower-case letters."""
    writes: ClassVar[bool] = False
    """It writes its files in the measurement."""
    counts: ClassVar[Sequence[str]]
    """Fields of its spec that hosts add up."""
    several = ("{} loads of this kind cannot run together", "use one stream, and a part or factor for each load")

    def fit(self, streams: Mapping[str, P], target: Target, *, room_bytes: int) -> Mapping[str, P]:
        """Refuse the null target, which takes no time."""
        if (target.backend() or {}).get("kind") == "null":
            raise TargetError(
                f"`{target.name}` stores nothing, and {self.title} takes the time of storage",
                hint="name a directory, or a simulated drive such as `sim:pm963`",
            )
        return super().fit(streams, target, room_bytes=room_bytes)

    def load(self, streams: Mapping[str, P], target: Target, *, seed: int) -> JsonObject:
        """The one stream on its files."""
        whole = whole_of(streams)
        return {**self.place(streams, target), **taken(whole, "cpus"), **self.spec(whole)}

    def spec(self, stream: P) -> JsonObject:
        """The workload of the engine's spec, without kind, place and CPUs."""
        raise NotImplementedError

    def identity(self, stream: P) -> str:
        """The parameters that decide the files, as text: runs on the same files share them."""
        raise NotImplementedError

    def sizes_of_files(self, stream: P) -> Sequence[int]:
        """Bytes of each file."""
        raise NotImplementedError

    def place(self, streams: Mapping[str, P], target: Target) -> JsonObject:
        """The spec's `target`, and the `backend` of a simulated drive."""
        if (backend := target.backend()) is not None:
            return {"target": target.spec_target("shared", self.addressed_bytes(streams)), "backend": backend}
        target.require_directory(f"{self.title} needs files", parameter="target")
        return {"target": _directory(target, self._directory_name(whole_of(streams)))}

    def expected_target(self, workload: Spec, case: Mapping[str, Any], place: Target) -> JsonObject | None:
        """A directory in the target's own."""
        if place.backend() is not None:
            return None
        name = Path(workload["target"]["path"]).name
        is_own = re.fullmatch(rf"{self.stream_name}-[0-9a-f]{{8}}", name)
        return _directory(place, name) if is_own else {}

    def files(self, streams: Mapping[str, P]) -> dict[str, int]:
        """The directory with all files."""
        stream = whole_of(streams)
        return {self._directory_name(stream): sum(self.sizes_of_files(stream))}

    def addressed_bytes(self, streams: Mapping[str, P]) -> int:
        """Files one after the other on a simulated drive, each from a multiple of 1 MiB on."""
        return sum(-(-size // MIB) * MIB for size in self.sizes_of_files(whole_of(streams)))

    def _directory_name(self, stream: P) -> str:
        return f"{self.stream_name}-{hashlib.sha256(self.identity(stream).encode()).hexdigest()[:8]}"

    def layout(self, streams: Mapping[str, P]) -> Layout:
        """Files are written unless they exist with their size."""
        return "missing"

    def refusal_on_hosts(self, workload: Spec, *, shares_files: bool) -> str:
        """Hosts can share only files that none of them writes."""
        return f"{self.title} on files that hosts share" if shares_files and self.writes else ""

    def of_hosts(self, workloads: Sequence[Spec]) -> JsonObject:
        """The counts of all hosts."""
        return {**workloads[0], **{name: reduce(add, [each[name] for each in workloads]) for name in self.counts}}

    def stream_of(self, *, jobs: int, is_direct: bool) -> dict[str, Any]:
        """The one stream of a spec as block I/O would have it: each thread has one operation in flight."""
        io_mode = "direct" if is_direct else "buffered"
        return {"name": self.stream_name, "jobs": jobs, "arrival": CLOSED, "queue_depth": 1, "io_mode": io_mode}


def request_rule(bytes: int) -> tuple[bool, str]:
    """The rule that direct I/O can do requests of this size."""
    is_wrong = bytes % PAGE_BYTES != 0 or bytes > REQUEST_BYTES_MAX
    return is_wrong, "`request_size` must be a multiple of 4 KiB and at most 1 GiB"


def steady(ramp_ns: int, duration_ns: int, interval_ns: int) -> JsonObject:
    """The times of a load that is measured for a while."""
    ramp = steady_ramp(ramp_ns, None, until="time")
    return {"ramp": ramp, "duration_ns": duration_ns, "interval_ns": interval_ns}


def _directory(target: Target, name: str) -> JsonObject:
    return {"kind": "directory", "path": str(Path(target.spec_target("per_job", 0)["directory"], name))}
