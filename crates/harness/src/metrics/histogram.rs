//! A latency histogram that is cheap enough to record every I/O.
//!
//! The buckets are those of [`iosonde_protocol::Histogram`]: exact below 1024 ns, then 512 to each power of two, so that
//! a bucket's midpoint is within 0.1 % of every value in it. Values from 2^44 ns (4.9 hours) on share the last bucket;
//! the largest value is kept exactly whatever it is.
//!
//! Recording is a bucket number from shifts, one increment and four register operations, without a branch: about 1 ns on
//! a Xeon of the Sapphire Rapids generation (`cargo run --release -p iosonde-harness --example metrics_cost`).
//!
//! The counts are one zeroed allocation of 144 KiB. The kernel maps a page of it when a bucket in the page is first
//! used, so a histogram of latencies between 50 us and 5 ms occupies some 10 pages; even with every page touched, 64 jobs
//! with four histograms each hold 38 MB.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::metrics::memory;

/// Values are distinguished up to 2 to this power, in nanoseconds.
const RANGE_BITS: u32 = 44;
/// Each power of two has 2 to this power buckets.
const SUB_BUCKET_BITS: u32 = 9;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
/// Number of buckets; the last one also holds every value beyond the range.
pub const BUCKETS: usize = ((RANGE_BITS - SUB_BUCKET_BITS + 1) as usize) << SUB_BUCKET_BITS;

/// Counts of latencies in nanoseconds, with exact count, sum, minimum and maximum.
///
/// ```
/// let mut histogram = iosonde_harness::metrics::Histogram::new();
/// for ns in [80_000, 90_000, 2_000_000] {
///     histogram.record(ns);
/// }
/// assert_eq!(histogram.count(), 3);
/// assert_eq!(histogram.max_ns(), 2_000_000);
/// ```
pub struct Histogram {
    counts: Pages,
    count: u64,
    sum_ns: u64,
    /// `u64::MAX` when empty, so that recording needs no special case.
    min_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// An empty histogram. The only allocation of its life.
    pub fn new() -> Self {
        Self {
            counts: Pages::zeroed(),
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one value, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[index_of(ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts one value `times` times, in nanoseconds.
    pub fn record_many(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.counts[index_of(ns)] += times;
        self.count += times;
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(times));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds everything that `other` holds.
    pub fn merge(&mut self, other: &Self) {
        for index in other.occupied() {
            self.counts[index] += other.counts[index];
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets everything; only the range of buckets in use is written.
    pub fn clear(&mut self) {
        let occupied = self.occupied();
        self.counts[occupied].fill(0);
        self.count = 0;
        self.sum_ns = 0;
        self.min_ns = u64::MAX;
        self.max_ns = 0;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sum of the values in nanoseconds; it stays at `u64::MAX` (584 years) rather than wrap.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Smallest value in nanoseconds, exact; 0 if empty.
    pub fn min_ns(&self) -> u64 {
        if self.is_empty() { 0 } else { self.min_ns }
    }

    /// Largest value in nanoseconds, exact; 0 if empty.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The histogram as it is reported.
    pub fn to_protocol(&self) -> iosonde_protocol::Histogram {
        iosonde_protocol::Histogram {
            count: self.count,
            sum_ns: self.sum_ns,
            min_ns: self.min_ns(),
            max_ns: self.max_ns,
            buckets: self.buckets().collect(),
        }
    }

    /// Occupied buckets in ascending order, as (bucket, count).
    fn buckets(&self) -> impl Iterator<Item = (u32, u64)> {
        self.occupied()
            .map(|index| (index as u32, self.counts[index]))
            .filter(|&(_, count)| count > 0)
    }

    /// From the first to the last bucket in use, derived from the extremes.
    fn occupied(&self) -> std::ops::Range<usize> {
        if self.is_empty() {
            return 0..0;
        }
        index_of(self.min_ns)..index_of(self.max_ns) + 1
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_protocol().fmt(formatter)
    }
}

/// Number of the bucket that holds a value of `ns` nanoseconds.
#[inline]
pub fn bucket_of(ns: u64) -> u32 {
    index_of(ns) as u32
}

/// Smallest value of a bucket, in nanoseconds.
pub fn bucket_lower(bucket: u32) -> u64 {
    let (shift, kept) = shift_and_kept(bucket);
    kept << shift
}

/// Middle of a bucket, in nanoseconds: the value that represents it.
pub fn bucket_midpoint(bucket: u32) -> u64 {
    let (shift, _) = shift_and_kept(bucket);
    bucket_lower(bucket) + ((1 << shift) >> 1)
}

/// A value keeps its ten leading bits; how far it is shifted for that and what is kept make the bucket's number, without
/// a branch. The final `min` both clamps to the range and proves the index to the compiler.
#[inline]
fn index_of(ns: u64) -> usize {
    let shift = (ns | SUB_BUCKETS).ilog2() - SUB_BUCKET_BITS;
    let index = ((shift as usize) << SUB_BUCKET_BITS) + (ns >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// The inverse: how far values of the bucket were shifted, and what was kept of them.
fn shift_and_kept(bucket: u32) -> (u32, u64) {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    (shift, u64::from(bucket - (shift << SUB_BUCKET_BITS)))
}

/// The counts of a histogram, zero at first: memory straight from the kernel, where a page takes room once a latency is counted in
/// it. An allocator promises zeros, but once it has memory to reuse (after a store has loaded a database, say) it writes them, and
/// then each of a job's histograms would take all of its 144 KiB, used or not.
struct Pages(MmapMut);

impl Pages {
    /// Maps them.
    ///
    /// Without 144 KiB of address space the program ends, see [`memory::exhausted`].
    fn zeroed() -> Pages {
        let bytes = size_of::<[u64; BUCKETS]>();
        match MmapMut::map_anon(bytes) {
            Ok(mapping) => Pages(mapping),
            Err(_) => memory::exhausted(bytes),
        }
    }
}

impl Deref for Pages {
    type Target = [u64; BUCKETS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping has this size, starts on a page, is zeroed by the kernel, and lives as long as this value.
        unsafe { &*self.0.as_ptr().cast() }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above; this value is borrowed mutably, so there is no other reference to the memory.
        unsafe { &mut *self.0.as_mut_ptr().cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any magnitude from 1 ns to 4.9 hours is as likely as any other.
    fn latency_ns() -> impl Strategy<Value = u64> {
        (0.0..f64::from(RANGE_BITS)).prop_map(|power| power.exp2() as u64)
    }

    fn latencies_ns() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(latency_ns(), 0..300)
    }

    fn histogram_of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&ns| histogram.record(ns));
        histogram
    }

    /// The value that a fraction of the values does not exceed, by nearest rank: the midpoint of its bucket within the extremes.
    fn value_at(histogram: &Histogram, quantile: f64) -> u64 {
        let rank = ((quantile * histogram.count() as f64).ceil() as u64).max(1);
        let mut buckets = histogram.buckets().scan(0, |seen, (bucket, count)| {
            *seen += count;
            Some((bucket, *seen))
        });
        let (bucket, _) = buckets.find(|(_, seen)| *seen >= rank).unwrap();
        bucket_midpoint(bucket).clamp(histogram.min_ns(), histogram.max_ns())
    }

    fn merged(parts: &[&Histogram]) -> iosonde_protocol::Histogram {
        let mut all = Histogram::new();
        parts.iter().for_each(|part| all.merge(part));
        all.to_protocol()
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_a_thousandth_of_the_sorted_data(
            values in prop::collection::vec(latency_ns(), 1..300),
            quantile in 0.0..=1.0_f64,
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((quantile * sorted.len() as f64).ceil() as usize).max(1);
            let (exact, found) = (sorted[rank - 1] as f64, value_at(&histogram_of(&values), quantile) as f64);
            prop_assert!((found - exact).abs() <= exact * 0.001, "exact {exact}, found {found}");
        }

        #[test]
        fn a_bucket_is_numbered_as_the_protocol_says(ns in 1024..1_u64 << RANGE_BITS) {
            let octave = ns.ilog2() - 10;
            let step = (ns >> (octave + 1)) as u32 - 512;
            let bucket = bucket_of(ns);
            prop_assert_eq!(bucket, 1024 + 512 * octave + step);
            prop_assert_eq!(bucket_lower(bucket), u64::from(512 + step) << (octave + 1));
        }

        #[test]
        fn count_sum_and_extremes_are_exact(values in latencies_ns()) {
            let histogram = histogram_of(&values);
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum_ns(), values.iter().sum::<u64>());
            prop_assert_eq!(histogram.min_ns(), values.iter().copied().min().unwrap_or(0));
            prop_assert_eq!(histogram.max_ns(), values.iter().copied().max().unwrap_or(0));
            let in_buckets: u64 = histogram.to_protocol().buckets.iter().map(|&(_, count)| count).sum();
            prop_assert_eq!(in_buckets, histogram.count());
        }

        #[test]
        fn histograms_merge_in_any_order_to_that_of_all_values(
            a in latencies_ns(), b in latencies_ns(), c in latencies_ns(),
        ) {
            let all = histogram_of(&[a.clone(), b.clone(), c.clone()].concat()).to_protocol();
            let (a, b, c) = (histogram_of(&a), histogram_of(&b), histogram_of(&c));
            prop_assert_eq!(&merged(&[&a, &b, &c]), &all);
            prop_assert_eq!(&merged(&[&c, &b, &a]), &all);
            let mut later = Histogram::new();
            later.merge(&b);
            later.merge(&c);
            prop_assert_eq!(&merged(&[&a, &later]), &all);
        }

        #[test]
        fn a_value_counted_many_times_is_as_if_counted_one_by_one(ns in latency_ns(), times in 0..100_u64) {
            let mut at_once = Histogram::new();
            at_once.record_many(ns, times);
            prop_assert_eq!(at_once.to_protocol(), histogram_of(&vec![ns; times as usize]).to_protocol());
        }

        #[test]
        fn clearing_leaves_nothing(before in latencies_ns(), after in latencies_ns()) {
            let mut histogram = histogram_of(&before);
            histogram.clear();
            prop_assert!(histogram.is_empty());
            prop_assert!(histogram.counts.iter().all(|&count| count == 0));
            after.iter().for_each(|&ns| histogram.record(ns));
            prop_assert_eq!(histogram.to_protocol(), histogram_of(&after).to_protocol());
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap_and_are_exact_below_1024_ns() {
        assert_eq!(bucket_lower(BUCKETS as u32 - 1), (1 << 44) - (1 << 34));
        for bucket in 1..BUCKETS as u32 {
            let lower = bucket_lower(bucket);
            assert_eq!(bucket_of(lower), bucket);
            assert_eq!(bucket_of(lower - 1), bucket - 1);
            assert_eq!(bucket_of(bucket_midpoint(bucket)), bucket);
        }
        for ns in 0..1024 {
            assert_eq!(u64::from(bucket_of(ns)), ns);
            assert_eq!(bucket_midpoint(bucket_of(ns)), ns);
        }
    }

    #[test]
    fn extremes_are_exact_also_beyond_the_range() {
        let histogram = histogram_of(&[1_000_001, 5_000_003, 9_000_007]);
        assert_eq!([histogram.min_ns(), histogram.max_ns()], [1_000_001, 9_000_007]);
        assert_eq!([Histogram::new().min_ns(), Histogram::new().max_ns()], [0, 0]);
        let histogram = histogram_of(&[1 << RANGE_BITS, 1 << 50, u64::MAX]);
        assert_eq!(histogram.to_protocol().buckets, [(BUCKETS as u32 - 1, 3)]);
        assert_eq!(histogram.max_ns(), u64::MAX);
        assert_eq!(histogram.sum_ns(), u64::MAX, "the sum stays at its limit");
    }
}
