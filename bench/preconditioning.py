"""Compare a simulated drive after one pass of aging with one in the steady state of endless random writes.

    python bench/preconditioning.py [--capacity 4GiB] [--models pm963,pm1725a,sz985,iodrive] [--output FILE.json]

Each drive is preconditioned three ways, and then written at random (4 KiB, 128 in flight) for one capacity:

- `sequential`: twice over in order, as SNIA's workload-independent preconditioning does;
- `sequential + random`: the same, and then four capacities of the random writes themselves, which is the state sought;
- `one pass`: aging, by the spare capacity of the drive; and with half and twice of it, as for drives on which it is
  guessed.

For each the table has what preconditioning wrote and how long it took (on the drive's own clock), and of the writes
after it the write amplification, IOPS and mean latency in the first tenth and over all. Prints a Markdown table
(docs/sustained.md holds it).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.units import compact_size, parse_size

STUDY = """
name = "preconditioning"
title = "Preconditioning"
question = "Which state does it leave?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
queue_depth = 32
jobs = 4
span = "100%"
purge = "format"
ramp = 0
duration = "none"
limit_bytes = "{capacity}"
interval = "100ms"

[[parts]]
name = "main"

[parts.rounds]
max_rounds = 0
stages = [
  {{ label = "settling", set = {{ limit_bytes = "{settling}" }} }},
  {{ label = "measured", set = {{}} }},
]

[profiles.quick]
"""

HEAD = (
    *("drive", "preconditioning", "written", "time (s)", "amplification, first tenth", "amplification"),
    *("IOPS, first tenth", "IOPS", "mean latency (us)"),
)


@dataclass(frozen=True)
class Way:
    """One way to precondition."""

    name: str
    settings: dict[str, str]
    settles: bool = False
    """True if it includes the random writes themselves."""


@dataclass(frozen=True)
class Found:
    """Result of one method on one drive."""

    drive: str
    way: str
    written_bytes: int
    seconds: float
    first_amplification: float
    amplification: float
    first_iops: float
    iops: float
    mean_latency_us: float


def main() -> None:
    """Measure, print, and keep."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--capacity", default="4GiB")
    asked.add_argument("--models", default="pm963,pm1725a,sz985,iodrive")
    asked.add_argument("--output", type=Path)
    given = asked.parse_args()
    found = [each for model in given.models.split(",") for each in compare(model, parse_size(given.capacity))]
    print(table(found))
    if given.output:
        given.output.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


def compare(model: str, capacity: int) -> list[Found]:
    """Every way on one drive."""
    drive = f"sim:{model},capacity={capacity}"
    backend = open_target(drive).backend() or {}
    spare = backend["model"]["translation"]["over_provisioning"]
    return [measured(drive, way, capacity) for way in ways(spare)]


def ways(spare: float) -> list[Way]:
    """The ways that are compared, for a drive with that spare capacity."""
    aging = {"precondition": "4KiB", "precondition_access": "aging"}
    return [
        Way("sequential", {"precondition": "128KiB"}),
        Way("sequential + random", {"precondition": "128KiB"}, settles=True),
        Way("one pass", aging),
        *(
            Way(f"one pass, {words} the spare capacity", {**aging, "over_provisioning": f"{spare * factor:g}"})
            for words, factor in (("half", 0.5), ("twice", 2.0))
        ),
    ]


def measured(drive: str, way: Way, capacity: int) -> Found:
    """Carry one way out on a new drive."""
    text = STUDY.format(settling=4 * capacity, capacity=capacity)
    settings = {**way.settings, **({} if way.settles else {"stage": "measured"})}
    with tempfile.TemporaryDirectory() as directory:
        plan = expand(parse(text), open_target(drive), profile="quick", settings=settings)
        results = execute(plan, Path(directory) / "set")
        failed = next((f"{record.run_id}: {record.failure}" for record in results.records() if record.failure), "")
        if failed:
            raise SystemExit(f"{drive}, {way.name}: {failed}")
        names = {record.levels.get("stage") or record.levels["step"]: record.run_id for record in results.records()}
        return _found(drive.partition(",")[0], way, results, names)


def _found(drive: str, way: Way, results: ResultSet, names: dict[str, str]) -> Found:
    before = [_totals(results, names[name]) for name in ("precondition", "settling") if name in names]
    after = _totals(results, names["measured"])
    first = _totals(results, names["measured"], share=0.1)
    return Found(
        drive=drive,
        way=way.name,
        written_bytes=sum(each.written for each in before),
        seconds=sum(each.seconds for each in before),
        first_amplification=first.programmed / first.written,
        amplification=after.programmed / after.written,
        first_iops=first.writes / first.seconds,
        iops=after.writes / after.seconds,
        mean_latency_us=after.latency_ns / after.writes / 1000,
    )


@dataclass(frozen=True)
class Totals:
    """Sums over the first intervals of a run."""

    seconds: float
    written: int
    programmed: int
    writes: int
    latency_ns: int


def _totals(results: ResultSet, run_id: str, *, share: float = 1.0) -> Totals:
    of_run = (pl.col("run_id") == run_id, pl.col("phase") == "measure")
    usage = results.usage.filter(*of_run, pl.col("device") != "process").sort("begin_ns")
    usage = usage.head(max(1, round(share * usage.height)))
    loads = results.intervals.filter(*of_run, pl.col("begin_ns") < usage["end_ns"].max())
    return Totals(
        seconds=(usage["end_ns"].max() - usage["begin_ns"].min()) / 1e9,  # type: ignore[operator]
        written=int(usage["write_bytes"].sum()),
        programmed=int(usage["media_write_bytes"].sum()),
        writes=int(loads["count"].sum()),
        latency_ns=int(loads["completion_latency_ns_sum"].sum()),
    )


def table(found: list[Found]) -> str:
    """As Markdown."""
    rows = [
        (
            *(each.drive, each.way, compact_size(round(each.written_bytes / (1 << 20)) << 20), f"{each.seconds:.1f}"),
            *(f"{each.first_amplification:.2f}", f"{each.amplification:.2f}"),
            *(f"{each.first_iops:,.0f}", f"{each.iops:,.0f}", f"{each.mean_latency_us:,.0f}"),
        )
        for each in found
    ]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
