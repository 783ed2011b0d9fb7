"""Columns of `runs` about the block cache under a run."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS: Mapping[str, str] = {
    "block_cache_reads": "reads of the cached device in the measurement: bytes with bcache, else operations",
    "block_cache_read_hits": "of these, reads that the cache served",
    "block_cache_device_bytes": "bytes that the cache device read and wrote in the measurement",
    "block_cache_backing_read_bytes": "bytes read from the backing device in the measurement",
    "block_cache_written_back_bytes": "bytes written to the backing device in the measurement, in writeback mode",
    "block_cache_bypassed_bytes": "bytes that bypassed the cache over the run, ramp included",
    "block_cache_counted_hits": "read hits that the driver counted over the run, ramp included",
    "block_cache_counted_misses": "read misses that the driver counted over the run, ramp included",
    "block_cache_dirty_bytes_start": "dirty bytes in the cache at the start of the measurement",
    "block_cache_dirty_bytes_end": "dirty bytes in the cache at the end of the measurement",
}
"""Whole numbers; null without a block cache, or where its driver does not count them."""

MEANS: Mapping[str, str] = {
    "block_cache_dirty_bytes_mean": "mean of dirty bytes in the cache over the intervals of the measurement",
    "block_cache_congested_share": "share of intervals in which bcache treated its cache device as congested",
}
