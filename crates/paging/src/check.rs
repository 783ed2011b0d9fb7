//! Refuses inconsistent specs before anything is mapped.

use iosonde_harness::{RunError, require};
use iosonde_protocol::{PagingStream, PagingWorkload, Pattern, Target};

/// More cannot be mapped on the machines that there are.
const BYTES_MAX: u64 = 1 << 46;

/// Checks everything that follows from the spec alone.
pub(crate) fn check(workload: &PagingWorkload, page_bytes: u64) -> Result<(), RunError> {
    let size_bytes = match &workload.target {
        Target::Virtual { size_bytes } | Target::File { size_bytes, .. } => *size_bytes,
        _ => return Err(RunError::out_of_range("`target`")),
    };
    let is_size = (page_bytes..=BYTES_MAX).contains(&size_bytes);
    require(is_size, "`target.size_bytes`")?;
    let is_share = (0.0..1.0).contains(&workload.compressible_fraction);
    require(is_share, "`compressible_fraction`")?;
    let mut streams = workload.streams.iter();
    streams.try_for_each(|stream| check_stream(workload, stream))
}

/// Files are mapped read-only.
fn check_stream(workload: &PagingWorkload, stream: &PagingStream) -> Result<(), RunError> {
    let is_anonymous = matches!(workload.target, Target::Virtual { .. });
    let is_share = (0.0..=1.0).contains(&stream.read_fraction);
    let is_pattern = match stream.pattern {
        Pattern::Zipfian { theta } => theta > 0.0 && theta.is_finite(),
        Pattern::Normal { deviation } => deviation > 0.0 && deviation <= 100.0,
        Pattern::Uniform | Pattern::Sequential => true,
    };
    require(
        is_share && is_pattern && (is_anonymous || stream.read_fraction == 1.0),
        format!("stream `{}`", stream.name),
    )
}
