"""What a TPC-C run needs of its target, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.errors import TargetError
from iosonde.plan import Cost
from iosonde.workload.interface import Layout, Room
from iosonde.workload.oltp import place
from iosonde.workload.oltp.cost import EMPTY_BYTES, restore_note, run_cost
from iosonde.workload.tpcc.parameters import TpccParameters

WAREHOUSE_BYTES = 130 << 20
"""Room for a warehouse: rows, indexes, and half-full pages."""

LOG_BYTES = 1 << 30
"""Room for the write-ahead log and for rows that runs add."""


def fit(streams: Mapping[str, TpccParameters], target: Room, *, room_bytes: int) -> dict[str, Any]:
    """The parameters with what they decide of each other."""
    if target.backend() is not None and place.only(streams).server_url is None:
        raise TargetError(
            "a database server needs a file system, and a simulated or null device has none",
            hint="name a directory as the target",
        )
    return place.fit(streams)


def population(whole: TpccParameters) -> dict[str, Any]:
    """What the loaded data depend on."""
    return {"workload": "tpcc", "warehouses": whole.warehouses, "seed": whole.population_seed}


def identity(whole: TpccParameters) -> str:
    """Eight digits of the loaded database."""
    return place.data_identity(whole, population(whole))


def data_bytes(whole: TpccParameters) -> int:
    """Size that the loaded database is assumed to have."""
    return whole.warehouses * WAREHOUSE_BYTES + EMPTY_BYTES


def addressed_bytes(streams: Mapping[str, TpccParameters]) -> int:
    """The template, its copy for a run, and the log."""
    whole = place.only(streams)
    return 0 if whole.server_url else 2 * data_bytes(whole) + LOG_BYTES


def files(streams: Mapping[str, TpccParameters]) -> dict[str, int]:
    """The database that a run uses, with its template."""
    whole = place.only(streams)
    return {} if whole.server_url else {f"{whole.server}-{identity(whole)}": addressed_bytes(streams)}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room so many databases need."""
    return f"for {files} databases, by the parameter `warehouses`" if files > 1 else "by the parameter `warehouses`"


def buffer_bytes(streams: Mapping[str, TpccParameters]) -> int:
    """Nothing worth counting: a terminal holds one transaction."""
    return 0


def must_align(stream: TpccParameters) -> dict[str, list[int]]:
    """Nothing: the server knows what its direct I/O needs."""
    return {}


def layout(streams: Mapping[str, TpccParameters]) -> Layout:
    """The database is loaded once, as a template."""
    return "never" if place.only(streams).server_url else "missing"


def prepares(stream: TpccParameters) -> bool:
    """Never: every run starts from the template."""
    return False


def cost(streams: Mapping[str, TpccParameters]) -> Cost:
    """Time of a run with restoring; streams must be fitted to the target."""
    whole = place.only(streams)
    return run_cost(whole, data_bytes(whole))


def notes(streams: Mapping[str, TpccParameters]) -> list[str]:
    """What restoring the database before each run costs."""
    whole = place.only(streams)
    return [text] if (text := restore_note(whole, data_bytes(whole), data_bytes(whole))) else []
