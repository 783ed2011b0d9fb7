"""A study with a profile and the user's settings worked into it.

Later wins: the study's measurement, the part's, its streams', the profile's, the profile's for that part, the user's
settings; a factor's level wins over all of them. What comes out is a study again, in which every part states what holds
for it, and every level is written as readers of results meet it (sizes in bytes, times in nanoseconds).
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.errors import StudyError
from iosonde.study import setup
from iosonde.study import workload as workloads
from iosonde.study.load import CONTROL, OF_RESULTS, StudyFile, check_levels, check_parameters, read_parameter
from iosonde.study.model import ROUND, STAGE, Level, Parameters, Part, Profile, Scalar, Study, Until
from iosonde.study.setup import without as without_setup
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.workload import Workload

Levels = list[Scalar | Level]


def effective(study: Study, *, profile: str, settings: Mapping[str, str]) -> Study:
    """The study as it will be carried out with that profile and these `--set`s."""
    study = with_until_settings(study, {name: value for name, value in settings.items() if name.startswith(PREFIX)})
    settings = {name: value for name, value in settings.items() if not name.startswith(PREFIX)}
    chosen = _profile(study, profile)
    if any(part.procedure for part in study.parts):
        of_procedure = {name: value for name, value in settings.items() if name.startswith(PROCEDURE_PREFIX)}
        settings = {name: value for name, value in settings.items() if name not in of_procedure}
        given = {name.removeprefix(PROCEDURE_PREFIX): value for name, value in of_procedure.items()}
        chosen = chosen.model_copy(update={"procedure": {**chosen.procedure, **given}})
    levels = _set_levels(study, chosen, settings)
    parameters = _set_parameters(study, settings)
    parts = [_with_bounds(_part(study, part, chosen, levels[part.name], parameters), chosen) for part in study.parts]
    by_name = {part.name: part for part in parts}
    named = {part.name: workloads.named(study.workload_of(part)) for part in parts}
    changes: dict[str, Any] = {
        **_repeats(study, chosen, profile),
        "parts": parts,
        "profiles": {profile: Profile(title=chosen.title, repeats=chosen.repeats, repeats_until=chosen.repeats_until)},
        "views": [
            view.model_copy(update={"where": _read(view.where, by_name[view.part], named[view.part])})
            for view in study.views
        ],
        "analysis": [
            each.model_copy(update={"where": _read(each.where, by_name[each.part], named[each.part])})
            for each in study.analysis
        ],
        "requirement": [
            each.model_copy(update={"where": _read(each.where, by_name[each.part], named[each.part])})
            for each in study.requirement
        ],
    }
    if study.control:
        layers = (study.control.measurement, chosen.measurement, chosen.parts.get(CONTROL, {}), parameters)
        plain = {name: value for layer in layers for name, value in layer.items() if "." not in name}
        changes["control"] = study.control.model_copy(update={"measurement": plain})
    return study.model_copy(update=changes)


def _repeats(study: Study, profile: Profile, name: str) -> dict[str, Any]:
    """Return the number of repeats, which is the minimum with repeats until precise."""
    if not (profile.repeats_until or (study.repeats_until and profile.repeats is None)):
        return {"repeats": profile.repeats or study.repeats, "repeats_until": False}
    return until_precise(study.until, name)


def until_precise(until: Until, profile: str) -> dict[str, Any]:
    """Return what a study with repeats until precise has: five at least, three with the profile `quick`."""
    minimum = until.minimum or min(until.maximum, 3 if profile == "quick" else 5)
    return {"repeats": minimum, "repeats_until": True, "until": until.model_copy(update={"minimum": minimum})}


def with_until_settings(study: Study, settings: Mapping[str, str]) -> Study:
    """Return the study with `--set until.NAME=VALUE` applied."""
    changes: dict[str, Any] = {name.removeprefix(PREFIX): value for name, value in settings.items()}
    if "metrics" in changes:
        changes["metrics"] = [each.strip() for each in changes["metrics"].split(",")]
    unknown = sorted(set(changes) - set(Until.model_fields))
    given = " ".join(f"--set {name}={value}" for name, value in settings.items())
    if unknown:
        known = ", ".join(f"`{PREFIX}{name}`" for name in Until.model_fields)
        raise StudyError(
            f"there is no setting `{PREFIX}{unknown[0]}`", where=f"in `{given}`", hint=f"there are {known}"
        )
    try:
        until = Until.model_validate({**study.until.model_dump(), **changes})
    except ValueError as error:
        reason = str(error).splitlines()[2].strip() if len(str(error).splitlines()) > 2 else str(error)
        raise StudyError(f"the setting is wrong: {reason}", where=f"in `{given}`") from None
    return study.model_copy(update={"until": until})


PREFIX = "until."
"""Settings of `--set` with this prefix belong to the study's `until`."""


PROCEDURE_PREFIX = "procedure."
"""Settings of `--set` with this prefix belong to the procedures of features."""


def read_level(factor: str, level: Scalar | Level, workload: Workload = BLOCK) -> Scalar:
    """A level as in results. Procedures, which are for block I/O, need not name the workload."""
    if isinstance(level, Level):
        return level.label
    parameter = factor.rpartition(".")[2]
    if parameter in workload.durations and isinstance(level, int):
        return level  # Read before: as written, a time has a unit.
    value: Scalar = read_parameter(workload, parameter, level)
    return value


def _profile(study: Study, name: str) -> Profile:
    if name not in study.profiles:
        known = ", ".join(f"`{each}`" for each in study.profiles)
        raise StudyError(f"the study `{study.name}` has no profile `{name}`", hint=f"it has {known}")
    return study.profiles[name]


def _part(study: Study, part: Part, profile: Profile, levels: Mapping[str, Levels], parameters: Parameters) -> Part:
    workload = workloads.named(study.workload_of(part))
    of_profile = profile.measurement if part.workload in (None, study.workload) else {}
    is_mixed = len({study.workload_of(each) for each in study.parts}) > 1
    set_here = {name: value for name, value in parameters.items() if not is_mixed or _has(workload, study, part, name)}
    overrides = _over(_over(of_profile, profile.parts.get(part.name, {})), set_here)
    replaced = {**profile.factors, **levels}
    factors, rounds = _replaced(part.factors, replaced, workload), part.rounds
    if rounds:
        within = _replaced(rounds.factors, replaced, workload)
        track = [_read_of(within, each, workload) for each in rounds.track]
        stages = replaced.get(STAGE, rounds.stages) if rounds.stages else []
        rounds = rounds.model_copy(update={"factors": within, "track": track, "stages": stages})
    whole = part.model_copy(update={"factors": factors, "rounds": rounds})
    return _overridden(whole, overrides).model_copy(
        update={"exclude": [_read(combination, whole, workload) for combination in part.exclude]}
    )


def _has(workload: Workload, study: Study, part: Part, name: str) -> bool:
    """Return True if a setting names a parameter of the part."""
    own = {} if part.workload not in (None, study.workload) else study.measurement
    known = (*workload.parameters.model_fields, *setup.NAMES, *own, *part.measurement)
    return name.rpartition(".")[2] in known


def _replaced(factors: Mapping[str, Levels], replaced: Mapping[str, Levels], workload: Workload) -> dict[str, Levels]:
    return {name: [_written(name, each, workload) for each in replaced.get(name, own)] for name, own in factors.items()}


def _with_bounds(part: Part, profile: Profile) -> Part:
    """Apply the profile's search precision, procedure settings and maximum of rounds to a part."""
    changes: dict[str, Any] = {}
    if part.search and profile.precision is not None:
        changes["search"] = part.search.model_copy(update={"precision": profile.precision})
    if part.procedure and profile.procedure:
        settings = {**part.procedure.settings, **profile.procedure}
        changes["procedure"] = part.procedure.model_copy(update={"settings": settings})
    if part.rounds and part.rounds.max_rounds and profile.max_rounds is not None:
        changes["rounds"] = part.rounds.model_copy(update={"max_rounds": profile.max_rounds})
    return part.model_copy(update=changes)


def _overridden(part: Part, overrides: Parameters) -> Part:
    names = {stream.name for stream in part.streams}
    mine = {name: value for name, value in overrides.items() if "." not in name or name.partition(".")[0] in names}
    streams = [stream.model_copy(update={"set": _without(stream.set, mine)}) for stream in part.streams]
    return part.model_copy(update={"measurement": _over(part.measurement, mine), "streams": streams})


def _over(earlier: Parameters, later: Parameters) -> Parameters:
    return _without(earlier, later) | later


def _without(earlier: Parameters, later: Parameters) -> Parameters:
    """A plain parameter holds for all streams, so it also replaces what single streams had before."""
    return {name: value for name, value in earlier.items() if name.rpartition(".")[2] not in later}


def _written(factor: str, level: Scalar | Level, workload: Workload) -> Scalar | Level:
    return level if isinstance(level, Level) else read_level(factor, level, workload)


def _read(levels: Mapping[str, Scalar], part: Part, workload: Workload) -> dict[str, Scalar]:
    """Levels that a `where` or `exclude` names, as the part's factors have them."""
    return _read_of(part.all_factors, levels, workload)


def _read_of(factors: Mapping[str, Levels], levels: Mapping[str, Scalar], workload: Workload) -> dict[str, Scalar]:
    return {name: _as_in(factors.get(name, []), name, level, workload) for name, level in levels.items()}


def _as_in(own: Levels, name: str, level: Scalar, workload: Workload) -> Scalar:
    is_plain = name not in (*OF_RESULTS, ROUND) and not any(isinstance(each, Level) for each in own)
    return read_level(name, level, workload) if is_plain else level


def _set_levels(study: Study, profile: Profile, settings: Mapping[str, str]) -> dict[str, dict[str, Levels]]:
    """For each part, settings of what is a factor in it: its levels instead, compound ones by their labels, as the
    profile has them. Of labels that only some parts have, each part takes its own."""
    levels: dict[str, dict[str, Levels]] = {part.name: {} for part in study.parts}
    for name, text in settings.items():
        wanted = [each.strip() for each in text.split(",") if each.strip()]
        parts = [part for part in study.parts if name in part.all_factors]
        labels = {part.name: _labels(name, part, profile) for part in parts}
        for part in parts:
            own = labels[part.name]
            chosen: Levels = [own.get(each, each) for each in wanted if each in own or not own]
            if own:
                _check_labels(name, text, wanted, own, [label for each in labels.values() for label in each])
            check = functools.partial(
                check_levels,
                name,
                chosen,
                _NO_FILE,
                (name,),
                workload=workloads.named(study.workload_of(part)),
                streams=_streams(part),
            )
            _check(check, name, text)
            levels[part.name][name] = chosen
    return levels


def _labels(name: str, part: Part, profile: Profile) -> dict[str, Level]:
    """Compound levels of a factor by their labels."""
    known = [*part.all_factors[name], *profile.factors.get(name, [])]
    return {level.label: level for level in known if isinstance(level, Level)}


def _check_labels(
    name: str, text: str, wanted: Sequence[str], own: Mapping[str, Level], everywhere: Sequence[str]
) -> None:
    """Refuse labels that no part has, and labels of which a part has none."""
    unknown = [each for each in wanted if each not in everywhere]
    if wanted and not unknown and not set(wanted) & set(own):
        unknown = list(wanted)
    if unknown:
        raise StudyError(
            f"the factor `{name}` has no level `{unknown[0]}`",
            where=f"in `--set {name}={text}`",
            hint=f"it has {', '.join(f'`{label}`' for label in own)}",
        )


def _set_parameters(study: Study, settings: Mapping[str, str]) -> Parameters:
    """Settings of what is a factor nowhere: the parameter's value in every part."""
    factors = {name for part in study.parts for name in part.all_factors}
    streams = [stream for part in study.parts for stream in _streams(part)]
    parameters = {name: text for name, text in settings.items() if name not in factors}
    for name, text in parameters.items():
        of_parts = {part.name: workloads.named(study.workload_of(part)) for part in study.parts}
        having = [each for part, each in of_parts.items() if name.rpartition(".")[2] in each.parameters.model_fields]
        workload = having[0] if having else workloads.named(study.workload)
        known = _parameters(study)
        if name.rpartition(".")[2] not in known:
            near = difflib.get_close_matches(name, [*factors, *known], n=1)
            names = f"the factors of `{study.name}` are {_listed(factors)}" if factors else "see docs/studies.md"
            raise StudyError(
                f"there is no factor or parameter `{name}`",
                where=f"in `--set {name}={text}`",
                hint=f"did you mean `{near[0]}`?" if near else names,
            )
        if "," in text and name not in setup.COMMAS:
            raise StudyError(
                f"`{name}` is not a factor of `{study.name}`, so it takes one value",
                where=f"in `--set {name}={text}`",
                hint=f"its factors are {_listed(factors)}" if factors else "give one value",
            )
        _check(lambda: check_parameters({name: text}, _NO_FILE, (), workload=workload, streams=streams), name, text)  # noqa: B023
    return dict(parameters)


def applies(study: Study, name: str) -> bool:
    """Return True if the study has a factor or parameter of this name."""
    factors = {factor for part in study.parts for factor in part.all_factors}
    return name.startswith(PREFIX) or name in factors or name.rpartition(".")[2] in _parameters(study)


def _parameters(study: Study) -> list[str]:
    """Names of all parameters that a study may set."""
    written = {each for layer in (study.measurement, *(part.measurement for part in study.parts)) for each in layer}
    fields = [
        field for part in study.parts for field in workloads.named(study.workload_of(part)).parameters.model_fields
    ]
    return [*dict.fromkeys(fields), *setup.NAMES, *sorted(written)]


_NO_FILE = StudyFile()


def _check(checked: Any, name: str, text: str) -> None:
    try:
        checked()
    except StudyError as error:
        raise StudyError(error.what, where=f"in `--set {name}={text}`", hint=error.hint) from None


def _streams(part: Part) -> list[str]:
    return [stream.name for stream in part.streams]


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def streams_of(
    study: Study, part: Part, levels: Mapping[str, Scalar | Level], decided: Parameters
) -> dict[str, Parameters]:
    """Parameters of each stream, as written, in the order in which later ones win; last what a procedure decides."""
    chosen = {**_chosen(workloads.named(study.workload_of(part)), levels), **decided}
    streams = {stream.name: stream.set for stream in part.streams} or {"main": {}}
    layers = {
        stream: {
            **_of_study(study, part),
            **_plain(part.measurement),
            **own,
            **_of_stream(part.measurement, stream),
            **_plain(chosen),
            **_of_stream(chosen, stream),
        }
        for stream, own in streams.items()
    }
    return {stream: without_setup(parameters) for stream, parameters in layers.items()}


def whole_case(study: Study, part: Part, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Parameters that belong to no stream, as written, in the order in which later ones win."""
    chosen = _chosen(workloads.named(study.workload_of(part)), levels)
    return {**_of_study(study, part), **_plain(part.measurement), **_plain(chosen)}


def _of_study(study: Study, part: Part) -> Parameters:
    """The study's parameters as far as the part has them: none of another workload."""
    return study.measurement if part.workload in (None, study.workload) else {}


def _chosen(workload: Workload, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Return the parameters of a combination of levels."""
    chosen: Parameters = {}
    for name, level in levels.items():
        chosen |= level.set if isinstance(level, Level) else {name: _as_written(workload, name, level)}
    return chosen


def _as_written(workload: Workload, factor: str, level: Scalar) -> Scalar:
    """A level that was read is plain nanoseconds, which a study may not write."""
    return f"{level}ns" if factor.rpartition(".")[2] in workload.durations and isinstance(level, int) else level


def _plain(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if "." not in name}


def _of_stream(parameters: Parameters, stream: str) -> Parameters:
    prefix = f"{stream}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
