"""Parameters as written in a study, read into values: the types that workloads share, and their errors."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from iosonde.base.text_files import expanded
from iosonde.errors import StudyError, did_you_mean
from iosonde.plan import Frozen
from iosonde.units import parse_duration, parse_rate, parse_size

Number = TypeVar("Number", int, float)
Model = TypeVar("Model", bound=BaseModel)


def not_zero(value: Number) -> Number:
    """A number above 0."""
    if value <= 0:
        raise ValueError("it must be above 0")
    return value


def or_none(parse: Callable[[Any], Number]) -> Callable[[Any], Number | None]:
    """A parser of numbers above 0, or `none`."""
    return lambda value: None if value is None or value == "none" else not_zero(parse(value))


parse_duration_or_none = or_none(parse_duration)
parse_positive_rate = or_none(parse_rate)


def parse_path(value: Any) -> str | None:
    """A path with the user's home in it written out, or `none`."""
    return None if value in (None, "", "none") else str(expanded(str(value)))


def renamed(value: Any, names: Mapping[Any, Any]) -> Any:
    """The name that a value stands for; any other value as it is, such as a table, which cannot be a key."""
    return names.get(value, value) if isinstance(value, str | bool) else value


def none_as_empty(value: Any) -> Any:
    """Description; nothing for `none`."""
    return None if value == "none" else value


_CPUS_MAX = 8192
"""Most CPUs of a Linux kernel (`CONFIG_NR_CPUS`)."""


def parse_cpus(value: Any) -> Any:
    """A list of CPU numbers, or text such as `0-3`."""
    if not isinstance(value, str):
        return value
    matched = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", value)
    if not matched:
        raise ValueError(f"`{value}` is not a set of CPUs; write it like `0-3`, or as a list of numbers")
    first, last = int(matched[1]), int(matched[2] or matched[1])
    if last >= _CPUS_MAX:
        raise ValueError(f"CPU numbers end at {_CPUS_MAX - 1}")
    return list(range(first, last + 1))


def _parse_interval(value: Any) -> int:
    interval = parse_duration(value)
    if interval < 10**8:
        raise ValueError("it must be at least `100ms`")
    return interval


BYTES, NANOSECONDS = "bytes", "nanoseconds"
"""Units, as metadata of the types of parameters."""

Size = Annotated[int, BeforeValidator(lambda value: not_zero(parse_size(value))), BYTES]
SizeOrZero = Annotated[int, BeforeValidator(parse_size), BYTES]
SizeOrNone = Annotated[int | None, BeforeValidator(or_none(parse_size)), BYTES]
Duration = Annotated[int, BeforeValidator(lambda value: not_zero(parse_duration(value))), NANOSECONDS]
DurationOrZero = Annotated[int, BeforeValidator(parse_duration), NANOSECONDS]
DurationOrNone = Annotated[int | None, BeforeValidator(parse_duration_or_none), NANOSECONDS]
Interval = Annotated[int, BeforeValidator(_parse_interval), NANOSECONDS]
Cpus = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(parse_cpus)]


def require_finite(name: str, value: Any) -> None:
    """Raise `ValueError` for NaN or infinity: a type with bounds accepts some of them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"`{name}` must be a finite number, got {value}")


class WithRules(Frozen):
    """Parameters with rules about several of them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in self:
            require_finite(name, value)
        if problem := self.broken_rule():
            raise ValueError(problem)
        return self

    def broken_rule(self) -> str:
        """The message of the first rule that is broken; empty if none is."""
        return next((message for is_broken, message in self._rules() if is_broken), "")

    def _rules(self) -> Sequence[tuple[bool, str]]:
        """Each rule: True if it is broken, and the message."""
        raise NotImplementedError


def value(model: type[BaseModel], title: str, name: str, given: Any) -> Any:
    """One parameter of a workload called `title`, as written -> checked; `StudyError` where it is invalid."""
    if name not in model.model_fields:
        raise StudyError(f"there is no parameter `{name}`", hint=_known_names(model, title, name))
    try:
        found = _adapter(model, name).validate_python(given)
        require_finite(name, found)
        return found
    except ValidationError as error:
        raise _wrong_value(model, name, given, error) from None
    except ValueError as error:
        raise StudyError(str(error), hint="set a finite number") from None


def build(model: type[Model], title: str, parameters: Mapping[str, Any]) -> Model:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        for name, given in parameters.items():
            value(model, title, name, given)
        raise StudyError(_message(error)) from None


@functools.cache
def parameters_in(model: type[BaseModel], unit: str) -> frozenset[str]:
    """Names of the parameters whose type has this unit."""
    fields = model.model_fields.items()
    return frozenset(name for name, field in fields if unit in field.metadata or _has_unit(field.annotation, unit))


def check_agreement(streams: Mapping[str, BaseModel], parameters: Sequence[str]) -> None:
    """Raise unless streams that run together agree on these parameters."""
    if len(streams) == 1:
        return
    for parameter in parameters:
        values = {name: getattr(stream, parameter) for name, stream in streams.items()}
        first = next(iter(values.values()))
        if any(each != first for each in values.values()):
            differing = ", ".join(f"`{name}.{parameter}` is `{each}`" for name, each in values.items())
            raise StudyError(
                f"streams that run together differ in `{parameter}`: {differing}",
                hint=f"`{parameter}` is set once for the whole run: set it in the measurement",
            )


@functools.cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(model.model_fields[name].rebuild_annotation())


def _known_names(model: type[BaseModel], title: str, name: str) -> str:
    listed = f"the parameters of {title} are {', '.join(f'`{known}`' for known in model.model_fields)}"
    return did_you_mean(name, model.model_fields, cutoff=0.5) or listed


def _wrong_value(model: type[BaseModel], name: str, given: Any, error: ValidationError) -> StudyError:
    choices = _choices(model.model_fields[name].annotation)
    if choices:
        listed = f"it is one of {', '.join(f'`{choice}`' for choice in choices)}"
        hint = " ".join(filter(None, (did_you_mean(str(given), choices), listed)))
        return StudyError(f"`{name}` cannot be `{given}`", hint=hint)
    message, _, advice = _message(error).partition("; ")
    names_value = f"`{given}`" in message
    what = f"`{name}` is wrong: {message}" if names_value else f"`{name}` cannot be `{given}`: {message}"
    return StudyError(what, hint=advice)


def _has_unit(annotation: Any, unit: str) -> bool:
    return unit in getattr(annotation, "__metadata__", ()) or any(
        _has_unit(part, unit) for part in get_args(annotation)
    )


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _message(error: ValidationError) -> str:
    """Ours, or pydantic's without its reasons; advice comes after a semicolon."""
    text = error.errors()[0]["msg"].removeprefix("Value error, ").partition(", unable to")[0]
    return text.replace("Input should be", "it should be")
