//! A plain stream for the tests of this crate to change.

use iosonde_protocol::{Arrival, Coverage, Direction, KvChoice, KvDistribution, KvOperation, KvShare, KvStream};

/// One job, one operation, uniform choice, closed loop, without a limit.
pub(crate) fn stream(name: &str, operation: KvOperation) -> KvStream {
    KvStream {
        name: name.into(),
        jobs: 1,
        operations: vec![KvShare { operation, weight: 1.0 }],
        choice: KvChoice::Random {
            coverage: Coverage::WithReplacement,
            distribution: KvDistribution::Uniform,
        },
        direction: Direction::Forward,
        scan_records_min: 1,
        scan_records_max: 1,
        batch: 1,
        sync: false,
        freshness: false,
        read_through: None,
        trace: None,
        arrival: Arrival::Closed,
        rate_limit: None,
        background: false,
        limit_bytes: None,
        limit_operations: None,
        cpus: Vec::new(),
    }
}
