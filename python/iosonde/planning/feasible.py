"""Feasibility of a study on a target and this machine, checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from iosonde import memory
from iosonde.core.features import contributed
from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.plan import Case, Destroys
from iosonde.planning.draft import Draft, in_case
from iosonde.study.model import Study
from iosonde.units import compact_size, format_bytes
from iosonde.workload.block import BLOCK

if TYPE_CHECKING:
    from iosonde.storage import Target

Requirements = Callable[[Case, "Target"], Iterable[Destroys]]
"""Yields what a feature creates or overwrites for a case; an error if the case is impossible on the target."""


def requirements_of_features(drafts: Sequence[Draft], place: Target, study: Study) -> Iterator[Destroys]:
    """Yield what features create or overwrite for these cases; an error for the first case that is impossible."""
    kinds: tuple[Requirements, ...] = contributed("run", "REQUIREMENTS")
    for draft in drafts:
        try:
            for requirements in kinds:
                yield from requirements(draft.case, place)
        except IosondeError as error:
            raise in_case(error, draft.case.case_id, study) from None


def check_room(drafts: Sequence[Draft], files: Mapping[str, int], target: Target) -> None:
    """The target has room for files that are there together; `TargetError` names what needs most."""
    is_virtual = target.backend() is not None
    needed = (
        max(draft.workload.addressed_bytes(draft.streams) for draft in drafts) if is_virtual else sum(files.values())
    )
    largest = max(drafts, key=lambda draft: sum(draft.workload.files(draft.streams).values()))
    try:
        target.check(needed, [], "buffered")
    except TargetError as error:
        where = f"{largest.workload.room_by(len(files))}, as in case `{largest.case.case_id}`"
        hint = error.hint.replace(BLOCK.hints.smaller, largest.workload.hints.smaller)
        raise TargetError(error.what, where=where, hint=hint) from None


def check_direct(drafts: Sequence[Draft], target: Target) -> None:
    """Direct I/O can do all its sizes here; else the first case that it cannot do is named, and what it could."""
    wanted: dict[tuple[str, int], Draft] = {}
    for draft in drafts:
        for stream in (stream for streams in (*draft.others, draft.streams) for stream in streams.values()):
            for parameter, sizes in draft.workload.must_align(stream).items():
                wanted |= {(parameter, size): draft for size in sizes if (parameter, size) not in wanted}
    refused = {place: error for place in wanted if (error := _refused(place[1], target))}
    if not refused:
        return
    (parameter, size), error = next(iter(refused.items()))
    possible = [
        compact_size(each)
        for (name, each), draft in wanted.items()
        if name == parameter and draft.varies(name) and (name, each) not in refused
    ]
    hint = f"leave out unsupported values: `--set {parameter}={','.join(possible)}`" if possible else error.hint
    where = f"{error.where}\n  in case `{wanted[parameter, size].case.case_id}`, by the parameter `{parameter}`"
    raise TargetError(error.what, where=where, hint=hint)


def _refused(size_bytes: int, target: Target) -> TargetError | None:
    try:
        target.check(0, [size_bytes], "direct")
    except TargetError as error:
        return error
    return None


def check_memory(drafts: Sequence[Draft], study: Study) -> None:
    """`StudyError` for a case whose buffers and caches exceed the memory: the kernel would kill a process."""
    memory_bytes = memory.total_bytes()
    hungry = max(drafts, key=_buffer_bytes)
    needed = _buffer_bytes(hungry)
    limit = int(memory_bytes * memory.SHARE)
    if needed > limit:
        error = StudyError(
            f"a run needs {format_bytes(needed)} of memory; the limit is {format_bytes(limit)} of "
            f"{format_bytes(memory_bytes)}",
            hint=hungry.workload.hints.less_memory,
        )
        raise in_case(error, hungry.case.case_id, study)


def check_cpus(drafts: Sequence[Draft], study: Study) -> None:
    """`StudyError` for a case that pins a job to a CPU on which this process may not run (sched_setaffinity(2))."""
    allowed = os.sched_getaffinity(0)
    for draft in drafts:
        every = (draft.streams, *draft.others, *draft.following)
        for stream in (stream for streams in every for stream in streams.values()):
            missing = set(getattr(stream, "cpus", ())) - allowed
            if missing:
                error = StudyError(
                    f"`cpus` must be CPUs on which iosonde may run: {_listed(allowed)}; got {_listed(missing)}",
                    hint="choose others with `--set cpus=...`, or start iosonde on more CPUs (`taskset`, cpuset(7))",
                )
                raise in_case(error, draft.case.case_id, study)


def _listed(cpus: set[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))


def _buffer_bytes(draft: Draft) -> int:
    return max(draft.workload.buffer_bytes(streams) for streams in (draft.streams, *draft.others))
