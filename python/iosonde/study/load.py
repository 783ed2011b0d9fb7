"""Read a study file: TOML, then types, then the checks that types do not make (`check.py`)."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from iosonde import text_files
from iosonde.data import adapters, applications, shipped
from iosonde.errors import StudyError
from iosonde.study.check import check, check_values
from iosonde.study.location import StudyFile, in_data
from iosonde.study.model import Study


def read(name_or_path: str | Path) -> StudyFile:
    """The text of the study of that name that comes with iosonde, or of that file."""
    known = shipped() | adapters()
    file = known.get(str(name_or_path)) or Path(name_or_path)
    try:
        text = text_files.read(file)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(name_or_path), error) from None
    return read_text(text, name=file.name if file.stem in known else str(file))


def read_text(text: str, *, name: str = "") -> StudyFile:
    """The text of a study as TOML; errors refer to it as `name`."""
    try:
        data = text_files.parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        where = f"in `{name}`" if name else ""
        raise StudyError(f"the study is not TOML: {error}", where=where, hint="see docs/studies.md") from None
    return StudyFile(name=name, text=text, data=data)


def validate(source: StudyFile) -> Study:
    """The study in a file, with every check that needs neither a target nor its procedures."""
    check_values(source)
    try:
        study = Study.model_validate(source.data)
    except ValidationError as error:
        raise _misfit(error, source) from None
    check(study, source)
    return study


def _unreadable(name: str, error: Exception) -> StudyError:
    known = shipped() | adapters()
    if "/" in name or name.endswith(".toml"):
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        return StudyError(f"cannot read the study `{name}`: {reason}")
    if name in applications():
        return StudyError(
            f"`{name}` is an application, not a study",
            hint=f"`iosonde qualify {name} --target DIR` decides whether storage is good enough for it",
        )
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean `{near[0]}`? " if near else ""
    return StudyError(
        f"there is no study `{name}`",
        hint=f"{guess}`iosonde list` shows those that come with iosonde; name a file of your own by its path",
    )


def _misfit(error: ValidationError, source: StudyFile) -> StudyError:
    """The first thing that types found wrong."""
    # An unknown key first, for it may be why another is missing; then the deepest, for a level is of one of many types.
    first = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", -len(each["loc"])))
    keys = in_data(source.data, first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return StudyError(
                f"there is no key `{keys[-1]}` here",
                where=source.where(*keys),
                hint=_known_keys(keys[:-1], str(keys[-1])),
            )
        case "missing":
            missing = first["loc"][-1]
            return StudyError(
                f"`{missing}` is missing", where=source.where(*keys) or source.where(), hint="see docs/studies.md"
            )
        case _:
            message = re.sub("^(Input|String) should", "it should", first["msg"].removeprefix("Value error, "))
            name = keys[-1] if keys else "study"
            return StudyError(f"`{name}` is wrong: {message}", where=source.where(*keys))


def _known_keys(table: Sequence[str | int], key: str) -> str:
    model = _model_at(table)
    if model is None:
        return ""
    near = difflib.get_close_matches(key, model.model_fields, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"there are {', '.join(f'`{name}`' for name in model.model_fields)}"


def _model_at(keys: Sequence[str | int]) -> type[BaseModel] | None:
    """The type of the table at `keys`."""
    kind: Any = Study
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and key in kind.model_fields:
            kind = kind.model_fields[str(key)].annotation
        else:
            kind = _inside(kind)
    models = [kind, *get_args(kind)]
    return next((model for model in models if isinstance(model, type) and issubclass(model, BaseModel)), None)


def _inside(kind: Any) -> Any:
    """Return the element type of a list or table."""
    arguments = [argument for argument in get_args(kind) if argument is not type(None)]
    return arguments[-1] if arguments else None
