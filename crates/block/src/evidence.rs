//! Facts about reads that reach no device: pages in memory, extents that were never written.
//!
//! The target is examined before the first I/O and after the last, never between. What the kernel does not report is left
//! out: evidence never fails a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use iosonde_harness::residency::{self, Residency};
use iosonde_harness::target::{OFlags, Targets};
use iosonde_protocol::{BlockWorkload, Evidence, ExtentEvidence, PageCacheEvidence, Stream, Target};

use crate::{extents, target};

/// The target at one moment.
#[derive(Default)]
pub(crate) struct TargetState {
    page_cache: Option<(u64, Residency)>,
    extents: Option<ExtentEvidence>,
}

/// Examines the target.
pub(crate) fn examine(targets: &Targets, workload: &BlockWorkload) -> TargetState {
    if !target::is_opened(workload) {
        return TargetState::default();
    }
    TargetState {
        page_cache: page_cache(targets, workload),
        extents: extents_under_reads(targets, workload),
    }
}

/// Adds the state of the target before and after the run to what is known of the machine.
pub(crate) fn add(evidence: &mut Evidence, before: &TargetState, after: &TargetState) {
    evidence.page_cache = before.page_cache.zip(after.page_cache).map(pages);
    evidence.extents_before = before.extents;
    evidence.extents_after = after.extents;
}

fn pages(((addressed_bytes, before), (_, after)): ((u64, Residency), (u64, Residency))) -> PageCacheEvidence {
    let source = if after.dirty_bytes.is_some() {
        "cachestat"
    } else {
        "mincore"
    };
    PageCacheEvidence {
        source: source.into(),
        addressed_bytes,
        before_bytes: before.cached_bytes,
        after_bytes: after.cached_bytes,
        dirty_after_bytes: after.dirty_bytes,
    }
}

fn page_cache(targets: &Targets, workload: &BlockWorkload) -> Option<(u64, Residency)> {
    let mut sum: Option<(u64, Residency)> = None;
    for (path, ranges) in addressed(workload, |_| true) {
        let file = targets.open(&path, OFlags::RDONLY).ok()?;
        for range in ranges {
            let found = residency::query(&file, &range).ok()?;
            let (bytes, total) = sum.get_or_insert((
                0,
                Residency {
                    cached_bytes: 0,
                    dirty_bytes: found.dirty_bytes.map(|_| 0),
                },
            ));
            *bytes += range.end - range.start;
            total.cached_bytes += found.cached_bytes;
            total.dirty_bytes = total.dirty_bytes.zip(found.dirty_bytes).map(|(a, b)| a + b);
        }
    }
    sum
}

fn extents_under_reads(targets: &Targets, workload: &BlockWorkload) -> Option<ExtentEvidence> {
    if matches!(workload.target, Target::Device { .. }) {
        return None;
    }
    let mut sum: Option<ExtentEvidence> = None;
    for (path, ranges) in addressed(workload, |stream| stream.mix.read_fraction > 0.0) {
        let file = targets.open(&path, OFlags::RDONLY).ok()?;
        let found = extents::examine(&file, &ranges).ok()??;
        let sum = sum.get_or_insert_with(ExtentEvidence::default);
        sum.addressed_bytes += found.addressed_bytes;
        sum.extents += found.extents;
        sum.missing_bytes += found.missing_bytes;
        sum.shared_bytes += found.shared_bytes;
        sum.encoded_bytes += found.encoded_bytes;
    }
    sum
}

/// Ranges addressed by some of the streams, by file; they do not overlap.
fn addressed(workload: &BlockWorkload, of: impl Fn(&Stream) -> bool) -> BTreeMap<PathBuf, Vec<Range<u64>>> {
    let mut files: BTreeMap<PathBuf, Vec<Range<u64>>> = BTreeMap::new();
    for stream in workload.streams.iter().filter(|stream| of(stream)) {
        let offset = target::offset_in_file(&workload.target, stream);
        let span = offset..offset + stream.span.bytes;
        for path in target::stream_paths(&workload.target, stream) {
            files.entry(path).or_default().push(span.clone());
        }
    }
    files.values_mut().for_each(merge);
    files
}

fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges.drain(..) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    *ranges = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_looked_at_once() {
        let mut ranges = vec![20..30, 0..10, 5..15, 30..40];
        merge(&mut ranges);
        assert_eq!(ranges, [0..15, 20..40]);
    }
}
