"""What other packages ask about TPC-C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.plan import JsonObject
from iosonde.workload.description import Description
from iosonde.workload.oltp.description import OltpDescription
from iosonde.workload.tpcc.spec import load_spec


class TpccDescription(OltpDescription):
    """TPC-C."""

    connections = "terminals"
    operations = ("new_order", "payment", "order_status", "delivery", "stock_level")

    def load_spec(self, spec: JsonObject, case: Mapping[str, Any]) -> JsonObject:
        """The warehouses are loaded once."""
        return load_spec(spec, jobs=int(case["load_jobs"]))


DESCRIPTION: Description = TpccDescription()
