"""The servers of a study, as the coordinator sees them: watched over each run, and cut to its measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from iosonde.errors import TargetError
from iosonde.features.many_hosts import server_host
from iosonde.features.many_hosts.carrier import START_S, Host, gather
from iosonde.plan import Case, Plan
from iosonde.results.server_reading import ServerCounters, ServerReading

LOAD = ("load_operations", "load_read_bytes", "load_write_bytes")


@dataclass
class Servers:
    """Hosts with the role `server`."""

    hosts: Sequence[Host]
    _samples: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    _is_dropped: bool = False

    async def check(self, plan: Plan) -> None:
        """`TargetError` if a page cache is to be dropped without a server, or without the right to do so."""
        case = next((case for case in plan.cases if _drops(case)), None)
        if case and not self.hosts:
            raise TargetError(
                '`server_page_cache = "drop"` requires a host with the role `server`; got none',
                where=f"in case `{case.case_id}`",
                hint='add the server to the file of `--hosts ssh:FILE` with `role = "server"`',
            )
        for host in self.hosts:
            host.facts = await host.call(server_host.describe)
            if case and not host.facts["can_drop"]:
                raise TargetError(
                    f"dropping the page cache of the server `{host.name}` requires root there",
                    hint='start its worker as root, or set `server_page_cache = "keep"`',
                )

    async def start(self, case: Case) -> None:
        """Start to watch: after all hosts have prepared their files, and before the load."""
        self._samples, self._is_dropped = {}, _drops(case)
        # Writing all dirty pages of a busy server takes long.
        await gather(host.call(server_host.watch, self._is_dropped, wait_s=START_S) for host in self.hosts)

    async def stop(self, at_ns: int) -> None:
        """Stop, and keep what was read; clocks are compared at an instant of the coordinator's clock."""
        await gather(host.compare_clocks(at_ns) for host in self.hosts)
        found = await gather(host.call(server_host.watched) for host in self.hosts)
        self._samples = {host.name: samples for host, samples in zip(self.hosts, found, strict=True)}

    def reading(self, begin_ns: int, end_ns: int, intervals: pl.DataFrame) -> ServerReading | None:
        """The counters within a measurement between two instants of the coordinator's clock; None without servers."""
        if not self.hosts:
            return None
        return ServerReading(
            servers=[
                ServerCounters(
                    host=host.name,
                    machine=host.machine,
                    cpus=host.facts["cpus"],
                    cache_dropped=self._is_dropped,
                    **within(self._samples.get(host.name, []), host.clock_offset_ns, begin_ns, end_ns, intervals),
                )
                for host in self.hosts
            ]
        )


def within(
    samples: Sequence[dict[str, int]], offset_ns: int, begin_ns: int, end_ns: int, intervals: pl.DataFrame
) -> dict[str, dict[str, int]]:
    """The first and the last sample of a measurement, with what the load had completed at their times."""
    found = [each for each in samples if begin_ns <= each["time_ns"] - offset_ns <= end_ns]
    if len(found) < 2:
        return {}
    ends = {"at_start": found[0], "at_end": found[-1]}
    return {name: each | _load_at(each["time_ns"] - offset_ns - begin_ns, intervals) for name, each in ends.items()}


def _load_at(after_ns: int, intervals: pl.DataFrame) -> dict[str, int]:
    """Counters of the load at a time after its measurement started, interpolated within an interval."""
    is_read, is_write = pl.col("operation") == "read", pl.col("operation") == "write"
    sums = (
        intervals.group_by("begin_ns", "end_ns")
        .agg(
            pl.col("count").filter(is_read | is_write).sum().alias(LOAD[0]),
            pl.col("bytes").filter(is_read).sum().alias(LOAD[1]),
            pl.col("bytes").filter(is_write).sum().alias(LOAD[2]),
        )
        .sort("begin_ns")
    )
    first = int(sums["begin_ns"].item(0))
    times = [0, *(int(each) - first for each in sums["end_ns"])]
    return {name: round(float(np.interp(after_ns, times, [0, *sums[name].cum_sum().to_list()]))) for name in LOAD}


def _drops(case: Case) -> bool:
    parameters: dict[str, Any] = case.parameters
    return parameters.get("server_page_cache") == "drop"
