"""TPC-C on a database server.

Without keying and think times a result is not TPC-C: reports label it "TPC-C-like, no think time".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.plan import JsonObject
from iosonde.workload.tpcc.parameters import TpccParameters
from iosonde.workload.tpcc.spec import load_spec, workload
from iosonde.workload.oltp.workload import OltpWorkload


class TpccWorkload(OltpWorkload[TpccParameters]):
    """TPC-C."""

    name = "tpcc"
    title = "TPC-C"
    parameters = TpccParameters
    shown = ("server", "warehouses", "terminals", "think", "memory_limit", "duration")
    smaller = "make the database smaller with `--set warehouses=...`"
    connections = "terminals"
    operations = ("new_order", "payment", "order_status", "delivery", "stock_level")
    spec = staticmethod(workload)

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many databases need."""
        return f"for {files} databases, by the parameter `warehouses`" if files > 1 else "by the parameter `warehouses`"

    def load_spec(self, spec: JsonObject, case: Mapping[str, Any]) -> JsonObject:
        """The warehouses are loaded once."""
        return load_spec(spec, jobs=int(case["load_jobs"]))


TPCC = TpccWorkload()
