"""Feasibility of a study on a target and this machine, checked before anything is written, and the files of its cases.

Cases of optional parts that are not feasible are left out, with the reason. So are cases that a simulated target cannot
tell apart, because their levels differ only in the host's path to a device: a simulated device is reached without
system calls, page cache and block layer. Measuring such cases would compare a model with itself, so each group is
measured once, and a study that asks about nothing else is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iosonde.base import memory
from iosonde.base.features import contributed
from iosonde.base.provided import provided
from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.plan import OF_WHOLE_DEVICE, Case, Destroys, JsonObject, LeftOut
from iosonde.planning.draft import Draft, SetupTargets, drafts_of, grouped, in_case, left_out_for
from iosonde.study.model import Study
from iosonde.study.setup import HOST_SETTINGS
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.block.backends import requires_backend
from iosonde.study.workload.block.parameters import OF_HOST, BlockParameters
from iosonde.units import compact_size, format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target


def possible_drafts(study: Study, stages: SetupTargets, left_out: list[LeftOut]) -> list[Draft]:
    """The drafts of a study; impossible cases of optional parts, and those that a simulated target cannot tell from
    others, go to `left_out`. An error if none is possible.
    """
    optional = {part.name for part in study.parts if part.optional}
    first: IosondeError | None = None
    kept = []
    specs: dict[str, JsonObject] = {}
    for draft in drafts_of(study, stages, left_out=left_out):
        try:
            if draft.case.part in optional:
                list(check_target([draft], stages, study))
                place = stages.on(draft.case.setup)
                specs[draft.case.case_id] = draft.workload.resolve(draft.streams, place, seed=0, run_id="possible")
        except IosondeError as error:  # Its parameters are valid: the target or the machine lacks something.
            first = first or error
            left_out.append(left_out_for(error, draft.case.case_id, draft.case.part))
        else:
            kept.append(draft)
    lacking = _without_backend(kept, specs, stages.base)
    for draft in (each for each in kept if each.case.case_id in lacking):
        left_out.append(left_out_for(lacking[draft.case.case_id], draft.case.case_id, draft.case.part))
    kept = [draft for draft in kept if draft.case.case_id not in lacking]
    if not any(not draft.case.control for draft in kept):
        raise _none_possible(left_out, first, study)
    return _distinct(kept, study, stages.base, left_out)


def _without_backend(
    drafts: Sequence[Draft], specs: Mapping[str, JsonObject], target: Target
) -> Mapping[str, IosondeError]:
    """Return the reason for each case whose backend is missing; it is not tried on setups, which do not exist yet."""
    plain = [draft.case.case_id for draft in drafts if draft.case.setup is None and draft.case.case_id in specs]
    asked = {each: specs[each] for each in plain if requires_backend(specs[each]["workload"])}
    found: Mapping[str, IosondeError] = provided("engine_programs").missing_backend(asked, target.name) if asked else {}
    return found


def _none_possible(left_out: Sequence[LeftOut], first: IosondeError | None, study: Study) -> IosondeError:
    """The error of the only case, or one with the first case of each reason."""
    reasons = {each.reason: each for each in reversed(left_out)}
    each = left_out[0]
    if len(reasons) == 1:
        return first or TargetError(each.reason, where=f"in case `{each.case_id}`, like all others", hint=each.hint)
    lines = [f"in case `{each.case_id}`: {each.reason}" for each in reversed(reasons.values())]
    return TargetError(
        f"the study `{study.name}` has no case that is possible here", where="\n  ".join(lines), hint=each.hint
    )


def check_target(drafts: Sequence[Draft], stages: SetupTargets, study: Study) -> Iterator[Destroys]:
    """Yield what features create or overwrite for the cases; an error if they are impossible on the target."""
    # Files of cases with the same setup exist at the same time.
    for group in grouped(drafts, lambda draft: draft.case.setup_key):
        place = stages.on(group[0].case.setup)
        yield from _requirements_of_features(group, place, study)
        _check_room(group, files_of(group, place), place)
        _check_direct(group, place)


def _requirements_of_features(drafts: Sequence[Draft], place: Target, study: Study) -> Iterator[Destroys]:
    """Yield what features create or overwrite for these cases; an error for the first case that is impossible."""
    kinds: tuple[Requirements, ...] = contributed("run", "REQUIREMENTS")
    for draft in drafts:
        try:
            for requirements in kinds:
                yield from requirements(draft.case, place)
        except IosondeError as error:
            raise in_case(error, draft.case.case_id, study) from None


def _check_room(drafts: Sequence[Draft], files: Mapping[str, int], target: Target) -> None:
    """The target has room for files that are there together; `TargetError` names what needs most."""
    is_virtual = target.backend() is not None
    needed = (
        max(draft.workload.addressed_bytes(draft.streams) for draft in drafts) if is_virtual else sum(files.values())
    )
    largest = max(drafts, key=lambda draft: sum(draft.workload.files(draft.streams).values()))
    try:
        target.check(needed, [], "buffered")
    except TargetError as error:
        hints = largest.workload.hints
        sized_by = (hints.sized_by_several.format(len(files)) if len(files) > 1 else "") or hints.sized_by
        where = f"{sized_by}, as in case `{largest.case.case_id}`"
        hint = error.hint.replace(BLOCK.hints.smaller, hints.smaller)
        raise TargetError(error.what, where=where, hint=hint) from None


def _check_direct(drafts: Sequence[Draft], target: Target) -> None:
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


def check_machine(drafts: Sequence[Draft], study: Study) -> None:
    """`StudyError` for a case that this machine cannot run.

    That is one whose buffers and caches exceed the memory, since the kernel would kill a process, or one that pins a
    job to a CPU on which this process may not run (sched_setaffinity(2)).
    """
    needed, hungry = max(
        ((max(map(draft.workload.buffer_bytes, (draft.streams, *draft.others))), draft) for draft in drafts),
        key=lambda pair: pair[0],
    )
    memory_bytes = memory.total_bytes()
    limit = int(memory_bytes * memory.SHARE)
    if needed > limit:
        error = StudyError(
            f"a run needs {format_bytes(needed)} of memory; the limit is {format_bytes(limit)} of "
            f"{format_bytes(memory_bytes)}",
            hint=hungry.workload.hints.less_memory,
        )
        raise in_case(error, hungry.case.case_id, study)
    allowed = os.sched_getaffinity(0)
    for draft in drafts:
        every = (draft.streams, *draft.others, *draft.following)
        for stream in (stream for streams in every for stream in streams.values()):
            missing = set(getattr(stream, "cpus", ())) - allowed
            if missing:
                known, wanted = (", ".join(map(str, sorted(cpus))) for cpus in (allowed, missing))
                error = StudyError(
                    f"`cpus` must be CPUs on which iosonde may run: {known}; got {wanted}",
                    hint="choose others with `--set cpus=...`, or start iosonde on more CPUs (`taskset`, cpuset(7))",
                )
                raise in_case(error, draft.case.case_id, study)


ELSEWHERE = "name a directory or a block device as the target"


def _distinct(drafts: list[Draft], study: Study, target: Target, left_out: list[LeftOut]) -> list[Draft]:
    """Return one draft of each group that the target cannot tell apart; the others go to `left_out`.

    Kept is the one with the fewest settings of the host. `TargetError` if every question of the study compares levels
    without effect.
    """
    if not target.is_model:
        return drafts
    kept: dict[str, Draft] = {}
    for draft in drafts:
        key = _key(draft)
        if key not in kept or _host_settings(draft) < _host_settings(kept[key]):
            kept[key] = draft
    chosen = [draft for draft in drafts if kept[_key(draft)] is draft]
    if len(chosen) < len(drafts):
        _check_questions(study, drafts, chosen, target)
    for draft in drafts:
        twin = kept[_key(draft)]
        if twin is not draft:
            factors = _differing(draft.case.levels, twin.case.levels)
            reason = _no_effect(factors, target)
            left_out.append(LeftOut(case_id=draft.case.case_id, part=draft.case.part, reason=reason, hint=ELSEWHERE))
    return chosen


def check_arms(first: Sequence[Draft], second: Sequence[Draft], target: Target) -> None:
    """`TargetError` if the settings in which two arms differ have no effect on their simulated target."""
    if not target.is_model:
        return
    pairs = list(zip(first, second, strict=True))
    differing = sorted({name for a, b in pairs for name in _differing(a.case.parameters, b.case.parameters)})
    if differing and all(_key(a) == _key(b) for a, b in pairs):
        raise TargetError(_no_effect(differing, target), where="by the settings of `--against-set`", hint=ELSEWHERE)


def _parameters(draft: Draft) -> Iterator[tuple[str, bool, Any]]:
    """Each parameter with its value, and whether it is one of the host."""
    ignored = (*HOST_SETTINGS, *(OF_HOST if draft.workload.io == "blocks" else ()))
    for name, value in draft.case.parameters.items():
        yield name, name.rpartition(".")[2] in ignored, value


def _key(draft: Draft) -> str:
    """Text that is the same for cases of one part that a simulated target cannot tell apart."""
    effective = {name: value for name, of_host, value in _parameters(draft) if not of_host}
    return json.dumps([draft.case.part, draft.case.control, effective], sort_keys=True, default=str)


def _host_settings(draft: Draft) -> int:
    """Return the number of parameters of the host that are not at their defaults."""
    fields = draft.workload.parameters.model_fields
    return sum(
        of_host and value is not None and value != getattr(fields.get(name.rpartition(".")[2]), "default", None)
        for name, of_host, value in _parameters(draft)
    )


def _differing(values: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if others.get(name) != value]


def _check_questions(study: Study, drafts: Sequence[Draft], chosen: Sequence[Draft], target: Target) -> None:
    """Refuse a study if every question compares levels and only one of them remains."""
    parts = {draft.case.part for draft in drafts}
    asked = [each for each in study.analysis if each.part in parts]
    lost = [
        each.over
        for each in asked
        if len(_levels(drafts, each.part, each.over)) > 1 == len(_levels(chosen, each.part, each.over))
    ]
    if lost and len(lost) == len(asked):
        factors = " and ".join(f"`{name}`" for name in dict.fromkeys(lost))
        raise TargetError(
            f"the study `{study.name}` compares levels of {factors}, which have no effect on `{target.name}`",
            hint=f"{ELSEWHERE}; a simulated drive is a model without the host's I/O path",
        )


def _levels(drafts: Sequence[Draft], part: str, factor: str) -> set[str]:
    levels = [draft.case.levels for draft in drafts if draft.case.part == part and not draft.case.control]
    return {str(each[factor]) for each in levels if factor in each}


def _no_effect(names: Sequence[str], target: Target) -> str:
    verb = "has" if len(names) == 1 else "have"
    listed = " and ".join(f"`{name}`" for name in names)
    return f"{listed} {verb} no effect on `{target.name}`: it is a model without the host's I/O path"


def files_of(drafts: Sequence[Draft], place: Target | None = None) -> dict[str, int]:
    """The files that are there when all cases have run, with their largest size; with journals that are in `place`."""
    files: dict[str, int] = {}
    for draft in drafts:
        journals = draft.workload.journals(draft.streams) if place and place.kind != "device" else {}
        for name, size_bytes in (draft.workload.files(draft.streams) | journals).items():
            files[name] = max(size_bytes, files.get(name, 0))
    return files


def laid_out_again(drafts: Sequence[Draft]) -> list[Draft]:
    """The cases; those that read data of a kind that another case does not write lay out their files before each run.

    So do those that verify what another case writes without verification, which the engine refuses. Cases share files,
    and `layout = "missing"` keeps what is in them.
    """
    kinds: dict[tuple[Any, ...], set[frozenset[Any]]] = {}
    contents = [_contents(draft) for draft in drafts]
    for each in contents:
        for file, kind in each.items():
            kinds.setdefault(file, set()).add(kind)
    unverified = {
        file for draft, each in zip(drafts, contents, strict=True) if not _is_verified(draft) for file in each
    }
    again = []
    for draft, each in zip(drafts, contents, strict=True):
        is_other = any(len(kinds[file]) > 1 for file in each)
        needs = is_other and any(stream.read_fraction > 0 for stream in draft.streams.values())
        needs |= _is_verified(draft) and not unverified.isdisjoint(each)
        again.append(_always_laid_out(draft) if needs and draft.workload.layout(draft.streams) == "missing" else draft)
    return again


def _is_verified(draft: Draft) -> bool:
    return any(isinstance(each, BlockParameters) and each.verify != "none" for each in draft.streams.values())


def _contents(draft: Draft) -> dict[tuple[Any, ...], frozenset[Any]]:
    """Kinds of data that a case of block I/O leaves in each of its files."""
    found: dict[tuple[Any, ...], frozenset[Any]] = {}
    for name, stream in draft.streams.items():
        if isinstance(stream, BlockParameters) and (stream.writes or stream.layout != "never"):
            duplicate_size = stream.duplicate_size if stream.duplicate_fraction else 0
            kind = frozenset([(stream.payload, stream.compression_ratio, stream.duplicate_fraction, duplicate_size)])
            for file in draft.workload.files({name: stream}):
                place = (*draft.case.setup_key, file)
                found[place] = found.get(place, frozenset()) | kind
    return found


def _always_laid_out(draft: Draft) -> Draft:
    streams = {name: stream.model_copy(update={"layout": "always"}) for name, stream in draft.streams.items()}
    case = draft.case.model_copy(update={"parameters": {**draft.case.parameters, "layout": "always"}})
    return replace(draft, case=case, streams=streams)


def destroyed(drafts: Sequence[Draft], stages: SetupTargets, *, keep: bool) -> list[Destroys]:
    """Return everything that setups create and remove, each once, with its largest size."""
    found: dict[str, Destroys] = {}
    for group in grouped(drafts, lambda draft: draft.case.setup):
        place = stages.on(group[0].case.setup)
        size_bytes = sum(files_of(group, place).values())
        takes_all = any(draft.case.parameters.get("purge") in OF_WHOLE_DEVICE for draft in group)
        if place.kind == "device" and takes_all:
            size_bytes = place.free_bytes()
        if size_bytes or place is not stages.base:
            for each in place.destroys(size_bytes, keep=keep):
                found.setdefault(f"{each.path}: {each.what}", each)
    return list(found.values())


Requirements = Callable[[Case, "Target"], Iterable[Destroys]]
"""Yields what a feature creates or overwrites for a case; an error if the case is impossible on the target."""
