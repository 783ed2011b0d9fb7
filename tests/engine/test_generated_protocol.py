"""The types of specs and events are those of the engine that was built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from command_line import CHECKOUT
from engines import real_engine

from iosonde import protocol


def test_the_types_checked_in_are_those_that_the_engine_prints(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, CHECKOUT / "scripts/generate-protocol", "--output", tmp_path],
        env={**os.environ, "IOSONDE_ENGINE": str(real_engine())},
        check=True,
    )
    for name in ("spec.py", "event.py", "version.py", "store_options.py"):
        checked_in = Path(protocol.__file__).with_name(name).read_text()
        assert (tmp_path / name).read_text() == checked_in, "run `make protocol` after a change of crates/protocol"


def test_a_field_that_the_protocol_does_not_have_fails_the_type_check(tmp_path: Path) -> None:
    """Detect renamed fields in the construction of specs and in the reading of events with mypy."""
    program = tmp_path / "renamed.py"
    program.write_text(
        "from iosonde.protocol.event import IntervalEvent\n"
        "from iosonde.protocol.spec import Ramp\n"
        "ramp: Ramp = {'length_ns': 1}\n"
        "def read(event: IntervalEvent) -> int:\n"
        "    return event['start_ns']\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", CHECKOUT / "pyproject.toml", program],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    assert 'Extra key "length_ns"' in done.stdout
    assert 'TypedDict "IntervalEvent" has no key "start_ns"' in done.stdout
