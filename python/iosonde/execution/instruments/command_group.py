"""A control group around an external command: its CPU time, and the end of everything that it has started."""

from __future__ import annotations

from contextlib import suppress

from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.storage.control_groups.process_group import ProcessGroup
from iosonde.workload import described


class CommandGroup(Instrument):
    """Groups of the supervisor and all processes of the command.

    The supervisor itself kills what a command leaves running, and reads CPU time from the group. The group is for the
    case that the supervisor is killed: `iosonde cleanup` finds it in the journal, with the processes in it.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._group: ProcessGroup | None = None

    def engine_started(self, pid: int) -> None:
        """Create the groups where this machine permits, and move the supervisor into them."""
        if described(self.context.workload).io == "command":
            with suppress(OSError):
                self._group = ProcessGroup.for_cpu_time(pid)

    def stop(self, done: EngineRun) -> Reading:
        """Kill the remaining processes before the other instruments remove their groups."""
        self.close()
        return Reading()

    def close(self) -> None:
        """Remove the groups with all processes in them."""
        if self._group:
            self._group.remove()
            self._group = None
