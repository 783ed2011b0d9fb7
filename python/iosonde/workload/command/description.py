"""What other packages ask about external commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from iosonde.plan import commands
from iosonde.workload.description import Description, Rules, Spec


class CommandDescription(Description):
    """External commands, which `iosonde.supervisor` starts and not the engine."""

    is_external = True
    operations = ("command",)
    subject = "command"
    worded = ("command",)
    printed_apart = commands.PRINTED

    def rules(self, workload: Spec) -> Rules:
        """By the resources that the processes used."""
        return "processes"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """The name of the program; the parameter is a list, or that list as JSON."""
        command = case["command"]
        first = (json.loads(command) if isinstance(command, str) else command)[0]
        return {"command": str(first).rpartition("/")[2]}


DESCRIPTION: Description = CommandDescription()
