//! Refuses specs that contradict themselves.

use iosonde_harness::RunError;
use iosonde_harness::load::error::validate_arrival;
use iosonde_protocol::{Arrival, CommitWorkload, SqlServer, ThinkTime, TpccDatabase, TpccWorkload};

const JOBS_MAX: u32 = 10_000;
const WAREHOUSES_MAX: u32 = 100_000;
const PAYLOAD_MAX: u32 = 8000;

pub(crate) fn tpcc(workload: &TpccWorkload) -> Result<(), RunError> {
    server(&workload.server)?;
    within(workload.warehouses, WAREHOUSES_MAX, "`warehouses`")?;
    if let TpccDatabase::Loaded { jobs, .. } = workload.database {
        within(jobs, JOBS_MAX, "`database.jobs`")?;
    }
    let Some(measurement) = &workload.measurement else {
        return Ok(());
    };
    arrival(&measurement.arrival)?;
    if measurement.arrival != Arrival::Closed && measurement.think != ThinkTime::None {
        return Err(RunError::invalid(
            "an open loop has no think times: its rate says when transactions start",
            "`measurement.think`",
            "set `think` to `none`, or `arrival` to `closed`",
        ));
    }
    Ok(())
}

pub(crate) fn commit(workload: &CommitWorkload) -> Result<(), RunError> {
    server(&workload.server)?;
    within(workload.payload_bytes, PAYLOAD_MAX, "`payload_bytes`")?;
    workload
        .measurement
        .as_ref()
        .map_or(Ok(()), |measurement| arrival(&measurement.arrival))
}

/// The name of the database goes into statements as it is.
fn server(server: &SqlServer) -> Result<(), RunError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !server.database.is_empty() && server.database.len() <= 63 && server.database.bytes().all(is_plain) {
        return Ok(());
    }
    Err(RunError::invalid(
        format!("`{}` is not a valid database name", server.database),
        "`server.database`",
        "use 1 to 63 letters, digits and underscores",
    ))
}

fn within(value: u32, most: u32, place: &str) -> Result<(), RunError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(RunError::invalid(
        format!("{value} is out of range"),
        place,
        format!("choose a number from 1 to {most}"),
    ))
}

fn arrival(arrival: &Arrival) -> Result<(), RunError> {
    validate_arrival(arrival)
        .map_err(|error| RunError::invalid(error.to_string(), "`measurement.arrival`", error.hint()))
}
