"""TOML files of a user, checked by a pydantic model: lists of hosts, targets and the like."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from iosonde import text_files
from iosonde.errors import IosondeError

T = TypeVar("T", bound=BaseModel)


def read(model: type[T], path: Path, what: str, error: type[IosondeError], *, hint: str) -> T:
    """Return the content of a file; `what` names it in errors, such as `list of hosts`."""
    try:
        values = text_files.parse_toml(text_files.read(path))
    except (OSError, UnicodeDecodeError) as failed:
        reason = getattr(failed, "strerror", None) or "it is not UTF-8 text"
        raise error(f"cannot read the {what} `{path}`: {reason}", hint=hint) from None
    except tomllib.TOMLDecodeError as failed:
        raise error(f"the {what} is not TOML: {failed}", where=f"in `{path}`", hint=hint) from None
    return validated(model, values, str(path), what, error, hint=hint)


def validated(
    model: type[T], values: Mapping[str, Any], where: str, what: str, error: type[IosondeError], *, hint: str
) -> T:
    """Return the content of a file that has been parsed."""
    try:
        return model.model_validate(values)
    except ValidationError as failed:
        first = failed.errors(include_url=False)[0]
        place = "`" + ".".join(map(str, first["loc"])) + "`" if first["loc"] else f"the {what}"
        sentences = {"missing": f"{place} is missing", "extra_forbidden": f"there is no key {place}"}
        wrong = f"{place} is wrong: {first['msg'].removeprefix('Value error, ')}"
        raise error(sentences.get(first["type"], wrong), where=f"in `{where}`", hint=hint) from None
