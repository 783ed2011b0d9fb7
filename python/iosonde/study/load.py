"""Read a study file: TOML, then types, then the checks that types do not make: names that must refer to something.

Everything here can be known without a target. What depends on one (sizes against room, whole cases) is for `expand.py`.
Errors have locations in the file: `factors.queue_depth` of part `main`, line 12.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from iosonde.base import text_files
from iosonde.base.foreign_text import printable
from iosonde.base.provided import provided
from iosonde.data import adapters, applications, reference_file, shipped
from iosonde.errors import StudyError, did_you_mean
from iosonde.storage.targets.target import MOST_BYTES, is_file_name
from iosonde.study import setup
from iosonde.study import workload as workloads
from iosonde.study.model import FORMAT, ROUND, STAGE, Level, Part, Scalar, Study, View
from iosonde.study.workload.workload import Workload


def read(name_or_path: str | Path) -> StudyFile:
    """The text of the study of that name that comes with iosonde, or of that file."""
    known = shipped() | adapters()
    file = known.get(str(name_or_path)) or Path(name_or_path)
    try:
        text = text_files.read(file)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(name_or_path), error) from None
    return read_text(text, name=file.name if file.stem in known else str(file))


def read_text(text: str, *, name: str = "") -> StudyFile:
    """The text of a study as TOML; errors refer to it as `name`."""
    try:
        data = text_files.parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        where = f"in `{name}`" if name else ""
        raise StudyError(f"the study is not TOML: {error}", where=where, hint="see docs/studies.md") from None
    return StudyFile(name=name, text=text, data=data)


def validate(source: StudyFile) -> Study:
    """The study in a file, with every check that needs neither a target nor its procedures."""
    _check_format(source)
    check_values(source)
    try:
        study = Study.model_validate(source.data)
    except ValidationError as error:
        raise _misfit(error, source) from None
    check(study, source)
    return study


def _check_format(source: StudyFile) -> None:
    found = source.data.get("format", FORMAT)
    if type(found) is int and found > FORMAT:
        raise StudyError(
            f"the study has format {found}; this iosonde reads format {FORMAT}",
            where=source.where("format"),
            hint="use a newer version of iosonde",
        )


def _unreadable(name: str, error: Exception) -> StudyError:
    known = shipped() | adapters()
    if "/" in name or name.endswith(".toml"):
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        return StudyError(f"cannot read the study `{name}`: {reason}")
    if name in applications():
        return StudyError(
            f"`{name}` is an application, not a study",
            hint=f"`iosonde qualify {name} --target DIR` decides whether storage is good enough for it",
        )
    listed = "`iosonde list` shows those that come with iosonde; name a file of your own by its path"
    hint = " ".join(filter(None, (did_you_mean(name, known), listed)))
    return StudyError(f"there is no study `{name}`", hint=hint)


def _misfit(error: ValidationError, source: StudyFile) -> StudyError:
    """The first thing that types found wrong."""
    # An unknown key first, for it may be why another is missing; then the deepest, for a level is of one of many types.
    first = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", -len(each["loc"])))
    keys = in_data(source.data, first["loc"])
    match first["type"]:
        case "extra_forbidden":
            model = _model_at(keys[:-1])
            return StudyError(
                f"there is no key `{keys[-1]}` here",
                where=source.where(*keys),
                hint=_listing(str(keys[-1]), model.model_fields) if model else "",
            )
        case "missing":
            missing = first["loc"][-1]
            return StudyError(
                f"`{missing}` is missing", where=source.where(*keys) or source.where(), hint="see docs/studies.md"
            )
        case _:
            message = re.sub("^(Input|String) should", "it should", first["msg"].removeprefix("Value error, "))
            name = keys[-1] if keys else "study"
            return StudyError(f"`{name}` is wrong: {message}", where=source.where(*keys))


def _model_at(keys: Sequence[str | int]) -> type[BaseModel] | None:
    """The type of the table at `keys`."""
    kind: Any = Study
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and key in kind.model_fields:
            kind = kind.model_fields[str(key)].annotation
        else:  # The type of the elements of a list or table.
            kind = next((each for each in reversed(get_args(kind)) if each is not type(None)), None)
    models = [kind, *get_args(kind)]
    return next((model for model in models if isinstance(model, type) and issubclass(model, BaseModel)), None)


Keys = tuple[str | int, ...]


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")


_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The text of a study, to find the line of a key."""

    name: str = ""
    """As the user called it; empty for a study that was not read from a file."""
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def where(self, *keys: str | int) -> str:
        """The place of a key as a clause, with its line where the text has it."""
        at = f"at `{self._path(keys)}`" if keys else ""
        # The line that names the most of them; an inline table's keys are on the line of their parent.
        lines = _lines(self.text)
        line = next((lines[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in lines), None)
        of = f"{'of' if line else 'in'} `{self.name}`" if self.name else ""
        return " ".join(part for part in (f"{at}," if at and (line or of) else at, line and f"line {line}", of) if part)

    def _path(self, keys: Keys) -> str:
        """Dotted, with the name of a part, view or other entry of a list instead of its number."""
        found: Any = self.data
        path = ""
        for key in keys:
            found = _entry(found, key)
            if isinstance(key, int):
                named = found.get("name") or found.get("title") if isinstance(found, Mapping) else None
                path += f"[{named or key + 1}]"
            else:
                path += f".{key}" if path else key
        return path


def in_data(data: Any, keys: Sequence[str | int]) -> Keys:
    """Those of `keys` that lead somewhere in `data`: types add names of their own, and a missing key leads nowhere."""
    real: list[str | int] = []
    for key in keys:
        found = _entry(data, key)
        if found is not None:
            data = found
            real.append(key)
    return tuple(real)


def _entry(data: Any, key: str | int) -> Any:
    try:
        return data[key]
    except (KeyError, IndexError, TypeError):
        return None


@functools.lru_cache(maxsize=4)
def _lines(text: str) -> dict[Keys, int]:
    """The first line of every header and key of a TOML text; entries of `[[lists]]` are numbered."""
    found: dict[Keys, int] = {}
    table: Keys = ()
    counts: dict[Keys, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _numbered(_split(header[2]), counts, is_list=header[1] == "[[")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(table + _split(key[1]), number)
    return found


def _numbered(names: Keys, counts: dict[Keys, int], *, is_list: bool) -> Keys:
    path: Keys = ()
    for position, name in enumerate(names):
        path += (name,)
        if is_list and position == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _split(dotted: str) -> Keys:
    return tuple(part.strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted))


OF_RESULTS = ("operation", "stream")
"""Columns of results that views may separate by besides factors."""


CONTROL = "control"
"""Name of the control case, and of its entry in a profile's `parts`."""


def check(study: Study, source: StudyFile) -> None:
    """Raise `StudyError` for the first thing that is wrong."""
    _check_parts(study, source)
    _check_profiles(study, source)
    _check_references(study, source)
    _check_views(study, source)
    _check_analysis(study, source)
    _check_requirements(study, source)


def check_values(source: StudyFile) -> None:
    """Raise `StudyError` for a number that is not finite, or a text with a control character, anywhere in a study."""
    waiting: list[tuple[Keys, Any]] = [((), source.data)]
    while waiting:
        keys, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [((*keys, name), each) for name, each in value.items()]
            value = "".join(map(str, value))
        elif isinstance(value, list):
            waiting += [((*keys, place), each) for place, each in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise StudyError(
                f"`{_name(keys)}` must be a finite number, got {value}",
                where=source.where(*keys),
                hint="set a number",
            )
        if isinstance(value, str) and printable(value) != value:
            raise StudyError(
                f"`{_name(keys)}` must not contain control characters, got `{printable(value)[:80]}`",
                where=source.where(*keys),
                hint="remove the escape sequence from the text",
            )


def _name(keys: Keys) -> str:
    """Return the last name in the path of a value: entries of a list have only numbers."""
    return next((key for key in reversed(keys) if isinstance(key, str)), "study")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a study that sets parameters of a workload, and the streams that these can belong to."""

    source: StudyFile
    workload: Workload
    streams: Sequence[str] = ()
    at: Keys = ()

    def where(self, *keys: str | int) -> str:
        """A place within this one as a clause."""
        return self.source.where(*self.at, *keys)

    def check_parameters(self, parameters: Mapping[str, Any], *keys: str | int) -> None:
        """Every name is a parameter, or `STREAM.PARAMETER` of one of the streams, and every value fits it."""
        for name, value in parameters.items():
            stream, _, parameter = name.rpartition(".")
            where = self.where(*keys, name)
            if stream and stream not in self.streams:
                raise StudyError(f"there is no stream `{stream}`", where=where, hint=_listing(stream, self.streams))
            is_place = parameter in self.workload.places and (parameter != "library" or "/" in str(value))
            if self.source.text and is_place:
                raise StudyError(
                    f"`{name}` is a path and cannot be set in a study",
                    where=where,
                    hint=f"give it when the study is run: `--set {name}=...`",
                )
            if setup.is_setup(parameter) and (stream or "streams" in (*self.at, *keys)):
                raise StudyError(
                    f"`{parameter}` belongs to the case and not to a stream",
                    where=where,
                    hint="streams run together on one setup: set it in the measurement, or as a factor",
                )
            with located(where):
                read_parameter(self.workload, parameter, value)

    def check_levels(self, name: str, levels: Sequence[Scalar | Level], *keys: str | int) -> None:
        """A factor has levels, no two alike; a plain level is a value of the parameter that the factor is named after.

        The last of `keys` is the place of the levels.
        """
        if not levels:
            raise StudyError(f"the factor `{name}` has no levels", where=self.where(*keys))
        known = [level.label if isinstance(level, Level) else level for level in levels]
        for index, level in enumerate(levels):
            if known[index] in known[:index]:
                raise StudyError(f"the factor `{name}` has the level `{known[index]}` twice", where=self.where(*keys))
            if isinstance(level, Level):
                self.check_parameters(level.set, *keys, index, "set")
            else:
                self.check_parameters({name: level}, *keys[:-1])


@contextmanager
def located(where: str) -> Iterator[None]:
    """Give the errors of a block another place."""
    try:
        yield
    except StudyError as error:
        raise StudyError(error.what, where=where, hint=error.hint) from None


def read_parameter(workload: Workload, name: str, value: Any) -> Any:
    """One parameter of the workload or of the setup as written -> checked, in bytes or nanoseconds."""
    return setup.read_value(name, value) if setup.is_setup(name) else workload.read_value(name, value)


def _check_parts(study: Study, source: StudyFile) -> None:
    whole = Place(source=source, workload=workloads.named(study.workload))
    whole.check_parameters(study.measurement, "measurement")
    names = [part.name for part in study.parts]
    for index, part in enumerate(study.parts):
        at = ("parts", index)
        if part.name in names[:index] or part.name == CONTROL or "/" in part.name:
            raise StudyError(
                f"a part cannot be called `{part.name}`",
                where=source.where(*at),
                hint=f"use a unique name without `/`, other than `{CONTROL}`",
            )
        _check_part(part, Place(source=source, workload=study.workload_of(part), streams=part.stream_names, at=at))
    if study.control:
        whole.check_parameters(study.control.measurement, "control", "measurement")


def _check_part(part: Part, place: Place) -> None:
    place.check_parameters(part.measurement, "measurement")
    for index, stream in enumerate(part.streams):
        where = place.where("streams", index)
        if stream.name in place.streams[:index]:
            raise StudyError(f"two streams are called `{stream.name}`", where=where)
        if not is_file_name(stream.name):
            raise StudyError(
                f"a stream cannot be called `{stream.name}`",
                where=where,
                hint=f"files are named after streams: at most {MOST_BYTES} bytes, no `/`, no `.` in front",
            )
        replace(place, streams=()).check_parameters(stream.set, "streams", index, "set")
    for name, levels in part.factors.items():
        place.check_levels(name, levels, "factors", name)
    _check_procedures(part, place)
    for index, combination in enumerate(part.exclude):
        for name in combination:
            _known("factor", name, part.factors, place.where("exclude", index))


def _check_procedures(part: Part, place: Place) -> None:
    """Require a parameter of the part, which is no factor, for each value that a procedure decides."""
    decided = [("derived", name) for name in part.derived] + ([("search", part.search.over)] if part.search else [])
    for name, levels in part.rounds.factors.items() if part.rounds else ():
        place.check_levels(name, levels, "rounds", "factors", name)
        decided.append(("rounds", name))
    _check_stages(part, place)
    for key, name in decided:
        stream = name.rpartition(".")[0]
        if stream:
            _known("stream", stream, place.streams, place.where(key))
        if name in part.factors:
            raise StudyError(
                f"`{name}` cannot be both a factor of the part `{part.name}` and decided by `{key}`",
                where=place.where(key),
            )


def _check_stages(part: Part, place: Place) -> None:
    """Stages are labelled sets of parameters; without rounds there must be some."""
    if not part.rounds:
        return
    if part.rounds.stages:
        place.check_levels(STAGE, part.rounds.stages, "rounds", "stages")
    elif part.rounds.max_rounds == 0:
        raise StudyError(
            f"the part `{part.name}` must have rounds or stages",
            where=place.where("rounds"),
            hint="set `max_rounds` above 0, or list `stages`",
        )
    for name in (STAGE, ROUND):
        if name in part.factors or name in part.rounds.factors:
            raise StudyError(f"a factor of rounds cannot be called `{name}`", where=place.where("rounds"))


def _check_profiles(study: Study, source: StudyFile) -> None:
    if not study.profiles:
        raise StudyError("the study has no profiles", where=source.where("profiles"), hint="add `[profiles.standard]`")
    streams = [stream for part in study.parts for stream in part.stream_names]
    whole = Place(source=source, workload=workloads.named(study.workload), streams=streams)
    own = {part.name: replace(whole, workload=study.workload_of(part)) for part in study.parts}
    own |= {CONTROL: whole} if study.control else {}
    factors = [factor for part in study.parts for factor in part.all_factors]
    for name, profile in study.profiles.items():
        at: Keys = ("profiles", name)
        whole.check_parameters(profile.measurement, *at, "measurement")
        for part, parameters in profile.parts.items():
            _known("part", part, own, source.where(*at, "parts", part))
            own[part].check_parameters(parameters, *at, "parts", part)
        for factor, levels in profile.factors.items():
            _known("factor", factor, factors, source.where(*at, "factors", factor))
            for each in study.parts:
                if factor in each.all_factors:
                    own[each.name].check_levels(factor, levels, *at, "factors", factor)


def _check_references(study: Study, source: StudyFile) -> None:
    factors = [*(name for part in study.parts for name in part.all_factors), *OF_RESULTS]
    for index, reference in enumerate(study.references):
        at: Keys = ("references", index)
        if "/" in reference.csv or not reference_file(reference.csv).is_file():
            raise StudyError(
                f"there are no published values `{reference.csv}`",
                where=source.where(*at, "csv"),
                hint="`csv` names a file in `reference/`; a study contains no paths",
            )
        for key, named in (("columns", reference.columns.values()), ("fixed", reference.fixed)):
            for factor in named:
                _known("factor", factor, factors, source.where(*at, key))


def _check_views(study: Study, source: StudyFile) -> None:
    references = [reference.name for reference in study.references]
    for index, view in enumerate(study.views):
        at: Keys = ("views", index)
        separable = _separable(study, view.part, source.where(*at, "part"))
        # A trade-off has a metric on its x axis.
        axes = {"series": view.series, "facet": view.facet, **({} if view.kind == "tradeoff" else {"x": view.x})}
        for key, name in axes.items():
            if name is not None:
                _known("factor", name, separable, source.where(*at, key))
        for name in view.where:
            _known("factor", name, separable, source.where(*at, "where"))
        if view.reference is not None:
            _known("reference", view.reference, references, source.where(*at, "reference"))
        if view.kind in ("limits", "improvements"):
            _check_published(view, study, source.where(*at))


def _check_published(view: View, study: Study, where: str) -> None:
    """Check a view that lists published values: its reference, the columns of it, and that there is a search."""
    reference = next((each for each in study.references if each.name == view.reference), None)
    if reference is None:
        raise StudyError(
            f"the view `{view.title}` requires published values, but names none",
            where=where,
            hint="name an entry of `[[references]]` in `reference`",
        )
    if view.kind == "limits" and not any(part.search for part in study.parts if part.name == view.part):
        raise StudyError(
            f"the view `{view.title}` requires a search, but part `{view.part}` has none",
            where=where,
            hint="name a part with `[parts.search]`",
        )
    heads = reference_file(reference.csv).read_text(encoding="utf-8").partition("\n")[0].split(",")
    named = [reference.label, reference.value, *([reference.value_high] if reference.value_high else [])]
    for column in [*named, *([reference.against] if view.kind == "improvements" else [])]:
        _known("column", column, heads, where)


def _check_analysis(study: Study, source: StudyFile) -> None:
    for index, analysis in enumerate(study.analysis):
        at: Keys = ("analysis", index)
        separable = _separable(study, analysis.part, source.where(*at, "part"))
        if provided("questions").names()[analysis.kind]:
            parts = [part.name for part in study.parts]
            _known("part", analysis.device_part, parts, source.where(*at, "device_part"))
        for key, names in (("over", [analysis.over]), ("by", analysis.by), ("where", list(analysis.where))):
            for name in names:
                _known("factor", name, separable, source.where(*at, key))


def _check_requirements(study: Study, source: StudyFile) -> None:
    """Check names and the parts and levels of requirements; their conditions are read by `planning.load`."""
    names = [each.name for each in study.requirement]
    for index, requirement in enumerate(study.requirement):
        at: Keys = ("requirement", index)
        if requirement.name in names[:index]:
            raise StudyError(f"two requirements are called `{requirement.name}`", where=source.where(*at))
        parts = {part.name: part for part in study.parts}
        _known("part", requirement.part, parts, source.where(*at, "part"))
        for factor in requirement.where:
            _known("factor", factor, parts[requirement.part].all_factors, source.where(*at, "where"))


def _separable(study: Study, part: str, where: str) -> list[str]:
    parts = {each.name: each for each in study.parts}
    _known("part", part, parts, where)
    search, rounds = parts[part].search, parts[part].rounds
    return [*parts[part].all_factors, *([search.over] if search else []), *([ROUND] if rounds else []), *OF_RESULTS]


def _known(what: str, name: str, known: Iterable[str], where: str) -> None:
    if name not in known:
        raise StudyError(f"there is no {what} `{name}`", where=where, hint=_listing(name, known))


def _listing(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    listed = f"there are {', '.join(f'`{each}`' for each in names)}" if names else "there are none"
    return did_you_mean(name, names) or listed
