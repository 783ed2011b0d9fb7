"""Types of the parts of plans and records that their own types leave open, and the last resort against other values.

Of a plan these are parameters of cases and settings of procedures. Whatever decides about the next run, or computes
with a parameter, relies on them. Parameters of other versions of iosonde, and those that a study defines for its
command, may have any value: they are shown and nothing else.

Of a record these are the parts that iosonde itself writes as objects: the target, the server, counters of devices.
Fields may be missing, because not every target and workload has them. What is not named here may have any value:
readers show it as text, and compute nothing with it.

What readers of the rest cannot interpret ends in `interpreting`: an error that names the result sets instead of a
traceback.
"""

from __future__ import annotations

import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

from iosonde.base.features import contributed
from iosonde.engine.protocol.validation import mismatch as mismatch_of
from iosonde.errors import IosondeError, ResultsError
from iosonde.plan import Case, Plan, Scalar, Setup
from iosonde.results.schema import RecordPart

Number = int | float


class Search(TypedDict):
    """Settings of a search."""

    over: str
    holds: list[str]
    rule: str
    also_check: list[str]
    also_check_rule: str
    lowest: Number
    highest: Number
    start: Number
    precision: Number
    whole: bool
    repeats: int
    agree: Literal["majority", "all"]
    streams: list[str]


class Load(TypedDict):
    """A load of a round, or a stage after the rounds."""

    levels: dict[str, Scalar]
    parameters: dict[str, Any]
    tracked: NotRequired[bool]


class Rounds(TypedDict):
    """Settings of rounds."""

    loads: list[Load]
    metric: str
    max_rounds: int
    window: int
    range: Number
    slope: Number
    repeats: int
    until_steady: NotRequired[bool]
    hold: NotRequired[int]
    min_written: NotRequired[Number]
    stages: NotRequired[list[Load]]


class Source(TypedDict):
    """The part that a parameter is derived from."""

    part: str
    metric: str


class Derived(TypedDict):
    """Settings of derived parameters."""

    derived: dict[str, Source]
    whole: list[str]
    repeats: int


class Repeats(TypedDict):
    """Settings of repeats until precise."""

    half_width: Number
    minimum: int
    maximum: int
    budget_s: Number | None
    metrics: list[str]


class Until(TypedDict):
    """Stop conditions of a run that is judged by its own rounds."""

    round_ns: int
    tracking: Literal["iops", "bandwidth", "completion_latency_ns_mean"]
    hold: int
    criteria: dict[str, Number]
    range_bytes: NotRequired[int | None]


class Conditions(TypedDict):
    """Conditions that a run may end after the decision of."""

    conditions: list[str]
    streams: list[str]


SETTINGS: Mapping[str, Any] = {"search": Search, "rounds": Rounds, "derived": Derived, "until": Repeats}
"""Procedures and the types of their settings."""

_LEAST: Mapping[str, Number] = {"repeats": 0, "window": 2, "hold": 0, "max_rounds": 0, "minimum": 0, "round_ns": 1}
_ABOVE = ("lowest", "highest", "start", "precision", "range", "slope")
"""Settings that have to be positive: logarithms are taken of them, or they are divided by."""


def mismatch_of_plan(plan: Plan) -> str:
    """Return the first part of a plan with an unexpected type; empty if there is none."""
    return next(filter(None, _problems(plan)), "")


def mismatch_of_parameters(parameters: Mapping[str, Any], workload: str) -> str:
    """Return the first parameter that is not of its type; empty if there is none."""
    known = _parameter_types(workload)
    return next(filter(None, (_of_parameter(name, value, known) for name, value in parameters.items())), "")


def _problems(plan: Plan) -> Iterator[str]:
    specs = {run.case_id: run.spec for run in plan.runs}
    for case in plan.cases:
        spec = case.procedure.spec if case.procedure else specs.get(case.case_id)
        problem = mismatch_of_parameters(case.parameters, spec["workload"]["kind"]) if spec else ""
        yield f"in the case `{case.case_id}`: {problem}" if problem else ""
        yield from _of_procedure(case)
    for run in plan.runs:
        if run.until is not None:
            kind = Conditions if "conditions" in run.until else Until
            problem = mismatch_of(run.until, kind) or _of_bounds(run.until)
            yield f"in `until` of the run `{run.run_id}`: {problem}" if problem else ""


def _of_procedure(case: Case) -> Iterator[str]:
    if not case.procedure:
        return
    kind, settings = case.procedure.kind, case.procedure.settings
    of_features: Mapping[str, Any] = dict(contributed("procedures", "SETTINGS", tuple))
    known = {**SETTINGS, **of_features}
    if kind not in known:
        yield f"`procedure.kind` of the case `{case.case_id}` is {kind[:20]!r}"
        return
    problem = mismatch_of(settings, known[kind], is_closed=True) or _of_bounds(settings)
    yield f"in the procedure of the case `{case.case_id}`: {problem}" if problem else ""


def _of_bounds(settings: Mapping[str, Any]) -> str:
    """Return the first number that is too small."""
    for name, value in settings.items():
        if name in _LEAST and value < _LEAST[name]:
            return f"`{name}` is {value}, below {_LEAST[name]}"
        if name in _ABOVE and value <= 0:
            return f"`{name}` is {value}, and has to be positive"
    return ""


def _of_parameter(name: str, value: Any, known: Mapping[str, Any]) -> str:
    short = name if name in known else name.rpartition(".")[2]
    if short not in known:
        return ""
    kind, least = known[short]
    found = mismatch_of(value, kind, at=name)
    if not found and least is not None and isinstance(value, int | float) and value < least:
        return f"`{name}` is {value}, below {least}"
    return found


@cache
def _parameter_types(workload: str) -> Mapping[str, tuple[Any, Number | None]]:
    """Return the parameters of a workload and of setups, each with its type and its lower bound."""
    from iosonde.study import workload as workloads
    from iosonde.study.setup import CASE_MODELS

    models: list[type[BaseModel]] = [Setup, *CASE_MODELS]
    if workload in workloads.workloads():
        models.append(workloads.named(workload).parameters)
    found = {}
    for model in models:
        hints = get_type_hints(model)
        for name, field in model.model_fields.items():
            bounds = (getattr(each, "ge", None) for each in field.metadata)
            least = next((each for each in bounds if isinstance(each, int | float)), None)
            found[name] = _plain(hints[name]), least
    window = {"rounds.window": (int, 2), "rounds.min_length": (int, 0), "rounds.min_written": (Number, 0)}
    return {**found, **window, **dict.fromkeys(("rounds.range", "rounds.slope"), (Number, 1e-12))}


def _plain(kind: Any) -> Any:
    """Return a type as JSON has it: texts in the place of literals, of which other versions have others."""
    origin = get_origin(kind)
    if origin is Literal:
        return str
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_plain, get_args(kind)))]  # noqa: UP007  # of types that are known when it runs only
    return kind


@contextmanager
def interpreting(directories: Iterable[Path]) -> Iterator[None]:
    """Replace any exception except iosonde's own and the system's by `ResultsError`."""
    try:
        yield
    except (IosondeError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ResultsError(
            f"a value in {_named(directories)} cannot be interpreted",
            where=f"{type(error).__name__}: {first_line(error)} ({_place_of(error)})",
            hint="the plan or a record was edited, or this version of iosonde has a defect: if the "
            "files were not edited, please report this message",
        ) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise ResultsError(
            f"cannot analyse {_named(directories)}: {panic_words(error)}",
            where=_place_of(error),
            hint=LIBRARY_HINT,
        ) from error


def first_line(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, ValidationError):
        return f"{field_of(error)}: {reason_of(error)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


def field_of(error: ValidationError) -> str:
    """Return the place of the first invalid value."""
    return ".".join(map(str, error.errors()[0]["loc"])) or "content"


def reason_of(error: ValidationError) -> str:
    """Return why the first invalid value is invalid."""
    return str(error.errors()[0]["msg"])


LIBRARY_HINT = (
    "this is a defect of the library or a limit of this machine, not of the result set: analyse it on another machine "
    "or with another version of the library, and report this message"
)


def is_panic(error: BaseException) -> bool:
    """Return True if a library written in Rust panicked; such an exception is no `Exception` (pyo3)."""
    return type(error).__name__ == "PanicException"


def panic_words(error: BaseException) -> str:
    """Name the library that panicked and its message."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (name for each in reversed(frames) for name in _LIBRARIES if name in Path(each.filename).parts)
    return f"the library {_LIBRARIES[next(libraries, 'polars')]} failed (`{first_line(error)}`)"


_LIBRARIES = {"polars": "Polars", "vl_convert": "vl-convert"}


def _named(directories: Iterable[Path]) -> str:
    return ", ".join(f"`{each}`" for each in directories)


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if "iosonde" in Path(each.filename).parts), frames[-1])
    return f"{Path(last.filename).name}, line {last.lineno}"


class Device(TypedDict):
    """A block device under the target."""

    device: NotRequired[str]
    name: NotRequired[str]
    kind: NotRequired[str]
    model: NotRequired[str]
    firmware: NotRequired[str]
    size_bytes: NotRequired[int]
    under: NotRequired[list[str]]


class FileSystem(TypedDict):
    """The file system of the target."""

    kind: NotRequired[str]
    size_bytes: NotRequired[int]
    source: NotRequired[str]


class Target(TypedDict):
    """The target of a run; `log` is a second one."""

    name: NotRequired[str]
    kind: NotRequired[str]
    size_bytes: NotRequired[int | None]
    file_system: NotRequired[FileSystem]
    devices: NotRequired[list[Device]]
    array: NotRequired[dict[str, Any] | None]
    log: NotRequired[dict[str, Any]]
    simulated: NotRequired[bool]


class Statistics(TypedDict):
    """The account of a database server."""

    kind: NotRequired[str]
    title: NotRequired[str]
    version: NotRequired[str]
    statistics_at_start: NotRequired[dict[str, int]]
    statistics_at_end: NotRequired[dict[str, int]]
    statistics_mean: NotRequired[dict[str, Number]]
    durability: NotRequired[dict[str, Any]]
    template: NotRequired[dict[str, Any] | None]
    restored: NotRequired[dict[str, Any] | None]


class Bytes(TypedDict):
    """Bytes of a device, and the engine's own of them."""

    device: str
    read_bytes: int
    write_bytes: int
    own_read_bytes: int
    own_write_bytes: int


class Others(TypedDict):
    """I/O of other processes, and their open files on the devices."""

    are_present: bool
    write_bytes: int
    unreadable: bool | int


class OwnIo(TypedDict):
    """Bytes of the devices over a run and over its measurement."""

    version: int | None
    run: list[Bytes]
    measure: list[Bytes]
    others: Others
    dirtied_bytes: int


SHAPES: Mapping[str, Any] = {
    "target": Target,
    "target_after": Target,
    "server": Statistics | None,
    "own_io": OwnIo | None,
}
"""Parts of a record and their types."""


def mismatch_of_record(record: Any) -> str:
    """Return the name of the first part of a record that is not of its type; empty if there is none."""
    wrong = (
        f"`{name}` is not as iosonde writes it"
        for name, kind in SHAPES.items()
        if mismatch_of(getattr(record, name), kind)
    )
    found = next(wrong, "") or _mismatch_of_parts(record.parts)
    log = record.target.get("log")
    return found or ("" if log is None or not mismatch_of(log, Target) else "`target.log` is not as iosonde writes it")


def _mismatch_of_parts(parts: Mapping[str, Any]) -> str:
    known: tuple[type[RecordPart], ...] = contributed("record", "PARTS")
    kinds = {kind.name: kind for kind in known}
    for name, part in parts.items():
        if name not in kinds:
            return f"`parts.{name[:40]}` is of no feature of this iosonde"
        try:
            kinds[name].model_validate(part)
        except ValidationError:
            return f"`parts.{name}` is not as iosonde writes it"
    return ""
