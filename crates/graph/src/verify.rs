//! Checks a result by a separate pass over the whole graph, in one thread and with nothing of what computed it.
//!
//! The lists must have the checksum with which they were written, ascend, and name vertices that exist.
//! One more iteration of PageRank may change the ranks by no more than the damping factor times the last change (the iteration
//! is a contraction), and their sum is 1.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use iosonde_block::Buffer;
use iosonde_protocol::{GraphCheck, Lists};

use crate::csr::{CHUNK_BYTES, Checksum, Csr, EDGE_BYTES, pages_of};
use crate::pagerank::{Ranks, each_neighbour};

/// Rounding of sums of ranks, relative to their sum of 1.
const ROUNDING: f64 = 1e-9;

/// Receives the bytes read so far, and returns whether to continue.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Violations of rules.
#[derive(Default)]
pub(crate) struct Findings {
    count: u64,
    first: Option<String>,
    residual: Option<(f64, f64)>,
}

impl Findings {
    fn add(&mut self, violation: String) {
        self.count += 1;
        self.first.get_or_insert(violation);
    }
}

/// Reads the whole graph and applies the rules; nothing if it was stopped.
pub(crate) fn check(
    csr: &Csr,
    file: &File,
    rules: RankRules<'_>,
    progress: Progress<'_>,
) -> io::Result<Option<GraphCheck>> {
    let mut pass = Pass {
        csr,
        rules,
        findings: Findings::default(),
        vertex: 0,
        edge: 0,
        previous: None,
    };
    let mut checksum = Checksum::new();
    let mut chunk = Buffer::new(CHUNK_BYTES as u64)?;
    let end = pages_of(csr.edges() * EDGE_BYTES);
    let mut at = 0;
    while at < end {
        if !progress(at) {
            return Ok(None);
        }
        let bytes = (end - at).min(CHUNK_BYTES as u64) as usize;
        file.read_exact_at(&mut chunk[..bytes], csr.adjacency_at + at)?;
        checksum.update(&chunk[..bytes]);
        pass.take(&chunk[..bytes]);
        at += bytes as u64;
    }
    let Pass {
        rules,
        mut findings,
        edge,
        ..
    } = pass;
    rules.conclude(&mut findings);
    Ok(Some(GraphCheck {
        checked_edges: edge,
        is_intact: checksum.value() == csr.header.adjacency_checksum,
        violations: findings.count,
        first_violation: findings.first,
        residual: findings.residual.map(|(residual, _)| residual),
        residual_bound: findings.residual.map(|(_, bound)| bound),
    }))
}

struct Pass<'a> {
    csr: &'a Csr,
    rules: RankRules<'a>,
    findings: Findings,
    vertex: u32,
    edge: u64,
    /// The neighbour before, in the same list.
    previous: Option<u32>,
}

impl Pass<'_> {
    fn take(&mut self, bytes: &[u8]) {
        for neighbour in each_neighbour(bytes) {
            if self.edge == self.csr.edges() {
                return;
            }
            while self.csr.list(self.vertex).end <= self.edge {
                self.vertex += 1;
                self.previous = None;
            }
            self.edge += 1;
            let vertex = self.vertex;
            if neighbour >= self.csr.vertices() || neighbour == vertex || self.previous >= Some(neighbour) {
                self.findings.add(format!(
                    "the list of vertex {vertex} has {neighbour} after {:?}",
                    self.previous
                ));
            } else {
                self.rules.edge(vertex, neighbour);
            }
            self.previous = Some(neighbour);
        }
    }
}

/// Rules of the ranks.
pub(crate) struct RankRules<'a> {
    csr: &'a Csr,
    ranks: &'a Ranks<'a>,
    /// The change that the computation found in its last iteration.
    last_residual: f64,
    points_in: bool,
    next: Vec<f64>,
}

impl<'a> RankRules<'a> {
    pub(crate) fn new(csr: &'a Csr, ranks: &'a Ranks<'a>, last_residual: f64, lists: Lists) -> RankRules<'a> {
        RankRules {
            csr,
            ranks,
            last_residual,
            points_in: lists == Lists::In,
            next: vec![0.0; csr.vertices() as usize],
        }
    }

    /// Adds what one vertex of an edge gives the other in one more iteration.
    fn edge(&mut self, vertex: u32, neighbour: u32) {
        let (from, to) = if self.points_in {
            (neighbour, vertex)
        } else {
            (vertex, neighbour)
        };
        self.next[to as usize] += self.ranks.rank(from) / self.csr.out_degree(from) as f64;
    }

    /// After all edges: counts violations.
    fn conclude(&self, found: &mut Findings) {
        let vertices = 0..self.csr.vertices();
        let damping = self.ranks.settings().damping;
        let without_edges = vertices.clone().filter(|vertex| self.csr.out_degree(*vertex) == 0);
        let dangling: f64 = without_edges.map(|vertex| self.ranks.rank(vertex)).sum();
        let base = (1.0 - damping + damping * dangling) / f64::from(self.csr.vertices());
        let change = |vertex: u32| (base + damping * self.next[vertex as usize] - self.ranks.rank(vertex)).abs();
        let residual: f64 = vertices.clone().map(change).sum();
        let bound = damping * self.last_residual + ROUNDING;
        if residual > bound {
            found.add(format!(
                "one more iteration changes the ranks by {residual:e}, and at most {bound:e} is possible"
            ));
        }
        let total = self.ranks.total();
        if (total - 1.0).abs() > ROUNDING {
            found.add(format!("the sum of all ranks is {total}"));
        }
        if let Some(vertex) = vertices
            .clone()
            .find(|vertex| self.ranks.rank(*vertex) < (1.0 - damping) / f64::from(vertices.end) * (1.0 - ROUNDING))
        {
            found.add(format!("the rank of vertex {vertex} is {}", self.ranks.rank(vertex)));
        }
        found.residual = Some((residual, bound));
    }
}
