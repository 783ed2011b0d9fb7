"""The protocol between iosonde and its engine (docs/protocol.md).

`schema.json` is the engine's JSON schema, written by `scripts/generate-protocol`. Specs, events and results are plain
objects; `validation.py` checks them against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

VERSION = 2
"""Version of the protocol of specs, which an engine must support."""

HIGHEST_RATE = 10**7
"""Operations per second of a stream that the engine can time (`RATE_MAX` in crates/harness)."""

Event = Mapping[str, Any]
"""An event of an engine: `Event` of the schema."""


@cache
def schema() -> Mapping[str, Any]:
    """Definitions of the schema by name, of which `Spec`, `Event` and `Command` are the whole; options of stores."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_bytes())
    return found


def names_in(definition: str) -> tuple[str, ...]:
    """The words that a definition of the schema permits."""
    return tuple(each["const"] for each in schema()[definition]["oneOf"])
