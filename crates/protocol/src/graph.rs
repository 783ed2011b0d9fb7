//! The graph workload: algorithms on a graph whose adjacency lists are on the device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Backend, Layout, Target};

/// One computation on a graph: vertex state in memory, adjacency lists read from the target with direct I/O.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphWorkload {
    /// File or device with the graph.
    pub target: Target,
    /// `uring` or `sync`.
    pub backend: Backend,
    pub graph: Graph,
    /// Condition for writing the graph before the measurement: `missing` unless the target has it already.
    pub layout: Layout,
    /// Memory for sorting edges while the graph is written, in bytes; vertex state is not part of it.
    pub sort_memory_bytes: u64,
    /// The computation.
    pub algorithm: Algorithm,
    /// Reads of adjacency lists.
    pub reading: Reading,
    /// Number of threads. The result does not depend on it.
    pub jobs: u32,
    /// Maximum length of the measurement, in nanoseconds; absent: until the computation is complete.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// After the measurement, read the whole graph and check the result against it.
    pub verify_after: bool,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// File for the final state of all vertices: little-endian `f64` ranks. Absent: it is not written.
    #[serde(default)]
    pub result_path: Option<String>,
}

/// A graph on the target. Vertices are numbered from 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Source of its edges.
    pub source: EdgeSource,
    /// Adjacency lists that are stored.
    pub lists: Lists,
}

/// Source of the edges of a graph. Self-loops are removed, and so are duplicates after the first of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EdgeSource {
    /// R-MAT (Kronecker) graph as in Graph500: the vertices are permuted.
    Rmat {
        /// Base 2 logarithm of the number of vertices, 1 to 31.
        scale: u32,
        /// Generated edges per vertex.
        edge_factor: u32,
        /// Probability of the upper left quadrant of the adjacency matrix (Graph500: 0.57).
        a: f64,
        /// Probability of the upper right quadrant (0.19).
        b: f64,
        /// Probability of the lower left quadrant (0.19); the rest is the lower right one.
        c: f64,
        /// Seed of edges and permutation, separate from the run's seed: runs that share a graph share it.
        seed: u64,
    },
    /// A file with one edge after the other. The number of vertices is the largest one plus 1.
    EdgeList {
        /// Path of the file.
        path: String,
        /// Format of the edge list.
        format: EdgeFormat,
    },
}

/// Format of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeFormat {
    /// One edge a line: two decimal numbers, separated by blanks, a tab or a comma. Empty lines and lines that start with
    /// `#` or `%` are skipped.
    Text,
    /// Pairs of little-endian `u32`.
    U32,
    /// Pairs of little-endian `u64`.
    U64,
}

/// Adjacency lists that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lists {
    /// Of each vertex the targets of its edges.
    Out,
    /// Of each vertex the sources of the edges to it.
    In,
    /// Both: each edge is stored in both directions, as an undirected graph.
    Both,
}

/// A computation on a graph.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// PageRank by power iteration; the rank of vertices without edges is spread evenly over all vertices.
    Pagerank {
        /// `pull` sums the ranks of neighbours, `push` adds a vertex' rank to its neighbours.
        mode: PagerankMode,
        /// Damping factor, above 0 and below 1.
        damping: f64,
        /// Converged once the sum of all changes of an iteration is below this.
        tolerance: f64,
        /// Maximum number of iterations.
        iterations: u32,
    },
}

/// Direction in which ranks move along edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PagerankMode {
    /// Each vertex sums the ranks of its neighbours; lists `in` or `both`.
    Pull,
    /// Each vertex adds its rank to its neighbours, in fixed-point numbers of 2^-62; lists `out` or `both`.
    Push,
}

/// Reads of adjacency lists, in the order of vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Reads in flight in each job.
    pub queue_depth: u32,
    /// Largest read, in bytes: a multiple of 4096 up to 16 MiB.
    pub request_bytes: u64,
    /// Memory for pages of the graph, of all jobs together, in bytes. Pages are admitted until it is full, and stay.
    pub cache_bytes: u64,
}

/// Facts about a graph run, besides its reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphResult {
    pub vertices: u64,
    /// Vertices without edges.
    pub isolated_vertices: u64,
    /// Edges of the source, before any were removed.
    pub source_edges: u64,
    /// Self-loops that were removed.
    pub self_loops: u64,
    /// Duplicates that were removed, of stored edges.
    pub duplicates: u64,
    /// Stored edges; an undirected graph stores each twice.
    pub edges: u64,
    /// Bytes of the adjacency lists.
    pub adjacency_bytes: u64,
    /// Longest adjacency list, in edges.
    pub degree_max: u64,
    /// Time to write the graph, in nanoseconds; 0 if it was kept.
    pub build_ns: u64,
    /// Memory of vertex state and index, in bytes.
    pub vertex_bytes: u64,
    /// Iterations in order. The last one is absent if it was not completed.
    pub iterations: Vec<Iteration>,
    /// True if the computation was completed: converged.
    pub is_complete: bool,
    /// Edges that were processed in the measurement.
    pub traversed_edges: u64,
    /// Time in which jobs had nothing to process and waited for reads, summed, in nanoseconds.
    pub io_wait_ns: u64,
    /// Time in which jobs waited for other jobs at the end of an iteration, summed, in nanoseconds.
    pub job_wait_ns: u64,
    /// Bytes of adjacency lists that were needed, in whole pages.
    pub needed_bytes: u64,
    /// Bytes of these that the page cache had.
    pub cache_hit_bytes: u64,
    /// Reads by size, in ascending order.
    pub request_sizes: Vec<RequestSize>,
    /// Sum of all ranks.
    pub rank_sum: Option<f64>,
    /// Sum of all changes of the last iteration.
    pub residual: Option<f64>,
    /// Hash of the final state of all vertices: runs with the same result have the same.
    pub result_hash: u64,
    /// Check after the measurement; absent without `verify_after`, and if the run was stopped.
    pub check: Option<GraphCheck>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iteration {
    /// Start, in nanoseconds since the run's 0.
    pub begin_ns: u64,
    /// End, in nanoseconds since the run's 0.
    pub end_ns: u64,
    /// Edges that were processed.
    pub edges: u64,
    /// Vertices whose adjacency lists were needed.
    pub active_vertices: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// CPU time of the jobs' threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Sum of all changes.
    pub residual: Option<f64>,
}

/// Number of reads of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestSize {
    pub bytes: u64,
    /// Reads.
    pub count: u64,
}

/// The result, checked by a separate pass over the whole graph.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphCheck {
    /// Edges that were read and compared.
    pub checked_edges: u64,
    /// True if the stored graph has the checksum with which it was written.
    pub is_intact: bool,
    /// Edges or vertices that break a rule.
    pub violations: u64,
    /// The first violation, in words.
    pub first_violation: Option<String>,
    /// Sum of all changes that one more iteration makes, by a separate implementation.
    pub residual: Option<f64>,
    /// The most that this can be, which is damping factor times last residual plus rounding.
    pub residual_bound: Option<f64>,
}
