//! Requirements of a spec.

use iosonde_harness::RunError;
use iosonde_protocol::{Arrival, ObjectsWorkload};

use crate::content::SMALLEST;

const LARGEST: u64 = 64 << 20;
const MOST_IN_FLIGHT: u64 = 1 << 16;

pub(crate) fn check(workload: &ObjectsWorkload) -> Result<(), RunError> {
    let in_flight: u64 = workload
        .streams
        .iter()
        .map(|stream| u64::from(stream.jobs) * u64::from(stream.queue_depth))
        .sum();
    let rules = [
        (
            !(SMALLEST..=LARGEST).contains(&workload.object_bytes),
            "an object has 64 B to 64 MiB",
            "`object_bytes`",
        ),
        (workload.objects == 0, "there is at least one object", "`objects`"),
        (
            workload.streams.iter().any(|stream| stream.queue_depth == 0),
            "`queue_depth` is at least 1",
            "`streams`",
        ),
        (
            in_flight > MOST_IN_FLIGHT,
            "at most 65536 operations are in flight",
            "`streams`",
        ),
        (
            workload.timeout_ns < 1_000_000_000,
            "a timeout is at least 1 s long",
            "`timeout_ns`",
        ),
    ];
    for (is_wrong, message, context) in rules {
        if is_wrong {
            return Err(RunError::invalid(message, context, "correct the value"));
        }
    }
    workload
        .streams
        .iter()
        .try_for_each(|stream| check_arrival(&stream.arrival))
}

fn check_arrival(arrival: &Arrival) -> Result<(), RunError> {
    let is_right = match arrival {
        Arrival::Closed => true,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => rate.is_finite() && *rate > 0.0,
        Arrival::Steps { .. } | Arrival::Trace { .. } => false,
    };
    let message = "objects arrive in closed loop, or at a `constant` or `poisson` rate above 0";
    is_right
        .then_some(())
        .ok_or_else(|| RunError::invalid(message, "`streams.arrival`", "correct the value"))
}
