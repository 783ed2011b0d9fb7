"""What other packages ask about objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.workload import terms
from iosonde.workload.description import Description, Rules, Spec

_OPERATIONS = {"write": "writes", "sequential_read": "sequential reads", "random_read": "random reads"}


class ObjectsDescription(Description):
    """Objects of a cluster that iosonde starts, or of a server of the user."""

    counts_operations = True
    has_no_target = True
    is_on_osds = True
    rate_unit = "ops/s"
    counted = "operations"
    operations = ("read", "write")
    subject = "object_store"

    def server(self, workload: Spec) -> str:
        """`ceph`, or `s3` for a server of the user."""
        kind = str(workload["store"]["kind"])
        return "ceph" if kind == "rados" else kind

    def rules(self, workload: Spec) -> Rules:
        """The store does the I/O."""
        return "server"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB object random reads on Ceph`."""
        size = case.get("object_size")
        operation = str(case.get("operation") or case.get("operation_level") or "")
        return {
            "object_size": f"{terms.size_words(size)} object" if size is not None else "object",
            "operation": _OPERATIONS.get(operation, "operations"),
            "object_store": f"on {terms.store_name(case['object_store'])}",
        }


DESCRIPTION: Description = ObjectsDescription()
