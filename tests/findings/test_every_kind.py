"""Every kind of sentence is true of random noise-free results, and its evaluator rejects changed numbers.

`test_every_sentence.py` has the kinds that state relations between many cells of block I/O; the other kinds are here.
Groups are incomplete, effects are opposite, loads pause, and devices are simulated in a part of the inputs. A test
compares the kinds of both with all that there are.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
import test_every_sentence
from claims import INTERVAL, NUMBER, Claim
from hand_made import controls, results, study

import iosonde.findings
from iosonde.features.database_transactions import questions as transactions
from iosonde.features.key_value_stores import observations
from iosonde.features.key_value_stores.durability import DifferentDurability, difference
from iosonde.features.many_hosts import questions as host_questions
from iosonde.features.rate_limits import questions as rate_limit_questions
from iosonde.features.rate_limits import sharing_findings
from iosonde.features.rate_limits.credit_duration import BurstEnd, CreditDuration, Spending
from iosonde.features.rate_limits.known_limits import compared
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.published import limits as volume_limits
from iosonde.features.rate_limits.rules import (
    Change,
    Estimate,
    FirstTouch,
    Identification,
    Limiter,
    Parameter,
    Rule,
    TouchedRegion,
    parameter,
)
from iosonde.features.rate_limits.series import Load
from iosonde.features.rate_limits.sharing import Sharing
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.features.sustained_load import idle_recovery, lasting_drop, stimulus
from iosonde.findings.device_state import FreshDevice, Written
from iosonde.findings.finding import Finding
from iosonde.findings.findings import _answer, findings
from iosonde.findings.observations import disturbance, quality, search
from iosonde.findings.question import Question
from iosonde.findings.questions import steady
from iosonde.findings.support import Support
from iosonde.metrics.change_points import Cliff
from iosonde.metrics.steady_state import steady_state
from iosonde.metrics.sustained import LongRun
from iosonde.plan import Case, Cost
from iosonde.planning import load
from iosonde.procedure.search import Judged, Probe, SearchConclusion
from iosonde.study.model import Study

Rng = random.Random
Made = Sequence[Claim]
SEEDS = 30
FACTORS = (0.3, 0.5, 0.8, 0.97, 1.0, 1.03, 1.3, 2.0, 4.0)
SIZES = {4096: "4 KiB blocks", 65536: "64 KiB blocks", 1 << 20: "1 MiB blocks"}
JOBS = {1: "1 job", 4: "4 jobs", 16: "16 jobs"}
LOAD = {"access": "random", "io_mode": "direct", "read_fraction": 1.0}


def of_kind(found: Sequence[Finding], kind: str) -> list[Finding]:
    return [each for each in found if each.kind == kind]


def repeated(values: Mapping[tuple[Any, ...], float], repeats: int = 3) -> dict[tuple[Any, ...], list[float]]:
    return {levels: [value] * repeats for levels, value in values.items()}


def cells(rng: Rng, levels: Sequence[str], axis: Sequence[int], base: float = 1e4) -> dict[tuple[str, int], float]:
    """A value for each cell, a part of which is missing, though the first two levels share a cell."""
    found = {(level, at): base * rng.choice(FACTORS) for level in levels for at in axis}
    for cell in list(found):
        if cell[1] != axis[0] and rng.random() < 0.2:
            del found[cell]
    return found


def ratios(
    values: Mapping[tuple[str, int], float], over: str, under: str, words: Mapping[int, str]
) -> dict[str, float]:
    both = [at for level, at in values if level == over and (under, at) in values]
    return {words[at]: values[over, at] / values[under, at] for at in both}


def mean_of(values: Mapping[str, float]) -> float:
    return math.exp(sum(map(math.log, values.values())) / len(values))


def numbers_of(found: Mapping[str, float]) -> list[float]:
    """The numbers that a sentence on these ratios may have: mean, change, ends, and numbers of the words."""
    mean = mean_of(found)
    levels = [*SIZES, *JOBS, *range(len(found) + 1)]
    return [mean, abs(mean - 1), *found.values(), *levels, 0.05]


def pooled(
    rng: Rng, kind: str, question: str, *, factor: str, levels: Sequence[str], metric: str, also: Mapping[str, float],
    **parameters: Any,
) -> Made:  # fmt: skip
    """A question that pools the ratio of two levels over numbers of jobs."""
    jobs = sorted(rng.sample(list(JOBS), rng.randint(1, 3)))
    values = cells(rng, levels, jobs)
    metrics = {metric: repeated(values), **{name: repeated(dict.fromkeys(values, each)) for name, each in also.items()}}
    cases, runs = results([factor, "jobs"], metrics, **parameters)
    asked = study(
        {factor: levels, "jobs": jobs}, [{"kind": question, "over": factor, "metric": metric, "by": ["jobs"]}]
    )
    [finding] = of_kind(findings(asked, cases, runs), kind)
    found = ratios(values, levels[1], levels[0], JOBS)
    one = [*values.values()] if len(found) == 1 else []
    return [Claim(finding, [*numbers_of(found), *also.values(), *one], ratios=found)]


def cache_gain(rng: Rng) -> Made:
    hit = rng.uniform(0.2, 0.9)
    return pooled(
        rng, "cache gain", "cache_gain", factor="cached", levels=["none", "warm"], metric="iops",
        also={"cache_read_hit_ratio": hit}, block_size=4096, queue_depth=1, **LOAD,
    )  # fmt: skip


def cache_tier(rng: Rng) -> Made:
    also = {"cache_hit_ratio": 0.5, "extstore_hit_ratio": 0.25, "device_read_bytes_per_get": 100.0,
            "device_write_bytes_per_get": 50.0}  # fmt: skip
    levels = ["memory only", "with extstore"]
    return pooled(
        rng, "cache tier", "cache_tiers", factor="tier", levels=levels, metric="gets_per_sec", also=also, store="memcached",
        database="loaded",
    )  # fmt: skip


def read_cache(rng: Rng) -> Made:
    also = {"block_cache_hit_ratio": 0.4, "read_cache_hit_ratio": 0.75}
    return pooled(
        rng, "read cache", "read_cache", factor="cached", levels=["none", "half"], metric="ops_per_sec", also=also,
        store="rocksdb", phase="readrandom", database="loaded",
    )  # fmt: skip


def log_gain(rng: Rng) -> Made:
    return pooled(
        rng, "log gain", "log_gain", factor="log", levels=["with the data", "apart"], metric="tpmc", also={},
        server="postgresql", think="none",
    )  # fmt: skip


def memory_extension(rng: Rng) -> Made:
    return pooled(
        rng, "memory extension", "memory_extension", factor="memory", levels=["all in memory", "half, swap"],
        metric="ops_per_sec", also={}, store="lmdb", database="loaded",
    )  # fmt: skip


def backends(rng: Rng) -> Made:
    names = ["sync", "libaio", "uring"]
    jobs = sorted(rng.sample(list(JOBS), rng.randint(1, 3)))
    values = cells(rng, names, jobs)
    cases, runs = results(["interface", "jobs"], {"iops": repeated(values)}, block_size=4096, queue_depth=1, **LOAD)
    asked = [{"kind": "backend_steps", "over": "interface", "metric": "iops", "by": ["jobs"]}]
    found = findings(study({"interface": names, "jobs": jobs}, asked), cases, runs)
    made = []
    for each in found:
        if each.kind in ("backend step", "total backend gain"):
            of = ratios(values, each.after, each.before, JOBS)  # type: ignore[attr-defined]
            if each.kind == "backend step":
                right = f"{each.after} has" in each.sentence  # type: ignore[attr-defined]
            else:
                means = {name: mean_of(ratios(values, name, "sync", JOBS)) for name in names[1:]}
                shown = {name for name, mean in means.items() if mean > 1}
                named = each.sentence.partition(" shown to improve")[0] if "shown to improve" in each.sentence else ""
                right = (
                    all(name in named for name in shown) and ("no backend" in named) == (not shown)
                    if named
                    else each.after in shown  # type: ignore[attr-defined]
                )
            made.append(Claim(each, [*numbers_of(of), len(of), 4096], holds=right))
    return made


def software_share(rng: Rng) -> Made:
    names = ["sync", "uring", "nvme_user"][: rng.choice([2, 3, 3])]
    times = {name: rng.uniform(8e3, 40e3) for name in names}
    metrics = {name: repeated({(each,): value for each, value in times.items()})
               for name in ("completion_latency_ns_mean", "iops")}  # fmt: skip
    cases, runs = results(["interface"], metrics, block_size=4096, queue_depth=1, jobs=1, **LOAD)
    cases = cases.with_columns(backend="interface", interrupts=False)
    levels = [{"label": name, "set": {"backend": name}} for name in ("sync", "uring", "nvme_user")]
    asked = [{"kind": "backend_steps", "over": "interface", "metric": "iops"}]
    found = findings(study({"interface": levels}, asked), cases, runs)
    if "nvme_user" not in names:
        [unknown] = of_kind(found, "unknown software share")
        return [Claim(unknown, [1, 4096])]
    [share] = of_kind(found, "software share")
    floor = times["nvme_user"]
    shares = {name: 1 - floor / times[name] for name in ("sync", "uring")}
    below = [name for name, value in shares.items() if value <= 0]
    right = all((f"with {name}" in share.sentence) != (name in below) for name in shares)
    return [Claim(share, [floor, 1, 4096, *shares.values()], holds=right)]


def fastest_and_no_differences(rng: Rng) -> Made:
    names, depths = ["ext4", "xfs", "btrfs"], [1, 8]
    values = {(name, depth): 1e8 * rng.choice(FACTORS) for name in names for depth in depths}
    values = {cell: value for cell, value in values.items() if cell[1] == 1 or rng.random() < 0.8}
    cases, runs = results(["format", "queue_depth"], {"bandwidth": repeated(values)}, block_size=4096, jobs=1, **LOAD)
    factors = {"format": names, "queue_depth": depths}
    asked = {"kind": "peak", "over": "format", "metric": "bandwidth"}
    [fast] = of_kind(findings(study(factors, [asked]), cases, runs), "fastest")
    best = {name: max((value, depth) for (each, depth), value in values.items() if each == name) for name in names}
    ordered = sorted((value for value, _ in best.values()), reverse=True)
    top = max(best, key=lambda name: best[name][0])
    right = best[top][0] in [value for (name, depth), value in values.items()
                             if name in fast.sentence and f"queue depth {depth}" in fast.sentence]  # fmt: skip
    claims = [Claim(fast, [*ordered, ordered[0] / ordered[1], 1, 8, 4096], holds=right)]
    noisy = {(name,): [0.6e8, 1e8 + number, 1.6e8] for number, name in enumerate(names)}
    cases, runs = results(["format"], {"bandwidth": noisy}, block_size=4096, queue_depth=1, jobs=1, **LOAD)
    asked = {"kind": "asymmetry", "over": "format", "metric": "bandwidth"}
    [none] = of_kind(findings(study({"format": names}, [asked]), cases, runs), "no differences")
    return [*claims, Claim(none, [4096, 4], holds=all(name in none.sentence for name in names))]


def one_level(rng: Rng) -> Made:
    values = {(1, size): 1e4 * rng.choice(FACTORS) for size in SIZES}
    cases, runs = results(["queue_depth", "block_size"], {"iops": repeated(values)}, jobs=1, **LOAD)
    asked = [{"kind": "saturation", "over": "queue_depth", "metric": "iops", "by": ["block_size"]}]
    cases = cases.with_columns(read_fraction=pl.lit(None, pl.Float64))  # So that no highest rate states it.
    [one] = of_kind(findings(study({"queue_depth": [1], "block_size": list(SIZES)}, asked), cases, runs), "one level")
    best = max(values.values())
    right = any(SIZES[size] in one.sentence for (_, size), value in values.items() if value == best)
    return [Claim(one, [best, 1, *SIZES], holds=right)]


def durable_writes(rng: Rng) -> Made:
    """Of the case with the fewest writes in flight; the latency of the writes alone has no place in the sentence."""
    times = {(size, depth): 1e6 * rng.choice(FACTORS) * depth for size in (4096, 65536) for depth in (1, 8)}
    flushes = {cell: 0.9 * time for cell, time in times.items()}
    of = {"operation": "write", "durable_write_ns_mean": times, "completion_latency_ns_p50": dict.fromkeys(times, 12e3)}
    factors = ["block_size", "queue_depth"]
    load = {**LOAD, "jobs": 1, "read_fraction": 0.0, "durability": "flush:1"}
    metrics = {name: repeated(values) for name, values in of.items() if isinstance(values, dict)}
    rates = {"concurrency": repeated({cell: float(cell[1]) for cell in times})}
    cases, writes = results(factors, {**metrics, **rates}, **load)
    _, flushed = results(factors, {"completion_latency_ns_p50": repeated(flushes)}, **load)
    runs = pl.concat(
        [
            writes,
            writes.filter(metric="durable_write_ns_mean").with_columns(operation=pl.lit("write")),
            flushed.with_columns(operation=pl.lit("flush")),
        ]
    )
    found = findings(study({"block_size": [4096, 65536], "queue_depth": [1, 8]}, []), cases, runs)
    [one] = of_kind(found, "durable writes")
    assert not of_kind(found, "unloaded latency")
    numbers = [4096, 1, times[4096, 1], flushes[4096, 1]]
    return [Claim(one, numbers, holds="4 KiB" in one.sentence and "1 I/O in flight" in one.sentence)]


def published(rng: Rng) -> Made:
    several = rng.random() < 0.5
    reference = {
        "name": "published", "csv": "han2021_fig6to7_dbbench.csv", "source": "Han 2021", "metric": "ops_per_sec",
        "columns": {"workload": "load"}, "value": "million_ops_s", "scale": 1e6, "label": "raid_level",
        **({} if several else {"where": {"raid_level": "raid0"}}),
    }  # fmt: skip
    loads = ["fillseq", "fillrandom"][: rng.randint(1, 2)]
    asked = study({"load": ["fillseq", "fillrandom"]}, [], references=[reference])
    own = {(name,): 3e5 * rng.choice(FACTORS) for name in loads}
    cases, runs = results(["load"], {"ops_per_sec": repeated(own)}, store="rocksdb", database="loaded")
    [finding] = of_kind(findings(asked, cases, runs), "published comparison")
    table = pl.read_csv(iosonde.data.reference_file("han2021_fig6to7_dbbench.csv"))
    by_device: dict[str, list[float]] = {}
    for row in table.filter(pl.col("workload").is_in(loads)).to_dicts():
        if several or row["raid_level"] == "raid0":
            by_device.setdefault(row["raid_level"], []).append(own[row["workload"],] / row["million_ops_s"] / 1e6)
    medians = {name: median(each) for name, each in by_device.items()}
    right = min(medians, key=lambda name: medians[name]) in finding.sentence
    each = [value for values in by_device.values() for value in values]
    counts = [2021, len(by_device), len(loads), 0.05]
    return [Claim(finding, [*medians.values(), *each, *counts], holds=right)]


def offered_rates(rng: Rng) -> Made:
    loads = [0.5, 0.9, 1.1]
    offered = {(load_, mix): 1e5 * load_ for load_ in loads for mix in ("reads", "70/30")}
    shares = {cell: rng.choice([1.0, 0.995, 0.9, 0.6]) for cell in offered}
    tails = {cell: rng.uniform(1e5, 1e7) for cell in offered}
    metrics = {
        "achieved_rate_fraction": repeated(shares),
        "iops": repeated({cell: rate * shares[cell] for cell, rate in offered.items()}),
        "response_latency_ns_p99": repeated(tails),
    }
    cases, runs = results(["load", "mix"], metrics, block_size=4096, queue_depth=64, jobs=1, **LOAD)
    found = findings(study({"load": loads, "mix": ["reads", "70/30"]}, []), cases, runs)
    [finding] = of_kind(found, "offered rates")
    behind = {cell for cell, share in shares.items() if share < 0.99}
    named = {
        cell for cell in offered if re.search(rf"overloaded at [^;]*\(load {cell[0]:g}, {cell[1]}\)", finding.sentence)
    }
    right = named <= behind and len(named) == min(len(behind), 4)
    numbers = [len(offered), len(offered) - len(behind), len(behind) - 4, *offered.values(), *shares.values()]
    return [Claim(finding, [*numbers, *tails.values(), *loads, 70, 30], holds=right)]


def array_efficiency(rng: Rng) -> Made:
    devices, sizes = [1, 2, 3, 4], [4096, 65536]
    one = {size: 1e8 * rng.choice(FACTORS) for size in sizes}
    values = {("single", 1, size): one[size] for size in sizes}
    values |= {("raid0", n, size): n * one[size] * rng.choice([0.3, 0.7, 0.96, 1.0, 1.02])
               for n in devices[1:] for size in sizes if rng.random() < 0.9}  # fmt: skip
    cases, runs = results(["array", "devices", "block_size"], {"bandwidth": repeated(values)},
                          queue_depth=64, jobs=1, **LOAD)  # fmt: skip
    asked = [{"kind": "array_efficiency", "over": "devices", "by": ["array", "block_size"]}]
    factors = {"array": ["single", "raid0"], "devices": devices, "block_size": sizes}
    simulated = rng.random() < 0.5
    found = findings(study(factors, asked), cases, runs, simulated=simulated)
    shares = {cell[1:]: value / (cell[1] * one[cell[2]]) for cell, value in values.items() if cell[0] == "raid0"}
    claims = []
    for finding in of_kind(found, "array efficiency"):
        text = finding.sentence
        assert "page cache" not in text
        ends = [float(each) / 100 for each in re.search(r"(?:(\d+)–)?(\d+) % of the expected", text).groups() if each]  # type: ignore[union-attr]
        first, last = (int(each) for each in re.search(r"with (?:(\d+) to )?(\d+) devices", text).groups(default="0"))  # type: ignore[union-attr]
        first = first or last
        named = [size for size in sizes if f"with {SIZES[size]} reach" in text] or sizes
        group = {cell: share for cell, share in shares.items() if cell[1] in named and first <= cell[0] <= last}
        inside = [share for share in group.values() if ends[0] - 0.006 <= share <= ends[-1] + 0.006]
        count = re.search(r"in (\d+) of (\d+) cells", text)
        counts = (int(count[1]), int(count[2])) if count else (len(group), len(group))
        right = counts == (len(inside), len(group))
        if lowest := re.search(r"lowest with (.+?): ", text):
            n = int(found_n[1]) if (found_n := re.search(r"(\d+) devices", lowest[1])) else first
            size = next((size for size in named if SIZES[size] in lowest[1]), named[0])
            right &= math.isclose(shares[n, size], min(inside))
        speedups = [share * cell[0] for cell, share in shares.items()]
        claims.append(Claim(finding, [0, *shares.values(), *speedups, *devices, *sizes, *counts, 64], holds=right))
    return claims


def memory_share(rng: Rng) -> Made:
    latencies = {(name,): 1e6 * rng.choice([0.97, 1.0, 1.03, 1.5, 3.0]) for name in ("all", "half", "quarter")}
    cases, runs = results(["memory"], {"response_latency_ns_p99": repeated(latencies)})
    cases = cases.with_columns(memory_limit=pl.Series([1 << 30, 1 << 29, 1 << 28]))
    asked = [{"kind": "memory_share", "over": "memory", "metric": "response_latency_ns_p99"}]
    [finding] = of_kind(findings(study({"memory": ["all", "half", "quarter"]}, asked), cases, runs), "memory share")
    whole = latencies["all",]
    times = {0.5: latencies["half",] / whole, 0.75: latencies["quarter",] / whole}
    enough = [share for share, ratio in times.items() if ratio <= 1.05]
    right = ("cannot be replaced" in finding.sentence or "no measured share" in finding.sentence) == (0.5 not in enough)
    if 0.5 in enough:
        largest = 0.75 if 0.75 in enough else 0.5
        right &= f"with {100 * largest:.0f} % of memory replaced" in finding.sentence
    return [Claim(finding, [*times, *times.values()], holds=right)]


def server_limit(rng: Rng) -> Made:
    values = {(terminals, houses): 1e4 * rng.choice(FACTORS) for terminals in (1, 16) for houses in (4, 40)}
    cases, runs = results(["terminals", "warehouses"], {"tpmc": repeated(values)}, server="postgresql",
                          think=rng.choice(["none", "keying"]))  # fmt: skip
    asked = [{"kind": "server_limit", "over": "terminals", "metric": "tpmc", "by": []}]
    found = findings(study({"terminals": [1, 16], "warehouses": [4, 40]}, asked), cases, runs)
    [limit] = of_kind(found, "server limit")
    best = max(values.values())
    named = [
        cell for cell in values if f"{cell[0]} terminal" in limit.sentence and f"{cell[1]} warehouses" in limit.sentence
    ]
    right = any(values[cell] == best for cell in named) and "no limit was found" in limit.sentence
    return [Claim(limit, [best, 1, 16, 4, 40], holds=right)]


def think_time(rng: Rng) -> Made:
    thinks = [rng.choice(["none", "tpcc"]) for _ in range(4)]
    cases = pl.DataFrame({"case_id": list("abcd"), "think": thinks})
    without = thinks.count("none")
    found = transactions.think_time(cases, cases)
    assert bool(found) == bool(without)
    return [Claim(each, [without, 4], holds=("of 4 cases" in each.sentence) == (without < 4)) for each in found]


def osd_cpu(rng: Rng) -> Made:
    rates = {(depth,): 1e3 * rng.choice(FACTORS) for depth in (1, 4, 16)}
    cpu = {cell: rng.uniform(1e5, 1e6) for cell in rates}
    cores = {cell: rates[cell] * cpu[cell] / 1e9 for cell in rates}
    metrics = {"ops_per_sec": repeated(rates), "osd_cpu_ns_per_op": repeated(cpu), "server_cores": repeated(cores)}
    cases, runs = results(
        ["queue_depth"], metrics, object_store="ceph", object_size=4096, operation_level="write", jobs=1
    )
    asked = [{"kind": "osd_cpu", "over": "queue_depth", "metric": "ops_per_sec"}]
    [finding] = of_kind(findings(study({"queue_depth": [1, 4, 16]}, asked), cases, runs), "OSD CPU time")
    best = max(rates.values())
    true = [cell for cell in rates if rates[cell] == best and f"queue depth {cell[0]}" in finding.sentence]
    return [Claim(finding, [best, 4096, *(cell[0] for cell in true), *(cpu[cell] for cell in true),
                            *(cores[cell] for cell in true)], holds=bool(true))]  # fmt: skip


def frame(values: Mapping[tuple[str, str, str, str], float], repeats: int = 3) -> pl.DataFrame:
    """Run metrics by case, part, operation and metric."""
    return pl.DataFrame(
        [
            {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
             "operation": operation, "metric": metric, "value": value, "order": i}
            for (case, part, operation, metric), value in values.items() for i in range(repeats)
        ]
    )  # fmt: skip


def asked_of(name: str, kind: str, cases: pl.DataFrame, runs: pl.DataFrame, outcomes: Any = None) -> list[Finding]:
    described = load(name)
    analysis = next(each for each in described.analysis if each.kind == kind)
    question = Question(
        study=described, analysis=analysis, cases=cases, runs=runs, outcomes=outcomes, support=Support()
    )
    return list(_answer(question))


def device_share(rng: Rng) -> Made:
    cases = pl.DataFrame(
        {"case_id": ["g", "s", "r"], "part": ["pagerank", "device", "device"], "control": [False] * 3,
         "algorithm": ["pagerank", None, None], "mode": ["pull", None, None], "jobs": [2, None, None],
         "access": [None, "sequential", "random"]}
    )  # fmt: skip
    own, wait, busy = rng.uniform(1e8, 2e9), rng.choice([0.2, 0.8]), rng.choice([0.5, 0.95])
    limits = {"s": rng.uniform(1e9, 3e9), "r": rng.uniform(1e9, 3e9)}
    values = {("g", "pagerank", "all", "bandwidth"): own, ("g", "pagerank", "all", "edges_per_sec"): own / 4,
              ("g", "pagerank", "all", "edges_per_core_sec"): own / 9, ("g", "pagerank", "all", "read_wait_fraction"): wait,
              ("g", "pagerank", "all", "core_utilisation"): busy}  # fmt: skip
    measured = [each for each in limits if rng.random() < 0.8]
    values |= {(each, "device", "all", "bandwidth"): limits[each] for each in measured}
    [finding] = asked_of("jo2024-pagerank", "device_share", cases, frame(values))
    right = ("the device limits it" in finding.sentence) == (wait >= 0.5)
    right &= ("CPU time limits it" in finding.sentence) == (wait < 0.5 and busy >= 0.85)
    shares = [own / limits[each] for each in measured]
    return [Claim(finding, [own, own / 4, own / 9, 2, wait, busy, *shares], holds=right)]


def fault_overhead(rng: Rng) -> Made:
    fault, read = rng.uniform(5e4, 2e5), rng.uniform(5e4, 2e5)
    cases = pl.DataFrame({"case_id": ["f", "d"], "part": ["patterns", "device"], "control": [False, False],
                          "pattern": ["uniform", None], "overcommit": [2.0, None]})  # fmt: skip
    name = "completion_latency_ns_p50"
    values = {("f", "patterns", "major_fault", name): fault, ("f", "patterns", "all", name): 100.0,
              ("d", "device", "all", name): read}  # fmt: skip
    [finding] = asked_of("paging", "fault_overhead", cases, frame(values))
    right = ("longer than" in finding.sentence) == (fault > read)
    return [Claim(finding, [fault, read, abs(fault - read), 4096, 2], holds=right)]


def mapped_reads(rng: Rng) -> Made:
    rates = {name: rng.uniform(50, 500) for name in ("normal", "random")}
    reads = {name: rng.uniform(50, 500) for name in ("direct", "buffered") if rng.random() < 0.8} or {"direct": 100.0}
    cases = pl.DataFrame(
        [{"case_id": name, "part": "mapped", "control": False, "advice": name, "io_mode": None} for name in rates]
        + [{"case_id": name, "part": "reads", "control": False, "advice": None, "io_mode": name} for name in reads]
    )
    values = {(name, "mapped", "all", "ops_per_sec"): rate for name, rate in rates.items()}
    values |= {(name, "reads", "all", "iops"): rate for name, rate in reads.items()}
    found = asked_of("paging", "mapped_reads", cases, frame(values))
    claims = []
    for finding in found:
        mode = finding.io_mode  # type: ignore[attr-defined]
        true = {name: rate / reads[mode] for name, rate in rates.items()}
        parts = re.split(", | and ", INTERVAL.sub("", finding.sentence))
        right = mode in finding.sentence and all(
            any(f"advice {name}" in part and f"{true[name]:.2f}" in part for part in parts) for name in rates
        )
        claims.append(Claim(finding, list(true.values()), holds=right))
    return claims


def path(rng: Rng) -> Made:
    shown, traced = {"plain": False, "traced": True}, rng.random() < 0.7
    cases = pl.DataFrame(
        [{"case_id": case, "part": "main", "control": False, "interface": "sync", "operation": "read",
          "kernel_trace": is_traced, "jobs": 1, "queue_depth": 1, "read_fraction": 1.0, "backend": "sync",
          "block_size": 4096, "access": "random"} for case, is_traced in shown.items()]
    )  # fmt: skip
    stages = {name: rng.uniform(300, 9000) for name in ("submission", "block_layer", "device", "wake_up", "return")}
    times = {case: rng.uniform(1e4, 2e4) for case in shown}
    values = {(case, "main", "all", "completion_latency_ns_mean"): time for case, time in times.items()}
    if traced:
        values |= {("traced", "main", "all", f"path_{name}_ns_mean"): time for name, time in stages.items()}
        values |= {("traced", "main", "all", "path_total_ns_mean"): sum(stages.values()),
                   ("traced", "main", "all", "path_related"): 1e3}  # fmt: skip
    reason = None if traced else "no tracefs"
    outcomes = pl.DataFrame([{"case_id": "plain", "path_reason": None, "path_unseen": None},
                             {"case_id": "traced", "path_reason": reason, "path_unseen": None}],
                            schema=dict.fromkeys(("case_id", "path_reason", "path_unseen"), pl.String))  # fmt: skip
    found = asked_of("kernel-tax", "io_path", cases, frame(values), outcomes)
    cost = times["traced"] / times["plain"]
    numbers = {"stages of an I/O": [sum(stages.values()), *stages.values()], "cost of tracing": [cost],
               "stages not traced": []}  # fmt: skip
    assert {each.kind for each in found} == {"cost of tracing", "stages of an I/O" if traced else "stages not traced"}
    return [Claim(each, [4096, *numbers[each.kind]], holds=traced or each.kind != "stages of an I/O") for each in found]


def divided(rng: Rng) -> Made:
    is_divided, is_local = rng.random() < 0.7, rng.random() < 0.3
    is_divided &= not is_local
    several = not is_divided and not is_local and rng.random() < 0.5
    cases = pl.DataFrame(
        [{"case_id": case, "part": "main", "control": False, "operation": "read", "block_size": 4096,
          "queue_depth": depth, "jobs": 1, "read_fraction": 1.0, "access": "random"}
         for case, depth in {"far": 4, "deep": 16}.items() if several or case == "far"]
    )  # fmt: skip
    parts = {name: rng.uniform(2e5, 9e6) for name in ("client", "network", "server")}
    values = {("far", "main", "all", "completion_latency_ns_mean"): sum(parts.values())}
    if is_divided:
        values |= {("far", "main", "all", f"network_path_{name}_ns_mean"): time for name, time in parts.items()}
        values |= {("far", "main", "all", "network_path_ns_mean"): sum(parts.values())}
    reason = None if is_divided or is_local else "5 probes of the network; 6 are required"
    columns = {"case_id": "far", "outcome": "complete", "network_transport": None if is_local else "nfs",
               "network_unseparated": reason}  # fmt: skip
    failed = {**columns, "outcome": "failed", "network_transport": None}
    outcomes = pl.DataFrame(
        [columns, columns, failed, {**columns, "case_id": "deep"}][: 4 if several else 3],
        schema=dict.fromkeys(columns, pl.String),
    )
    [finding] = asked_of("network-path", "network_path", cases, frame(values), outcomes)
    if is_local:
        return [Claim(finding, [2], holds="latency is not divided" in finding.sentence)]
    if several:
        return [Claim(finding, [2, 4096, 4, 16, 5, 6], holds="2 of 2 loads: 5 probes" in finding.sentence)]
    if not is_divided:
        return [Claim(finding, [4096, 4, 5, 6], holds="5 probes" in finding.sentence)]
    listed = re.findall(r"(client|network|server) [0-9]", finding.sentence)
    return [
        Claim(
            finding,
            [4096, 4, sum(parts.values()), *parts.values()],
            holds=listed == sorted(parts, key=lambda each: -parts[each]),
        )
    ]


def outages(rng: Rng) -> Made:
    kind = rng.choice(["verified", "lost", "unverified", "watched", "partly", "unnoticed", "failed"])
    cases = pl.DataFrame(
        [{"case_id": "tcp", "part": "restart", "control": False, "protocol": "NVMe/TCP", "block_size": 4096,
          "queue_depth": 32, "jobs": 1, "read_fraction": 0.0, "access": "random",
          "verify": "during" if kind == "unverified" else "after"}]
    )  # fmt: skip
    unavailable, outage, wrong = rng.uniform(2e9, 9e9), rng.uniform(2e9, 9e9), rng.randrange(2, 900)
    values = {("tcp", "restart", "all", "iops"): 500.0}
    if kind not in ("unnoticed", "failed"):
        values |= {("tcp", "restart", "all", "unavailable_ns"): unavailable,
                   ("tcp", "restart", "all", "outage_backlog_max"): 812.0}  # fmt: skip
        if kind != "watched":
            values |= {("tcp", "restart", "all", "outage_length_ns"): outage}
        values |= {("tcp", "restart", "all", "verified_bytes"): 1e6}
        if kind != "unverified":
            values |= {
                       ("tcp", "restart", "all", "wrong_sectors"): float(wrong if kind == "lost" else 0)}  # fmt: skip
    ended = {"failed": ["failed"], "partly": ["complete"] * 4 + ["failed"]}.get(kind, ["complete"] * 3)
    outcomes = pl.DataFrame([{"case_id": "tcp", "outcome": each} for each in ended])
    [finding] = asked_of("failover", "outage", cases, frame(values), outcomes)
    words = {
        "verified": "no acknowledged write lost",
        "watched": "no acknowledged write lost",
        "lost": "differ from acknowledged writes",
        "unverified": "data not verified",
        "partly": "in 3 of 4 complete runs",
        "unnoticed": "not decided",
        "failed": "1 run failed",
    }
    failed = {"failed": [1], "partly": [3, 4, 1, 5]}.get(kind, [])
    return [
        Claim(finding, [4096, 32, unavailable, outage, 3 * wrong, 3, *failed], holds=words[kind] in finding.sentence)
    ]


def share_of_peak(rng: Rng) -> Made:
    shares = {(depth,): rng.choice([0.3, 0.5, 0.8, 1.0]) for depth in (1, 8, 64)}
    cases, runs = results(["queue_depth"], {"steady_fraction": repeated(shares)}, block_size=4096, jobs=1, **LOAD)
    asked = [{"kind": "steady_state", "over": "queue_depth", "metric": "steady_fraction"}]
    [finding] = of_kind(findings(study({"queue_depth": [1, 8, 64]}, asked), cases, runs), "share of peak")
    right = True
    for text, at in re.findall(r"(\d+(?:\.\d)?) % (?:of the best round )?at queue depth (\d+)", finding.sentence):
        right &= math.isclose(float(text) / 100, shares[int(at),])
    return [Claim(finding, [*shares.values(), 1, 8, 64], holds=right)]


def amplification(rng: Rng) -> Made:
    values = {(size,): rng.choice([1.0, 1.0, 2.5, 4.0]) for size in SIZES}
    metrics = {"media_write_amplification": repeated(values), "iops": repeated(dict.fromkeys(values, 1e3))}
    cases, runs = results(["block_size"], metrics, jobs=1, queue_depth=1, **LOAD)
    [finding] = of_kind(findings(study({"block_size": list(SIZES)}, []), cases, runs), "device write amplification")
    named = re.findall(r"([\d.]+) \((.+?)\)", finding.sentence)
    true = {SIZES[size]: value for (size,), value in values.items()}
    right = all(math.isclose(float(number), true[words]) for number, words in named)
    right &= (
        {float(number) for number, _ in named} == {min(values.values()), max(values.values())}
        if named
        else (len(set(values.values())) == 1)
    )
    return [Claim(finding, [*values.values(), *SIZES, 4, 64, 1, len(values)], holds=right)]


def named_values(rng: Rng) -> Made:
    from iosonde.metrics import registry
    from iosonde.metrics.metric import Metric

    name = "made_up_score"
    registry._DECLARED.setdefault(
        name, Metric(name=name, title="Score", unit="", formula="", better="higher", kind="named")
    )
    choices = rng.choice([[1.0, 2.0, 5.0, 9.0], [0.0, 2.0], [2.0]])
    values = {(at, jobs): rng.choice(choices) for at in ("a", "b") for jobs in JOBS}
    values = {cell: value for cell, value in values.items() if cell[1] == 1 or rng.random() < 0.9}
    cases, runs = results(["mode", "jobs"], {name: repeated(values)})
    found = findings(study({"mode": ["a", "b"], "jobs": list(JOBS)}, []), cases, runs)
    claims = []
    for finding in [*of_kind(found, "best and worst"), *of_kind(found, "effect of a factor")]:
        if finding.kind == "best and worst":
            ends = re.findall(r"(?:best|worst) ([\d.]+) at ([ab]), (\d+) jobs?", INTERVAL.sub("", finding.sentence))
            wanted = [max(values.values()), min(values.values())] if len(set(values.values())) > 1 else []
            right = [values[mode, int(jobs)] for _, mode, jobs in ends] == wanted
            claims.append(Claim(finding, [*values.values(), *JOBS, len(values)], holds=right))
        else:
            assert finding.top != finding.bottom  # type: ignore[attr-defined]
            if finding.factor == "mode":  # type: ignore[attr-defined]
                of = ratios(values, finding.top, finding.bottom, JOBS)  # type: ignore[attr-defined]
                claims.append(Claim(finding, numbers_of(of), ratios=of if "higher in" in finding.sentence else {}))
    return claims


def quality_of_runs(rng: Rng) -> Made:
    count = 8
    runs: list[dict[str, Any]] = []
    verdicts, outcomes_ = [], []
    law = {}
    for number in range(count):
        ratio = rng.choice([0.5, 1.0, 1.5])
        law[f"r{number}"] = ratio
        verdict = rng.choice(["device-limited", "harness-limited", None])
        outcome = rng.choice(["complete", "complete", "failed", "stopped"])
        verdicts.append(verdict)
        outcomes_.append(outcome)
        for metric, value in (("mean_in_flight", 8 * ratio), ("concurrency", 8.0), ("littles_law_ratio", ratio),
                              ("completion_latency_ns_mean", 1e5), ("completion_latency_ns_max", 1e6), ("seconds", 10.0),
                              ("errors", float(number % 3)), ("core_utilisation", rng.choice([0.5, 0.99]))):  # fmt: skip
            runs.append({"result_set": "", "run_id": f"r{number}", "case_id": f"c{number}", "part": "main", "repeat": 1,
                         "order": number, "control": False, "stream": "main", "operation": "all", "metric": metric,
                         "value": value})  # fmt: skip
    metrics = pl.DataFrame(runs)
    shares = [rng.choice([None, 0.0, 0.5]) for _ in range(count)]
    outcomes = pl.DataFrame(
        {"run_id": [f"r{n}" for n in range(count)], "case_id": [f"c{n}" for n in range(count)], "verdict": verdicts,
         "outcome": outcomes_, "failure": [None] * count, "failure_message": [None] * count, "foreign_read_share": shares},
        schema_overrides={"failure": pl.String, "failure_message": pl.String, "foreign_read_share": pl.Float64,
                          "verdict": pl.String},
    )  # fmt: skip
    warned = [n for n in range(count) if rng.random() < 0.5]
    warnings = pl.DataFrame({"run_id": [f"r{n}" for n in warned], "code": ["made_up"] * len(warned),
                             "message": ["something"] * len(warned), "hint": [""] * len(warned)},
                            schema=dict.fromkeys(("run_id", "code", "message", "hint"), pl.String))  # fmt: skip
    simulated = rng.random() < 0.3
    found = list(quality.find(metrics, outcomes=outcomes, warnings=warnings, simulated=simulated))
    found += list(quality._drift(controls("iops", [100 * rng.choice([0.8, 1, 1.1]) for _ in range(5)])))
    core = metrics.filter(pl.col("metric") == "core_utilisation")
    unjudged = core.filter(~pl.col("run_id").is_in([f"r{n}" for n in range(count) if verdicts[n]]))
    # A simulated device has no verdicts, and every run of it counts as explained by its model.
    explained = [simulated or verdict is not None for verdict in verdicts]
    fewer = [n for n in range(count) if law[f"r{n}"] == 0.5]
    unexplained = [n for n in fewer if not explained[n]]
    true: dict[str, list[float]] = {
        "Little's law": [sum(value == each for value in law.values()) for each in (1.0, 1.5)]
        + [len(unexplained), count, count - len(fewer) + len(unexplained)],
        "busy core": [len(unjudged.filter(pl.col("value") > 0.9)), len(unjudged)],
        "failed I/Os": [sum(n % 3 for n in range(count)), sum(n % 3 > 0 for n in range(count))],
        "missing runs": [*map(outcomes_.count, ("failed", "stopped")), count],
        "few repeats": [count, 3],
        "verdicts": [*map(verdicts.count, ("device-limited", "harness-limited")), sum(map(bool, verdicts))],
        "withheld amplification": [
            sum(bool(share) for share in shares),
            sum(share is not None for share in shares),
            0.5,
        ],
        "warning": [len(warned)],
    }
    claims = [Claim(each, true[each.kind]) for each in found if each.kind != "drift"]
    return [
        *claims,
        *(Claim(each, [each.drift.spread, abs(each.drift.change.value)]) for each in of_kind(found, "drift")),
    ]  # type: ignore[attr-defined]


def too_few_samples(rng: Rng) -> Made:
    cases, runs = results(["queue_depth"], {"iops": repeated({(1,): 1e3, (8,): 2e3})}, block_size=4096, jobs=1, **LOAD)
    asked = [{"kind": "tail_growth", "over": "queue_depth", "metric": "completion_latency_ns_p99_9"}]
    return [
        Claim(each, [99.9])
        for each in of_kind(findings(study({"queue_depth": [1, 8]}, asked), cases, runs), "too few samples")
    ]


def stores(rng: Rng) -> Made:
    values = {(name, size): 1e4 * rng.choice(FACTORS) for name in ("rocksdb", "lmdb") for size in (100, 1000)}
    cpu = {cell: rng.choice([90.0, 250.0, 400.0]) for cell in values}
    received, cancelled = (
        {cell: rng.choice([0.5, 1.0]) for cell in values},
        {cell: rng.choice([0.0, 46.0]) for cell in values},
    )
    metrics = {
        "ops_per_sec": repeated(values), "cpu_percent": repeated(cpu), "cancelled_write_percent": repeated(cancelled),
        "file_system_write_amplification": repeated(received),
        "device_write_amplification": repeated(dict.fromkeys(values, 1.5)),
    }  # fmt: skip
    cases, runs = results(["store", "value_size"], metrics, database="empty", phase="load", jobs=1)
    found = findings(study({"store": ["rocksdb", "lmdb"], "value_size": [100, 1000]}, []), cases, runs)
    claims = []
    for each in found:
        own = getattr(each, "store", "")
        if each.kind == "store load":
            best = max(value for (name, _), value in values.items() if name == own)
            sizes = [size for (name, size), value in values.items() if (name, value) == (own, best)]
            right = any(f"({size})" in each.sentence for size in sizes)
            claims.append(Claim(each, [best, 1.5, *sizes], holds=right))
        elif each.kind == "background work":
            busy = [(value, cell) for cell, value in cpu.items() if cell[0] == own and value > 110]
            right = any(f"({cell[1]})" in each.sentence for value, cell in busy if value == max(busy)[0])
            claims.append(Claim(each, [max(busy)[0] / 100, *(cell[1] for _, cell in busy), len(busy), 2], holds=right))
        elif each.kind == "cancelled writes":
            claims.append(Claim(each, [0.46, 0.5]))
    return claims


def store_outcomes(rng: Rng) -> Made:
    count, gib = 6, 1 << 30
    stalled = [rng.choice([0, 2, 5]) * 10**8 for _ in range(count)]
    corrupted = [rng.choice([0, 0, 0, 7]) for _ in range(count)]
    database = [rng.choice([1, 2, 4]) * gib for _ in range(count)]
    limited = rng.random() < 0.5
    outcomes = pl.DataFrame(
        {"run_id": [f"r{n}" for n in range(count)], "case_id": ["main/read"] * count, "stalled_ns": stalled,
         "writing_jobs": [1] * count, "measure_start_ns": [0] * count, "measure_end_ns": [10**9] * count,
         "values_checked": [1000] * count, "values_corrupted": corrupted, "memory_limit_bytes": [gib if limited else None] * count,
         "database_bytes": database, "cached_bytes_at_start": [gib // 2] * count, "cached_bytes_at_end": database,
         "database_bytes_at_start": database, "database_bytes_at_end": database,
         "record_bytes": [100 * 4096] * count, "run_device_read_bytes": [rng.choice([100, 900]) * 4096 for _ in range(count)],
         "foreign_read_share": [0.0] * count},
        schema_overrides={"memory_limit_bytes": pl.Int64},
    )  # fmt: skip
    cases = pl.DataFrame({"case_id": ["main/read"], "part": ["main"], "store": ["lmdb"], "database": ["loaded"],
                          "records": [100], "control": [False], "phase": ["readrandom"]})  # fmt: skip
    runs = frame({("main/read", "main", "all", "ops_per_sec"): 1e3})
    found = list(observations.find(cases, runs, outcomes, Support()))
    read = outcomes["run_device_read_bytes"].to_list()
    cached = [each / (1000 * 4096) for each in read if each < 500 * 4096]
    true: dict[str, list[float]] = {
        "write stalls": [sum(each > 0 for each in stalled), count, max(stalled) / 1e9],
        "checked values": [sum(corrupted), 1000 * count],
        "memory pressure": [median(database) / gib, max(gib / 2 / each for each in database)],
        "cached database": [len(cached), count, *cached],
    }
    return [Claim(each, true[each.kind], holds=("All" in each.sentence) == (not sum(corrupted)) or each.kind != "checked values")
            for each in found]  # fmt: skip


def durabilities(rng: Rng) -> Made:
    survives = {"fjall": rng.choice(["process_crash", "power_loss"]), "lmdb": "power_loss", "redb": "process_crash"}
    values = {("ycsb_a", name): 1e4 for name in survives}
    cases, runs = results(["phase", "store"], {"ops_per_sec": repeated(values)}, database="loaded")
    asked = study({"phase": ["ycsb_a"], "store": list(survives)},
                  [{"kind": "peak", "over": "store", "metric": "ops_per_sec", "by": ["phase"]}])  # fmt: skip
    facts = cases.select("case_id", store_kind="store", store_durability=pl.col("store").replace_strict(survives))
    question = Question(study=asked, analysis=asked.analysis[0], cases=cases, runs=runs, outcomes=facts)
    found = difference(question)
    assert isinstance(found, DifferentDurability)
    words = {"process_crash": "crash of the process", "power_loss": "power failure"}
    clauses = {each: re.search(rf"writes of {each} survive a ([a-z ]+?)(?:,| and writes|$)", found.sentence, re.I)
               for each in survives}  # fmt: skip
    right = all(match and match[1] == words[survives[name]] for name, match in clauses.items())
    return [Claim(found, [], holds=right)]


def commits(rng: Rng) -> Made:
    rows = [{"case_id": case, "part": "settings", "acknowledged_commits": 100, "lost_commits": rng.choice([0, 0, 3]),
             "recovery_seconds": 0.5} for case in ("on", "off") for _ in range(3)]  # fmt: skip
    cases = pl.DataFrame({"case_id": ["on", "off"], "part": ["settings"] * 2, "setting": ["commit=on", "commit=off"],
                          "server": ["postgresql"] * 2})  # fmt: skip
    described = load("durability")
    question = Question(study=described, analysis=described.analysis[0], cases=cases, runs=pl.DataFrame(),
                        outcomes=pl.DataFrame(rows))  # fmt: skip
    lost = {case: sum(row["lost_commits"] for row in rows if row["case_id"] == case) for case in ("on", "off")}
    claims = []
    for each in transactions.durability(question):
        named = [case for case in lost if f"commit={case}" in each.sentence]
        claims.append(Claim(each, [sum(lost[case] for case in named), 300 * len(named)], holds=bool(named)))
    return claims


def unknown_media(rng: Rng) -> Made:
    from iosonde.findings.observations.media import UnknownMedia

    return [Claim(UnknownMedia(reasons=("a counter went backwards",), strength="strong"), [])]


def searches(rng: Rng) -> Made:
    passed = sorted(rng.sample(range(1, 20), 5))
    met = [rng.random() < 0.6 for _ in passed]
    reached = rng.random() < 0.7
    probes = [
        Probe(value=1000.0 * value, case_id=f"p{value}",
              runs=[Judged(conditions=[], also_checked=[Judgement(ok)])], verdict="holds" if i < 3 else "fails")
        for i, (value, ok) in enumerate(zip(passed, met, strict=True))
    ]  # fmt: skip
    conclusion = SearchConclusion(
        case_id="main", reached=reached, reason="the conditions are met at every value", over="rate", conditions=["p99 <= 1ms"], rule="",
        also_check=["x > 1"], also_check_rule="the second rule", value=probes[2].value, fails_at=probes[3].value,
        lowest=1000.0, highest=20_000.0, probes=probes,
    )  # fmt: skip
    case = Case(
        case_id="main", part="main", control=False, levels={}, parameters={}, cost=Cost(seconds=1, write_bytes=0)
    )
    hosts = rng.choice([0, 1, 4])
    found = list(search.find([(case, conclusion)], hosts))
    highest = max((probe.value for probe, ok in zip(probes, met, strict=True) if ok), default=None)
    true: dict[str, list[float]] = {
        "boundary": [probes[2].value, probes[3].value, 1e6, hosts],
        "no boundary": [1e6],
        "also met": [sum(met), len(met), highest or 0, hosts],
    }
    assert {each.kind for each in found} == {"boundary" if reached else "no boundary", "also met"}
    return [Claim(each, true[each.kind]) for each in found]


def rate_limits(rng: Rng) -> Made:
    is_found, may_be_burst, counts_bytes = (rng.random() < share for share in (0.6, 0.3, 0.3))
    rate = rng.uniform(2e6, 5e7) if counts_bytes else rng.uniform(50, 50_000)
    burst, bucket, constant_s = rate * rng.uniform(2, 20), rate * rng.uniform(100, 5000), rng.uniform(10, 600)
    weight, after = rng.uniform(0.5, 4), rate * rng.uniform(1.2, 3)
    unit = None if counts_bytes else rng.choice([None, 16 << 10, 256 << 10])
    rule = Rule(
        counts="bytes" if counts_bytes else "operations", operation=rng.choice(["read", "write"]),
        rate=estimated(rng, rate), unit_bytes=unit, constant_s=constant_s, may_be_burst=may_be_burst,
        burst_rate=None if may_be_burst else parameter(Estimate(method="start", value=burst)),
        bucket=None if may_be_burst else estimated(rng, bucket),
    )  # fmt: skip
    decided = rng.random() < 0.5
    identified = Identification(
        verdict="limited" if is_found else "not limited" if decided else "undecided",
        reason="" if is_found else "the rate depends on the queue depth",
        rules=[rule] if is_found else [],
        sharing=rng.choice(["shared", "separate", "unknown"]),
        write_weight=parameter(Estimate(method="rates", value=weight)),
        change=Change(before=rate, after=after, stage="last") if rng.random() < 0.5 else None,
        rejected=["a limit in bytes: 64 KiB blocks complete as many operations"] * rng.randint(0, 1),
        undecided=["a limit of large blocks"] * rng.randint(0, 1),
    )
    added, slower = rng.uniform(1e-4, 1e-2), rng.randint(1, 3)
    delay, device = rng.uniform(1e-4, 1e-1), rng.uniform(1e-5, 1e-4)
    limiter = Limiter(
        style=rng.choice(["batched", "paced", "queued", "undecided"]), reason="a queue depth of 1 does not reach the limit",
        interval_s=(0.9 * delay, delay, 1.1 * delay), device_s=(0.9 * device, device, 1.1 * device), mean_s=delay,
        wait_s=50 * delay, waiting=0.02,
    )  # fmt: skip
    identified = replace(identified, first_touch=first_accesses(rng, added, slower), limiter=limiter)
    case = Case(
        case_id="main", part="main", control=False, levels={}, parameters={}, cost=Cost(seconds=1, write_bytes=0)
    )
    gib, allowed = rng.choice([50, 100, 500]), rate * rng.choice([0.5, 1, 1.01, 3])
    name = "iops" if rule.counts == "operations" else "bps"
    target = {
        "devices": [{"name": "sdb", "size_bytes": gib << 30, "limits": [f"{rule.operation[0]}{name}={round(allowed)}"]}]
    }
    conclusion = LimitsConclusion(
        case_id="main", reached=True, reason="", value=rate, found=identified, stages=(), target=target
    )
    true: dict[str, list[float]] = {
        "sustained limit": [rate, 1.01 * rate, 2, unit or 0, *parts_of(constant_s)],
        "burst credits": [
            burst,
            bucket,
            1.01 * bucket,
            2,
            *parts_of(bucket / (burst - rate)),
            *parts_of(bucket / rate),
        ],
        "shared budget": [weight],
        "changed limit": [rate, after],
        "not limited": [],
        "first-touch penalty": [1e9 * added, 1.1e9 * added, slower, 3],
        "limiter latency": [1e9 * delay, 1e9 * device, 50 * delay * 1e9, 0.02, 1],
        "rejected rules": [64 << 10],
        "control group limit": [round(allowed), rate],
    }
    claims = [Claim(each, true[each.kind]) for each in rate_limit_questions.conclusions([(case, conclusion)])]
    return [*claims, volumes(rng, case), of_published_rule(rng, case)]


def of_published_rule(rng: Rng, case: Case) -> Claim:
    """The rule of gp2, identified."""
    gib = rng.choice([50, 100, 500])
    limit = next(each for each in volume_limits(size_bytes=gib << 30, provider="aws") if each.volume == "gp2")
    assert limit.burst_rate and limit.bucket and limit.burst_seconds
    rate, burst, bucket = (parameter(Estimate(method="drain", value=each))
                           for each in (1.01 * limit.rate, limit.burst_rate, limit.bucket))  # fmt: skip
    rule = Rule(counts="operations", operation="read", rate=rate, burst_rate=burst, bucket=bucket)
    [finding] = compared([rule], {"devices": [{"name": "sdb", "size_bytes": gib << 30}]}, {}, case)
    return Claim(finding, [1.01 * limit.rate, gib << 30, 2, limit.rate, limit.burst_rate, limit.burst_seconds * 1e9])


def volumes(rng: Rng, case: Case) -> Claim:
    """A comparison of volumes."""
    rates = [rng.uniform(100, 50_000) for _ in range(rng.randint(2, 8))]
    share = rng.uniform(0.3, 0.9)
    block_size = 4096 * rng.randint(1, 64)
    together = sum(rates) * share
    verdict = rng.choice(["shared", "separate", "undecided"])
    found = Sharing(
        verdict=verdict, reason="the sum depends on the queue depth" if verdict == "undecided" else "",
        load=Load(block_size=block_size), alone=tuple(estimated(rng, each) for each in rates),
        together=tuple(estimated(rng, each * share) for each in rates), sum=estimated(rng, together),
    )  # fmt: skip
    conclusion = SharingConclusion(case_id="main", reached=True, found=found, stages=("main",))
    [finding] = sharing_findings.conclusions([(case, conclusion)])
    true = {"shared": [block_size, together, together * block_size, *rates], "separate": [block_size, *rates]}
    return Claim(finding, true.get(verdict, [block_size]))


def first_accesses(rng: Rng, added: float, slower: int) -> FirstTouch:
    """First accesses that are slower in some regions by the same latency, or in none."""
    verdict = rng.choice(["penalty", "none", "cache", "undecided"])
    regions = tuple(
        TouchedRegion(offset=0, stride=4096, latencies_s=(0.1, 0.1), added_s=added, low_s=0.9 * added,
                      high_s=1.1 * added, is_slower=place < slower and verdict != "none")
        for place in range(3)
    )  # fmt: skip
    return FirstTouch(verdict=verdict, regions=regions, bound_s=1.1 * added, reason="a read cache")


def credits(rng: Rng) -> Made:
    """Credits of published rules at a load, and bursts that ended."""
    gib = rng.choice([50, 100, 500])
    limit = next(each for each in volume_limits(size_bytes=gib << 30, provider="aws") if each.volume == "gp2")
    rate, after, seconds = rng.uniform(1.1 * limit.rate, 3000), rng.uniform(100, 1000), rng.uniform(5, 5000)
    spending, cases = rng.randint(1, 3), rng.randint(3, 5)
    ids = tuple(f"c{number}" for number in range(spending))
    load = Spending(rate=rate, limit=limit, size_bytes=gib << 30, known_by="model")
    lasting = CreditDuration(words="Reads", spending=load, cases=cases, strength="moderate", case_ids=ids)
    assert limit.bucket
    alone = replace(lasting, cases=1)
    ended = BurstEnd(
        words="Reads", run_id="r1", before=2 * after, after=after, seconds=seconds, runs=1, strength="moderate"
    )
    true = [rate, limit.rate, 2, gib << 30, *parts_of(limit.bucket / (rate - limit.rate))]
    return [
        Claim(lasting, [*true, spending, cases]),
        Claim(alone, true),
        Claim(ended, [2 * after, after, *parts_of(seconds)]),
    ]


def estimated(rng: Rng, value: float) -> Parameter:
    """One estimate, or two that differ by 1 %."""
    others = [Estimate(method="rest", value=1.01 * value)] * rng.randint(0, 1)
    return parameter(Estimate(method="drain", value=value), *others)


def parts_of(seconds: float) -> list[float]:
    """Hours, minutes and seconds of a duration in nanoseconds: text has seconds below an hour, else minutes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, after = divmod(round(round(seconds) / 60), 60)
    return [1e9 * each for each in (minutes * 60, rest, hours * 3600, after * 60, seconds)]


class Judgement:
    """As a search judges a condition."""

    def __init__(self, holds: bool) -> None:
        self.holds, self.text = holds, "made up"


def long_run(case_id: str, values: Sequence[float], cliff: Cliff | None = None) -> LongRun:
    series = np.array(values)
    return LongRun(
        result_set="a", run_id=case_id, case_id=case_id, part="main", repeat=1, tracking="iops", round_s=30.0,
        values=series, iops=series, bandwidth=series * 4096, steady=steady_state(series), cliff=cliff,
        cliff_s=60.0 if cliff else None, cliff_bytes=2 << 30 if cliff else None, written_bytes=1 << 30, range_bytes=1 << 30,
        level=None,
    )  # fmt: skip


def steady_runs(rng: Rng) -> Made:
    level, drop = rng.uniform(1e4, 1e5), rng.choice([0.5, 0.7, 0.97, 1.0])
    rounds, drift = 60, rng.choice([0.0, 0.004, 0.02])
    values = [level if at < 30 else level * drop * (1 - drift * (at - 30) / 29) for at in range(rounds)]
    run = long_run("main", values, Cliff(index=2, before=4e8, after=1e8, settled=True) if rng.random() < 0.5 else None)
    described = study({"queue_depth": [1]}, [])
    cases, _ = results(["queue_depth"], {"iops": {(1,): [1.0]}})
    run_ = LongRun(**{**vars(run), "case_id": cases["case_id"][0]})
    states = iosonde.findings.device_state.DeviceStates({})
    found = list(steady.find_long_runs([run_], cases, described.parts, states))
    lengths = [at * 30e9 for at in range(1, rounds + 1)]
    windows = [sum(values[at : at + 5]) / 5 for at in range(rounds - 4)]
    windows += [sum(values[-last:]) / last for last in (8, 15)]
    shares = [each / max(values) for each in windows]
    numbers = [*windows, *shares, *lengths, *range(rounds + 1)]
    spans = [(max(part) - min(part)) / (sum(part) / 5) for part in (values[at : at + 5] for at in range(rounds - 4))]
    since = run_.steady.since - 1
    half = values[since + (rounds - since) // 2 :]
    fall = (half[0] - half[-1]) / (sum(half[-8:]) / 8)
    bound = re.search(r"drift below (\d+) %", found[0].sentence)
    excluded = int(bound[1]) / 100 if bound else 1.0
    assert (bound is not None) == found[0].sentence.startswith(f"{found[0].load}: steady at")
    true = {"steady run": [*numbers, *spans, excluded], "write cliff": [1, 60e9, 2 << 30, 2, 4e8, 1e8]}
    holds = 0.97 * fall <= excluded <= max(0.01, 1.1 * fall + 0.01)
    return [Claim(each, true[each.kind], holds=each.kind != "steady run" or not bound or holds) for each in found]


def rounds_and_fresh(rng: Rng) -> Made:
    first, lasts, trend = rng.choice([None, 3]), rng.random() < 0.5, rng.choice(["", "falling", "rising"])
    each = steady.SteadyRounds(
        load="4 KiB", metric="iops", achieved=first is not None, state=rng.choice(["steady", "fresh", "unknown"]), rounds=9,
        first=first, last=None if first is None else first + 4, range_share=0.1, slope_share=0.02, variables=1, window=5,
        hold=0, withdrawn=None, strength="strong", lasts=lasts, trend=trend, criterion="SNIA's criterion",
    )  # fmt: skip
    right = ("no steady state" in each.sentence) == (first is None or not lasts)
    right &= (": steady state, SNIA" in each.sentence) == (first is not None and lasts and each.state == "steady")
    right &= (f"still {trend};" in each.sentence) == (first is not None and not lasts and trend != "")
    size, moved = rng.choice([1, 4]) << 30, rng.choice([1, 9]) << 30
    written = Written(capacity_bytes=4 << 30, range_bytes=size, written_bytes=moved)
    fresh = FreshDevice(
        state="fresh",
        written=written,
        cases=3,
        strength="strong",
        part="main",
        case_ids=("a", "b")[: rng.randint(1, 2)],
    )
    numbers = [len(fresh.case_ids), 3, size, moved, 4 << 30, 2]
    return [Claim(each, [4096, 9, *([] if first is None else [first, first + 4])], holds=right), Claim(fresh, numbers)]


def load_changes(rng: Rng) -> Made:
    load_: dict[str, Any] = {"access": "sequential"}
    stages = [
        {"label": "A", "set": load_},
        {"label": "B", "set": {"access": "random"}},
        {"label": "A again", "set": load_},
    ]
    described = Study.model_validate(
        {"name": "by-hand", "title": "By hand", "question": "?", "profiles": {"quick": {}},
         "parts": [{"name": "main", "rounds": {"max_rounds": 0, "stages": stages}}]}
    )  # fmt: skip
    cases = pl.DataFrame({"case_id": ["a", "b", "again"], "stage": ["A", "B", "A again"]})
    once, then, again = (1e5 * rng.choice(FACTORS) for _ in range(3))
    late = rng.choice([0, 2, 4])
    values = {"a": [once] * 12, "b": [then] * 12, "again": [again / 2] * late + [again] * (12 - late)}
    found = list(stimulus.find(described, [long_run(name, each) for name, each in values.items()], cases))
    levels = [once, then, again, again / 2]
    numbers = [*levels, 0.1, *(at * 30e9 for at in range(13)), *(a / b for a in levels for b in levels)]
    claims = []
    for each in found:
        text = each.sentence
        right = not ("improves" in text and again < again / 2)
        if "does not recover" in text:
            right &= max(values["again"]) < 0.9 * once
        claims.append(Claim(each, numbers, holds=right))
    return claims


def interference(rng: Rng) -> Made:
    before, during, after = rng.uniform(1e5, 1e6), rng.uniform(1e5, 1e7), rng.choice([None, 2e9, 8e9])
    run = disturbance.Recovery(before_ns=before, during_ns=during, recovered_after_ns=after)
    found = disturbance.Interference(
        strength="strong", case_ids=("stress",), part="stress", levels={"rate": 500}, disturbing=["writes"], disturbed="reads",
        latency="response_latency", interval_ns=10**9, rest_ns=30 * 10**9, runs=[run] * 3,
    )  # fmt: skip
    right = ("rises" in found.sentence) == (during >= before)
    right &= ("no recovery" in found.sentence) == (after is None)
    return [Claim(found, [before, during, during / before, 500, 30e9 if after is None else after], holds=right)]


def idle(rng: Rng) -> Made:
    """Pauses between bursts, and the load without pauses after them."""
    base = 1000.0
    gains = {pause: rng.choice([0.97, 1.0, 1.05, 1.5, 3.0]) for pause in (1.0, 5.0, 10.0)[: rng.randint(1, 3)]}
    high, low = rng.choice([1.0, 2.0]), rng.choice([0.3, 1.0])
    counts = [int(base * (high if at < 5 else low)) for at in range(20)]
    ns = 10**9
    intervals = pl.DataFrame({"begin_ns": [at * ns for at in range(20)], "end_ns": [(at + 1) * ns for at in range(20)],
                              "count": counts, "bytes": [4096 * each for each in counts]})  # fmt: skip
    recoveries = [
        idle_recovery.IdleRecovery(
            case_id="c", part="main", stage="s", burst_s=1, pause_s=pause, base=base, base_is_steady=False, base_run=("c", 1),
            bursts=np.array([gain * base] * 4), decay=idle_recovery.decay_of("c", intervals, base),
        )
        for pause, gain in gains.items()
    ]  # fmt: skip
    states = iosonde.findings.device_state.DeviceStates({})
    claims = []
    smooth = [sum(counts[at : at + 3]) / 3 / base for at in range(18)]
    rests = [sum(counts[at:]) / (20 - at) / base for at in range(20)]
    for each in idle_recovery.find(recoveries, states):
        assert "steady" not in each.sentence, "the rate before the pauses was not steady"
        if each.kind == "idle gain":
            right = ("no recovery" in each.sentence) == all(abs(gain - 1) <= 0.1 for gain in gains.values())
            numbers = [*gains.values(), *(pause * 1e9 for pause in gains), *gains, 0.1]
        else:
            right = ("from the start" in each.sentence) == (smooth[0] <= 1.1 and rests[0] >= 0.9)
            moved = [4096 * sum(counts[:at]) for at in range(20)]
            numbers = [*(pause * 1e9 for pause in gains), *smooth, *rests, *(at * 1e9 for at in range(21)), *moved, 0.1]
        claims.append(Claim(each, numbers, holds=right))
    return claims


def drops(rng: Rng) -> Made:
    measured = rng.randint(3, 9)
    found = [
        lasting_drop.LastingDrop(result_set="", run_id=f"r{n}", case_id=f"case-{n}", part="main", at_s=float(n + 1),
                                 moved_bytes=(n + 1) << 30, before=4e8, after=4e8 * rng.choice([0.2, 0.5]))
        for n in range(rng.randint(1, 3))
    ]  # fmt: skip
    words = {drop.case_id: f"`{drop.case_id}`" for drop in found}
    [each] = lasting_drop.find(found, measured=measured, words=words)
    deepest = [drop for drop in found if f"`{drop.case_id}`" in each.sentence]
    right = len(deepest) == 1 and deepest[0].after == min(drop.after for drop in found)
    numbers = [
        len(found),
        measured,
        *(value for drop in deepest for value in (drop.fraction, drop.at_s * 1e9, drop.moved_bytes)),
    ]
    return [Claim(each, numbers, holds=right)]


def stragglers(rng: Rng) -> Made:
    """A host that differs from the others."""
    share, p99, others = rng.uniform(0.1, 0.7), rng.choice([None, rng.uniform(2, 9)]), rng.randint(1, 9)
    finding = host_questions.Straggler(
        load="4 KiB random reads", host="north", share=share, p99_ratio=p99, others=others, repeats=3,
        cause=rng.choice(["", "its CPU"]), numbers="", strength="strong",
    )  # fmt: skip
    return [Claim(finding, [4096, share, *([others] if others > 1 else []), *([p99] if p99 else [])])]


MAKERS: Sequence[Callable[[Rng], Made]] = (
    amplification, array_efficiency, backends, cache_gain, cache_tier, commits, credits, device_share, divided, drops, durabilities,
    durable_writes,
    fastest_and_no_differences, fault_overhead, idle, interference, load_changes, log_gain, mapped_reads, memory_extension,
    memory_share, named_values, offered_rates, one_level, osd_cpu, path, published, quality_of_runs, rate_limits, read_cache,
    rounds_and_fresh, searches, outages, server_limit, share_of_peak, software_share, steady_runs, store_outcomes, stores, stragglers, think_time,
    too_few_samples, unknown_media,
)  # fmt: skip
CHANGED = 1.37


def claims_of(make: Callable[[Rng], Made]) -> list[Claim]:
    return [claim for seed in range(SEEDS) for claim in make(Rng(f"{make.__name__}/{seed}"))]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_sentence_is_true_and_no_changed_number_is(make: Callable[[Rng], Made]) -> None:
    claims = claims_of(make)
    assert claims
    accepted = 0
    changed = 0
    for claim in claims:
        sentence = claim.finding.sentence
        assert claim.is_true(), f"{claim.finding.kind}: {sentence} {claim.ratios}"
        text = INTERVAL.sub("", sentence)
        for match in NUMBER.finditer(text):
            number = float(match[1].replace(",", ""))
            other = f"{CHANGED * number + 1.7:.3g}"
            changed += 1
            accepted += claim.is_true(text[: match.start(1)] + other + text[match.end(1) :])
    assert accepted <= changed / 3, f"{accepted} of {changed} false sentences were accepted"


def test_every_kind_of_finding_is_covered() -> None:
    for module in pkgutil.walk_packages(iosonde.findings.__path__, "iosonde.findings."):
        importlib.import_module(module.name)
    kinds, classes = set(), [Finding]
    while classes:
        of = classes.pop().__subclasses__()
        kinds |= {each.kind for each in of if "kind" in vars(each)}  # Others are base classes of several kinds.
        classes += of
    covered = {
        claim.finding.kind for make in MAKERS for seed in range(10) for claim in make(Rng(f"{make.__name__}/{seed}"))
    }
    covered |= {each.kind for each in test_every_sentence.CHECKS}
    assert covered == kinds
