//! Statistics of a running RocksDB: properties, and the counters of its `Statistics`.

use std::collections::BTreeMap;

/// Numeric properties that are cheap to query.
pub(crate) const PROPERTIES: [&str; 20] = [
    "rocksdb.actual-delayed-write-rate",
    "rocksdb.background-errors",
    "rocksdb.block-cache-capacity",
    "rocksdb.block-cache-usage",
    "rocksdb.compaction-pending",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.estimate-live-data-size",
    "rocksdb.estimate-num-keys",
    "rocksdb.estimate-pending-compaction-bytes",
    "rocksdb.estimate-table-readers-mem",
    "rocksdb.is-write-stopped",
    "rocksdb.live-sst-files-size",
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-immutable-mem-table",
    "rocksdb.num-live-versions",
    "rocksdb.num-running-compactions",
    "rocksdb.num-running-flushes",
    "rocksdb.size-all-mem-tables",
    "rocksdb.total-sst-files-size",
    "rocksdb.num-snapshots",
];

/// Properties that show running background work.
pub(crate) const WORK: [&str; 4] = [
    "rocksdb.num-running-compactions",
    "rocksdb.num-running-flushes",
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-immutable-mem-table",
];

/// Pending background work, unless compactions are not automatic.
pub(crate) const COMPACTION_PENDING: &str = "rocksdb.compaction-pending";

/// Levels whose number of files is reported.
pub(crate) const LEVELS: u32 = 7;

/// Counters of the persistent read cache, recorded only with one.
pub(crate) const READ_CACHE: [&str; 2] = ["rocksdb.persistent.cache.hit", "rocksdb.persistent.cache.miss"];

/// Counters that are recorded in every interval.
const COUNTERS: [&str; 32] = [
    READ_CACHE[0],
    READ_CACHE[1],
    "rocksdb.block.cache.hit",
    "rocksdb.block.cache.miss",
    "rocksdb.block.cache.add",
    "rocksdb.block.cache.data.hit",
    "rocksdb.block.cache.data.miss",
    "rocksdb.block.cache.index.hit",
    "rocksdb.block.cache.index.miss",
    "rocksdb.block.cache.filter.hit",
    "rocksdb.block.cache.filter.miss",
    "rocksdb.block.cache.bytes.read",
    "rocksdb.block.cache.bytes.write",
    "rocksdb.bloom.filter.useful",
    "rocksdb.memtable.hit",
    "rocksdb.memtable.miss",
    "rocksdb.l0.hit",
    "rocksdb.l1.hit",
    "rocksdb.l2andup.hit",
    "rocksdb.number.keys.written",
    "rocksdb.number.keys.read",
    "rocksdb.bytes.written",
    "rocksdb.bytes.read",
    "rocksdb.stall.micros",
    "rocksdb.wal.synced",
    "rocksdb.wal.bytes",
    "rocksdb.flush.write.bytes",
    "rocksdb.compact.read.bytes",
    "rocksdb.compact.write.bytes",
    "rocksdb.compaction.cancelled",
    "rocksdb.number.superversion_acquires",
    "rocksdb.no.file.errors",
];

/// The counters in the text of RocksDB's `Statistics::ToString`: lines of `NAME COUNT : NUMBER`.
pub(crate) fn counters(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, number) = line.split_once(" COUNT : ")?;
            let number = number.trim().parse().ok()?;
            COUNTERS.contains(&name).then(|| (name.to_owned(), number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_histograms_left_out() {
        let text = "rocksdb.block.cache.miss COUNT : 17\nrocksdb.stall.micros COUNT : 0\n\
                    rocksdb.db.get.micros P50 : 1.5 P95 : 2 COUNT : 9 SUM : 3\nrocksdb.other COUNT : 5\n";
        let expected = [("block.cache.miss", 17), ("stall.micros", 0)];
        let expected = expected.map(|(name, count)| (format!("rocksdb.{name}"), count));
        assert_eq!(counters(text), BTreeMap::from(expected));
    }
}
