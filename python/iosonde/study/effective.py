"""A study with a profile and the user's settings worked into it.

Later wins: the study's measurement, the part's, its streams', the profile's, the profile's for that part, the user's
settings; a factor's level wins over all of them. What comes out is a study again, in which every part states what holds
for it, and every level is written as readers of results meet it (sizes in bytes, times in nanoseconds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.errors import StudyError, did_you_mean
from iosonde.study import setup
from iosonde.study import workload as workloads
from iosonde.study.load import CONTROL, OF_RESULTS, Place, StudyFile, located, read_parameter
from iosonde.study.model import ROUND, STAGE, Level, Parameters, Part, Profile, Scalar, Study, Until
from iosonde.study.setup import without as without_setup
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.workload import Workload

Levels = list[Scalar | Level]


def effective(study: Study, *, profile: str, settings: Mapping[str, str]) -> Study:
    """The study as it will be carried out with that profile and these `--set`s."""
    of_until, settings = _apart(settings, PREFIX)
    study = _with_until_settings(study, of_until)
    if profile not in study.profiles:
        known = ", ".join(f"`{each}`" for each in study.profiles)
        raise StudyError(f"the study `{study.name}` has no profile `{profile}`", hint=f"it has {known}")
    if missing := [name for name in study.asks if name not in settings]:
        raise StudyError(
            f"the study `{study.name}` requires values of your own: `{'`, `'.join(missing)}`",
            hint=" ".join(["set them with", *(f"`--set {name}=...`" for name in missing)]),
        )
    chosen = study.profiles[profile]
    if any(part.procedure for part in study.parts):
        of_procedure, settings = _apart(settings, "procedure.")
        chosen = chosen.model_copy(update={"procedure": {**chosen.procedure, **of_procedure}})
    levels = _set_levels(study, chosen, settings)
    parameters = _set_parameters(study, settings)
    parts = [_with_bounds(_part(study, part, chosen, levels[part.name], parameters), chosen) for part in study.parts]
    by_name = {part.name: part for part in parts}
    changes: dict[str, Any] = {
        **_repeats(study, chosen, profile),
        "parts": parts,
        "profiles": {profile: Profile(title=chosen.title, repeats=chosen.repeats, repeats_until=chosen.repeats_until)},
    }
    for name in ("views", "analysis", "requirement"):
        of_parts = [(each, by_name[each.part]) for each in getattr(study, name)]
        changes[name] = [
            each.model_copy(update={"where": read_levels(part.all_factors, each.where, study.workload_of(part))})
            for each, part in of_parts
        ]
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


def _apart(settings: Mapping[str, str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings with a prefix, without it, and the others."""
    with_prefix = {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}
    return with_prefix, {name: text for name, text in settings.items() if not name.startswith(prefix)}


def _with_until_settings(study: Study, settings: Mapping[str, str]) -> Study:
    """Return the study with `--set until.NAME=VALUE` applied."""
    changes: dict[str, Any] = dict(settings)
    if "metrics" in changes:
        changes["metrics"] = [each.strip() for each in changes["metrics"].split(",")]
    unknown = sorted(set(changes) - set(Until.model_fields))
    given = " ".join(f"--set {PREFIX}{name}={value}" for name, value in settings.items())
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


def read_level(factor: str, level: Scalar | Level, workload: Workload = BLOCK) -> Scalar:
    """A level as in results. Procedures, which are for block I/O, need not name the workload."""
    if isinstance(level, Level):
        return level.label
    parameter = factor.rpartition(".")[2]
    if parameter in workload.durations and isinstance(level, int):
        return level  # Read before: as written, a time has a unit.
    value: Scalar = read_parameter(workload, parameter, level)
    return value


def _part(study: Study, part: Part, profile: Profile, levels: Mapping[str, Levels], parameters: Parameters) -> Part:
    workload = study.workload_of(part)
    of_profile = profile.measurement if part.workload in (None, study.workload) else {}
    is_mixed = len({study.workload_of(each).name for each in study.parts}) > 1
    set_here = {name: value for name, value in parameters.items() if not is_mixed or _has(workload, study, part, name)}
    overrides = _over(_over(of_profile, profile.parts.get(part.name, {})), set_here)
    replaced = {**profile.factors, **levels}
    factors, rounds = _replaced(part.factors, replaced, workload), part.rounds
    if rounds:
        within = _replaced(rounds.factors, replaced, workload)
        track = [read_levels(within, each, workload) for each in rounds.track]
        stages = replaced.get(STAGE, rounds.stages) if rounds.stages else []
        rounds = rounds.model_copy(update={"factors": within, "track": track, "stages": stages})
    whole = part.model_copy(update={"factors": factors, "rounds": rounds})
    names = part.stream_names
    mine = {name: value for name, value in overrides.items() if "." not in name or name.partition(".")[0] in names}
    return whole.model_copy(
        update={
            "measurement": _over(part.measurement, mine),
            "streams": [stream.model_copy(update={"set": _without(stream.set, mine)}) for stream in part.streams],
            "exclude": [read_levels(whole.all_factors, combination, workload) for combination in part.exclude],
        }
    )


def _has(workload: Workload, study: Study, part: Part, name: str) -> bool:
    """Return True if a setting names a parameter of the part."""
    own = {} if part.workload not in (None, study.workload) else study.measurement
    known = (*workload.parameters.model_fields, *setup.NAMES, *own, *part.measurement)
    return name.rpartition(".")[2] in known


def _replaced(factors: Mapping[str, Levels], replaced: Mapping[str, Levels], workload: Workload) -> dict[str, Levels]:
    chosen = {name: replaced.get(name, own) for name, own in factors.items()}
    return {
        name: [each if isinstance(each, Level) else read_level(name, each, workload) for each in levels]
        for name, levels in chosen.items()
    }


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


def _over(earlier: Parameters, later: Parameters) -> Parameters:
    return _without(earlier, later) | later


def _without(earlier: Parameters, later: Parameters) -> Parameters:
    """A plain parameter holds for all streams, so it also replaces what single streams had before."""
    return {name: value for name, value in earlier.items() if name.rpartition(".")[2] not in later}


def read_levels(
    factors: Mapping[str, Levels], levels: Mapping[str, Scalar], workload: Workload = BLOCK
) -> dict[str, Scalar]:
    """Levels that a `where`, `track` or `exclude` names, as the factors have them."""
    labelled = {name for name, own in factors.items() if any(isinstance(each, Level) for each in own)}
    written = {*OF_RESULTS, ROUND, *labelled}
    return {name: level if name in written else read_level(name, level, workload) for name, level in levels.items()}


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
            with located(f"in `--set {name}={text}`"):
                place = Place(source=StudyFile(), workload=study.workload_of(part), streams=part.stream_names)
                place.check_levels(name, chosen, name)
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
    streams = [stream for part in study.parts for stream in part.stream_names]
    parameters = {name: text for name, text in settings.items() if name not in factors}
    known = _parameters(study)
    for name, text in parameters.items():
        parameter = name.rpartition(".")[2]
        having = [each for each in map(study.workload_of, study.parts) if parameter in each.parameters.model_fields]
        if parameter not in known:
            names = f"the factors of `{study.name}` are {_listed(factors)}" if factors else "see docs/studies.md"
            raise StudyError(
                f"there is no factor or parameter `{name}`",
                where=f"in `--set {name}={text}`",
                hint=did_you_mean(name, [*factors, *known]) or names,
            )
        if "," in text and name not in setup.COMMAS:
            raise StudyError(
                f"`{name}` is not a factor of `{study.name}`, so it takes one value",
                where=f"in `--set {name}={text}`",
                hint=f"its factors are {_listed(factors)}" if factors else "give one value",
            )
        with located(f"in `--set {name}={text}`"):
            workload = having[0] if having else workloads.named(study.workload)
            Place(source=StudyFile(), workload=workload, streams=streams).check_parameters({name: text})
    return parameters


def applies(study: Study, name: str) -> bool:
    """Return True if the study has a factor or parameter of this name."""
    factors = {factor for part in study.parts for factor in part.all_factors}
    return name.startswith(PREFIX) or name in factors or name.rpartition(".")[2] in _parameters(study)


def _parameters(study: Study) -> list[str]:
    """Names of all parameters that a study may set."""
    written = {each for layer in (study.measurement, *(part.measurement for part in study.parts)) for each in layer}
    fields = [field for part in study.parts for field in study.workload_of(part).parameters.model_fields]
    return [*dict.fromkeys(fields), *setup.NAMES, *sorted(written)]


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def streams_of(
    study: Study, part: Part, levels: Mapping[str, Scalar | Level], decided: Parameters
) -> dict[str, Parameters]:
    """Parameters of each stream, as written, in the order in which later ones win; last what a procedure decides."""
    chosen = {**chosen_parameters(levels, study.workload_of(part)), **decided}
    streams = {stream.name: stream.set for stream in part.streams} or {"main": {}}
    return {
        stream: without_setup(
            {
                **_of_study(study, part),
                **own,
                **_of_stream(part.measurement, stream),
                **_plain(chosen),
                **_of_stream(chosen, stream),
            }
        )
        for stream, own in streams.items()
    }


def whole_case(study: Study, part: Part, levels: Mapping[str, Scalar | Level]) -> Parameters:
    """Parameters that belong to no stream, as written, in the order in which later ones win."""
    return {**_of_study(study, part), **_plain(chosen_parameters(levels, study.workload_of(part)))}


def _of_study(study: Study, part: Part) -> Parameters:
    """The parameters of all streams: the study's as far as the part has them, none of another workload; the part's."""
    of_study = study.measurement if part.workload in (None, study.workload) else {}
    return {**of_study, **_plain(part.measurement)}


def chosen_parameters(levels: Mapping[str, Scalar | Level], workload: Workload = BLOCK) -> Parameters:
    """Return the parameters of a combination of levels as a study writes them: times have a unit."""
    chosen: Parameters = {}
    for name, level in levels.items():
        if isinstance(level, Level):
            chosen |= level.set
        else:
            is_time = name.rpartition(".")[2] in workload.durations and isinstance(level, int)
            chosen[name] = f"{level}ns" if is_time else level
    return chosen


def _plain(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if "." not in name}


def _of_stream(parameters: Parameters, stream: str) -> Parameters:
    prefix = f"{stream}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
