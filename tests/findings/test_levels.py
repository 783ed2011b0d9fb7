"""Words for levels and cases in sentences."""

from __future__ import annotations

import polars as pl

from iosonde.findings.levels import case_words
from iosonde.metrics import wording
from iosonde.qualify import load_application
from iosonde.workload import terms


def test_a_case_without_factors_has_the_title_of_its_part() -> None:
    cases = pl.DataFrame({"case_id": ["redo", "binlog"], "part": ["redo", "binlog"]})
    assert case_words(load_application("mysql"), cases) == {"redo": "Redo log", "binlog": "Binary log"}


def test_equal_levels_of_two_parts_are_preceded_by_the_titles() -> None:
    rows = [("log/d=read", "log", "read", None), ("data/d=read", "data", "read", "16 MiB"), ("x", "gone", "read", None)]
    cases = pl.DataFrame(rows, schema=["case_id", "part", "direction", "block_size"], orient="row")
    words = case_words(load_application("sap-hana"), cases)
    assert all("`" not in words[case_id] for case_id in ("log/d=read", "data/d=read"))
    assert len(set(words.values())) == 3 and words["x"] == "`x`"


def test_a_factor_with_labels_may_have_the_name_of_a_number() -> None:
    assert terms.operation_words("mostly reads") == "mostly reads"
    assert wording.level_words("read_fraction", "mostly reads") == "mostly reads"
    assert terms.operation_words("0.0") == "writes", "of a column with labels"
    assert terms.number_of("inf") is None
