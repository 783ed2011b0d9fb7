"""Clocks of hosts behind a link with delays, jitter and losses of netem, in User Mode Linux (`clocks_guest.py`)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from command_line import CHECKOUT
from user_mode_linux import run_script

from iosonde.features.many_hosts.record import Hosts
from iosonde.lab.image import Image
from iosonde.results import ResultSet

SECOND = 10**9
OFFSET_NS, DRIFT_PPM = 7 * SECOND, 100
LEAST_ROUND_TRIP_NS = 12_000_000


@pytest.mark.needs("cc")
def test_offset_and_drift_are_within_their_errors(machine_image: Image, tmp_path: Path) -> None:
    """Delays of both directions differ by a factor of ten, so half the round trip is no estimate of either."""
    place, packages = tmp_path / "clocks", tmp_path / "packages"
    place.mkdir()
    library, source = place / "shifted.so", CHECKOUT / "tests/features/many_hosts/shifted_clock.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    epoch_ns = time.time_ns()
    arguments = str(library), str(OFFSET_NS), str(DRIFT_PPM), str(epoch_ns)
    run_script("clocks_guest.py", *arguments, image=machine_image, place=place, packages=packages)
    total = ResultSet.open(place / "set")
    assert len(total.records()) == 2
    for record in total.records():
        part = record.of(Hosts)
        assert part and record.outcome == "complete", record.failure
        near, far = (next(share for share in part.shares if share.host == name) for name in ("near", "far"))
        starts = {}
        for name in ("near", "far"):
            own = ResultSet.open(place / "set" / "hosts" / name).record(record.run_id)
            assert own and own.result
            starts[name] = own.result["start"]
        at_ns = starts["far"]["requested_unix_ns"] - far.clock_offset_ns
        true_ns = OFFSET_NS + (at_ns - epoch_ns) * DRIFT_PPM / 1e6
        assert near.clock_offset_ns == near.clock_bound_ns == 0, "the coordinator runs on it"
        assert abs(far.clock_offset_ns - true_ns) <= far.clock_bound_ns
        assert LEAST_ROUND_TRIP_NS / 2 < far.clock_bound_ns < SECOND
        assert far.clock_drift_ppm is not None and far.clock_drift_bound_ppm is not None
        assert abs(far.clock_drift_ppm - DRIFT_PPM) <= far.clock_drift_bound_ppm
        true_skew_ns = abs(starts["far"]["started_unix_ns"] - true_ns - starts["near"]["started_unix_ns"])
        assert true_skew_ns <= part.skew_ns + part.skew_bound_ns
