"""Parameters of a case on several hosts (`--hosts`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_HOSTS = 10_000


class HostParameters(BaseModel):
    """Parameters of hosts; omitted: all hosts of the study."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    needs_root: ClassVar[bool] = False

    hosts: Annotated[int | None, Field(ge=1, le=MOST_HOSTS)] = None
    """Number of hosts that take part in a run, the first ones of `--hosts`. Empty: all of them."""
    host_files: Literal["per_host", "shared"] | None = None
    """Files of the hosts: `per_host` (the default), or the same ones for all hosts (`shared`), which the first host
    writes and removes."""

    server_page_cache: Literal["keep", "drop"] | None = None
    """Page cache of hosts with the role `server` before the load starts: kept (the default), or dropped on the whole
    machine."""


SETTINGS = (HostParameters,)
