"""Figures as files: SVG, PDF or PNG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from iosonde.foreign_text import printable_within
from iosonde.report.charts.figure import Figure, Format
from iosonde.report.charts.svg import as_svg, specification
from iosonde.results.files import write_output


def draw(figure: Figure, format: Format) -> bytes:
    """Draw a whole figure."""
    if format == "svg":
        return as_svg(specification(figure)).encode()
    import vl_convert

    drawn = printable_within(specification(figure))
    if format == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(drawn, allowed_base_urls=[]))
    return bytes(vl_convert.vegalite_to_png(drawn, scale=2, allowed_base_urls=[]))


def file_name(figure: Figure) -> str:
    """Return the name of a figure's file without its ending: it contains names that a study file chooses."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", figure.name)


def save(figures: Sequence[Figure], directory: Path, format: Format, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Draw figures into files named after them; inside one of these result sets no link is followed."""
    paths = [directory / f"{file_name(figure)}.{format}" for figure in figures]
    for figure, path in zip(figures, paths, strict=True):
        write_output(path, draw(figure, format), within=result_sets)
    return paths
