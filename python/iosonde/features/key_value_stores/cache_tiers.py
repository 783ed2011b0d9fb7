"""Gain of a cache tier: memcached's extstore and RocksDB's persistent read cache, with the hit ratios behind it."""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.findings.finding import Finding
from iosonde.findings.kinds import BOTTOM, TOP, Ratio, compared
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording


class CacheTier(Ratio, kind="cache tier", topic="stores", place=1):
    """Gets per second with two arrangements of a cache's tiers."""

    bottom_hit_ratio: float | None
    top_hit_ratio: float | None
    from_extstore: float | None
    """Share of the gets that extstore served at the top level; None without extstore."""
    device_read_bytes: float | None
    device_write_bytes: float | None
    """Per get, at the top level; None without any."""

    def _details(self) -> str:
        top, bottom = (wording.percent_text(each or 0) for each in (self.top_hit_ratio, self.bottom_hit_ratio))
        served = f", {wording.percent_text(self.from_extstore)} of gets from extstore" if self.from_extstore else ""
        return f"; the hit ratio is {top} instead of {bottom}{served}"

    def _evidence(self) -> str:
        read, written = (
            wording.value_text("device_read_bytes_per_get", each or 0)
            for each in (self.device_read_bytes, self.device_write_bytes)
        )
        return f"{super()._evidence()}; {read} read from and {written} written to the device per get"


class ReadCacheGain(Ratio, kind="read cache", topic="stores"):
    """Throughput with one size of the read cache over that with another, or without."""

    block_cache_hit_ratio: float | None
    read_cache_hit_ratio: float | None
    """At the top level; None where RocksDB did not count."""

    def _details(self) -> str:
        if self.block_cache_hit_ratio is None:
            return ""
        memory = f"; {wording.percent_text(self.block_cache_hit_ratio)} of blocks found in memory"
        if self.read_cache_hit_ratio is None:
            return memory
        return f"{memory}, {wording.percent_text(self.read_cache_hit_ratio)} of the others in the read cache"


def cache_tiers(question: Question) -> Iterator[Finding]:
    return compared(
        question,
        CacheTier,
        bottom_hit_ratio=("cache_hit_ratio", BOTTOM),
        top_hit_ratio=("cache_hit_ratio", TOP),
        from_extstore=("extstore_hit_ratio", TOP),
        device_read_bytes=("device_read_bytes_per_get", TOP),
        device_write_bytes=("device_write_bytes_per_get", TOP),
    )


def read_cache(question: Question) -> Iterator[Finding]:
    hit_ratios = {name: (name, TOP) for name in ("block_cache_hit_ratio", "read_cache_hit_ratio")}
    return compared(question, ReadCacheGain, **hit_ratios)


KINDS = (
    QuestionKind("cache_tiers", cache_tiers, compares_levels=True),
    QuestionKind("read_cache", read_cache, compares_levels=True),
)
