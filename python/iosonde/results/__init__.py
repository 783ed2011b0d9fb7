"""The result set on disk, its schema, tables and SQL out of it."""

from typing import TYPE_CHECKING

from iosonde.base.lazy import lazy

if TYPE_CHECKING:
    from iosonde.results.result_set import ResultSet

__all__ = ["ResultSet"]

__getattr__ = lazy(__name__, {"ResultSet": "iosonde.results.result_set"})
