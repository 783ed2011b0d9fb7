"""Shared parts of every HTML page: style sheet, escaping, script policy, JSON within a page.

A page is one file that loads nothing. Jinja escapes all text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from iosonde.base.foreign_text import printable

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


@cache
def template_of(text: str, *, finalize: Callable[[Any], Any] | None = None, **filters: Callable[..., Any]) -> Template:
    """Return a template that escapes what it is given and fails on undefined names; each is compiled once.

    `finalize` is applied to every value before it is escaped.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=finalize
    )
    environment.filters |= {"initial": lambda text: text[:1].upper() + text[1:], "coded": _coded, **filters}
    return environment.from_string(text)


def _coded(text: str) -> Markup:
    """Escape text, set what is between backticks as code, and keep numbers and their units on one line."""
    from markupsafe import Markup, escape

    from iosonde.metrics.wording import unbroken

    parts = str(escape(text)).split("`")
    if len(parts) % 2 == 0:  # The last backtick is without a partner.
        parts[-2:] = [f"{parts[-2]}`{parts[-1]}"]
    return Markup("".join(f"<code>{part}</code>" if place % 2 else unbroken(part) for place, part in enumerate(parts)))


def asset(name: str) -> str:
    """Return a template, script or style sheet of reports; other pages extend `report.css`."""
    return (resources.files("iosonde.report") / "page" / name).read_text(encoding="utf-8")


def policy(*scripts: str, connect: bool = False) -> str:
    """Allow our scripts by their hashes and our styles; nothing from elsewhere, and no text that becomes code.

    With `connect` a script may also ask the server that the page came from.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    own = "; connect-src 'self'" if connect else ""
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:{own}"


def embedded_json(data: Any) -> str:
    """Write JSON that a script element cannot end early and that no parser takes for markup.

    Control characters are escapes already; those beyond ASCII become such here.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return printable(text.translate({ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}))
