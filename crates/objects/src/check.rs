//! Requirements of a spec.

use iosonde_harness::{RunError, require};
use iosonde_protocol::{Arrival, ObjectsWorkload};

use crate::content::SMALLEST;

const LARGEST: u64 = 64 << 20;
const MOST_IN_FLIGHT: u64 = 1 << 16;

pub(crate) fn check(workload: &ObjectsWorkload) -> Result<(), RunError> {
    require((SMALLEST..=LARGEST).contains(&workload.object_bytes), "`object_bytes`")?;
    require(workload.objects > 0, "`objects`")?;
    let streams = || workload.streams.iter();
    let in_flight: u64 = streams()
        .map(|stream| u64::from(stream.jobs) * u64::from(stream.queue_depth))
        .sum();
    let is_deep = streams().all(|stream| stream.queue_depth > 0) && in_flight <= MOST_IN_FLIGHT;
    require(is_deep, "`streams`")?;
    require(workload.timeout_ns >= 1_000_000_000, "`timeout_ns`")?;
    let arrives = |arrival: &Arrival| match arrival {
        Arrival::Closed => true,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => rate.is_finite() && *rate > 0.0,
        Arrival::Steps { .. } | Arrival::Trace { .. } => false,
    };
    require(streams().all(|stream| arrives(&stream.arrival)), "`streams.arrival`")
}
