//! Refuses inconsistent specs before anything is opened.

use iosonde_harness::{RunError, require};
use iosonde_protocol::{Algorithm, Backend, EdgeSource, GraphWorkload, Lists, PagerankMode, Target};

use crate::csr::PAGE_BYTES;

const QUEUE_DEPTH_MAX: u32 = 4_096;
const REQUEST_BYTES_MAX: u64 = 16 << 20;
const SORT_MEMORY_MIN: u64 = 1 << 20;
/// Vertices are stored as `u32`.
const SCALE_MAX: u32 = 31;
const EDGE_FACTOR_MAX: u32 = 4_096;

/// Checks everything that follows from the spec alone.
pub(crate) fn check(workload: &GraphWorkload) -> Result<(), RunError> {
    check_target(workload)?;
    check_source(&workload.graph.source)?;
    check_algorithm(workload)?;
    check_reading(workload)
}

fn check_target(workload: &GraphWorkload) -> Result<(), RunError> {
    let is_stored = matches!(workload.target, Target::File { .. } | Target::Device { .. });
    require(is_stored, "`target`")?;
    require(
        matches!(workload.backend, Backend::Uring(_) | Backend::Sync),
        "`backend`",
    )?;
    require(workload.sort_memory_bytes >= SORT_MEMORY_MIN, "`sort_memory_bytes`")
}

fn check_source(source: &EdgeSource) -> Result<(), RunError> {
    let EdgeSource::Rmat {
        scale,
        edge_factor,
        a,
        b,
        c,
        ..
    } = *source
    else {
        return Ok(());
    };
    require((1..=SCALE_MAX).contains(&scale), "`graph.source.scale`")?;
    require(
        (1..=EDGE_FACTOR_MAX).contains(&edge_factor),
        "`graph.source.edge_factor`",
    )?;
    let are_probabilities = [a, b, c].iter().all(|share| (0.0..=1.0).contains(share));
    require(are_probabilities && a + b + c <= 1.0 + 1e-9, "`graph.source`")
}

/// Pull reads the lists of edges in, push those of edges out.
fn check_algorithm(workload: &GraphWorkload) -> Result<(), RunError> {
    let Algorithm::Pagerank {
        mode,
        damping,
        tolerance,
        iterations,
    } = workload.algorithm;
    let missing = match mode {
        PagerankMode::Pull => Lists::Out,
        PagerankMode::Push => Lists::In,
    };
    require(workload.graph.lists != missing, "`graph.lists`")?;
    let converges = damping > 0.0 && damping < 1.0 && tolerance >= 0.0 && tolerance.is_finite();
    require(converges && iterations > 0, "`algorithm`")
}

fn check_reading(workload: &GraphWorkload) -> Result<(), RunError> {
    let (depth, bytes) = (workload.reading.queue_depth, workload.reading.request_bytes);
    require((1..=QUEUE_DEPTH_MAX).contains(&depth), "`reading.queue_depth`")?;
    let is_size = (PAGE_BYTES..=REQUEST_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(PAGE_BYTES);
    require(is_size, "`reading.request_bytes`")
}
