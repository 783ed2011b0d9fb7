//! Refuses specs that contradict themselves.

use iosonde_harness::load::check::validate_arrival;
use iosonde_harness::{RunError, require};
use iosonde_protocol::{Arrival, CommitWorkload, SqlServer, ThinkTime, TpccDatabase, TpccWorkload};

const JOBS_MAX: u32 = 10_000;
const WAREHOUSES_MAX: u32 = 100_000;
const PAYLOAD_MAX: u32 = 8000;

pub(crate) fn tpcc(workload: &TpccWorkload) -> Result<(), RunError> {
    server(&workload.server)?;
    require((1..=WAREHOUSES_MAX).contains(&workload.warehouses), "`warehouses`")?;
    if let TpccDatabase::Loaded { jobs, .. } = workload.database {
        require((1..=JOBS_MAX).contains(&jobs), "`database.jobs`")?;
    }
    let Some(measurement) = &workload.measurement else {
        return Ok(());
    };
    validate_arrival(&measurement.arrival, "`measurement.arrival`")?;
    // The rate of an open loop decides when transactions start.
    let is_closed = measurement.arrival == Arrival::Closed;
    require(is_closed || measurement.think == ThinkTime::None, "`measurement.think`")
}

pub(crate) fn commit(workload: &CommitWorkload) -> Result<(), RunError> {
    server(&workload.server)?;
    require((1..=PAYLOAD_MAX).contains(&workload.payload_bytes), "`payload_bytes`")?;
    match &workload.measurement {
        Some(measurement) => validate_arrival(&measurement.arrival, "`measurement.arrival`"),
        None => Ok(()),
    }
}

/// The name of the database goes into statements as it is.
fn server(server: &SqlServer) -> Result<(), RunError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let name = server.database.as_bytes();
    let is_name = (1..=63).contains(&name.len()) && name.iter().all(|byte| is_plain(*byte));
    require(is_name, "`server.database`")
}
