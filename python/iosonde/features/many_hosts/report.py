"""Tables of several hosts: the share of each, and how evenly they shared, for every case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from iosonde.features.many_hosts.record import Hosts, HostShare, jain_index
from iosonde.metrics.verdict.verdict import of_repeats
from iosonde.report.material import Material, Source
from iosonde.report.table import LIMITED_BY, VERDICT, Cell, Table
from iosonde.study.workload import described
from iosonde.units import format_bandwidth, format_count, format_latency

_OF_HOSTS = "Medians of the repeats. Share: of the operations of all hosts. CPU: of one core, of the engine's process."
_OF_FAIRNESS = (
    "Jain's index (Jain, Chiu, Hawe 1984) is 1 if all hosts complete the same number of operations, and 1 / hosts if "
    "one completes all; median of the repeats. Start skew: from the start of the first host to that of the last job, "
    "the largest of the repeats, ± its largest error."
)


def tables(material: Material) -> list[Table]:
    """Return both tables for each result set of several hosts."""
    of_source = " of {}" if len(material.sources) > 1 else ""
    return [table for source in material.sources for table in _tables(source, of_source.format(source.label))]


def _tables(source: Source, of: str) -> Iterator[Table]:
    cases: dict[str, list[Hosts]] = {case.case_id: [] for case in source.cases}
    for record in source.records:
        if record.case_id in cases and (part := record.of(Hosts)):
            cases[record.case_id].append(part)
    cases = {case_id: parts for case_id, parts in cases.items() if parts}
    if not cases:
        return
    is_block = all(described(spec["workload"]).io == "blocks" for spec in source.specs_by_case.values())
    rate = "IOPS" if is_block else "operations/s"
    yield Table(
        title=f"Hosts{of}",
        caption=_OF_HOSTS,
        heads=["Case", "Host", rate[0].upper() + rate[1:], "Bandwidth", "p99 latency", "CPU", "Share", VERDICT],
        labels=2,
        rows=[row for case_id, parts in cases.items() for row in _host_rows(case_id, parts)],
        keys=[f"{source.label}\n{case_id}" for case_id, parts in cases.items() for _ in _names(parts)],
    )
    yield Table(
        title=f"Fairness between hosts{of}",
        caption=_OF_FAIRNESS,
        heads=["Case", "Hosts", f"Lowest {rate}", f"Highest {rate}", "Jain's index", "Start skew"],
        labels=1,
        rows=[_fairness_row(case_id, parts) for case_id, parts in cases.items()],
        keys=[f"{source.label}\n{case_id}" for case_id in cases],
    )


def _names(parts: Sequence[Hosts]) -> list[str]:
    """Return the hosts of any repeat: one that was lost is in those before."""
    return sorted({share.host for part in parts for share in part.shares}, key=lambda name: (len(name), name))


def _host_rows(case_id: str, parts: Sequence[Hosts]) -> Iterator[list[Cell]]:
    for host in _names(parts):
        shares = [(part, share) for part in parts for share in part.shares if share.host == host]
        p99 = [share.completion_latency_ns_p99 for _, share in shares]
        iops = median(_rate(share, part) for part, share in shares)
        bandwidth = median(1e9 * share.bytes / part.window_ns for part, share in shares)
        cpu = median(share.cpu_ns / part.window_ns for part, share in shares)
        whole = median(share.count / max(1, sum(each.count for each in part.shares)) for part, share in shares)
        kind = of_repeats([share.verdict for _, share in shares if share.verdict])
        known = [each for each in p99 if each is not None]
        latency = median(known) if len(known) == len(p99) else None
        yield [
            Cell(text=case_id),
            Cell(text=host),
            Cell(text=format_count(iops), number=iops),
            Cell(text=format_bandwidth(bandwidth), number=bandwidth),
            Cell(text=format_latency(latency) if latency is not None else "-", number=latency),
            Cell(text=f"{100 * cpu:.0f} %", number=cpu),
            Cell(text=f"{100 * whole:.1f} %", number=whole),
            Cell(text=LIMITED_BY[kind] if kind else "-"),
        ]


def _fairness_row(case_id: str, parts: Sequence[Hosts]) -> list[Cell]:
    rates = [[_rate(share, part) for share in part.shares] for part in parts]
    indices = [index for each in rates if (index := jain_index(each)) is not None]
    lowest, highest = median(map(min, rates)), median(map(max, rates))
    counts = sorted({len(part.shares) for part in parts})
    skew, bound = max((part.skew_ns, part.skew_bound_ns) for part in parts)
    return [
        Cell(text=case_id),
        Cell(text=" or ".join(map(str, counts)), number=counts[-1]),
        Cell(text=format_count(lowest), number=lowest),
        Cell(text=format_count(highest), number=highest),
        Cell(text=f"{median(indices):.3f}" if indices else "-", number=median(indices) if indices else None),
        Cell(text=format_latency(skew) + (f" ± {format_latency(bound)}" if bound else ""), number=skew),
    ]


def _rate(share: HostShare, part: Hosts) -> float:
    return 1e9 * share.count / part.window_ns


TABLES = (tables,)
"""Tables of the report."""
