from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import CHECKOUT


@pytest.mark.engine
def test_the_notices_name_every_crate_in_the_engine() -> None:
    """Their texts too: a crate that is added, updated or removed changes the file."""
    command = [sys.executable, "-B", str(CHECKOUT / "scripts" / "notices"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_notices_contain_the_licence_of_lmdb() -> None:
    text = (CHECKOUT / "THIRD-PARTY-NOTICES.txt").read_text()
    assert "The OpenLDAP Public License" in text
    assert "Howard Chu, Symas Corp." in text
