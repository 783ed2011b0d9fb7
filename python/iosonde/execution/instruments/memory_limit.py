"""Memory limit of a run: a control group around the engine, and what the kernel counted in it."""

from __future__ import annotations

from typing import Any

from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.results.schema import Failure
from iosonde.storage.control_groups.control_group import MemoryGroup
from iosonde.units import format_bytes
from iosonde.workload import described


class MemoryLimit(Instrument):
    """Limits the memory of a run with the parameter `memory_limit`."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._group: MemoryGroup | None = None

    def start(self) -> None:
        """Create the control group."""
        limit_bytes = self.context.parameters.get("memory_limit")
        if limit_bytes and self.context.server is None:  # Otherwise it limits the server.
            self._group = MemoryGroup.make(limit_bytes, swap_bytes=self.context.swap_bytes)

    def engine_started(self, pid: int) -> None:
        """Move the engine into the group while it waits for its spec and has allocated hardly anything."""
        if self._group:
            self._group.add(pid)

    def stop(self, done: EngineRun) -> Reading:
        """The kernel's counters, and whether the limit was the cause of a kill."""
        if not self._group:
            return Reading()
        memory = self._group.facts()
        is_external = described(self.context.workload).io == "command"
        swap_bytes = self.context.swap_bytes
        failure = _out_of_memory(memory, done.failure, is_external=is_external, swap_bytes=swap_bytes)
        return Reading(facts={"memory": memory}, failure=failure)

    def close(self) -> None:
        """Remove the group."""
        if self._group:
            self._group.remove()


_KILLED = ("killed", "command_failed", "unparsable_output", "background_failed")
"""Failures that running out of memory explains: a command may outlive the kill of one of its processes."""

_FULL = 0.9
"""Share of the permitted swap in use at which more is suggested."""


def _out_of_memory(
    memory: dict[str, Any], failure: Failure | None, *, is_external: bool, swap_bytes: int
) -> Failure | None:
    if not memory["oom_kills"] or failure is None or failure.code not in _KILLED:
        return None
    swap_peak = memory["swap_peak_bytes"] or 0
    used = f" with {format_bytes(swap_peak)} of {format_bytes(swap_bytes)} swap used" if swap_bytes else ""
    larger_swap = ", or provide more swap" if swap_peak > _FULL * swap_bytes else ""
    return Failure(
        code="out_of_memory",
        message=f"the kernel killed {'the command' if is_external else 'the engine'} at its memory limit of "
        f"{format_bytes(memory['limit_bytes'])}{used}",
        context=failure.context,
        hint=f"raise it with `--set memory_limit=...`, or configure smaller caches and write buffers{larger_swap}",
    )
