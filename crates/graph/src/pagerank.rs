//! PageRank by power iteration: `x = (1 - d) / n + d * (A x + rank of vertices without outgoing edges / n)`.
//!
//! Pulling sums the shares of neighbours in the order of the list. Pushing adds them in fixed-point numbers, whose sum does
//! not depend on the order in which jobs add.
//!
//! The state is shared by all jobs and consists of atomics that are used with relaxed order: jobs meet between two steps, which
//! orders them. Nothing in it depends on which job processes which vertex, or in which order: sums of fractions are formed
//! for each vertex by itself and for blocks of vertices of fixed size, everything else are sums of integers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::csr::{Checksum, Csr};

/// Vertices of a block.
pub(crate) const BLOCK: u32 = 4096;

/// Conclusion of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Conclusion {
    /// Vertices whose lists the iteration needed.
    pub active_vertices: u64,
    /// Sum of changes.
    pub residual: f64,
    /// There is no further iteration.
    pub is_last: bool,
    /// The computation is complete.
    pub has_converged: bool,
}

/// Pulling or pushing; see the module.
pub(crate) trait Program: Sync {
    /// State of a vertex while its list is processed, piece by piece.
    type Register: Copy;

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

    /// A hash of all ranks.
    pub(crate) fn hash(&self) -> u64 {
        let mut checksum = Checksum::new();
        self.all().for_each(|rank| checksum.word(rank.to_bits()));
        checksum.value()
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
            residual,
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
