"""Single-row durable commits on a database server: the group-commit curve of a log device."""

from __future__ import annotations

from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.commit.spec import workload
from iosonde.workload.oltp.fields import SIZES
from iosonde.workload.oltp.workload import OltpWorkload


class CommitWorkload(OltpWorkload[CommitParameters]):
    """Durable commits."""

    name = "commit"
    title = "durable commits"
    parameters = CommitParameters
    sizes = (*SIZES, "payload")
    shown = ("server", "clients", "operation", "payload", "memory_limit", "duration")
    smaller = "commit for a shorter time with `--set duration=...`"
    connections = "clients"
    operations = ("commit",)
    spec = staticmethod(workload)

    def room_by(self, files: int) -> str:
        """A clause that states what this many databases need room for."""
        return f"for the logs of {files} servers" if files > 1 else "for the log of a server"


COMMIT = CommitWorkload()
