//! Refuses specs that contradict themselves.

use iosonde_protocol::{Arrival, CommitWorkload, SqlServer, ThinkTime, TpccDatabase, TpccWorkload};

use crate::error::OltpError;

const INTERVAL_MIN_NS: u64 = 100_000_000;
const TERMINALS_MAX: u32 = 10_000;
const WAREHOUSES_MAX: u32 = 100_000;
const PAYLOAD_MAX: u32 = 8000;

pub(crate) fn tpcc(workload: &TpccWorkload) -> Result<(), OltpError> {
    server(&workload.server)?;
    within(workload.warehouses, WAREHOUSES_MAX, "`warehouses`")?;
    if let TpccDatabase::Loaded { jobs, .. } = workload.database {
        within(jobs, TERMINALS_MAX, "`database.jobs`")?;
    }
    let Some(measurement) = &workload.measurement else {
        return Ok(());
    };
    within(measurement.terminals, TERMINALS_MAX, "`measurement.terminals`")?;
    times(measurement.duration_ns, measurement.interval_ns)?;
    arrival(&measurement.arrival)?;
    if measurement.arrival != Arrival::Closed && measurement.think != ThinkTime::None {
        return Err(OltpError::invalid(
            "an open loop has no think times: its rate says when transactions start",
            "`measurement.think`",
            "set `think` to `none`, or `arrival` to `closed`",
        ));
    }
    Ok(())
}

pub(crate) fn commit(workload: &CommitWorkload) -> Result<(), OltpError> {
    server(&workload.server)?;
    within(workload.payload_bytes, PAYLOAD_MAX, "`payload_bytes`")?;
    let Some(measurement) = &workload.measurement else {
        return Ok(());
    };
    within(measurement.clients, TERMINALS_MAX, "`measurement.clients`")?;
    times(measurement.duration_ns, measurement.interval_ns)?;
    arrival(&measurement.arrival)
}

/// The name of the database goes into statements as it is.
fn server(server: &SqlServer) -> Result<(), OltpError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !server.database.is_empty() && server.database.len() <= 63 && server.database.bytes().all(is_plain) {
        return Ok(());
    }
    Err(OltpError::invalid(
        format!("`{}` is not a valid database name", server.database),
        "`server.database`",
        "use 1 to 63 letters, digits and underscores",
    ))
}

fn within(value: u32, most: u32, place: &str) -> Result<(), OltpError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(OltpError::invalid(
        format!("{value} is out of range"),
        place,
        format!("choose a number from 1 to {most}"),
    ))
}

fn times(duration_ns: u64, interval_ns: u64) -> Result<(), OltpError> {
    let (place, hint) = if duration_ns == 0 {
        ("`measurement.duration_ns`", "choose more than 0 s")
    } else if interval_ns < INTERVAL_MIN_NS {
        ("`measurement.interval_ns`", "choose at least 100 ms")
    } else {
        return Ok(());
    };
    Err(OltpError::invalid("the time is too short", place, hint))
}

fn arrival(arrival: &Arrival) -> Result<(), OltpError> {
    let valid = |rate: f64| rate.is_finite() && rate > 0.0;
    let is_valid = match arrival {
        Arrival::Closed => true,
        Arrival::Trace { .. } => false,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => valid(*rate),
        Arrival::Steps { steps, .. } => {
            steps.iter().all(|step| step.rate.is_finite() && step.rate >= 0.0)
                && steps.iter().any(|step| step.rate > 0.0)
        }
    };
    if is_valid {
        return Ok(());
    }
    Err(OltpError::invalid(
        "a rate must be a number above 0",
        "`measurement.arrival`",
        "choose transactions per second",
    ))
}
