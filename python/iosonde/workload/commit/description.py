"""What other packages ask about durable commits."""

from __future__ import annotations

from iosonde.workload.description import Description
from iosonde.workload.oltp.description import OltpDescription


class CommitDescription(OltpDescription):
    """Durable commits."""

    connections = "clients"
    operations = ("commit",)


DESCRIPTION: Description = CommitDescription()
