"""`iosonde show`: one study."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from iosonde.cli import options

if TYPE_CHECKING:
    from iosonde.study.model import Level, Part, Scalar, Study


def command(study: options.StudyName) -> None:
    """Show a study: its question, its factors and profiles, and where it comes from."""
    from iosonde.data import shipped
    from iosonde.planning import load

    print("\n".join(_lines(load(study))))
    if study in shipped():
        print(f"\nfile: {shipped()[study]}")


def _lines(study: Study) -> Iterator[str]:
    yield f"{study.title} ({study.name})"
    yield ""
    yield from _wrapped(study.question)
    if study.description:
        yield ""
        yield from _wrapped(study.description)
    if study.source:
        yield ""
        yield from _wrapped(f"Source: {study.source}")
    for part in study.parts:
        yield ""
        yield f"part {part.name}" + (f": {part.title}" if part.title else "")
        yield from _factor_lines(part)
    yield ""
    yield "profiles"
    yield from _profile_lines(study)
    if study.references:
        yield ""
        yield "published figures"
        yield from (f"  {reference.source} ({reference.csv})" for reference in study.references)


def _factor_lines(part: Part) -> Iterator[str]:
    width = max(map(len, part.factors), default=0)
    for name, levels in part.factors.items():
        text = " ".join(_level_text(level) for level in levels)
        yield textwrap.fill(text, 100, initial_indent=f"  {name:{width}}  ", subsequent_indent=" " * (width + 4))
    if not part.factors:
        yield "  one case"


def _level_text(level: Scalar | Level) -> str:
    return str(getattr(level, "label", level))


def _profile_lines(study: Study) -> Iterator[str]:
    from iosonde.planning import study_size
    from iosonde.units import format_duration

    for name, profile in study.profiles.items():
        size = study_size(study, profile=name)
        cases = f"{size.cases} case{'s' * (size.cases != 1)}"
        bound = "at most " if size.bounded else ""
        cost = f"{cases}, {bound}{size.runs} runs, about {format_duration(size.seconds * 1e9)}"
        yield f"  {name:10}{cost}" + (f": {profile.title}" if profile.title else "")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 100)
