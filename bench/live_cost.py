"""Cost of the live page for the measurement: interleaved pairs of runs with and without it.

    python bench/live_cost.py [--pairs 9] [--seconds 4]

Each run measures the null backend at queue depth 32 on one job (the rate is limited by the CPU alone, so whatever takes
CPU time shows), with intervals of 100 ms. With the live page, a client asks for the state every second, as a browser
does. Printed: the median ratio over the pairs with its 95 % interval, and the CPU time of the session process and of
the server.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pairs import interleaved, provenance, ratio_of, shown

from iosonde.execution import execute
from iosonde.execution.run_loop import Observer
from iosonde.live.page import LivePage
from iosonde.metrics.metrics import bulk_metrics
from iosonde.plan import Plan
from iosonde.planning import expand
from iosonde.procedure.schedule import Remaining
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.study.model import Study


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Results of one run."""

    iops: float
    p99_ns: float
    session_cpu_s: float
    server_cpu_s: float
    results: ResultSet


def plan_of(seconds: float) -> Plan:
    """One run of one case."""
    study = Study.model_validate(
        {
            "name": "live-cost",
            "title": "Cost of the live page",
            "question": "What does the live page cost?",
            "repeats": 1,
            "measurement": {
                "queue_depth": 32,
                "ramp": "0s",
                "duration": f"{round(1000 * seconds)}ms",
                "interval": "100ms",
            },
            "parts": [{}],
            "profiles": {"quick": {}},
        }
    )
    return expand(study, open_target("null:"), profile="quick", repeats=None, settings=None)


def measure(plan: Plan, *, live: bool) -> Taken:
    """Carry out the plan once."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "set"
        begin = time.process_time()
        server = 0.0
        if live:
            with closing(LivePage(plan)) as page:
                stop = threading.Event()
                reader = threading.Thread(target=poll, args=(page.url, stop))
                reader.start()
                results = execute(plan, directory, observer=page.observe(Observer(), Remaining.from_plan(plan)))
                server = cpu_seconds(page._process.pid)
                stop.set()
                reader.join()
                page.over("complete", "")
        else:
            results = execute(plan, directory, observer=Observer())
        values = {row["metric"]: row["value"] for row in bulk_metrics({"": results}).filter(operation="all").to_dicts()}
        return Taken(
            iops=values["iops"],
            p99_ns=values["completion_latency_ns_p99"],
            session_cpu_s=time.process_time() - begin,
            server_cpu_s=server,
            results=results,
        )


def poll(url: str, stop: threading.Event) -> None:
    """Ask as a browser does."""
    while not stop.wait(1):
        with urllib.request.urlopen(url + "state", timeout=60) as answer:
            answer.read()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    plan = plan_of(options.seconds)
    pairs = interleaved(lambda: measure(plan, live=True), lambda: measure(plan, live=False), pairs=options.pairs)
    [environment] = pairs[0][0].results.environments().values()
    print(provenance(environment, f"{options.pairs} pairs of {options.seconds:g} s"))
    print(f"IOPS with the live page to without: {shown(ratio_of(pairs, lambda each: each.iops))}")
    print(f"p99 latency with the live page to without: {shown(ratio_of(pairs, lambda each: each.p99_ns))}")
    extra = [with_page.session_cpu_s - without.session_cpu_s for with_page, without in pairs]
    print(f"CPU time of the session: {1000 * sorted(extra)[len(extra) // 2]:+.0f} ms (median difference)")
    server = sorted(with_page.server_cpu_s for with_page, _ in pairs)[len(pairs) // 2]
    print(f"CPU time of the server: {1000 * server:.0f} ms (median), at the lowest priority")


if __name__ == "__main__":
    main()
