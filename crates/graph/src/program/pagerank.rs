//! PageRank by power iteration: `x = (1 - d) / n + d * (A x + rank of vertices without outgoing edges / n)`.
//!
//! Pulling sums the shares of neighbours in the order of the list. Pushing adds them in fixed-point numbers, whose sum does
//! not depend on the order in which jobs add.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::{BlockSums, Conclusion, Program, blocks, each_neighbour, hash_of};
use crate::csr::Csr;

/// One in fixed-point numbers; all ranks together are 1.
const FIXED_ONE: f64 = (1_u64 << 62) as f64;

/// Parameters of the computation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PagerankSettings {
    pub damping: f64,
    pub tolerance: f64,
    pub iterations: u32,
    pub pushes: bool,
}

/// The ranks of all vertices, and what the next iteration needs.
pub(crate) struct Ranks<'a> {
    csr: &'a Csr,
    settings: PagerankSettings,
    connected: u64,
    ranks: Vec<AtomicU64>,
    /// A vertex' rank divided by the number of its outgoing edges, as a fraction or a fixed-point number.
    shares: Vec<AtomicU64>,
    /// Shares of its neighbours, likewise.
    sums: Vec<AtomicU64>,
    changes: BlockSums,
    dangling: BlockSums,
    dangling_total: AtomicU64,
    iteration: AtomicU32,
    is_damaged: AtomicBool,
}

impl<'a> Ranks<'a> {
    pub(crate) fn new(csr: &'a Csr, settings: PagerankSettings) -> Ranks<'a> {
        let vertices = csr.vertices();
        let zeros = || (0..vertices).map(|_| AtomicU64::default()).collect();
        let first = (1.0 / f64::from(vertices)).to_bits();
        let ranks = Ranks {
            csr,
            settings,
            connected: (0..vertices).filter(|vertex| csr.degree(*vertex) > 0).count() as u64,
            ranks: (0..vertices).map(|_| AtomicU64::new(first)).collect(),
            shares: zeros(),
            sums: zeros(),
            changes: BlockSums::new(vertices),
            dangling: BlockSums::new(vertices),
            dangling_total: AtomicU64::default(),
            iteration: AtomicU32::new(0),
            is_damaged: AtomicBool::new(false),
        };
        for block in blocks(0..vertices) {
            let dangling = block
                .clone()
                .map(|vertex| ranks.share_out(vertex, 1.0 / f64::from(vertices)))
                .sum();
            ranks.dangling.set(block.start, dangling);
        }
        ranks
            .dangling_total
            .store(ranks.dangling.total().to_bits(), Ordering::Relaxed);
        ranks
    }

    /// Bytes of memory for this many vertices.
    pub(crate) fn bytes(vertices: u64) -> u64 {
        24 * vertices
    }

    pub(crate) fn rank(&self, vertex: u32) -> f64 {
        f64::from_bits(self.ranks[vertex as usize].load(Ordering::Relaxed))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = f64> {
        (0..self.csr.vertices()).map(|vertex| self.rank(vertex))
    }

    /// The sum of all ranks, which is 1.
    pub(crate) fn total(&self) -> f64 {
        blocks(0..self.csr.vertices())
            .map(|block| block.map(|vertex| self.rank(vertex)).sum::<f64>())
            .sum()
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_of(self.all().map(f64::to_bits))
    }

    pub(crate) fn settings(&self) -> PagerankSettings {
        self.settings
    }

    /// Returns true if a list had a vertex that does not exist.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Stores what a vertex gives to each neighbour; returns what it gives to all vertices because it has none.
    fn share_out(&self, vertex: u32, rank: f64) -> f64 {
        let degree = self.csr.out_degree(vertex);
        if degree == 0 {
            return rank;
        }
        let share = rank / degree as f64;
        let bits = match self.settings.pushes {
            true => (share * FIXED_ONE) as u64,
            false => share.to_bits(),
        };
        self.shares[vertex as usize].store(bits, Ordering::Relaxed);
        0.0
    }

    fn apply(&self, vertices: Range<u32>) {
        let count = f64::from(self.csr.vertices());
        let damping = self.settings.damping;
        let dangling = f64::from_bits(self.dangling_total.load(Ordering::Relaxed));
        let base = (1.0 - damping) / count + damping * dangling / count;
        for block in blocks(vertices) {
            let (mut changes, mut dangling) = (0.0, 0.0);
            for vertex in block.clone() {
                let sum = self.sums[vertex as usize].swap(0, Ordering::Relaxed);
                let sum = match self.settings.pushes {
                    true => sum as f64 / FIXED_ONE,
                    false => f64::from_bits(sum),
                };
                let rank = base + damping * sum;
                let before = self.ranks[vertex as usize].swap(rank.to_bits(), Ordering::Relaxed);
                changes += (rank - f64::from_bits(before)).abs();
                dangling += self.share_out(vertex, rank);
            }
            self.changes.set(block.start, changes);
            self.dangling.set(block.start, dangling);
        }
    }

    fn conclude(&self) -> Conclusion {
        let residual = self.changes.total();
        self.dangling_total
            .store(self.dangling.total().to_bits(), Ordering::Relaxed);
        let iteration = self.iteration.fetch_add(1, Ordering::Relaxed) + 1;
        let has_converged = residual < self.settings.tolerance;
        Conclusion {
            active_vertices: self.connected,
            residual: Some(residual),
            is_last: has_converged || iteration >= self.settings.iterations,
            has_converged,
        }
    }
}

/// Every vertex sums the shares of its neighbours.
pub(crate) struct Pull<'a>(pub &'a Ranks<'a>);

impl Program for Pull<'_> {
    type Register = f64;

    #[inline]
    fn next_active(&self, from: u32, end: u32) -> u32 {
        self.0.csr.next_connected(from, end)
    }

    #[inline]
    fn open(&self, _vertex: u32) -> f64 {
        0.0
    }

    #[inline]
    fn neighbours(&self, _vertex: u32, sum: &mut f64, list: &[u8]) {
        for neighbour in each_neighbour(list) {
            match self.0.shares.get(neighbour as usize) {
                Some(share) => *sum += f64::from_bits(share.load(Ordering::Relaxed)),
                None => self.0.is_damaged.store(true, Ordering::Relaxed),
            }
        }
    }

    #[inline]
    fn close(&self, vertex: u32, sum: f64) {
        self.0.sums[vertex as usize].store(sum.to_bits(), Ordering::Relaxed);
    }

    fn apply(&self, vertices: Range<u32>) {
        self.0.apply(vertices);
    }

    fn conclude(&self) -> Conclusion {
        self.0.conclude()
    }
}

/// Every vertex adds its share to its neighbours.
pub(crate) struct Push<'a>(pub &'a Ranks<'a>);

impl Program for Push<'_> {
    type Register = u64;

    #[inline]
    fn next_active(&self, from: u32, end: u32) -> u32 {
        self.0.csr.next_connected(from, end)
    }

    #[inline]
    fn open(&self, vertex: u32) -> u64 {
        self.0.shares[vertex as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn neighbours(&self, _vertex: u32, share: &mut u64, list: &[u8]) {
        for neighbour in each_neighbour(list) {
            match self.0.sums.get(neighbour as usize) {
                Some(sum) => {
                    sum.fetch_add(*share, Ordering::Relaxed);
                }
                None => self.0.is_damaged.store(true, Ordering::Relaxed),
            }
        }
    }

    #[inline]
    fn close(&self, _vertex: u32, _share: u64) {}

    fn apply(&self, vertices: Range<u32>) {
        self.0.apply(vertices);
    }

    fn conclude(&self) -> Conclusion {
        self.0.conclude()
    }
}
