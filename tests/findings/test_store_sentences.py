"""What is said of key-value stores: which is fastest, how logs and syncs compare, and how all compare with published ones."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import results, study

from iosonde.findings.findings import findings

STORES = {"lmdb": 5_441, "rocksdb": 18_500, "redb": 14_200, "fjall": 22_900}
QUESTIONS = [
    {"kind": kind, "over": "store", "metric": "ops_per_sec", "by": ["phase"]} for kind in ("peak", "asymmetry")
]


def about_stores(repeats: int, spread: float = 0.01) -> list[Any]:
    values = {
        ("ycsb_a", store): [rate * (1 + spread * (each - (repeats - 1) / 2)) for each in range(repeats)]
        for store, rate in STORES.items()
    }
    cases, runs = results(["phase", "store"], {"ops_per_sec": values}, database="loaded")
    return findings(study({"phase": ["ycsb_a"], "store": list(STORES)}, QUESTIONS), cases, runs)


def titles(found: list[Any], kind: str) -> list[str]:
    return [each.sentence for each in found if each.kind == kind]


def test_the_fastest_store_is_named_with_its_lead() -> None:
    [finding] = [each for each in about_stores(3) if each.kind == "peak"]
    assert (
        finding.sentence
        == "YCSB A operations are fastest with fjall: 22.9 k operations/s, 1.24 times that with RocksDB"
    )
    assert finding.strength == "strong"
    assert finding.evidence.startswith("fjall 22.9 k operations/s, 95 % interval ")
    assert "; LMDB 5,441 operations/s" in finding.evidence or "; LMDB 5,440 operations/s" in finding.evidence


def test_two_stores_that_cannot_be_told_apart_are_both_named() -> None:
    assert titles(about_stores(3, spread=0.4), "peak") == [
        "YCSB A operations are fastest with fjall or RocksDB: 22.9 k operations/s"
    ]


def test_single_runs_of_many_stores_are_unclear_in_one_sentence() -> None:
    assert titles(about_stores(1), "unclear") == [
        "Whether LMDB, RocksDB, redb and fjall differ is unclear for YCSB A operations"
    ]
    told = titles(about_stores(3), "asymmetry")
    assert len(told) == 6
    assert "Fjall reaches 4.2 times the operations per second of LMDB for YCSB A operations" in told


@pytest.mark.parametrize(("sync", "load"), [(True, "RocksDB synced overwrites"), (False, "RocksDB overwrites")])
def test_a_log_apart_is_called_so(sync: bool, load: str) -> None:
    values = {("with the data",): [100.0, 101.0, 102.0], ("apart",): [200.0, 202.0, 204.0]}
    cases, runs = results(
        ["log"], {"ops_per_sec": values}, store="rocksdb", phase="overwrite", sync=sync, database="loaded"
    )
    question = {"kind": "asymmetry", "over": "log", "metric": "ops_per_sec"}
    found = findings(study({"log": ["with the data", "apart"]}, [question]), cases, runs)
    assert titles(found, "asymmetry") == [
        f"A log apart reaches 2.0 times the operations per second of a log with the data for {load}"
    ]


def test_several_published_devices_are_one_sentence_with_the_figure_of_each() -> None:
    reference = {
        "name": "published",
        "csv": "han2021_fig6to7_dbbench.csv",
        "source": "Han 2021",
        "columns": {"workload": "load"},
        "value": "million_ops_s",
        "metric": "ops_per_sec",
        "scale": 1e6,
        "label": "raid_level",
    }
    values = {("fillrandom",): [650_000.0] * 3, ("fillseq",): [180_000.0] * 3}
    cases, runs = results(["load"], {"ops_per_sec": values}, database="loaded", store="rocksdb")
    [finding] = [
        each
        for each in findings(study({"load": ["fillrandom", "fillseq"]}, [], references=[reference]), cases, runs)
        if each.kind == "reference"
    ]
    assert finding.sentence.startswith("Operations per second is ")
    assert "of raid0, raid1, raid10, raid5 and raid6 in Han 2021 (10 cases: 0.10 to 1.33)" in finding.sentence
    assert "(raid0 0.30, raid1 0.52, " in finding.evidence
    assert "least in main/load=fillseq, most in main/load=fillrandom" in finding.evidence
