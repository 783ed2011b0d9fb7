//! From vertices whose lists are needed to reads: pages in ascending order, neighbouring ranges merged.

use std::ops::Range;

use crate::csr::{Csr, PAGE_EDGES};

/// Plans the reads of one pass over some vertices.
pub(crate) struct Planner<'a> {
    csr: &'a Csr,
    vertices: Range<u32>,
    /// The pages that are merged so far.
    run: Option<Range<u64>>,
    /// Pages before this one are planned.
    planned: u64,
    largest: u64,
    gap: u64,
    /// Pages that no vertex needs, but that are read because ranges around them were merged.
    pub gap_pages: u64,
}

impl<'a> Planner<'a> {
    /// Reads of at most `largest` pages; ranges at most `gap` pages apart are merged.
    pub(crate) fn new(csr: &'a Csr, largest: u64, gap: u64) -> Planner<'a> {
        Planner {
            csr,
            vertices: 0..0,
            run: None,
            planned: 0,
            largest,
            gap,
            gap_pages: 0,
        }
    }

    /// Starts a pass.
    pub(crate) fn start(&mut self, vertices: Range<u32>) {
        self.vertices = vertices;
        (self.run, self.planned) = (None, 0);
    }

    /// The next pages to read; nothing at the end of the pass. `next_active(from, end)` is the next vertex with a list that is needed.
    #[inline]
    pub(crate) fn next(&mut self, next_active: impl Fn(u32, u32) -> u32) -> Option<Range<u64>> {
        loop {
            if let Some(run) = &mut self.run
                && run.end - run.start >= self.largest
            {
                let cut = run.start + self.largest;
                let pages = run.start..cut;
                self.planned = cut;
                if run.end == cut {
                    self.run = None;
                } else {
                    run.start = cut;
                }
                return Some(pages);
            }
            let vertex = next_active(self.vertices.start, self.vertices.end);
            if vertex >= self.vertices.end {
                self.vertices.start = self.vertices.end;
                return self.run.take();
            }
            self.vertices.start = vertex + 1;
            if let Some(pages) = self.merge(self.pages_of(vertex)) {
                self.planned = pages.end;
                return Some(pages);
            }
        }
    }

    /// Pages of a vertex' list that are not planned yet.
    #[inline]
    fn pages_of(&self, vertex: u32) -> Range<u64> {
        let list = self.csr.list(vertex);
        let start = (list.start / PAGE_EDGES).max(self.planned);
        start..list.end.div_ceil(PAGE_EDGES)
    }

    /// Adds pages to the run, or starts another one and returns the one before.
    #[inline]
    fn merge(&mut self, pages: Range<u64>) -> Option<Range<u64>> {
        if pages.is_empty() {
            return None;
        }
        match &mut self.run {
            Some(run) if pages.start <= run.end + self.gap => {
                self.gap_pages += pages.start.saturating_sub(run.end);
                run.end = run.end.max(pages.end);
                None
            }
            Some(run) => Some(std::mem::replace(run, pages)),
            None => {
                self.run = Some(pages);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::csr_of_degrees;

    fn plan(degrees: &[u64], active: &[u32], largest: u64, gap: u64) -> (Vec<Range<u64>>, u64) {
        let csr = csr_of_degrees(degrees);
        let mut planner = Planner::new(&csr, largest, gap);
        planner.start(0..degrees.len() as u32);
        let next = |from: u32, end: u32| active.iter().copied().find(|vertex| *vertex >= from).unwrap_or(end);
        let reads = std::iter::from_fn(|| planner.next(next)).collect();
        (reads, planner.gap_pages)
    }

    #[test]
    fn ranges_are_merged_lists_divided_and_a_dense_pass_reads_every_page_once() {
        let degrees = vec![1024; 20];
        assert_eq!(plan(&degrees, &[0, 1, 4, 9], 16, 0), (vec![0..2, 4..5, 9..10], 0));
        assert_eq!(plan(&degrees, &[0, 1, 4, 9], 16, 2), (vec![0..5, 9..10], 2));
        assert_eq!(plan(&degrees, &[0, 1, 4, 9, 19], 16, 4), (vec![0..10, 19..20], 6));
        let degrees = [10_240, 100, 100, 924, 1];
        let (reads, _) = plan(&degrees, &[0, 1, 3, 4], 4, 0);
        assert_eq!(reads, [0..4, 4..8, 8..12]);
        let (reads, _) = plan(&[4096, 10, 10, 5000], &[0, 1, 2, 3], 2, 0);
        assert_eq!(reads, [0..2, 2..4, 4..6, 6..8, 8..9]);
        let degrees = vec![100; 1000];
        let active: Vec<u32> = (0..1000).collect();
        let (reads, gaps) = plan(&degrees, &active, 16, 0);
        assert_eq!(reads.first(), Some(&(0..16)));
        assert_eq!(reads.last(), Some(&(96..98)), "100,000 edges have 98 pages");
        assert!(reads.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(gaps, 0);
    }
}
