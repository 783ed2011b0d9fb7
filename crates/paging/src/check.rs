//! Refuses inconsistent specs before anything is mapped.

use iosonde_harness::{RunError, require};
use iosonde_protocol::{PagingStream, PagingWorkload, Pattern, Target};

/// More cannot be mapped on the machines that there are.
const BYTES_MAX: u64 = 1 << 46;

/// Checks everything that follows from the spec alone.
pub(crate) fn check(workload: &PagingWorkload, page_bytes: u64) -> Result<(), RunError> {
    let size_bytes = match &workload.target {
        Target::Virtual { size_bytes } | Target::File { size_bytes, .. } => *size_bytes,
        _ => {
            return Err(RunError::invalid(
                "only anonymous memory and single files can be mapped",
                "`target`",
                "use a target of the kind `virtual` or `file`",
            ));
        }
    };
    require(
        (page_bytes..=BYTES_MAX).contains(&size_bytes),
        || format!("a mapping must have one page to 64 TiB; got {size_bytes} bytes"),
        "`target.size_bytes`",
        "use another size",
    )?;
    require(
        (0.0..1.0).contains(&workload.compressible_fraction),
        || {
            format!(
                "the compressible fraction must be at least 0 and below 1; got {}",
                workload.compressible_fraction
            )
        },
        "`compressible_fraction`",
        "use another fraction",
    )?;
    workload
        .streams
        .iter()
        .try_for_each(|stream| check_stream(workload, stream))
}

fn check_stream(workload: &PagingWorkload, stream: &PagingStream) -> Result<(), RunError> {
    let at = format!("stream `{}`", stream.name);
    require(
        (0.0..=1.0).contains(&stream.read_fraction),
        || format!("the read fraction must be 0 to 1; got {}", stream.read_fraction),
        &at,
        "use another fraction",
    )?;
    require(
        stream.read_fraction == 1.0 || matches!(workload.target, Target::Virtual { .. }),
        || "a mapped file cannot be written".into(),
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
        || {
            format!(
                "skew and deviation must be above 0, a deviation at most 100; got {:?}",
                stream.pattern
            )
        },
        &at,
        "use another pattern",
    )
}
