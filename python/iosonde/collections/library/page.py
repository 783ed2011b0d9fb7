"""The index as one HTML page: a table that needs no script, with search, sorting and filters where scripts run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes

from iosonde.base.foreign_text import printable
from iosonde.base.object_storage import is_address
from iosonde.base.text_files import open_regular
from iosonde.collections.library.indexing import Index
from iosonde.collections.library.summary import Summary
from iosonde.errors import ResultsError
from iosonde.report.document import asset, policy, template_of
from iosonde.results.files import MARK, write_output

if TYPE_CHECKING:
    from markupsafe import Markup

GENERATOR = b'<meta name="generator" content="iosonde">'
_HEAD_BYTES = 4096


def require_replaceable(path: Path) -> None:
    """Refuse to replace a file under the default name of a page that is no page of iosonde: `ResultsError`."""
    try:
        with os.fdopen(open_regular(path, follow_links=False), "rb") as file:
            is_page = GENERATOR in file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError:
        is_page = False
    if not is_page:
        raise ResultsError(
            f"`{path}` already exists and was not written by iosonde",
            hint="it was not changed; name another file with `--output FILE`",
        )


def page_path(output: Path | None, about: Path | str, name: str) -> Path:
    """Return where to write a page: what the user named, or its default name in the directory that it is about."""
    if output is None and is_address(about):
        raise ResultsError(f"a page about `{about}` requires `--output`", hint="name a file with `--output FILE`")
    path = output or Path(about) / name
    require_outside(path)
    if output is None:
        require_replaceable(path)
    return path


def require_outside(path: Path) -> None:
    """Refuse to write into a result set: `ResultsError`."""
    for each in path.absolute().parents:
        if (each / MARK).is_file():
            raise ResultsError(
                f"cannot write `{path}` inside the result set `{each}`",
                hint="name a file elsewhere with `--output FILE`",
            )


def write_page(path: Path, text: str, *, about: Path | str) -> None:
    """Write a page; missing directories are created. `ResultsError` where that fails.

    Others may have written the directory that it is `about`, so no link in there is followed.
    """
    try:
        write_output(path, printable(text).encode(errors="replace"), within=[] if is_address(about) else [Path(about)])
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write `{path}`: {reason}", hint="name another place with `--output`") from error


HEADS = ("Result set", "Date", "Study", "Device", "Target", "Kernel", "Headline metrics", "Trust")


def render(index: Index, directory: Path) -> str:
    """Return the page, with links relative to the directory that it will be written to."""
    rows = [row(each, index.root, directory) for each in index.summaries]
    dates = sorted(each["date"] for each in rows if each["date"])
    return page_of(
        "library",
        name=shown(str(index.root)),
        heads=HEADS,
        rows=rows,
        studies=sorted({each.study for each in index.summaries}),
        devices=sorted({each["device"] for each in rows}),
        problems=[shown(each) for each in index.problems],
        first=dates[0] if dates else "",
        last=dates[-1] if dates else "",
    )


def page_of(package: str, **values: Any) -> str:
    """Return the page of a package: its template with values, its style sheet after that of reports, its script."""
    files = resources.files(f"iosonde.collections.{package}") / "page_files"
    script, style, html = (files / f"{package}.{end}" for end in ("js", "css", "html"))
    scripts = [script.read_text(encoding="utf-8")] if script.is_file() else []
    text = template_of(html.read_text(encoding="utf-8")).render(
        policy=policy(*scripts),
        style=asset("report.css") + style.read_text(encoding="utf-8"),
        script="".join(scripts),
        **values,
    )
    return str(text)


def row(summary: Summary, root: Path | str, directory: Path) -> dict[str, Any]:
    """Return the facts of a result set as the page has them; links are relative to `directory`."""
    begin = moment(summary.started_at)
    firmware = ", ".join(dict.fromkeys(f"firmware {each.firmware}" for each in summary.devices if each.firmware))
    serials = ", ".join(dict.fromkeys(f"serial {each.serial}…" for each in summary.devices if each.serial))
    return {
        "summary": summary,
        "path": shown(summary.path if summary.path != "." else Path(root).name),
        "link": link(Path(root) / summary.path / summary.report, directory) if summary.report else "",
        "time": begin.timestamp() if begin else 0.0,
        "date": f"{begin:%Y-%m-%d}" if begin else "",
        "clock": f"{begin:%H:%M}" if begin else "",
        "device": device_text(summary),
        "device_facts": "; ".join(filter(None, (firmware, serials))),
        "target": shown(summary.target),
        "runs": f"{summary.complete} of {summary.runs} runs complete"
        + (f"; {len(summary.problems)} files damaged or foreign" if summary.problems else ""),
    }


@dataclass(frozen=True, kw_only=True)
class RowFigure:
    """A static SVG figure with a labelled row for each value, on a common axis.

    Colours are classes of the page's style sheet, so the figure follows the reader's colour scheme and needs no script.
    """

    kind: str
    """Its class."""
    labels: int
    """Width of the labels, left of the rows."""
    longest_label: int
    """Longer labels are cut in the figure; the table next to it has them whole."""
    margin: int
    """Right of the rows."""
    width: int = 420
    row: int = 30
    top: int = 34

    def draw(
        self,
        description: str,
        ticks: Iterable[tuple[float, str, bool]],
        rows: Sequence[tuple[str, Callable[[float], Iterable[str]]]],
    ) -> Markup:
        """Draw ticks (position, text, and True for the one of no difference), and rows: label, and marks at a height.

        Marks must be escaped.
        """
        from markupsafe import Markup, escape

        height = self.top + self.row * len(rows) + 8
        parts = [
            f'<svg class="{self.kind}" viewBox="0 0 {self.labels + self.width + self.margin} {height}" role="img" '
            f'aria-label="{escape(description)}">'
        ]
        for x, text, is_one in ticks:
            style = "one" if is_one else "tick"
            parts.append(f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 8}" y2="{height - 4}"/>')
            parts.append(f'<text class="axis" x="{x:.1f}" y="{self.top - 14}" text-anchor="middle">{text}</text>')
        for place, (label, marks) in enumerate(rows):
            y = self.top + self.row * place + self.row / 2
            cut = label if len(label) <= self.longest_label else f"{label[: self.longest_label - 1]}…"
            position = f'x="{self.labels - 14}" y="{y + 4:.1f}"'
            parts += [f'<text class="label" {position} text-anchor="end">{escape(cut)}</text>', *marks(y)]
        return Markup("".join([*parts, "</svg>"]))


def device_text(summary: Summary) -> str:
    """Name the devices by model, each model once."""
    names = [each.model or each.name for each in summary.devices]
    counted = {name: names.count(name) for name in names if name}
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counted.items()) or "none recorded"


def link(path: Path, directory: Path) -> str:
    """Return the relative, percent-encoded address of a file, as seen from a page in `directory`."""
    relative = os.path.relpath(path, directory)
    return "./" + quote_from_bytes(os.fsencode(relative))


def moment(text: str) -> datetime | None:
    """Read a time of a record; None where it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def shown(text: str) -> str:
    """Make names that are not UTF-8 printable."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
