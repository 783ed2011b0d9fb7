"""A machine that cannot be restored after a run: the record is kept, and the session ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.features.swap_areas.instruments import SwapAreas
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

STUDY = """
name = "short"
title = "Short"
question = "?"
repeats = 3

[measurement]
span = "1MiB"
duration = "100ms"
interval = "100ms"

[[parts]]

[profiles.standard]
"""


def test_the_record_is_kept_when_swap_cannot_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(instrument: SwapAreas) -> None:
        raise TargetError("cannot turn off the swap area", hint="`iosonde cleanup` tries again")

    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setattr(SwapAreas, "close", refuse)
    (tmp_path / "data").mkdir()
    with pytest.raises(TargetError, match="cannot turn off"):
        execute(expand(parse(STUDY), open_target(str(tmp_path / "data"))), tmp_path / "results")
    [record] = ResultSet.open(tmp_path / "results").records()
    assert record.failure is None
    [warning] = [each for each in record.warnings if each.code == "not_restored"]
    assert "swap area" in warning.message
    assert "cleanup" in warning.hint
