"""No kind of finding states what is false more often than its intervals allow, and no two findings contradict each other.

`pytest -s` prints the table of claims and false claims by kind (docs/statistics.md has that of all draws).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import truths
from test_every_kind import MAKERS, claims_of

from iosonde.base.features import contributed
from iosonde.findings import findings
from iosonde.findings.finding import Finding

ALLOWED = 0.05
"""Share of claims of a kind that may be false: as many as intervals with 95 % confidence allow."""
SPARE = 2
"""False claims beyond that share: a kind with few claims has one by luck."""


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(2000), marks=pytest.mark.extended)], ids=len)
def test_no_kind_is_false_more_often_than_its_intervals(seeds: range) -> None:
    claims: Counter[str] = Counter()
    false: Counter[str] = Counter()
    against = []
    for seed in seeds:
        truth, found = truths.drawn(seed)
        for finding in found:
            permitted = truths.PREDICATES[type(finding)](finding, truth)
            claims[finding.kind] += permitted is not None
            false[finding.kind] += permitted is False
        against += [(seed, one.sentence, other.sentence) for one, other in truths.contradictions(found)]
    for kind, count in sorted(claims.items()):
        print(f"{kind:20} {count:6} {false[kind]:4}")
    assert against == []
    assert [kind for kind, count in claims.items() if false[kind] > ALLOWED * count + SPARE] == []


TESTS = {
    "OSD CPU time": "features/object_stores/test_objects.py",
    "accelerators fed": "features/ai/test_ingest.py",
    "also met": "findings/test_search_findings.py",
    "array efficiency": "features/arrays/test_array_efficiency.py",
    "backend step": "features/nvme_driver/test_backend_steps.py",
    "best and worst": "execution/test_commands.py",
    "boundary": "findings/test_search_findings.py",
    "burst end": "features/rate_limits/test_credit_duration.py",
    "busy core": "findings/test_findings.py",
    "cache gain": "features/block_caches/test_block_cache_metrics.py",
    "cache tier": "features/key_value_stores/test_store_findings.py",
    "checkpoint": "features/ai/test_checkpoint.py",
    "control group limit": "features/rate_limits/test_known_limits.py",
    "cost of tracing": "features/kernel_trace/test_io_path.py",
    "credit duration": "features/rate_limits/test_credit_duration.py",
    "different durability": "features/key_value_stores/test_store_findings.py",
    "durability": "features/database_transactions/test_transactions.py",
    "durable writes": "report/test_tables.py",
    "effect of a factor": "execution/test_commands.py",
    "failed I/Os": "findings/test_findings.py",
    "fault overhead": "features/paging/test_paging.py",
    "fresh device": "findings/test_device_states_reached.py",
    "interference": "findings/test_disturbance.py",
    "KV cache break-even": "features/ai/test_kv_cache.py",
    "KV cache hits and wear": "features/ai/test_kv_cache.py",
    "lasting drops": "features/sustained_load/test_sustained_load.py",
    "limit of volumes": "features/rate_limits/test_shared_limits.py",
    "limiter latency": "features/rate_limits/test_limits_study.py",
    "load strategy": "features/ai/test_weights.py",
    "load change": "features/sustained_load/test_sustained_load.py",
    "log gain": "features/database_transactions/test_transactions.py",
    "mapped reads": "features/paging/test_paging.py",
    "memory extension": "findings/test_questions.py",
    "memory share": "findings/test_questions.py",
    "no boundary": "findings/test_search_findings.py",
    "no write amplification": "findings/test_media.py",
    "not precise": "procedure/test_until.py",
    "offered rates": "findings/test_search_findings.py",
    "published comparison": "features/key_value_stores/test_store_findings.py",
    "published limit": "features/rate_limits/test_known_limits.py",
    "read cache": "features/key_value_stores/test_store_findings.py",
    "server limit": "features/database_transactions/test_transactions.py",
    "share of device bandwidth": "features/graph/test_graph.py",
    "software share": "features/nvme_driver/test_backend_steps.py",
    "stages not traced": "features/kernel_trace/test_io_path.py",
    "stages of an I/O": "features/kernel_trace/test_io_path.py",
    "steady rounds": "findings/test_device_states_reached.py",
    "steady run": "metrics/test_settling.py",
    "straggler": "features/many_hosts/test_merge_of_hosts.py",
    "think time": "features/database_transactions/test_transactions.py",
    "total backend gain": "features/nvme_driver/test_backend_steps.py",
    "unknown device write amplification": "findings/test_media.py",
    "unknown software share": "features/nvme_driver/test_backend_steps.py",
    "vector queries": "features/ai/test_vector.py",
    "withheld amplification": "execution/test_own_io.py",
    "write cliff": "execution/test_sustained.py",
}
"""Kinds whose truth is not drawn here, and the test that makes one and decides what the finding must state of it."""


def kinds(base: type[Finding] = Finding) -> set[type[Finding]]:
    """Every kind of finding, of features too."""
    found = {base} if vars(base).get("kind") else set()
    return found.union(*(kinds(each) for each in base.__subclasses__()))


def test_every_kind_has_a_predicate() -> None:
    assert findings and contributed("questions", "KINDS") and contributed("questions", "OBSERVATIONS")
    of_makers = {type(claim.finding) for make in MAKERS for claim in claims_of(make)}
    rest = {each.kind for each in kinds() if each not in truths.PREDICATES and each not in of_makers}
    assert rest == set(TESTS)


@pytest.mark.parametrize("kind", TESTS)
def test_the_test_of_a_kind_exists(kind: str) -> None:
    [found] = [each for each in kinds() if each.kind == kind]
    text = (Path(__file__).parents[1] / TESTS[kind]).read_text()
    assert re.search(
        rf'\b({found.__name__}|{re.escape(found.__module__.rpartition(".")[2])})\b|"{re.escape(kind)}"', text
    )
