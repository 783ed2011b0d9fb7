"""Settings of a database server in a study, by the server's own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

SettingValue = bool | int | float | str
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def parse_settings(value: Any) -> dict[str, SettingValue]:
    """A table of settings by the server's own names and units, or text as `shared_buffers=1GB;fsync=on`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError(f"`{value}` are not settings; write them like `shared_buffers=1GB;fsync=on`")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError('settings are a table of the server\'s own names, such as `{ shared_buffers = "1GB" }`')
    for name, given in value.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(given, (bool, int, float, str)):
            raise ValueError(f"the setting `{name}` cannot be `{given}`; it is true, false, a number or a text")
    return dict(value)


Settings = Annotated[dict[str, SettingValue], BeforeValidator(parse_settings)]
