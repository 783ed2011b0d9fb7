//! Checks a result by a separate pass over the whole graph, in one thread and with nothing of what computed it.
//!
//! Of every graph: that the lists have the checksum with which they were written, ascend, and name vertices that exist.
//! PageRank: one more iteration may change the ranks by no more than the damping factor times the last change (the
//! iteration is a contraction), and their sum is 1. Searches: the rules of Graph500. Components: those that a union of
//! sets over all edges gives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use iosonde_block::Buffer;
use iosonde_protocol::{GraphCheck, Lists};

use crate::csr::{CHUNK_BYTES, Checksum, Csr, EDGE_BYTES, pages_of};
use crate::program::{Bfs, Components, NOT_REACHED, Ranks, each_neighbour};

/// Rounding of sums of ranks, relative to their sum of 1.
const ROUNDING: f64 = 1e-9;

/// Receives the bytes read so far, and returns whether to continue.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64) -> bool;

/// A result that can be checked edge by edge.
pub(crate) trait Rules {
    /// An edge of a list; the violation, if it is one.
    fn edge(&mut self, vertex: u32, neighbour: u32) -> Option<String>;

    /// After all edges: counts violations.
    fn conclude(&mut self, found: &mut Findings);
}

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
    rules: &mut dyn Rules,
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
    rules: &'a mut dyn Rules,
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
            } else if let Some(violation) = self.rules.edge(vertex, neighbour) {
                self.findings.add(violation);
            }
            self.previous = Some(neighbour);
        }
    }
}

/// Of PageRank.
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
}

impl Rules for RankRules<'_> {
    fn edge(&mut self, vertex: u32, neighbour: u32) -> Option<String> {
        let (from, to) = if self.points_in {
            (neighbour, vertex)
        } else {
            (vertex, neighbour)
        };
        self.next[to as usize] += self.ranks.rank(from) / self.csr.out_degree(from) as f64;
        None
    }

    fn conclude(&mut self, found: &mut Findings) {
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

/// Of a search: the validation rules of Graph500.
pub(crate) struct SearchRules<'a> {
    search: &'a Bfs,
    /// Vertices whose edge to their parent was found.
    has_edge: Vec<bool>,
}

impl<'a> SearchRules<'a> {
    pub(crate) fn new(csr: &Csr, search: &'a Bfs) -> SearchRules<'a> {
        SearchRules {
            search,
            has_edge: vec![false; csr.vertices() as usize],
        }
    }
}

impl Rules for SearchRules<'_> {
    fn edge(&mut self, vertex: u32, neighbour: u32) -> Option<String> {
        self.has_edge[vertex as usize] |= self.search.parent(vertex) == neighbour;
        let (one, other) = (self.search.level_of(vertex), self.search.level_of(neighbour));
        let is_fine = match (one, other) {
            (NOT_REACHED, NOT_REACHED) => true,
            (NOT_REACHED, _) | (_, NOT_REACHED) => false,
            (one, other) => one.abs_diff(other) <= 1,
        };
        (!is_fine)
            .then(|| format!("vertices {vertex} and {neighbour} have an edge, and their levels are {one} and {other}"))
    }

    fn conclude(&mut self, found: &mut Findings) {
        let root = self.search.root();
        if self.search.parent(root) != root || self.search.level_of(root) != 0 {
            found.add(format!("the root {root} is not its own parent on level 0"));
        }
        for vertex in 0..self.has_edge.len() as u32 {
            let (parent, level) = (self.search.parent(vertex), self.search.level_of(vertex));
            if vertex == root || (parent == NOT_REACHED && level == NOT_REACHED) {
                continue;
            }
            // Levels that grow by one from parent to child leave no room for cycles.
            let is_child = parent != NOT_REACHED && level > 0 && self.search.level_of(parent) == level - 1;
            if !is_child || !self.has_edge[vertex as usize] {
                found.add(format!(
                    "vertex {vertex} on level {level} has no edge to a parent {parent} on the level before"
                ));
            }
        }
    }
}

/// Of components: a union of sets over all edges, compared with the labels.
pub(crate) struct ComponentRules<'a> {
    components: &'a Components,
    parents: Vec<u32>,
}

impl<'a> ComponentRules<'a> {
    pub(crate) fn new(csr: &Csr, components: &'a Components) -> ComponentRules<'a> {
        ComponentRules {
            components,
            parents: (0..csr.vertices()).collect(),
        }
    }

    fn root(&mut self, mut vertex: u32) -> u32 {
        while self.parents[vertex as usize] != vertex {
            let above = self.parents[self.parents[vertex as usize] as usize];
            self.parents[vertex as usize] = above;
            vertex = above;
        }
        vertex
    }
}

impl Rules for ComponentRules<'_> {
    fn edge(&mut self, vertex: u32, neighbour: u32) -> Option<String> {
        let (one, other) = (self.root(vertex), self.root(neighbour));
        // The smaller number becomes the root, so that a root is the smallest of its set.
        self.parents[one.max(other) as usize] = one.min(other);
        None
    }

    fn conclude(&mut self, found: &mut Findings) {
        for vertex in 0..self.parents.len() as u32 {
            let (root, label) = (self.root(vertex), self.components.label(vertex));
            if root != label {
                found.add(format!(
                    "vertex {vertex} has the label {label}, and the smallest vertex of its component is {root}"
                ));
            }
        }
    }
}
