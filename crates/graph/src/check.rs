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
    require(
        matches!(workload.target, Target::File { .. } | Target::Device { .. }),
        || "a graph on this kind of target".into(),
        "`target`",
        "use a target of the kind `file` or `device`",
    )?;
    require(
        matches!(workload.backend, Backend::Uring(_) | Backend::Sync),
        || "a graph on this backend".into(),
        "`backend`",
        "use the backend `uring` or `sync`",
    )?;
    require(
        workload.sort_memory_bytes >= SORT_MEMORY_MIN,
        || format!("sorting with {} bytes of memory", workload.sort_memory_bytes),
        "`sort_memory_bytes`",
        "use at least 1 MiB",
    )
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
    require(
        (1..=SCALE_MAX).contains(&scale),
        || format!("a scale of {scale}"),
        "`graph.source.scale`",
        "use 1 to 31",
    )?;
    require(
        (1..=EDGE_FACTOR_MAX).contains(&edge_factor),
        || format!("an edge factor of {edge_factor}"),
        "`graph.source.edge_factor`",
        "use 1 to 4096",
    )?;
    require(
        [a, b, c].iter().all(|share| (0.0..=1.0).contains(share)) && a + b + c <= 1.0 + 1e-9,
        || format!("quadrants of {a}, {b} and {c}"),
        "`graph.source`",
        "use probabilities with a sum of at most 1",
    )
}

fn check_algorithm(workload: &GraphWorkload) -> Result<(), RunError> {
    let lists = workload.graph.lists;
    let Algorithm::Pagerank {
        mode,
        damping,
        tolerance,
        iterations,
    } = workload.algorithm;
    let fitting = match mode {
        PagerankMode::Pull => lists != Lists::Out,
        PagerankMode::Push => lists != Lists::In,
    };
    require(
        fitting,
        || format!("PageRank with mode {mode:?} on lists {lists:?}"),
        "`graph.lists`",
        "pull needs the lists `in` or `both`, push `out` or `both`",
    )?;
    require(
        damping > 0.0 && damping < 1.0 && tolerance >= 0.0 && tolerance.is_finite() && iterations > 0,
        || format!("PageRank with damping {damping}, tolerance {tolerance} and {iterations} iterations"),
        "`algorithm`",
        "use a damping factor between 0 and 1, a tolerance of 0 or more and at least one iteration",
    )
}

fn check_reading(workload: &GraphWorkload) -> Result<(), RunError> {
    let reading = &workload.reading;
    require(
        (1..=QUEUE_DEPTH_MAX).contains(&reading.queue_depth),
        || format!("a queue depth of {}", reading.queue_depth),
        "`reading.queue_depth`",
        "use 1 to 4096",
    )?;
    require(
        (PAGE_BYTES..=REQUEST_BYTES_MAX).contains(&reading.request_bytes)
            && reading.request_bytes.is_multiple_of(PAGE_BYTES),
        || format!("a largest read of {} bytes", reading.request_bytes),
        "`reading.request_bytes`",
        "use a multiple of 4096 up to 16 MiB",
    )
}
