"""Conditions of a run: the state of its target and of the block queues, and the control groups of its processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.counters import directories_of
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.results.schema import SHARED_LOG_DEVICE, UNSUPPORTED, Failure, RecordWarning
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_stack import stack_of
from iosonde.storage.control_groups import MemoryGroup, ProcessGroup
from iosonde.storage.safety import guard
from iosonde.storage.setups import machine_settings
from iosonde.storage.targets.workspace import purge
from iosonde.study.workload import described
from iosonde.units import format_bytes


class PreparedFiles(Instrument):
    """Prevents runs on files that were truncated after they had been filled or preconditioned.

    The engine extends a file that is too small, and reads of unwritten blocks are not served by the device.
    """

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return not context.run.part and bool(context.parameters.get("fill") or context.parameters.get("precondition"))

    def start(self) -> None:
        """Compare the size of each file with that of its preparation."""
        run = self.context.run
        prepared_bytes = run.spec["workload"]["target"]["size_bytes"]
        for path in filter(Path.is_file, map(Path, self.context.identities)):
            size_bytes = path.stat().st_size
            if size_bytes < prepared_bytes:
                error = TargetError(
                    f"`{path}` has shrunk: {format_bytes(prepared_bytes)} were prepared, and "
                    f"{format_bytes(size_bytes)} are left",
                    where=f"before run `{run.run_id}`",
                    hint="stop other processes from changing it, and repeat the run with "
                    "`iosonde resume DIR --retry-failed`",
                )
                raise NotStartedError("setup" if self.context.case.setup else "target", error)


class BlockQueue(Instrument):
    """Sets the I/O scheduler, read-ahead and others where a study requires them."""

    _saved: Sequence[machine_settings.Saved] = ()

    def start(self) -> None:
        """Set them; of a device that hosts of one machine share, the first host does so for all."""
        parameters = self.context.parameters
        asked = {name: parameters[name] for name in machine_settings.FILES if name in parameters}
        is_set_by_another = guard.shares_claims() and self.context.case.setup is None
        if not asked or is_set_by_another:
            return
        devices = self.context.target_facts.get("devices", [])
        try:
            self._saved = machine_settings.apply(devices, asked, own=self.context.session.plan.created_name)
        except TargetError as error:
            raise NotStartedError(UNSUPPORTED, error) from error

    def stop(self, done: EngineRun) -> Reading:
        """Record what was set."""
        facts = [each.fact() for each in self._saved if each.value is not None]
        return Reading(facts={"queue_settings": facts} if facts else {})

    def close(self) -> None:
        """Restore the former values."""
        saved, self._saved = self._saved, ()
        machine_settings.restore(saved)


class Purge(Instrument):
    """Discards the contents of the target."""

    _not_discarded = ""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return context.run.purges

    def start(self) -> None:
        """Purge now; an I/O error prevents the run."""
        run = self.context.run
        means, target = run.parameters["purge"], run.spec["workload"]["target"]
        if target["kind"] == "virtual":
            self.context.session.state.purge()
            return
        try:
            self._not_discarded = purge(
                {**target, "size_bytes": self._written_bytes(target)},
                means,
                identities=self.context.identities,
                report=self.context.session.note,
            )
        except OSError as problem:
            what = f"the purge by `{means}` failed: {problem.strerror or problem}"
            raise NotStartedError("purge", TargetError(what)) from problem

    def stop(self, done: EngineRun) -> Reading:
        """Warn where the device still stores what was purged."""
        if not self._not_discarded:
            return Reading()
        warning = RecordWarning(
            code="not_discarded",
            message="the purge freed the files' blocks but did not discard them on the device: "
            f"FITRIM failed ({self._not_discarded})",
            hint="run as root, on a file system mounted with `discard` or on a device that supports it; or measure the "
            "device itself",
        )
        return Reading(warnings=[warning])

    def _written_bytes(self, target: dict[str, Any]) -> int:
        """End of the range that any case of the plan writes: a lower fill level also discards that of a higher one."""
        others = (spec["workload"].get("target", {}) for spec in self.context.session.plan.specs())
        sizes: list[int] = [each["size_bytes"] for each in others if each.get("path") == target.get("path")]
        return max(int(target["size_bytes"]), *sizes, 0)


class SharedLogDevice(Instrument):
    """Compares the devices under the database with those under its log, in this process or of a server."""

    def stop(self, done: EngineRun) -> Reading:
        """Compose the warning."""
        places = directories_of(self.context)
        shared = shared_devices(places["data"], places["log"]) if {"data", "log"} <= set(places) else []
        if not shared:
            return Reading()
        warning = RecordWarning(
            code=SHARED_LOG_DEVICE,
            message=f"the log is on the same device as the data: {', '.join(shared)}",
            hint="name a directory on another disk with `--set log_target=DIRECTORY`",
        )
        return Reading(warnings=[warning])


def shared_devices(first: Path, second: Path) -> list[str]:
    """The block devices (`major:minor`) under both directories; the file system itself where it has no device."""
    if first.stat().st_dev == second.stat().st_dev:
        return block_stack.watched(stack_of(first))[:1] or ["one file system"]
    others = set(stack_of(second))
    return [device for device in stack_of(first) if device in others]


class MemoryLimit(Instrument):
    """Limits the memory of a run with the parameter `memory_limit`: a control group around the engine."""

    _group: MemoryGroup | None = None

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return bool(context.parameters.get("memory_limit")) and context.server is None  # Else it limits the server.

    def start(self) -> None:
        """Create the control group."""
        limit_bytes = self.context.parameters["memory_limit"]
        self._group = MemoryGroup.make(limit_bytes, swap_bytes=self.context.swap_bytes)

    def engine_started(self, pid: int) -> None:
        """Move the engine into the group while it waits for its spec and has allocated hardly anything."""
        assert self._group
        self._group.add(pid)

    def stop(self, done: EngineRun) -> Reading:
        """The kernel's counters, and whether the limit was the cause of a kill."""
        assert self._group
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

_FULL = 0.75
"""Share of the permitted swap in use at which more is suggested.

Each CPU fills a cluster of 2 MiB of its own, so the kernel finds no free one before all of a small area is in use
(mm/swapfile.c).
"""


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


class CommandGroup(Instrument):
    """Groups of the supervisor and all processes of the command.

    The supervisor itself kills what a command leaves running, and reads CPU time from the group. The group is for the
    case that the supervisor is killed: `iosonde cleanup` finds it in the journal, with the processes in it.
    """

    _group: ProcessGroup | None = None

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return described(context.workload).io == "command"

    def engine_started(self, pid: int) -> None:
        """Create the groups where this machine permits, and move the supervisor into them."""
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
