//! Many histograms must cost no more memory than their occupied buckets; alone in this process, so that it can be seen.

use iosonde_harness::metrics::{BUCKETS, Histogram, usage};

#[test]
fn untouched_buckets_are_not_resident() {
    let before_bytes = usage::peak_memory_bytes();
    let mut histograms: Vec<Histogram> = (0..512).map(|_| Histogram::new()).collect();
    for histogram in &mut histograms {
        (50_000..5_000_000).step_by(10_000).for_each(|ns| histogram.record(ns));
    }
    let resident_bytes = usage::peak_memory_bytes() - before_bytes;
    let whole_bytes = (histograms.len() * BUCKETS * size_of::<u64>()) as u64;
    assert!(resident_bytes < whole_bytes / 2, "{resident_bytes} {whole_bytes}");
}
