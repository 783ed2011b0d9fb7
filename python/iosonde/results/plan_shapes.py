"""Types of the parts of a plan that its own types leave open: parameters of cases and settings of procedures.

Whatever decides about the next run, or computes with a parameter, relies on them. Parameters of other versions of
iosonde, and those that a study defines for its command, may have any value: they are shown and nothing else.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import TypedDict

from iosonde.core.features import contributed
from iosonde.plan import Case, Plan, Scalar, Setup
from iosonde.protocol.validation import mismatch as mismatch_of

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


def mismatch(plan: Plan) -> str:
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
    from iosonde import workload as workloads
    from iosonde.study.setup import CASE_MODELS

    models: list[type[BaseModel]] = [Setup, *CASE_MODELS]
    if workload in workloads.workloads():
        models.append(workloads.named(workload).parameters)
    found = {name: found for model in models for name, found in _types_of(model)}
    window = {"rounds.window": (int, 2), "rounds.min_length": (int, 0), "rounds.min_written": (Number, 0)}
    return {**found, **window, **dict.fromkeys(("rounds.range", "rounds.slope"), (Number, 1e-12))}


def _types_of(model: type[BaseModel]) -> Iterator[tuple[str, tuple[Any, Number | None]]]:
    hints = get_type_hints(model)
    for name, field in model.model_fields.items():
        bounds = (getattr(each, "ge", None) for each in field.metadata)
        yield name, (_plain(hints[name]), next((each for each in bounds if isinstance(each, int | float)), None))


def _plain(kind: Any) -> Any:
    """Return a type as JSON has it: texts in the place of literals, of which other versions have others."""
    origin = get_origin(kind)
    if origin is Literal:
        return str
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_plain, get_args(kind)))]  # noqa: UP007  # of types that are known when it runs only
    return kind
