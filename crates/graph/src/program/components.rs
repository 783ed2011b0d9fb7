//! Connected components: every vertex takes the smallest label among its neighbours' and its own, until none changes.
//!
//! A vertex sends the label that it had when the iteration started, so that the number of iterations does not depend on
//! which job is faster.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::frontier::Frontier;
use super::{Conclusion, Program, each_neighbour, hash_of};
use crate::csr::Csr;

/// Components of an undirected graph.
pub(crate) struct Components {
    labels: Vec<AtomicU32>,
    /// Labels at the start of the iteration.
    sent: Vec<AtomicU32>,
    /// Vertices whose label changed: in the last iteration, and in this one, by turns.
    frontiers: [Frontier; 2],
    iteration: AtomicU32,
    active: AtomicU64,
    changed: AtomicU64,
    is_damaged: AtomicBool,
}

impl Components {
    pub(crate) fn new(csr: &Csr) -> Components {
        let vertices = csr.vertices();
        let own = || (0..vertices).map(AtomicU32::new).collect::<Vec<_>>();
        let components = Components {
            labels: own(),
            sent: own(),
            frontiers: [Frontier::new(vertices), Frontier::new(vertices)],
            iteration: AtomicU32::new(0),
            active: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
        };
        let mut active = 0;
        for vertex in (0..vertices).filter(|vertex| csr.degree(*vertex) > 0) {
            components.frontiers[0].add(vertex);
            active += 1;
        }
        components.active.store(active, Ordering::Relaxed);
        components
    }

    /// Bytes of memory for this many vertices.
    pub(crate) fn bytes(vertices: u64) -> u64 {
        8 * vertices + 2 * Frontier::bytes(vertices)
    }

    pub(crate) fn label(&self, vertex: u32) -> u32 {
        self.labels[vertex as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = u32> {
        self.labels.iter().map(|label| label.load(Ordering::Relaxed))
    }

    /// Number of components: of vertices that have their own number as label.
    pub(crate) fn count(&self) -> u64 {
        (0..)
            .zip(self.labels())
            .filter(|(vertex, label)| vertex == label)
            .count() as u64
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_of(self.labels().map(u64::from))
    }

    /// Returns true if a list had a vertex that does not exist.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn frontier(&self, ahead: u32) -> &Frontier {
        &self.frontiers[((self.iteration.load(Ordering::Relaxed) + ahead) % 2) as usize]
    }
}

impl Program for Components {
    /// The label that is sent.
    type Register = u32;

    #[inline]
    fn next_active(&self, from: u32, end: u32) -> u32 {
        self.frontier(0).next(from, end)
    }

    #[inline]
    fn open(&self, vertex: u32) -> u32 {
        self.sent[vertex as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn neighbours(&self, _vertex: u32, label: &mut u32, list: &[u8]) {
        let next = self.frontier(1);
        for neighbour in each_neighbour(list) {
            match self.labels.get(neighbour as usize) {
                Some(known) if known.load(Ordering::Relaxed) > *label => {
                    known.fetch_min(*label, Ordering::Relaxed);
                    next.add(neighbour);
                }
                Some(_) => {}
                None => self.is_damaged.store(true, Ordering::Relaxed),
            }
        }
    }

    #[inline]
    fn close(&self, _vertex: u32, _label: u32) {}

    fn apply(&self, vertices: Range<u32>) {
        let changed = self.frontier(1);
        self.changed
            .fetch_add(changed.count(vertices.clone()), Ordering::Relaxed);
        let mut vertex = changed.next(vertices.start, vertices.end);
        while vertex < vertices.end {
            self.sent[vertex as usize].store(self.label(vertex), Ordering::Relaxed);
            vertex = changed.next(vertex + 1, vertices.end);
        }
        self.frontier(0).clear(vertices);
    }

    fn conclude(&self) -> Conclusion {
        let changed = self.changed.swap(0, Ordering::Relaxed);
        self.iteration.fetch_add(1, Ordering::Relaxed);
        Conclusion {
            active_vertices: self.active.swap(changed, Ordering::Relaxed),
            residual: None,
            is_last: changed == 0,
            has_converged: changed == 0,
        }
    }
}
