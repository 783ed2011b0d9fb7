//! Breadth-first search, level by level. Of several possible parents a vertex has the one with the smallest number.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::frontier::Frontier;
use super::{Conclusion, Program, each_neighbour, hash_of};

/// Parent and level of a vertex that was not reached.
pub(crate) const NOT_REACHED: u32 = u32::MAX;

/// A search.
pub(crate) struct Bfs {
    root: u32,
    parents: Vec<AtomicU32>,
    levels: Vec<AtomicU32>,
    /// Of this level and of the next one, by turns.
    frontiers: [Frontier; 2],
    level: AtomicU32,
    /// Vertices of this level, and what the jobs found of the next one.
    active: AtomicU64,
    found: AtomicU64,
    is_damaged: AtomicBool,
}

impl Bfs {
    pub(crate) fn new(vertices: u32, root: u32) -> Bfs {
        let unknown = || (0..vertices).map(|_| AtomicU32::new(NOT_REACHED)).collect::<Vec<_>>();
        let search = Bfs {
            root,
            parents: unknown(),
            levels: unknown(),
            frontiers: [Frontier::new(vertices), Frontier::new(vertices)],
            level: AtomicU32::new(0),
            active: AtomicU64::new(1),
            found: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
        };
        search.parents[root as usize].store(root, Ordering::Relaxed);
        search.levels[root as usize].store(0, Ordering::Relaxed);
        search.frontiers[0].add(root);
        search
    }

    /// Bytes of memory for this many vertices.
    pub(crate) fn bytes(vertices: u64) -> u64 {
        8 * vertices + 2 * Frontier::bytes(vertices)
    }

    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    pub(crate) fn parent(&self, vertex: u32) -> u32 {
        self.parents[vertex as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn level_of(&self, vertex: u32) -> u32 {
        self.levels[vertex as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn parents(&self) -> impl Iterator<Item = u32> {
        self.parents.iter().map(|parent| parent.load(Ordering::Relaxed))
    }

    pub(crate) fn reached(&self) -> u64 {
        self.parents().filter(|parent| *parent != NOT_REACHED).count() as u64
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_of(self.parents().map(u64::from))
    }

    /// Returns true if a list had a vertex that does not exist.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn frontier(&self, ahead: u32) -> &Frontier {
        &self.frontiers[((self.level.load(Ordering::Relaxed) + ahead) % 2) as usize]
    }
}

impl Program for Bfs {
    /// The level of the vertices found.
    type Register = u32;

    #[inline]
    fn next_active(&self, from: u32, end: u32) -> u32 {
        self.frontier(0).next(from, end)
    }

    #[inline]
    fn open(&self, _vertex: u32) -> u32 {
        self.level.load(Ordering::Relaxed) + 1
    }

    #[inline]
    fn neighbours(&self, vertex: u32, level: &mut u32, list: &[u8]) {
        let next = self.frontier(1);
        for neighbour in each_neighbour(list) {
            let Some(found) = self.levels.get(neighbour as usize) else {
                self.is_damaged.store(true, Ordering::Relaxed);
                continue;
            };
            let known = found.load(Ordering::Relaxed);
            if known < *level {
                continue;
            }
            let parent = &self.parents[neighbour as usize];
            if parent.load(Ordering::Relaxed) > vertex {
                parent.fetch_min(vertex, Ordering::Relaxed);
            }
            if known == NOT_REACHED {
                found.store(*level, Ordering::Relaxed);
                next.add(neighbour);
            }
        }
    }

    #[inline]
    fn close(&self, _vertex: u32, _level: u32) {}

    fn apply(&self, vertices: Range<u32>) {
        let found = self.frontier(1).count(vertices.clone());
        self.found.fetch_add(found, Ordering::Relaxed);
        self.frontier(0).clear(vertices);
    }

    fn conclude(&self) -> Conclusion {
        let found = self.found.swap(0, Ordering::Relaxed);
        self.level.fetch_add(1, Ordering::Relaxed);
        Conclusion {
            active_vertices: self.active.swap(found, Ordering::Relaxed),
            residual: None,
            is_last: found == 0,
            has_converged: found == 0,
        }
    }
}
