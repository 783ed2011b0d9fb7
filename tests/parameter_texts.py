"""Descriptions of parameters, as the tables of the documentation have them."""

from __future__ import annotations

import ast
import inspect
import sys
from itertools import pairwise

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings below the fields of a model and of those that it extends; else descriptions of the fields."""
    found = {name: field.description or "" for name, field in model.model_fields.items()}
    for kind in model.__mro__:
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
            written = (each for each in module.body if isinstance(each, ast.ClassDef) and each.name == kind.__name__)
            found |= {name: text for each in written for name, text in _described(each.body)}
    return {name: found[name] for name in model.model_fields}


def _described(statements: list[ast.stmt]) -> list[tuple[str, str]]:
    return [
        (ast.unparse(field.target), " ".join(text.value.value.split()))
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    ]
