"""Findings about sustained load."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from iosonde.features.sustained_load import idle_recovery, lasting_drop, stimulus
from iosonde.findings.cells import case_words
from iosonde.findings.finding import Finding
from iosonde.findings.question import Results
from iosonde.plan import PREPARATION


def _load_changes(results: Results) -> Iterable[Finding]:
    return stimulus.find(results.study, results.long_runs, results.result_set.cases)


def _recoveries(results: Results) -> Iterable[Finding]:
    return idle_recovery.find(idle_recovery.idle_recoveries(results.study, results.result_set), results.states)


def _drops(results: Results) -> Iterable[Finding]:
    measured = results.metrics.filter(pl.col("part") != PREPARATION)["run_id"].n_unique()
    words = case_words(results.study, results.result_set.cases)
    return lasting_drop.find(lasting_drop.lasting_drops(results.facts), measured=measured, words=words)


OF_RESULTS = (_load_changes, _recoveries, _drops)
