"""Client connections for administration and statistics; measured statements are the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address of a client's connection."""

    host: str
    """Host name or address; of a Unix socket its path, as the server's own clients expect it."""
    port: int | None
    """None for a Unix socket without a port number."""
    user: str
    database: str
    password: str | None = field(default=None, repr=False)
    """Never recorded."""

    @property
    def is_local(self) -> bool:
        return self.host.startswith("/")


class Connection(Protocol):
    """One open connection, in autocommit mode."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; `ServerError` with the server's message if it fails."""

    def close(self) -> None: ...
