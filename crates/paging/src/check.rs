//! Refuses inconsistent specs before anything is mapped.

use std::collections::BTreeSet;

use iosonde_protocol::{PagingStream, PagingWorkload, Pattern, Target};

use crate::error::PagingError;

const JOBS_MAX: u32 = 4_096;
const INTERVAL_NS_MIN: u64 = 100_000_000;
/// More cannot be mapped on the machines that there are.
const BYTES_MAX: u64 = 1 << 46;

/// Checks everything that follows from the spec alone.
pub(crate) fn check(workload: &PagingWorkload, page_bytes: u64) -> Result<(), PagingError> {
    let size_bytes = match &workload.target {
        Target::Virtual { size_bytes } | Target::File { size_bytes, .. } => *size_bytes,
        _ => {
            return Err(PagingError::invalid(
                "only anonymous memory and single files can be mapped",
                "`target`",
                "use a target of the kind `virtual` or `file`",
            ));
        }
    };
    require(
        (page_bytes..=BYTES_MAX).contains(&size_bytes),
        || format!("a mapping of {size_bytes} bytes"),
        "`target.size_bytes`",
        "map at least one page, and at most 64 TiB",
    )?;
    require(
        (0.0..1.0).contains(&workload.compressible_fraction),
        || format!("a compressible fraction of {}", workload.compressible_fraction),
        "`compressible_fraction`",
        "use 0 to below 1",
    )?;
    require(
        workload.interval_ns >= INTERVAL_NS_MIN,
        || format!("an interval of {} ns", workload.interval_ns),
        "`interval_ns`",
        "intervals are at least 100 ms long",
    )?;
    require(
        !workload.streams.is_empty(),
        || "a paging workload without streams".into(),
        "`streams`",
        "add a stream",
    )?;
    let mut names = BTreeSet::new();
    for stream in &workload.streams {
        require(
            names.insert(&stream.name),
            || format!("two streams named `{}`", stream.name),
            "`streams`",
            "give each its own name",
        )?;
        check_stream(workload, stream)?;
    }
    Ok(())
}

fn check_stream(workload: &PagingWorkload, stream: &PagingStream) -> Result<(), PagingError> {
    let at = format!("stream `{}`", stream.name);
    require(
        (1..=JOBS_MAX).contains(&stream.jobs),
        || format!("{} jobs", stream.jobs),
        &at,
        "use 1 to 4096 jobs",
    )?;
    require(
        (0.0..=1.0).contains(&stream.read_fraction),
        || format!("a read fraction of {}", stream.read_fraction),
        &at,
        "use 0 to 1",
    )?;
    require(
        stream.read_fraction == 1.0 || matches!(workload.target, Target::Virtual { .. }),
        || "writes to a mapped file".into(),
        &at,
        "files are mapped read-only: use a read fraction of 1",
    )?;
    let is_positive = match stream.pattern {
        Pattern::Zipfian { theta } => theta > 0.0 && theta.is_finite(),
        Pattern::Normal { deviation } => deviation > 0.0 && deviation <= 100.0,
        Pattern::Uniform | Pattern::Sequential => true,
    };
    require(
        is_positive,
        || format!("the pattern {:?}", stream.pattern),
        &at,
        "use a skew above 0, or a deviation above 0 and up to 100",
    )?;
    require(
        workload.duration_ns.is_some() || stream.limit_operations.is_some(),
        || "a stream without an end".into(),
        &at,
        "set `duration_ns`, or `limit_operations` of every stream",
    )
}

fn require(condition: bool, what: impl FnOnce() -> String, context: &str, hint: &str) -> Result<(), PagingError> {
    match condition {
        true => Ok(()),
        false => Err(PagingError::invalid(
            format!("{} is not supported", what()),
            context,
            hint,
        )),
    }
}
