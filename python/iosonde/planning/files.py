"""Files that are on a target once cases have run, and what is created and removed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iosonde.plan import OF_WHOLE_DEVICE, Destroys, Setup
from iosonde.planning.draft import Draft
from iosonde.planning.setup_targets import SetupTargets
from iosonde.workload.block.parameters import BlockParameters

if TYPE_CHECKING:
    from iosonde.storage import Target


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

    Cases share files, and `layout = "missing"` keeps what is in them.
    """
    kinds: dict[tuple[Any, ...], set[frozenset[Any]]] = {}
    contents = [_contents(draft) for draft in drafts]
    for each in contents:
        for file, kind in each.items():
            kinds.setdefault(file, set()).add(kind)
    return [
        _always_laid_out(draft) if any(len(kinds[file]) > 1 for file in each) and _reads_missing(draft) else draft
        for draft, each in zip(drafts, contents, strict=True)
    ]


def _contents(draft: Draft) -> dict[tuple[Any, ...], frozenset[Any]]:
    """Kinds of data that a case of block I/O leaves in each of its files."""
    found: dict[tuple[Any, ...], frozenset[Any]] = {}
    for name, stream in draft.streams.items():
        if isinstance(stream, BlockParameters) and (stream.writes or stream.layout != "never"):
            kind = frozenset([(stream.payload, stream.compression_ratio, *_duplicates(stream))])
            for file in draft.workload.files({name: stream}):
                place = (*draft.case.setup_key, file)
                found[place] = found.get(place, frozenset()) | kind
    return found


def _duplicates(stream: BlockParameters) -> tuple[float, int]:
    return (stream.duplicate_fraction, stream.duplicate_size if stream.duplicate_fraction else 0)


def _reads_missing(draft: Draft) -> bool:
    return draft.workload.layout(draft.streams) == "missing" and any(
        stream.read_fraction > 0 for stream in draft.streams.values()
    )


def _always_laid_out(draft: Draft) -> Draft:
    streams = {name: stream.model_copy(update={"layout": "always"}) for name, stream in draft.streams.items()}
    case = draft.case.model_copy(update={"parameters": {**draft.case.parameters, "layout": "always"}})
    return replace(draft, case=case, streams=streams)


def sharing_a_setup(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Cases by setup: their files exist at the same time."""
    groups: dict[tuple[str, ...], list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.setup_key, []).append(draft)
    return list(groups.values())


def _by_setup(drafts: Sequence[Draft]) -> dict[Setup | None, list[Draft]]:
    """Cases that are measured on the same thing."""
    groups: dict[Setup | None, list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.case.setup, []).append(draft)
    return groups


def destroyed(drafts: Sequence[Draft], stages: SetupTargets[Target], *, keep: bool) -> list[Destroys]:
    """Return everything that setups create and remove, each once, with its largest size."""
    found: dict[str, Destroys] = {}
    for setup, group in _by_setup(drafts).items():
        size_bytes = sum(files_of(group, stages.on(setup)).values())
        takes_all = any(draft.case.parameters.get("purge") in OF_WHOLE_DEVICE for draft in group)
        if stages.on(setup).kind == "device" and takes_all:
            size_bytes = stages.on(setup).free_bytes()
        if size_bytes or stages.on(setup) is not stages.base:
            for each in stages.on(setup).destroys(size_bytes, keep=keep):
                found.setdefault(f"{each.path}: {each.what}", each)
    return list(found.values())
