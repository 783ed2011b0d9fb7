"""Base class of a kind of load: its parameters, the engine spec they become, its cost, and how others treat its runs.

A workload is one object, found by its name (`iosonde.workload.named`). Packages decide by the properties that it
declares, never by its name. A *stream* is a frozen model of its parameters; `streams` maps names to them. Arguments
called `workload` are that part of an engine's spec, and `case` are the parameters of a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from pydantic import BaseModel
from typing_extensions import TypeVar

from iosonde.plan import Capacity, Cost, JsonObject, Purge
from iosonde.workload import reading

if TYPE_CHECKING:
    from iosonde.storage import Target

CLOSED: Mapping[str, Any] = {"kind": "closed"}
"""The arrival of a closed loop."""

Spec = Mapping[str, Any]
Layout = Literal["missing", "always", "never"]
Engine = Literal["iosonde-engine", "iosonde-engine-clients"]
"""The programs of the engine: the second one has clients of servers that take long to compile."""
P = TypeVar("P", bound=BaseModel, default=Any)
"""Parameters of a stream."""


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
        """Capacity of which a fill level is a share."""

    def over_provisioning(self) -> float | None:
        """Spare capacity as a share of the capacity, where it is known."""

    def purges(self) -> Sequence[Purge]:
        """Means to give up what the target holds, the strongest first."""


class Workload(Generic[P]):
    """The defaults are those of a load whose operations are I/Os of the engine, though not block I/O.

    Its streams are fitted to the target (`fit`) wherever they are passed in, except to `fit` and `resolve`.
    """

    name = ""
    """Name in studies and specs."""

    title = ""
    """Name in error messages: `block I/O`."""

    parameters: type[P]
    """Every parameter of a stream with default and description."""

    sizes: Sequence[str] = ()
    """Parameters in bytes."""

    durations: Sequence[str] = ()
    """Parameters in nanoseconds."""

    shown: Sequence[str] = ()
    """Parameters that a plan shows even where they are the default."""

    places: Sequence[str] = ()
    """Parameters that name files, directories, servers or code: only who runs a study decides about them."""

    smaller = ""
    """Hint for reducing the required space."""

    sized_by = ""
    """A clause that names the parameters which decide how much room is needed: `by the parameter `size``."""

    less_memory = ""
    """Hint for reducing the required memory; empty where `buffer_bytes` is 0."""

    moves_blocks = False
    """Block I/O: its rate is IOPS, its backend is chosen, and the cost of the harness for each I/O is known."""

    is_external = False
    """Another program does the work: only the values that it prints are known, and not its operations."""

    reads_own_cache = False
    """A store or server between the operations and the device: bytes of operations are not bytes of the device."""

    counts_until_durable = False
    """Writes count until they are durable, which may be after the measurement: the account is that of the run."""

    adds_streams = True
    """Rates of streams that run together can be added."""

    is_transactional = False
    """Its operations are transactions on a database server."""

    counts_operations = False
    """Its rate is the metric `ops_per_sec`."""

    has_no_target = False
    """Its specs name a server instead of a target."""

    is_on_osds = False
    """Object daemons of Ceph do the I/O: they alone can use BlueStore."""

    wipes_devices = False
    """It refuses a raw device with anything but its own data, so the device is wiped before the first run."""

    has_statistics = False
    """True if the measured program reports statistics about itself, which reports show over time."""

    rate_unit = "IOPS"
    """Unit of the rate in progress messages."""

    shows_bandwidth = True
    """Progress shows bandwidth, too."""

    counted = "I/Os"
    """Operations whose latency is measured, in the plural."""

    accesses_memory = False
    """Its operations are accesses to memory, of which the kernel does I/O for some."""

    operations: Sequence[str] = ()
    """Operations that make up `all`, by the names that the engine reports."""

    subject = ""
    """The parameter that only cases of this workload have."""

    titles: Mapping[str, str] = {}
    """Names of its stores or servers in sentences, where they differ from those in studies."""

    installed: Sequence[str] = ()
    """Levels of `subject` that are libraries or servers to be installed."""

    with_clients: Sequence[str] = ()
    """Of these, servers whose clients are in `iosonde-engine-clients`."""

    worded: Sequence[str] = ()
    """Parameters whose levels `words` distinguishes."""

    stated: Sequence[str] = ()
    """Parameters whose levels `words` states completely, so that the name of a case does not repeat them."""

    ignored_when_simulated: Sequence[str] = ()
    """Parameters of the host's path to a device, which a simulated target does not have: they change nothing there."""

    printed_apart: Sequence[str] = ()
    """Parameters that a plan prints at another place."""

    def read_value(self, name: str, value: Any) -> Any:
        """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` where it is invalid."""
        return reading.value(self.parameters, self.title, name, value)

    def build(self, parameters: Mapping[str, Any]) -> P:
        """A stream's parameters as written, with defaults, checked each by itself and together."""
        return reading.build(self.parameters, self.title, parameters)

    def fit(self, streams: Mapping[str, P], target: Room, *, room_bytes: int) -> Mapping[str, P]:
        """The parameters with what the target decides."""
        return streams

    def resolve(self, streams: Mapping[str, P], target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec."""
        raise NotImplementedError

    def cost(self, streams: Mapping[str, P]) -> Cost:
        """Time and bytes written at most, without layout."""
        raise NotImplementedError

    def files(self, streams: Mapping[str, P]) -> dict[str, int]:
        """Names and sizes, in bytes, of the files that a run keeps on disk."""
        return {}

    def journals(self, streams: Mapping[str, P]) -> dict[str, int]:
        """The same of journals of verification: beside the files, but not on a device."""
        return {}

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many files need."""
        return self.sized_by

    def addressed_bytes(self, streams: Mapping[str, P]) -> int:
        """Bytes of the target that the run needs."""
        return sum(self.files(streams).values())

    def buffer_bytes(self, streams: Mapping[str, P]) -> int:
        """Memory that the run takes at once for its I/O."""
        return 0

    def must_align(self, stream: P) -> dict[str, list[int]]:
        """Sizes that must be multiples of the unit of direct I/O, by parameter; empty where I/O is not direct."""
        return {}

    def layout(self, streams: Mapping[str, P]) -> Layout:
        """Part of its files that a run writes before it measures."""
        return "never"

    def notes(self, streams: Mapping[str, P]) -> list[str]:
        """Costs of a run that are not in its own time and bytes, as sentences for the plan."""
        return []

    def prepares(self, stream: P) -> bool:
        """Return True if the target must be prepared before the first run."""
        return False

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The streams of a load, each with name, jobs and arrival at least."""
        streams: Sequence[Mapping[str, Any]] = workload.get("streams", [])
        return streams

    def server(self, workload: Spec) -> str | None:
        """The kind of server that the engine applies the load to, started by iosonde or by the user; None without one.

        External commands connect by themselves: theirs is only in their spec.
        """
        return None

    def engine(self, workload: Spec) -> Engine:
        """The program of the engine that carries it out."""
        return "iosonde-engine"

    def rules(self, workload: Spec) -> str:
        """Basis of the verdict on a run: `evidence` of the engine about its I/O, shares of a `server`, or
        by rules of its feature (`JUDGES` of its `verdict.py`).
        """
        return "evidence"

    def load_spec(self, measured: JsonObject, case: Mapping[str, Any]) -> JsonObject | None:
        """The spec that loads the database of a measurement, where the engine does so; it is kept as a template."""
        return None

    def expected_target(self, workload: Spec, case: Mapping[str, Any], place: Target) -> JsonObject | None:
        """The target that a received spec must have; None for the file, files or device of `place`."""
        return None

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """Reason to refuse a received spec: files outside its case, besides its target; empty if there is none."""
        return ""

    def file_name(self, workload: Spec) -> str | None:
        """Name of the run's file in the target's own directory; None for the usual name, empty if it is refused."""
        return None

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB random reads`, by parameter and in that order."""
        return {}
