//! TPC-C 5.11 (www.tpc.org): schema, population, transactions, input rules, consistency conditions.
//!
//! Deviations from the specification: deliveries are carried out by the terminal itself and not queued, the screens of
//! terminals are not emulated, and without keying and think times the result is TPC-C-like.

mod consistency;
mod durability;
mod load;
mod population;
mod rules;
mod schema;
mod statements;
mod transactions;

use std::collections::BTreeMap;

use iosonde_protocol::{
    ConsistencyMoment, LayoutResult, OltpLoad, OltpResult, Operation, RunResult, ThinkTime, TpccDatabase,
    TpccMeasurement, TpccWorkload,
};
use iosonde_sql::{Connection, SqlError, Traffic};

use self::load::Loading;
use self::rules::{Constants, Input, Keyboard};
use self::statements::Statements;
use self::transactions::Transactions;
use crate::error::{Code, OltpError};
use crate::marker::{self, Contents, State};
use crate::stage::Stage;
use crate::terminal::{Done, Work};
use crate::threads::{Load, measure};
use crate::{Context, server, unmeasured, warn_of_loss};

/// Name of the workload in the marker of its databases.
pub(crate) const NAME: &str = "tpcc";

/// Carries out the steps of the workload, in the order of the protocol.
pub(crate) fn run(
    workload: &TpccWorkload,
    context: &Context<'_>,
    stage: &mut Stage<'_>,
) -> Result<RunResult, OltpError> {
    let mut connection = server::open_first(&workload.server)?;
    let about = server::about(&workload.server, &mut *connection)?;
    if workload.database != TpccDatabase::Foreign {
        server::check_encoding(&workload.server, &about)?;
    }
    let constants = Constants::new(workload.seed, context.seed);
    let mut result = OltpResult {
        server: about,
        constants: named(constants),
        ..OltpResult::default()
    };
    if let Some(directory) = &workload.verify_acknowledged {
        result.durability = Some(durability::verify(directory, &mut *connection, stage)?);
    }
    let layout = bring_about(workload, constants, &mut *connection, &mut result, stage)?;
    let mut run_result = unmeasured(&workload.server, context.clock, stage.is_stopped());
    if workload.check.before && !stage.is_stopped() {
        check(&mut *connection, ConsistencyMoment::Before, &mut result, stage)?;
    }
    if let Some(measurement) = workload.measurement.as_ref().filter(|_| !stage.is_stopped()) {
        if workload.database != TpccDatabase::Foreign {
            marker::set(&mut *connection, State::Used)?;
        }
        drop(connection);
        run_result = measured(workload, measurement, constants, context, &mut result, stage)?;
        warn_of_loss(&result, stage);
        if workload.check.after && result.server_vanished_ns.is_none() {
            let mut connection = server::open(&workload.server)?;
            check(&mut *connection, ConsistencyMoment::After, &mut result, stage)?;
        }
    }
    run_result.layout = layout;
    run_result.oltp = Some(result);
    Ok(run_result)
}

fn named(constants: Constants) -> BTreeMap<String, u32> {
    [
        ("c_last_load", constants.c_last_load),
        ("c_last", constants.c_last),
        ("c_id", constants.c_id),
        ("ol_i_id", constants.ol_i_id),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The database in the state that the workload requires.
fn bring_about(
    workload: &TpccWorkload,
    constants: Constants,
    connection: &mut dyn Connection,
    result: &mut OltpResult,
    stage: &mut Stage<'_>,
) -> Result<LayoutResult, OltpError> {
    let nothing = LayoutResult::default();
    let values = [
        ("warehouses", workload.warehouses.to_string()),
        ("seed", workload.seed.to_string()),
    ];
    let TpccDatabase::Loaded { reload, jobs } = workload.database else {
        require_scale(workload, connection, &values)?;
        return Ok(nothing);
    };
    let contents = Contents::survey(&workload.server, connection, NAME, &schema::names())?;
    contents.refuse_foreign(&workload.server)?;
    if !reload && contents.is(State::Complete, &values) {
        result.load = Some(OltpLoad {
            kept: true,
            ..OltpLoad::default()
        });
        return Ok(nothing);
    }
    let loading = Loading {
        server: &workload.server,
        warehouses: workload.warehouses,
        seed: workload.seed,
        constants,
        jobs,
    };
    result.load = load::load(&loading, connection, &values, stage)?;
    Ok(LayoutResult {
        written_bytes: result.load.as_ref().map_or(0, |load| load.bytes),
        ..nothing
    })
}

/// A database that is used as it is must have the scale that the inputs are chosen for, and unless foreign the seed.
fn require_scale(
    workload: &TpccWorkload,
    connection: &mut dyn Connection,
    values: &[(&str, String)],
) -> Result<(), OltpError> {
    let name = &workload.server.database;
    if workload.database == TpccDatabase::Existing {
        let contents = Contents::survey(&workload.server, connection, NAME, &schema::names())?;
        contents.refuse_foreign(&workload.server)?;
        if contents.has(values) && !contents.is(State::Loading, values) {
            return Ok(());
        }
        let warehouses = workload.warehouses;
        return Err(OltpError::new(
            Code::ForeignData,
            format!("the database `{name}` is not a complete TPC-C database of {warehouses} warehouses and this seed"),
            "load it first (`database` of kind `loaded`)",
        )
        .at("checking the database"));
    }
    let counted = connection
        .query("SELECT COUNT(*) FROM warehouse")
        .map_err(|error| OltpError::from(error).at("counting the warehouses"))?;
    let found = counted.into_iter().flatten().flatten().next().unwrap_or_default();
    if found == workload.warehouses.to_string() {
        return Ok(());
    }
    Err(OltpError::invalid(
        format!(
            "the database `{name}` has {found} warehouses, not {}",
            workload.warehouses
        ),
        "`warehouses`",
        "set `warehouses` to the scale of the database",
    ))
}

fn check(
    connection: &mut dyn Connection,
    moment: ConsistencyMoment,
    result: &mut OltpResult,
    stage: &mut Stage<'_>,
) -> Result<(), OltpError> {
    if let Some(checked) = consistency::check(connection, moment, stage)? {
        consistency::require(&checked)?;
        result.consistency.push(checked);
    }
    Ok(())
}

/// Ramp and measurement.
fn measured(
    workload: &TpccWorkload,
    measurement: &TpccMeasurement,
    constants: Constants,
    context: &Context<'_>,
    result: &mut OltpResult,
    stage: &mut Stage<'_>,
) -> Result<RunResult, OltpError> {
    let load = Load {
        kind: workload.server.kind,
        stream: "terminals",
        terminals: measurement.terminals,
        arrival: &measurement.arrival,
        retries: measurement.retries,
        ramp_ns: measurement.ramp_ns,
        duration_ns: measurement.duration_ns,
        interval_ns: measurement.interval_ns,
        acknowledged: measurement.acknowledged.as_ref(),
        server_loss: measurement.server_loss,
        cpus: &measurement.cpus,
    };
    let connect = |number: u32| {
        let mut connection = server::open(&workload.server)?;
        let statements = Statements::prepare(workload.server.kind, measurement.isolation, &mut *connection)?;
        Ok(Terminal {
            transactions: Transactions {
                connection,
                statements,
                pipelining: measurement.pipelining,
            },
            keyboard: Keyboard::new(
                context.seed,
                number,
                workload.warehouses,
                constants,
                measurement.home,
                measurement.mix,
            ),
            think: measurement.think,
            input: None,
        })
    };
    let measured = measure(&load, context, &connect, stage)?;
    result.pipelining = measurement.pipelining;
    result.server.isolation = server::isolation_name(measurement.isolation).to_lowercase();
    result.transactions = measured.transactions;
    result.counters = measured.counters;
    result.acknowledged = measured.acknowledged;
    result.server_vanished_ns = measured.server_vanished_ns;
    Ok(measured.result)
}

/// A terminal of TPC-C.
struct Terminal {
    transactions: Transactions,
    keyboard: Keyboard,
    think: ThinkTime,
    input: Option<Input>,
}

impl Work for Terminal {
    fn choose(&mut self) -> (Operation, u64, u64) {
        let input = self.keyboard.enter();
        let operation = input.operation();
        self.input = Some(input);
        let (keying_ns, think_ns) = self.keyboard.pauses(operation, self.think);
        (operation, keying_ns, think_ns)
    }

    fn attempt(&mut self, at_us: i64) -> Result<Done, SqlError> {
        let input = self.input.as_ref().expect("a transaction was chosen");
        self.transactions.attempt(input, at_us)
    }

    fn abort(&mut self) -> Result<(), SqlError> {
        self.transactions.abort()
    }

    fn traffic(&self) -> Traffic {
        self.transactions.connection.traffic()
    }
}
