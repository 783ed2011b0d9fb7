//! Computations on a graph: what is done with each vertex' list, and between two passes.
//!
//! A program is shared by all jobs. Its state consists of atomics that are used with relaxed order: jobs meet between two steps, which
//! orders them. Nothing in it depends on which job processes which vertex, or in which order: sums of fractions are formed
//! for each vertex by itself and for blocks of vertices of fixed size, everything else are minima and sums of integers.

mod bfs;
mod components;
mod frontier;
mod pagerank;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use bfs::{Bfs, NOT_REACHED};
pub(crate) use components::Components;
pub(crate) use pagerank::{PagerankSettings, Pull, Push, Ranks};

use crate::csr::Checksum;

/// Vertices of a block.
pub(crate) const BLOCK: u32 = 4096;

/// Conclusion of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Conclusion {
    /// Vertices whose lists the iteration needed.
    pub active_vertices: u64,
    /// Sum of changes, of PageRank.
    pub residual: Option<f64>,
    /// There is no further iteration.
    pub is_last: bool,
    /// The computation is complete.
    pub has_converged: bool,
}

/// A computation; see the module.
pub(crate) trait Program: Sync {
    /// State of a vertex while its list is processed, piece by piece.
    type Register: Copy;

    /// The next vertex from `from` whose list this iteration needs; `end` if none before it does. It has a list.
    fn next_active(&self, from: u32, end: u32) -> u32;

    /// Starts a vertex.
    fn open(&self, vertex: u32) -> Self::Register;

    /// Processes a piece of its list.
    fn neighbours(&self, vertex: u32, register: &mut Self::Register, list: &[u8]);

    /// Ends it.
    fn close(&self, vertex: u32, register: Self::Register);

    /// After the pass of all jobs: makes the state of some vertices ready for the next one.
    fn apply(&self, vertices: Range<u32>);

    /// After all that, by one job.
    fn conclude(&self) -> Conclusion;
}

/// Neighbours in a piece of a list.
#[inline]
pub(crate) fn each_neighbour(list: &[u8]) -> impl Iterator<Item = u32> {
    list.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Vertices in blocks, divided evenly among jobs.
pub(crate) fn block_share(vertices: u32, job: u32, jobs: u32) -> Range<u32> {
    let blocks = u64::from(vertices.div_ceil(BLOCK));
    let boundary = |job: u32| (blocks * u64::from(job) / u64::from(jobs) * u64::from(BLOCK)).min(u64::from(vertices));
    boundary(job) as u32..boundary(job + 1) as u32
}

/// The blocks that these vertices consist of.
fn blocks(vertices: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let end = vertices.end;
    vertices
        .step_by(BLOCK as usize)
        .map(move |first| first..(first.saturating_add(BLOCK)).min(end))
}

/// One fraction a block, summed in the order of blocks.
struct BlockSums(Vec<AtomicU64>);

impl BlockSums {
    fn new(vertices: u32) -> BlockSums {
        BlockSums((0..vertices.div_ceil(BLOCK)).map(|_| AtomicU64::default()).collect())
    }

    fn set(&self, first_vertex: u32, value: f64) {
        self.0[(first_vertex / BLOCK) as usize].store(value.to_bits(), Ordering::Relaxed);
    }

    fn total(&self) -> f64 {
        self.0
            .iter()
            .map(|sum| f64::from_bits(sum.load(Ordering::Relaxed)))
            .sum()
    }
}

/// A hash of the state of all vertices.
pub(crate) fn hash_of(words: impl Iterator<Item = u64>) -> u64 {
    let mut checksum = Checksum::new();
    words.for_each(|word| checksum.word(word));
    checksum.value()
}
