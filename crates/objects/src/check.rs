//! What a spec must fulfil.

use iosonde_protocol::{Arrival, ObjectsWorkload};

use crate::content::SMALLEST;
use crate::error::ObjectsError;

const LARGEST: u64 = 64 << 20;
const SHORTEST_INTERVAL_NS: u64 = 100_000_000;
const MOST_IN_FLIGHT: u64 = 1 << 16;

pub(crate) fn check(workload: &ObjectsWorkload) -> Result<(), ObjectsError> {
    let jobs: u64 = workload.streams.iter().map(|stream| u64::from(stream.jobs)).sum();
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
        (workload.streams.is_empty(), "there is at least one stream", "`streams`"),
        (
            jobs == 0
                || workload
                    .streams
                    .iter()
                    .any(|stream| stream.jobs == 0 || stream.queue_depth == 0),
            "`jobs` and `queue_depth` are at least 1",
            "`streams`",
        ),
        (
            in_flight > MOST_IN_FLIGHT,
            "at most 65536 operations are in flight",
            "`streams`",
        ),
        (
            workload.duration_ns == 0,
            "the measurement has a length",
            "`duration_ns`",
        ),
        (
            workload.interval_ns < SHORTEST_INTERVAL_NS,
            "an interval is at least 100 ms long",
            "`interval_ns`",
        ),
        (
            workload.timeout_ns < 1_000_000_000,
            "a timeout is at least 1 s long",
            "`timeout_ns`",
        ),
    ];
    for (is_wrong, message, context) in rules {
        if is_wrong {
            return Err(ObjectsError::invalid(message, context, "correct the value"));
        }
    }
    workload
        .streams
        .iter()
        .try_for_each(|stream| check_arrival(&stream.arrival))
}

fn check_arrival(arrival: &Arrival) -> Result<(), ObjectsError> {
    let is_right = match arrival {
        Arrival::Closed => true,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => rate.is_finite() && *rate > 0.0,
        Arrival::Steps { .. } | Arrival::Trace { .. } => false,
    };
    let message = "objects arrive in closed loop, or at a `constant` or `poisson` rate above 0";
    is_right
        .then_some(())
        .ok_or_else(|| ObjectsError::invalid(message, "`streams.arrival`", "correct the value"))
}
