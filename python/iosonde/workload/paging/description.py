"""What other packages ask about paging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.workload.description import CLOSED, Description, Rules, Spec


class PagingDescription(Description):
    """Accesses to mapped memory: each is one of the operations."""

    counts_operations = True
    rate_unit = "accesses/s"
    shows_bandwidth = False
    counted = "accesses"
    accesses_memory = True
    operations = ("hit", "minor_fault", "major_fault")
    subject = "mapping"
    worded = ("pattern",)

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """Accesses have no arrival in the spec: each follows the one before."""
        return [{**stream, "arrival": CLOSED} for stream in workload["streams"]]

    def rules(self, workload: Spec) -> Rules:
        """The kernel does the I/O, at page faults."""
        return "faults"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `uniform accesses to memory`."""
        memory = "a mapped file" if case["mapping"] == "file" else "memory"
        pattern = str(case.get("pattern") or case.get("pattern_level") or "").partition(":")[0]
        return {"pattern": pattern, "phase": f"accesses to {memory}"}


DESCRIPTION: Description = PagingDescription()
