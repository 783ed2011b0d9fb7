"""Values from the output of a command: by JSON path, by regular expression, or by lines over time."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from iosonde.engine.supervisor.watch import FailedError, first_lines

_STEP = re.compile(r'\.?([A-Za-z_][\w-]*|\d+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
MOST_POINTS = 1_000_000

LIMIT_S = 60.0
"""Time for all parsers of a run."""

Point = dict[str, Any]


class UnparsableError(ValueError):
    """The output contains no value; the message is a clause with the reason."""


def steps(path: str) -> list[str | int]:
    """The steps of a JSON path such as `jobs[0].read.percentile["99.000000"]`; ValueError if it is none."""
    found: list[str | int] = []
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if not match:
            raise ValueError(f'`{path}` is not a path; write it like `jobs[0].read.iops` or `percentile["99.0"]`')
        name, index, key = match.groups()
        found.append(int(index) if index else json.loads(f'"{key}"') if key is not None else name)
        place = match.end()
    if not found:
        raise ValueError("a path must have at least one step")
    return found


def json_document(text: str) -> Any:
    """The JSON in an output, which other lines may precede."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        first = error
    for match in re.finditer(r"^[\[{]", text, re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(text, match.start())[0]
        except (ValueError, RecursionError):
            continue
    raise UnparsableError(f"it is not JSON: {first}")


def at_path(document: Any, path: str) -> float:
    """The number at a path."""
    here = document
    for step in steps(path):
        index = int(step) if isinstance(here, list) and re.fullmatch("[0-9]{1,18}", str(step)) else step
        try:
            here = here[index]
        except (KeyError, IndexError, TypeError):
            raise UnparsableError(f"there is nothing at `{path}`: `{step}` is missing") from None
    return number(here)


def by_pattern(text: str, pattern: str) -> float:
    """The number that a pattern matches; it must match once."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) != 1:
        raise UnparsableError(f"the pattern `{pattern}` matches {len(found)} times, but must match once")
    return number(_value(found[0]))


def by_lines(lines: Iterable[tuple[int, str]], pattern: str, begin_ns: int) -> list[Point]:
    """The numbers of lines over time, each with its interval: since the line before it.

    The group `seconds` of the pattern is the time since the start of the command; without one the arrival counts.
    """
    compiled, points, last_ns = re.compile(pattern), [], begin_ns
    for arrived_ns, line in lines:
        if match := compiled.search(line):
            at_ns = max(begin_ns, arrived_ns)
            if "seconds" in compiled.groupindex:
                at_ns = begin_ns + round(number(match["seconds"]) * 1e9)
            points.append({"begin_ns": min(last_ns, at_ns), "end_ns": at_ns, "value": number(_value(match))})
            last_ns = at_ns
            if len(points) > MOST_POINTS:
                raise UnparsableError(f"more than {MOST_POINTS} lines match `{pattern}`")
    if not points:
        raise UnparsableError(f"no line matches `{pattern}`")
    return points


def number(found: Any) -> float:
    """A finite number, also one that is written as text with thousands separators."""
    if isinstance(found, str):
        try:
            found = float(found.replace(",", ""))
        except ValueError:
            raise UnparsableError(f"`{found[:40]}` is not a number") from None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise UnparsableError(f"`{str(found)[:40]}` is not a number")
    return float(found)


def values(
    metrics: Mapping[str, Mapping[str, Any]], text: str, lines: list[tuple[int, str]], begin_ns: int, end_ns: int
) -> list[Point]:
    """The points of every metric: one over the whole run, or one for each line.

    Some regular expressions take exponential time: after `LIMIT_S` the search ends with an error.
    """

    def give_up(signal_number: int, frame: object) -> None:
        raise FailedError(
            "unparsable_output",
            f"the parsers found no values within {LIMIT_S:g} s",
            context=first_lines(text.encode()),
            hint="use simpler regular expressions, without a repeated group in a repeated group",
        )

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    document: Any = None
    found: list[Point] = []
    try:
        for name, metric in metrics.items():
            if metric.get("lines"):
                points = by_lines(lines, metric["lines"], begin_ns)
            else:
                document = json_document(text) if metric.get("json") and document is None else document
                value = at_path(document, metric["json"]) if metric.get("json") else by_pattern(text, metric["pattern"])
                points = [{"begin_ns": begin_ns, "end_ns": end_ns, "value": value}]
            for index, each in enumerate(points):
                found.append({**each, "metric": name, "point": index, "value": each["value"] * metric["scale"]})
    except UnparsableError as error:
        raise FailedError(
            "unparsable_output",
            f"no value of `{name}` in the output: {error}",
            context=first_lines(text.encode()),
            hint="start the command by hand, and correct the parser of that metric in the study",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def _value(match: re.Match[str]) -> str | None:
    groups = match.groupdict()
    return groups["value"] if "value" in groups else match[1] if match.re.groups else match[0]
