"""The index as one HTML page: a table that needs no script, with search, sorting and filters where scripts run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from urllib.parse import quote_from_bytes

from iosonde.library.indexing import Index
from iosonde.library.summary import Headline, Summary
from iosonde.report.document import policy, stylesheet, template_of

HEADS = ("Result set", "Date", "Study", "Device", "Target", "Kernel", "Headline metrics", "Trust")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One result set as it is written."""

    path: str
    link: str
    """Relative to the page; empty without a report."""
    time: float
    date: str
    clock: str
    study: str
    profile: str
    device: str
    device_facts: str
    target: str
    simulated: bool
    kernel: str
    software: str
    headlines: Sequence[Mapping[str, str]]
    number: float | None
    trust: str
    runs: str


def render(index: Index, directory: Path) -> str:
    """Return the page, with links relative to the directory that it will be written to."""
    files = resources.files("iosonde.library") / "page_files"
    script = (files / "library.js").read_text(encoding="utf-8")
    rows = [row(each, index.root, directory) for each in index.summaries]
    dates = sorted(each.date for each in rows if each.date)
    text = template_of((files / "library.html").read_text(encoding="utf-8")).render(
        policy=policy(script),
        style=stylesheet() + (files / "library.css").read_text(encoding="utf-8"),
        script=script,
        name=shown(str(index.root)),
        heads=HEADS,
        rows=rows,
        studies=sorted({each.study for each in rows}),
        devices=sorted({each.device for each in rows}),
        problems=[shown(each) for each in index.problems],
        first=dates[0] if dates else "",
        last=dates[-1] if dates else "",
    )
    return str(text)


def row(summary: Summary, root: Path | str, directory: Path) -> Row:
    """Write the facts of a result set; links are relative to `directory`."""
    begin = moment(summary.started_at)
    return Row(
        path=shown(summary.path if summary.path != "." else Path(root).name),
        link=link(Path(root) / summary.path / summary.report, directory) if summary.report else "",
        time=begin.timestamp() if begin else 0.0,
        date=f"{begin:%Y-%m-%d}" if begin else "",
        clock=f"{begin:%H:%M}" if begin else "",
        study=summary.study,
        profile=summary.profile,
        device=device_text(summary),
        device_facts=_device_facts(summary),
        target=shown(summary.target),
        simulated=summary.simulated,
        kernel=summary.kernel or "unknown",
        software=summary.software or "unknown",
        headlines=[{"text": each.text, "load": _load_of(summary, each)} for each in summary.headlines],
        number=summary.headlines[0].value if summary.headlines else None,
        trust=summary.trust,
        runs=f"{summary.complete} of {summary.runs} runs complete"
        + (f"; {len(summary.problems)} files damaged or foreign" if summary.problems else ""),
    )


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


def _device_facts(summary: Summary) -> str:
    facts = [
        ", ".join(dict.fromkeys(f"firmware {each.firmware}" for each in summary.devices if each.firmware)),
        ", ".join(dict.fromkeys(f"serial {each.serial}…" for each in summary.devices if each.serial)),
    ]
    return "; ".join(filter(None, facts))


def _load_of(summary: Summary, headline: Headline) -> str:
    return summary.loads.get(headline.case_id, headline.case_id)


def shown(text: str) -> str:
    """Make names that are not UTF-8 printable."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
