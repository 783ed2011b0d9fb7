"""The parameters of a TPC-C load (TPC-C 5.11)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from iosonde.workload.oltp.fields import OltpFields

WAREHOUSE_BYTES = 130 << 20
"""Room for a warehouse: rows, indexes, and half-full pages."""


class TpccParameters(OltpFields):
    """Terminals, each with one connection and one transaction at a time."""

    warehouses: int = Field(10, ge=1, le=100_000, description="Scale of the database: about 100 MB each.")
    terminals: int = Field(10, ge=1, le=10_000, description="Connections, each with a transaction in flight.")
    think: Literal["none", "standard"] = Field(
        "none", description="Keying and think times: none (the result is TPC-C-like), or those of clause 5.2.5."
    )
    home: Literal["fixed", "uniform"] = Field(
        "fixed", description="A terminal's warehouse: its own (clause 2.4.1), or any, chosen for each transaction."
    )
    mix: Literal["deck", "weighted"] = Field(
        "deck", description="Transaction types: a shuffled deck (clause 5.2.4.2), or each by its weight."
    )
    isolation: Literal["read_committed", "repeatable_read", "serializable"] = Field(
        "repeatable_read", description="Isolation level of all transactions."
    )
    retries: int = Field(
        10, ge=0, le=1000, description="Repeats after a serialization failure, deadlock or lock timeout."
    )
    pipelining: bool = Field(False, description="Send independent statements of a transaction together.")
    population_seed: int = Field(1, ge=0, description="Seed of the initial population.")
    load_jobs: int = Field(4, ge=1, le=64, description="Connections that load the database in parallel.")

    def population(self) -> dict[str, Any]:
        """Parameters that decide the loaded data."""
        return {"workload": "tpcc", "warehouses": self.warehouses, "seed": self.population_seed}

    def loaded_bytes(self) -> int:
        """Size that the loaded rows and indexes are assumed to have."""
        return self.warehouses * WAREHOUSE_BYTES

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            *super()._rules(),
            (self.arrival != "closed" and self.think != "none", 'an open loop has no think time: set `think = "none"`'),
        ]
