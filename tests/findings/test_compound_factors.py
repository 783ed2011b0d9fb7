"""A factor with labelled levels may have the name of a parameter that is a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.metrics import wording
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.workload import terms

STUDY = """
name = "labels"
title = "Labels"
question = "Which load is faster?"
repeats = 1
[measurement]
span = "16MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
name = "labelled"
factors.queue_depth = [{ label = "deep", set = { queue_depth = 16 } }, { label = "flat", set = { queue_depth = 1 } }]
factors.read_fraction = [{ label = "mostly reads", set = { read_fraction = 0.9 } }]
[[parts]]
name = "plain"
factors.queue_depth = [4]
[[views]]
part = "labelled"
kind = "bars"
title = "Rate"
x = "queue_depth"
y = "iops"
[profiles.standard]
"""


@pytest.mark.engine
def test_labels_under_the_name_of_a_number_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    target = open_target("simulated:servers=4,read=100us,write=100us,size=1TiB")
    text = str(execute(expand(parse(STUDY), target), tmp_path / "set"))
    assert "deep" in text and "mostly reads" in text


def test_words_for_a_label_are_the_label() -> None:
    assert terms.operation_words("mostly reads") == "mostly reads"
    assert wording.level_words("read_fraction", "mostly reads") == "mostly reads"
    assert terms.operation_words("0.0") == "writes", "of a column with labels"
    assert terms.number_of("inf") is None
