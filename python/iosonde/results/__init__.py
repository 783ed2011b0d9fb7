"""The result set on disk, its schema, tables and SQL out of it."""

from iosonde.results.result_set import ResultSet

__all__ = ["ResultSet"]
