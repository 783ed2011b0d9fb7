"""Runs a study on two hosts, one behind a lossy link, in User Mode Linux: `clocks_guest.py LIBRARY OFFSET DRIFT EPOCH`.

The link delays messages to the host `far` by 10 to 30 ms and replies by 2 ms, and loses 2 % of either. LIBRARY sets its
clock by OFFSET ns, with a drift of DRIFT ppm since EPOCH (`shifted_clock.c`).
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import network_guest
from network_guest import CLIENT, IN_SERVER, in_server, run

sys.path.insert(0, str(Path(__file__).parents[1]))
from tls_scheduler import configuration, scheduler, variables

from iosonde.execution import execute
from iosonde.execution.carrier import HostOptions
from iosonde.features.many_hosts import merge
from iosonde.planning import expand, parse
from iosonde.storage import open_target

STUDY = """
name = "clocks"
title = "Reads of hosts behind a lossy link"
question = "How much do they reach?"
repeats = 2
[measurement]
span = "1MiB"
io_mode = "buffered"
ramp = "0s"
interval = "100ms"
duration = "4s"
[[parts]]
name = "main"
[parts.factors]
read_fraction = [1.0]
[profiles.quick]
"""


OTHER_MACHINE = 'mount --bind /run/boot_id /proc/sys/kernel/random/boot_id && exec "$0" "$@"'


def main(library: str, *clock: str) -> None:
    network_guest.prepare()
    run("tc", "qdisc", "add", "dev", "veth0", "root", "netem", "delay", "20ms", "10ms", "loss", "2%")
    in_server("tc", "qdisc", "add", "dev", "veth1", "root", "netem", "delay", "2ms", "loss", "2%")
    merge.SKEW_FAILURE = math.inf  # One CPU: what is tested is the clocks.
    Path("/run/data").mkdir()
    Path("/run/boot_id").write_text(f"{uuid.uuid4()}\n")
    worker = [sys.executable, "-m", "iosonde.features.many_hosts.worker"]
    names = ("SHIFTED_OFFSET_NS", "SHIFTED_DRIFT_PPM", "SHIFTED_EPOCH_NS")
    shifted = [f"{name}={value}" for name, value in zip(names, clock, strict=True)]
    far = [*IN_SERVER, "sh", "-c", OTHER_MACHINE, "env", f"LD_PRELOAD={library}", *shifted, *worker]
    settings = configuration(Path("/run/certificates"))
    os.environ |= variables(settings) | {"TMPDIR": "/run"}
    with scheduler(settings, Path("/run"), host=CLIENT) as cluster:
        address = cluster.scheduler_address
        workers = [subprocess.Popen([*worker, address, "near"]), subprocess.Popen([*far, address, "far"])]
        while len(cluster.scheduler_info["workers"]) < len(workers):
            time.sleep(0.1)
        plan = expand(parse(STUDY), open_target("/run/data"), profile="quick")
        execute(plan, Path("set"), hosts=HostOptions(hosts=address))
        for each in workers:
            each.terminate()
            each.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
