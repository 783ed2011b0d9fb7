"""Verdict on the run of an external command: device-limited, CPU-limited, or undetermined.

iosonde does not see a command's own I/O. What it sees is the CPU time of the command's control group and the counters
of the device. A command that uses all CPUs is `harness-limited`: the load generator is the limit, not the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.metrics.verdict import verdict
from iosonde.metrics.verdict.evidence import Total, share_of
from iosonde.metrics.verdict.verdict import BUSY, Kind, Verdict, whole_percent
from iosonde.results.schema import Record


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict:
    """Return the verdict on a run that has a result."""
    result = record.result or {}
    used_ns = result["process"]["user_ns"] + result["process"]["system_ns"]
    command = share_of(used_ns, verdict.counted_ns(result) * cpus) or 0.0
    server, busy = verdict.server_cpu_share(record, cpus), verdict.device_busy_share(result)
    busiest: Kind = "harness-limited" if server is None or server < command else "server-CPU-limited"
    by_server = "" if server is None else f" and the server {whole_percent(server)}"
    return verdict.nearest(
        [
            (
                (command + (server or 0.0)) / BUSY,
                busiest,
                f"the command used {whole_percent(command)}{by_server} of all CPU time",
            ),
            (verdict.over(busy, BUSY), "device-limited", f"the device was busy {whole_percent(busy)} of the time"),
        ],
        {"command_cpu_share": command, "server_cpu_share": server, "device_busy_share": busy},
    )


JUDGES = (("processes", judge),)
