"""Metrics that a study names: where their values are in a command's output, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from iosonde.supervisor.parse import steps

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
PARSERS = ("json", "pattern", "lines")


class NamedMetric(BaseModel):
    """One metric of a command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    """For axes and table heads, without the unit; the name if empty."""
    unit: Literal["1/s", "B/s", "B", "ns", "s", ""]
    better: Literal["higher", "lower", "neither"]
    json_path: str = Field("", alias="json")
    """Place of the value in JSON output, such as `jobs[0].read.iops`."""
    pattern: str = ""
    """Regular expression that matches once; its group `value`, else its first group, is the value."""
    lines: str = ""
    """Regular expression that matches lines over time; the group `seconds` is their time, else their arrival."""
    aggregate: Literal["mean", "median", "minimum", "maximum", "last", "sum"] = "mean"
    """Value of a run, of lines over time."""
    scale: float = Field(1.0, gt=0, lt=1e15)
    """Factor from the unit of the output."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name, text in zip(PARSERS, (self.json_path, self.pattern, self.lines), strict=True) if text]
        if len(given) != 1:
            raise ValueError("it has one of `json`, `pattern` and `lines`")
        if self.json_path:
            steps(self.json_path)
            return self
        try:
            compiled = re.compile(self.pattern or self.lines)
        except re.error as error:
            raise ValueError(f"`{self.pattern or self.lines}` is not a regular expression: {error}") from None
        if compiled.groups > 1 and "value" not in compiled.groupindex:
            raise ValueError("of several groups, the one with the value is called `value`: `(?P<value>...)`")
        return self


def parse_metrics(value: Any) -> dict[str, dict[str, Any]]:
    """A table of metrics by name, each with every default written out."""
    if not isinstance(value, Mapping):
        raise ValueError("metrics are a table: `[measurement.metrics.NAME]`")
    found = {}
    for name, definition in value.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"a metric cannot be called `{name}`; use lower-case letters, digits and `_`")
        try:
            metric = NamedMetric.model_validate(definition)
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
            at = f" `{first['loc'][0]}`" if first["loc"] else ""
            raise ValueError(f"the metric `{name}` is wrong:{at} {message}") from None
        named = metric if metric.title else metric.model_copy(update={"title": name.replace("_", " ").capitalize()})
        found[name] = named.model_dump(by_alias=True)
    return found
