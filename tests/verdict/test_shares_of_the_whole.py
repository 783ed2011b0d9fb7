"""No share exceeds 1: numerator and denominator are of the same counters and interval.

Of counters that contradict each other nothing is claimed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from facts import READ, SECOND, as_writes, having, job, sound
from hypothesis import given
from hypothesis import strategies as st

from iosonde.metrics.verdict.evidence import Evidence, VerdictFacts
from iosonde.metrics.verdict.verdict import judge

times = st.integers(0, 40 * SECOND)
sizes = st.integers(0, 1 << 40)


def other_readers(moved: int, own: int) -> dict[str, Any]:
    """The kernel's account of a device over the run, of which some bytes were the engine's own."""
    row = {"device": "259:0", "read_bytes": moved, "write_bytes": 0}
    row |= {"own_read_bytes": own, "own_write_bytes": 0}
    others = {"are_present": True, "write_bytes": 0, "unreadable": 0}
    return {"version": 2, "measure": [row], "run": [row], "others": others, "dirtied_bytes": 0}


def numbers(facts: VerdictFacts) -> dict[str, float]:
    found = Evidence(facts).numbers()
    return {name: value for name, value in found.items() if "share" in name and value is not None}


@given(data=st.data())
def test_shares_are_between_0_and_1(data: st.DataObject) -> None:
    facts = sound()
    user_ns, system_ns, wait_ns, wall_ns = (data.draw(times) for _ in range(4))
    job(facts)["usage"].update(user_ns=user_ns, system_ns=system_ns, wall_ns=wall_ns)
    job(facts)["pacing"].update(turnaround_ns=data.draw(times), cpu_wait_ns=wait_ns)
    facts.result["end_ns"] = data.draw(st.integers(1, 20 * SECOND))
    facts.result["process"] = {**facts.result["process"], "wall_ns": data.draw(times), "fs_inputs": data.draw(sizes)}
    facts.result["devices"][0].update(read_bytes=data.draw(sizes), write_bytes=data.draw(sizes))
    machine = {name: data.draw(times) for name in ("steal_ns", "user_ns", "system_ns", "idle_ns", "io_wait_ns")}
    facts.result["evidence"]["machine"] = {"cpus": data.draw(st.integers(1, 8)), **machine}
    facts.result["evidence"]["stalls"] = {"stalled_ns": data.draw(times), "longest_ns": 0, "count": 1}
    moved = data.draw(sizes)
    own_io = data.draw(st.none() | st.just(other_readers(moved, data.draw(st.integers(-moved, moved)))))
    total = replace(facts.totals[0], completion_latency_ns_sum=data.draw(times))
    facts = replace(facts, own_io=own_io, totals=[total])
    if data.draw(st.booleans()):
        facts = as_writes(facts)
    assert {name: value for name, value in numbers(facts).items() if not 0 <= value <= 1} == {}
    verdict = judge(facts)
    stated = re.findall(r"([\d.,]+) %", " ".join(each.message for each in verdict.warnings))
    assert [each for each in stated if float(each.replace(",", "")) > 100] == []


def test_bytes_of_others_are_a_share_of_the_bytes_in_the_same_account() -> None:
    """The engine's own reading of the device started later than that of the account, and missed half of the bytes."""
    facts = replace(sound(), own_io=other_readers(moved=4 * READ, own=READ))
    assert numbers(facts)["other_bytes_share"] == 0.75


def test_bytes_of_others_are_no_reads_of_the_load_also_where_its_writes_are_not_counted_one_by_one() -> None:
    facts = having(stream={"durability": {"kind": "fsync", "every": 1}})(sound())
    facts.result["process"]["fs_inputs"] = 0
    facts.result["devices"][0]["read_bytes"] = 2 * READ
    found = Evidence(replace(facts, own_io=other_readers(moved=4 * READ, own=READ // 2)))
    assert found.read_from_memory_share == pytest.approx(0.5, abs=1e-3)


def divided(*threads: tuple[int, int]) -> VerdictFacts:
    """The job as threads with one read in flight each: CPU time and waiting for a CPU of each, in seconds."""
    used, waited = (SECOND * sum(each) for each in zip(*threads, strict=True))
    cpu, wait = max(threads, key=sum)
    busiest = {"count": len(threads), "busiest_cpu_ns": SECOND * cpu, "busiest_cpu_wait_ns": SECOND * wait}
    change = having(
        stream={"queue_depth": len(threads)},
        usage={"user_ns": 0, "system_ns": used},
        pacing={"cpu_wait_ns": waited, "threads": busiest},
        backend={"kind": "sync"},
    )
    return change(sound())


def test_only_a_saturated_thread_is_the_limit_and_not_the_sum_of_their_cpu_time() -> None:
    """Four threads with 3 s of CPU time each in ten seconds: together 12 s, and no core is saturated."""
    assert judge(divided(*[(3, 0)] * 4)).kind == "device-limited"
    assert Evidence(divided(*[(3, 0)] * 4)).numbers()["core_utilisation"] == 0.3
    verdict = judge(divided(*[(0, 0)] * 3, (10, 0)))
    assert verdict.kind == "harness-limited"
    assert "a job used 100 % of its core" in verdict.because


def test_cpu_time_of_the_machine_is_a_share_of_what_its_counters_have_in_all() -> None:
    """They were read after 20 s of a measurement of 10 s, and half of one of two CPUs was stolen."""
    machine = {"cpus": 2, "steal_ns": 10 * SECOND, "idle_ns": 30 * SECOND, "io_wait_ns": 0}
    found = numbers(having(evidence={"machine": machine})(sound()))
    assert (found["steal_share"], found["idle_cpu_share"]) == (0.25, 0.75)


def test_a_thread_that_had_its_cpu_for_a_third_waited_for_the_rest() -> None:
    """The clock of its counters, which were read late, and not that of the measurement."""
    usage = {"user_ns": 4 * SECOND, "system_ns": 0, "wall_ns": 12 * SECOND}
    found = Evidence(having(usage=usage, pacing={"cpu_wait_ns": 8 * SECOND})(sound()))
    assert (found.core_utilisation, found.cpu_wait_share) == (1 / 3, 2 / 3)
