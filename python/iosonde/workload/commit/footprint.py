"""What a run of commits needs of its target, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Cost
from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.interface import Layout, Room
from iosonde.workload.oltp import place
from iosonde.workload.oltp.cost import EMPTY_BYTES, restore_note, run_cost

LOG_BYTES = 1 << 30
"""Room for the write-ahead log and for rows that a run adds."""


def fit(streams: Mapping[str, CommitParameters], target: Room, *, room_bytes: int) -> dict[str, Any]:
    """The parameters with what they decide of each other."""
    if target.backend() is not None and place.only(streams).server_url is None:
        raise TargetError(
            "a database server needs a file system, and a simulated or null device has none",
            hint="name a directory as the target",
        )
    return place.fit(streams)


def identity(whole: CommitParameters) -> str:
    """Eight digits of the empty database."""
    return place.data_identity(whole, {"workload": "commit"})


def addressed_bytes(streams: Mapping[str, CommitParameters]) -> int:
    """The template, its copy for a run, and the log."""
    return 0 if place.only(streams).server_url else 2 * EMPTY_BYTES + LOG_BYTES


def files(streams: Mapping[str, CommitParameters]) -> dict[str, int]:
    """The database that a run uses, with its template."""
    whole = place.only(streams)
    return {} if whole.server_url else {f"{whole.server}-{identity(whole)}": addressed_bytes(streams)}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room so many databases need."""
    return f"for the logs of {files} servers" if files > 1 else "for the log of a server"


def buffer_bytes(streams: Mapping[str, CommitParameters]) -> int:
    """Nothing worth counting: a client holds one row."""
    return 0


def must_align(stream: CommitParameters) -> dict[str, list[int]]:
    """Nothing: the server knows what its direct I/O needs."""
    return {}


def layout(streams: Mapping[str, CommitParameters]) -> Layout:
    """Nothing is loaded."""
    return "never"


def prepares(stream: CommitParameters) -> bool:
    """Never: every run starts from the template."""
    return False


def cost(streams: Mapping[str, CommitParameters]) -> Cost:
    """Time of a run with restoring; streams must be fitted to the target."""
    return run_cost(place.only(streams), EMPTY_BYTES)


def notes(streams: Mapping[str, CommitParameters]) -> list[str]:
    """What restoring the database before each run costs."""
    whole = place.only(streams)
    return [text] if (text := restore_note(whole, EMPTY_BYTES, 0)) else []
