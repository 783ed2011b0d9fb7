"""Added cost per I/O of open loop and of verification, in paired, interleaved engine runs on one pinned core.

    python bench/added_cost.py [--pairs 7] [--seconds 2] [--cpu 1] [--directory DIR]

- A schedule: random 4 KiB reads from the page cache at a rate far beyond what can be done, so that every I/O is due and
  none is waited for, against the same in closed loop. The difference is the cost of the schedule: the next instant
  drawn, the backlog kept, a second latency recorded.
- Verification `during`: the same reads, each checked as it completes, against the same file unchecked.

The difference of the CPU time for each I/O is taken within each pair: for verification of all of it, for schedules of
user time, because the kernel does the same for both and its copying varies by more than a schedule costs. A file of
1 GiB is written to DIR. Prints a Markdown table (docs/performance.md holds it).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from shared import (
    block_spec,
    difference_of,
    interleaved,
    measured,
    medians,
    options,
    provenance,
    random_reads,
    run_engine,
    shown,
    table,
)

FILE_BYTES = 1 << 30
RATE_BEYOND = 10_000_000
"""I/Os per second: the highest that may be asked for, and many times what one core reads."""
HEAD = ("what", "limit (ns)", "CPU per I/O that it adds (ns)", "with", "without")


def main() -> None:
    given = options(__doc__, pairs=7, seconds=2.0, cpu=1, directory=Path())
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        target = {"kind": "file", "path": str(Path(scratch) / "data"), "size_bytes": FILE_BYTES}
        reads = random_reads(FILE_BYTES, queue_depth=32, io_mode="buffered")
        plain = block_spec(target, reads, seconds=given.seconds)
        # Verification first, so that the file is laid out with seals, which the others do not look at.
        verified = block_spec(target, reads, seconds=given.seconds, verify={"when": "during"})
        comparisons = [("verification `during`", 600, "cpu_ns_each", verified)]
        for kind in ("constant", "poisson"):
            due = block_spec(target, reads | {"arrival": {"kind": kind, "rate": RATE_BEYOND}}, seconds=given.seconds)
            comparisons.append((f"schedule, {kind}", 40, "user_ns_each", due))
        print(provenance(f"{given.pairs} pairs of {given.seconds:g} s"))
        rows = []
        for what, limit_ns, name, spec in comparisons:
            pairs = interleaved(
                lambda spec=spec: measured(run_engine(spec, cpu=given.cpu)[-1]),  # type: ignore[misc]
                lambda: measured(run_engine(plain, cpu=given.cpu)[-1]),
                pairs=given.pairs,
                title=what,
            )
            value = lambda run, name=name: getattr(run, name)  # noqa: E731
            added = difference_of(pairs, value)
            rows.append([what, str(limit_ns), shown(added), *(f"{each:.1f}" for each in medians(pairs, value))])
        print(f"\n{table(HEAD, rows)}")


if __name__ == "__main__":
    main()
