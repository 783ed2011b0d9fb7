"""A purge by the drive's own means, carried out for real on an NVMe drive of the lab's machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.lab.image import Image
from iosonde.target import nvme


@pytest.fixture(scope="module")
def purged(machine_image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the guest saw."""
    results = tmp_path_factory.mktemp("guest")
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT / "python"),
        "XDG_CACHE_HOME": str(machine_image.directory.parents[2]),
        "IOSONDE_ENGINE": str(real_engine()),
    }
    guest = Path(__file__).with_name("guest_nvme.py")
    lab = [sys.executable, "-m", "iosonde", "lab", "run", "--drives", "1", "--size", "64MiB", "--results", str(results)]
    done = subprocess.run(
        [*lab, "--", sys.executable, "-B", str(guest)], capture_output=True, text=True, env=environment, timeout=900
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said: dict[str, Any] = json.loads((results / "nvme.json").read_text())
    return said


def test_the_strongest_purge_of_a_namespace_is_its_format(purged: dict[str, Any]) -> None:
    assert purged["can_format"]
    assert purged["failures"] == [None] * len(purged["failures"])
    assert "format" in purged["purges"]


def test_it_takes_all_of_the_namespace_and_the_plan_says_so(purged: dict[str, Any]) -> None:
    assert purged["before"] == "ab" * 8
    assert purged["after"] == "00" * 8, "behind everything that the study writes"
    [what] = purged["destroys"]
    assert what.endswith("(all of it)")


def test_what_is_no_namespace_is_never_formatted(tmp_path: Path) -> None:
    (tmp_path / "nvme0n1").write_bytes(b"")
    for path in (tmp_path / "nvme0n1", tmp_path / "missing", Path("/dev/null")):
        assert not nvme.can_format(path)
