"""Random failures of random hosts at random moments: `python tests/features/many_hosts/random_failures.py 50`.

Each study on three hosts has one failure: a kill or stop of all that runs on a host, a cut link, or a kill of the SSH
connection, of the worker, the agent, the engine or the coordinator. Afterwards nothing may be running or left; `resume`
must complete the study, and each run must be in the records of the total and of each host once. Not a test of the
default tier: one failure takes up to a minute.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from engines import real_engine
from hosts_in_namespaces import NamespaceHost, Network, await_, network
from many_hosts_plans import IOSONDE
from test_ssh import NAMES, PYTHONPATH, command, kill_server

from iosonde.results import ResultSet

RUNS = 3


def kill(what: str) -> Callable[[NamespaceHost, Network], None]:
    """Return the failure that kills processes with this in their command."""

    def act(host: NamespaceHost, _: Network) -> None:
        for pid in host.of(what):
            os.kill(pid, signal.SIGKILL)

    return act


FAILURES: dict[str, Callable[[NamespaceHost, Network], None]] = {
    "all processes killed": lambda host, _: host.signal(signal.SIGKILL),
    "all processes stopped": lambda host, _: host.signal(signal.SIGSTOP),
    "link cut": lambda host, hosts: hosts.link(host, "down"),
    "connection killed": kill_server,
    "worker killed": kill("many_hosts.worker"),
    "agent killed": kill("many_hosts.agent"),
    "engine killed": kill("iosonde-engine"),
    "coordinator killed": lambda host, hosts: None,
}


def fail_once(place: Path, hosts: Network, chance: random.Random) -> str:
    """Carry out one study with a failure, and resume it; `AssertionError` for anything lost, doubled or left."""
    (place / "data").mkdir(parents=True)
    name, host = chance.choice(list(FAILURES)), chance.choice(hosts.hosts)
    output = (place / "output").open("wb")
    process = subprocess.Popen(
        command(place, hosts, repeats=RUNS), env=hosts.environment(), stdout=output, stderr=output
    )
    await_(lambda: process.poll() is not None or any(each.of("many_hosts.worker") for each in hosts.hosts))
    time.sleep(chance.uniform(0.0, 15.0))
    FAILURES[name](host, hosts)
    if name == "coordinator killed":
        process.kill()
    status = process.wait(300)
    await_(lambda: not any(each.of("iosonde") for each in hosts.hosts if each is not host))
    host.signal(signal.SIGCONT)
    await_(lambda: not any(each.of("iosonde") for each in hosts.hosts))
    hosts.link(host, "up")
    if (place / "set").exists():
        resume = [*hosts.inside, sys.executable, "-c", IOSONDE, "resume", "--retry-failed", str(place / "set")]
        again = subprocess.run(
            [*resume, "--hosts", hosts.spec], env=hosts.environment(), stdout=output, stderr=output, check=False
        )
        assert again.returncode == 0, name
        check(place, hosts)
    assert list((place / "data").iterdir()) == [], name
    return f"{name} on {host.name}: exit status {status}"


def check(place: Path, hosts: Network) -> None:
    """Each run is complete once, in the total and on each host, and no result set is damaged."""
    total = ResultSet.open(place / "set")
    each = [total, *(ResultSet.open(place / "set" / "hosts" / host.name) for host in hosts.hosts)]
    for found in each:
        assert not found.problems, found.problems
        complete = Counter(record.run_id for record in found.records() if record.outcome == "complete")
        assert sorted(complete) == sorted(run.run_id for run in total.plan.runs), found.directory
        assert set(complete.values()) == {1}, found.directory


def main(times: int, seed: int) -> None:
    """Print a line for each failure."""
    os.environ["IOSONDE_ENGINE"] = str(real_engine())
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        variables = {"PYTHONPATH": PYTHONPATH, "IOSONDE_ENGINE": str(real_engine())}
        with network(Path(directory) / "network", NAMES, variables) as hosts:
            for number in range(times):
                place = Path(directory) / str(number)
                print(f"{number + 1}/{times}", fail_once(place, hosts, chance), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
