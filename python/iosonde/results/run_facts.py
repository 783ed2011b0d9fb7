"""A record as the columns of `runs` read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from iosonde.results import (
    array_facts,
    cache_facts,
    drive_facts,
    graph_facts,
    objects_facts,
    own_io,
    paging_facts,
    path_facts,
    server_facts,
    store_facts,
)
from iosonde.results.schema import Record
from iosonde.workload import streams_of

Json = Mapping[str, Any]


class RunFacts:
    """One record, with the parts of it that several columns share."""

    def __init__(self, record: Record) -> None:
        self.record: Record = record
        self.result: Json = record.result or {}
        self.streams: Sequence[Json] = streams_of(record.spec["workload"])

    def part(self, name: str) -> Json:
        """Return a part of the engine's result; empty where there is none."""
        found: Json = self.result.get(name) or {}
        return found

    def failure(self, name: str) -> str | None:
        """Return a part of the failure, if the run failed."""
        return getattr(self.record.failure, name) if self.record.failure else None

    @property
    def jobs_total(self) -> int:
        """Threads of all streams."""
        return sum(stream["jobs"] for stream in self.streams)

    @property
    def concurrency(self) -> int:
        """I/Os in flight at most."""
        return sum(stream["jobs"] * stream.get("queue_depth", stream.get("batch", 1)) for stream in self.streams)

    @property
    def loop(self) -> str | None:
        """`closed`, `open`, or `mixed` when the streams differ."""
        kinds = {"closed" if stream["arrival"]["kind"] == "closed" else "open" for stream in self.streams}
        if not kinds:
            return None
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def wrong_sectors(self) -> int | None:
        """Wrong sectors of all kinds; none without verification."""
        verification = self.part("verification")
        return sum(verification["faults"].values()) if verification else None

    @cached_property
    def array(self) -> dict[str, Any]:
        """Facts about an array."""
        return array_facts.from_record(self.record)

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Facts about a block cache."""
        return cache_facts.from_record(self.record)

    @cached_property
    def store(self) -> dict[str, Any]:
        """Facts about a key-value store and its memory limit."""
        return store_facts.from_record(self.record)

    @cached_property
    def server(self) -> dict[str, Any]:
        """Facts about a database server."""
        return server_facts.from_record(self.record)

    @cached_property
    def paging(self) -> dict[str, Any]:
        """Facts about paging and swap."""
        return paging_facts.from_record(self.record)

    @cached_property
    def graph(self) -> dict[str, Any]:
        """Facts about a graph algorithm."""
        return graph_facts.from_record(self.record)

    @cached_property
    def objects(self) -> dict[str, Any]:
        """Facts about objects and their store."""
        return objects_facts.from_record(self.record)

    @cached_property
    def path(self) -> dict[str, Any]:
        """Facts about the stages of an I/O in the kernel."""
        return path_facts.from_record(self.record)

    @cached_property
    def foreign(self) -> own_io.Foreign:
        """I/O of other processes on the devices of the run."""
        return own_io.foreign(self.record.own_io, self.record.spec["workload"])

    @cached_property
    def drives(self) -> dict[str, Any]:
        """Facts about the physical drives."""
        return drive_facts.from_record(self.record)
