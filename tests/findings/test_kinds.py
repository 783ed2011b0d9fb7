"""General kinds of findings: the same form, decision and evidence whatever the question; words for cases."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hand_made import cells, results, study

from iosonde.features.key_value_stores.questions import ReadCacheGain
from iosonde.findings.cells import case_words
from iosonde.findings.kinds import asymmetry, between, curves, decided, of_question, over_numbers
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.metrics.statistics import Estimate
from iosonde.qualify import load_application

pytestmark = pytest.mark.unit


def question(values: dict[tuple[str, int], float]) -> Question:
    repeated = {cell: [0.99 * value, value, 1.01 * value] for cell, value in values.items()}
    cases, runs = results(["format", "jobs"], {"iops": repeated})
    asked = {"kind": "asymmetry", "over": "format", "metric": "iops"}
    described = study({"format": ["ext4", "xfs"], "jobs": [1, 4, 16]}, [asked])
    return Question(study=described, analysis=described.analysis[0], cases=cases, runs=runs, support=Support())


@pytest.mark.parametrize(
    ("interval", "decision"),
    [
        ((1.1, 1.3), "higher"),
        ((0.7, 0.9), "lower"),
        ((0.98, 1.02), "same"),
        ((0.9, 1.2), "unclear"),
        (None, "unclear"),
        ((1.2, 13.0), "unclear"),
    ],
)
def test_the_decision_of_a_ratio_is_its_direction(interval: tuple[float, float] | None, decision: str) -> None:
    assert decided(Estimate(1.0, *(interval or (None, None)))) == decision


def test_a_ratio_has_the_same_cells_in_either_direction() -> None:
    asked = question({("ext4", 1): 100, ("xfs", 1): 200, ("ext4", 4): 100, ("xfs", 4): 50, ("ext4", 16): 100})
    answers = asymmetry(asked.cells(), over="format", by=["jobs"])
    forth, back = between(answers, "xfs", "ext4"), between(answers, "ext4", "xfs")
    assert [row["cases"] for row in forth] == [row["cases"][::-1] for row in back]
    up, down = of_question(asked, forth), of_question(asked, back)
    assert up["cells"] == (("4 jobs", 0.5), ("1 job", 2.0))
    assert down["ratio"].value == pytest.approx(1 / up["ratio"].value)
    assert up["opposed"] is not None and (up["opposed"].above, up["opposed"].below) == (1, 1)
    assert up["repeats"] == 3 and len(up["case_ids"]) == 4


def test_the_evidence_of_a_ratio_names_the_range_of_its_cells() -> None:
    asked = question({("ext4", 1): 100, ("xfs", 1): 200, ("ext4", 4): 100, ("xfs", 4): 300})
    rows = between(asymmetry(asked.cells(), over="format", by=["jobs"]), "xfs", "ext4")
    names: dict[str, Any] = {"top": "xfs", "bottom": "ext4", "published": 2.5, "source": "A"}
    found = ReadCacheGain(**of_question(asked, rows), **names, block_cache_hit_ratio=None, read_cache_hit_ratio=None)
    assert found.evidence.startswith("IOPS of xfs over ext4: 2.45 times (95 % CI ")
    assert "), 2.00–3.00 in 2 cells; 3 runs each; published: 2.5 times (A)" in found.evidence


def test_curves_that_differ_in_numbers_are_together_and_in_their_order() -> None:
    values = {(size, depth): [1.0] for size in (65536, 4096) for depth in (1, 2)} | {(8192, 1): [1.0]}
    found = curves(cells(["block_size", "queue_depth"], values), over="queue_depth", by=["block_size"])
    assert [curve.key["block_size"] for curve in found] == [65536, 4096], "a single level is no curve"
    cases, runs = results(["block_size", "queue_depth"], {"iops": values})
    asked = study(
        {"block_size": [65536, 4096, 8192], "queue_depth": [1, 2]},
        [{"kind": "flatness", "over": "queue_depth", "metric": "iops"}],
    )
    [(key, group)] = over_numbers(Question(study=asked, analysis=asked.analysis[0], cases=cases, runs=runs))
    assert (key, [curve.key["block_size"] for curve in group]) == ({}, [4096, 65536])


def test_a_case_without_factors_has_the_title_of_its_part() -> None:
    cases = pl.DataFrame({"case_id": ["redo", "binlog"], "part": ["redo", "binlog"]})
    assert case_words(load_application("mysql"), cases) == {"redo": "Redo log", "binlog": "Binary log"}


def test_equal_levels_of_two_parts_are_preceded_by_the_titles() -> None:
    rows = [("log/d=read", "log", "read", None), ("data/d=read", "data", "read", "16 MiB"), ("x", "gone", "read", None)]
    cases = pl.DataFrame(rows, schema=["case_id", "part", "direction", "block_size"], orient="row")
    words = case_words(load_application("sap-hana"), cases)
    assert all("`" not in words[case_id] for case_id in ("log/d=read", "data/d=read"))
    assert len(set(words.values())) == 3 and words["x"] == "`x`"
