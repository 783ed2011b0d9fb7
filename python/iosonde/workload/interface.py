"""What every kind of workload offers; each is a package, and the package itself is the object.

A *stream*'s parameters are a frozen pydantic model of the workload's own; what is passed around here is a mapping from
the streams' names to them. Plans read the properties of a load here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel

from iosonde.plan import Capacity, Cost, JsonObject, Purge
from iosonde.workload.description import Description

if TYPE_CHECKING:
    from iosonde.storage import Target

Streams = Mapping[str, Any]
Layout = Literal["missing", "always", "never"]


class Room(Protocol):
    """Properties of a target that the parameters need."""

    @property
    def kind(self) -> str:
        """`directory`, `device`, `file`, or that of a virtual target."""

    def backend(self) -> JsonObject | None:
        """The backend, where the target leaves no choice."""

    def free_bytes(self) -> int:
        """Room for a study's data."""

    def direct_unit(self) -> int | None:
        """Bytes that direct I/O takes multiples of, where there is such a unit."""

    def osd_bytes(self) -> int | None:
        """Size of the device that each object daemon of Ceph takes raw; None where it has a file."""

    def capacity(self) -> Capacity:
        """What a fill level is a share of."""

    def purges(self) -> Sequence[Purge]:
        """Means to give up what the target holds, the strongest first."""


class Workload(Protocol):
    """A kind of load: its parameters, the engine spec they become, and what a run of it costs."""

    DESCRIPTION: Description
    """What packages ask that read plans and records."""
    TITLE: str
    """What errors call it: `block I/O`."""
    PARAMETERS: type[BaseModel]
    """Every parameter of a stream with default and description."""
    SIZES: Sequence[str]
    """Parameters in bytes."""
    DURATIONS: Sequence[str]
    """Parameters in nanoseconds."""
    SHOWN: Sequence[str]
    """Parameters that a plan shows even where they are the default."""
    SMALLER: str
    """How to need less room."""
    LESS_MEMORY: str
    """How to need less memory; empty where `buffer_bytes` is 0."""

    def read_value(self, name: str, value: Any) -> Any:
        """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` where it is invalid."""

    def build(self, parameters: Mapping[str, Any]) -> Any:
        """A stream's parameters as written, with defaults, checked each by itself and together."""

    def fit(self, streams: Streams, target: Room, *, room_bytes: int) -> Mapping[str, Any]:
        """The parameters with what the target decides."""

    def resolve(self, streams: Streams, target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec."""

    def cost(self, streams: Streams) -> Cost:
        """Time and bytes written at most, without layout; streams must be fitted to the target."""

    def files(self, streams: Streams) -> dict[str, int]:
        """What a run keeps on disk, by name, with sizes; streams must be fitted to the target."""

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many files need."""

    def addressed_bytes(self, streams: Streams) -> int:
        """Bytes of the target that the run needs; streams must be fitted to the target."""

    def buffer_bytes(self, streams: Streams) -> int:
        """Memory that the run takes at once for its I/O."""

    def must_align(self, stream: Any) -> dict[str, list[int]]:
        """What direct I/O needs in multiples of its own unit, by parameter; nothing where I/O is not direct."""

    def layout(self, streams: Streams) -> Layout:
        """Which part of its files a run writes before it measures."""

    def notes(self, streams: Streams) -> list[str]:
        """Costs of a run that are not in its own time and bytes, as sentences for the plan."""

    def prepares(self, stream: Any) -> bool:
        """Whether the target is to be prepared before the first run."""
