"""Ten seconds of mutations of a result set; `python tests/results/mutations.py` for longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mutations import Fuzzer

pytestmark = pytest.mark.engine

SECONDS = 10


def test_no_mutation_of_a_result_set_causes_a_traceback_or_a_write_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fuzzer = Fuzzer(tmp_path / "fuzz", seed=7)
    end = time.monotonic() + SECONDS
    while fuzzer.mutations < 30 or time.monotonic() < end:
        fuzzer.step()
    assert (fuzzer.tracebacks, fuzzer.written) == ([], [])
