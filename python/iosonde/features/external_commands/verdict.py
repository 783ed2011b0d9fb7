"""Verdict on the run of an external command: device-limited, CPU-limited, or undetermined.

iosonde does not see a command's own I/O. What it sees is the CPU time of the command's control group and the counters
of the device. A command that uses all CPUs is `harness-limited`: the load generator is the limit, not the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iosonde.results.schema import Record
from iosonde.verdict import shares
from iosonde.verdict.evidence import Total
from iosonde.verdict.judge import Judge
from iosonde.verdict.server import server_cpu_ns, statistics_ns
from iosonde.verdict.shares import BUSY, Limit, nearest, over, percent
from iosonde.verdict.verdict import Kind, Verdict

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CommandEvidence(shares.Shares):
    """Shares of resources that a run used; None where nothing was reported."""

    command_cpu_share: float
    """CPU time of the command's processes over that of all CPUs."""
    server_cpu_share: float | None
    """CPU time of the server that iosonde started for it over that of all CPUs."""
    device_busy_share: float | None
    """Time in which the busiest device had I/O in flight."""


def evidence_of(record: Record, *, cpus: int) -> CommandEvidence:
    """The shares over the measurement."""
    result: Json = record.result or {}
    used_ns = result["process"]["user_ns"] + result["process"]["system_ns"]
    return CommandEvidence(
        command_cpu_share=shares.share(used_ns, shares.counted_ns(result) * cpus) or 0.0,
        server_cpu_share=shares.share(server_cpu_ns(record), statistics_ns(record) * cpus),
        device_busy_share=shares.device_busy_share(result),
    )


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = evidence_of(record, cpus=cpus)
    return nearest(_limits(evidence), evidence.to_json())


def _limits(evidence: CommandEvidence) -> list[Limit]:
    command, server = evidence.command_cpu_share, evidence.server_cpu_share
    busiest: Kind = "harness-limited" if server is None or server < command else "server-CPU-limited"
    by_server = "" if server is None else f" and the server {percent(server)}"
    found: list[tuple[float | None, Kind, str]] = [
        (
            (command + (server or 0.0)) / BUSY,
            busiest,
            f"the command used {percent(command)}{by_server} of all CPU time",
        ),
        (
            over(evidence.device_busy_share, BUSY),
            "device-limited",
            f"the device was busy {percent(evidence.device_busy_share)} of the time",
        ),
    ]
    return [(near, kind, text) for near, kind, text in found if near is not None]


JUDGES = (Judge("processes", judge),)
