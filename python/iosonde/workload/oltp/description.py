"""What other packages ask about the workloads on database servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.workload import terms
from iosonde.workload.description import Description, Rules, Spec


class OltpDescription(Description):
    """Transactions on a database server; `connections` is the parameter with their number."""

    connections = ""
    has_no_target = True
    is_transactional = True
    has_statistics = True
    rate_unit = "transactions/s"
    shows_bandwidth = False
    counted = "transactions"
    subject = "server"
    worded = ("server",)

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """One stream, which has the name of the parameter with its size."""
        measurement, name = workload.get("measurement"), self.connections
        return [{"name": name, "jobs": measurement[name], "arrival": measurement["arrival"]}] if measurement else []

    def server(self, workload: Spec) -> str:
        """Its name, such as `postgresql`."""
        return str(workload["server"]["kind"])

    def rules(self, workload: Spec) -> Rules:
        """The server does the I/O."""
        return "server"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `PostgreSQL TPC-C-like transactions`."""
        tpcc = "TPC-C transactions" if case.get("think") == "standard" else "TPC-C-like transactions (no think time)"
        phase = tpcc if case.get("warehouses") else "single-row commits"
        return {"server": terms.store_name(case["server"]), "phase": phase}
