"""`iosonde show`: one study."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from iosonde.cli import options
from iosonde.cli.tables import AsJson, joined_levels, print_json, text_width

if TYPE_CHECKING:
    from iosonde.study.model import Level, Part, Scalar, Study


def command(study: options.StudyName, as_json: AsJson = False) -> None:
    """Show a study: question, factors, profiles, source."""
    from iosonde.data import adapters, shipped
    from iosonde.planning import load

    loaded = load(study)
    if as_json:
        print_json(loaded.model_dump(mode="json"))
        return
    print("\n".join(_lines(loaded)))
    if study in (known := shipped() | adapters()):
        print(f"\nfile: {known[study]}")


def _lines(study: Study) -> Iterator[str]:
    from iosonde.cli.commands.list import needs
    from iosonde.planning import study_size

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
    needed = needs(study_size(study, profile=next(iter(study.profiles))))
    if needed:
        yield ""
        yield f"needs: {', '.join(needed)}"
    if study.references:
        yield ""
        yield "published values"
        yield from (f"  {reference.source} ({reference.csv})" for reference in study.references)


def _factor_lines(part: Part) -> Iterator[str]:
    width = max(map(len, part.factors), default=0)
    for name, levels in part.factors.items():
        text = joined_levels([_level_text(level) for level in levels])
        yield textwrap.fill(
            text,
            text_width(),
            initial_indent=f"  {name:{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
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
        time = f"{'at most ' if size.ramps_vary else ''}about {format_duration(size.seconds * 1e9)}"
        yield f"  {name:10}{cases}, {bound}{size.runs} runs, {time}"
        if profile.title:
            yield from textwrap.wrap(profile.title, text_width(), initial_indent=" " * 12, subsequent_indent=" " * 12)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), text_width(), break_on_hyphens=False)
