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

use crate::sql::{Connection, SqlError, Traffic};
use iosonde_harness::{Code, Run, RunError};
use iosonde_protocol::{
    ConsistencyMoment, LayoutResult, OltpLoad, OltpResult, Operation, RunResult, ThinkTime, TpccDatabase,
    TpccMeasurement, TpccWorkload,
};

use self::load::Loading;
use self::rules::{Constants, Input, Keyboard};
use self::statements::Statements;
use self::transactions::Transactions;
use crate::marker::{self, Contents, State};
use crate::terminal::{Done, Work};
use crate::threads::{Rules, measure};
use crate::{Tpcc, server, warn_of_loss};

/// Name of the workload in the marker of its databases.
pub(crate) const NAME: &str = "tpcc";

/// Carries out the steps of the workload, in the order of the protocol.
pub(crate) fn run(tpcc: &Tpcc<'_>, run: &mut Run<'_>) -> Result<RunResult, RunError> {
    let workload = tpcc.0;
    let mut connection = server::open_first(&workload.server)?;
    let about = server::about(&workload.server, &mut *connection)?;
    if workload.database != TpccDatabase::Foreign {
        server::check_encoding(&workload.server, &about)?;
    }
    let constants = Constants::new(workload.seed, run.inputs.seed);
    let mut result = OltpResult {
        server: about,
        constants: named(constants),
        ..OltpResult::default()
    };
    if let Some(directory) = &workload.verify_acknowledged {
        result.durability = Some(durability::verify(directory, &mut *connection, run)?);
    }
    let layout = bring_about(workload, constants, &mut *connection, &mut result, run)?;
    let mut run_result = run.unmeasured();
    if workload.check.before && !run.is_stopped() {
        check(&mut *connection, ConsistencyMoment::Before, &mut result, run)?;
    }
    if let Some(measurement) = workload.measurement.as_ref().filter(|_| !run.is_stopped()) {
        if workload.database != TpccDatabase::Foreign {
            marker::set(&mut *connection, State::Used)?;
        }
        drop(connection);
        run_result = measured(tpcc, measurement, constants, &mut result, run)?;
        warn_of_loss(&result, run);
        if workload.check.after && result.server_vanished_ns.is_none() {
            let mut connection = server::open(&workload.server)?;
            check(&mut *connection, ConsistencyMoment::After, &mut result, run)?;
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
    run: &mut Run<'_>,
) -> Result<LayoutResult, RunError> {
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
    result.load = load::load(&loading, connection, &values, run)?;
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
) -> Result<(), RunError> {
    let name = &workload.server.database;
    if workload.database == TpccDatabase::Existing {
        let contents = Contents::survey(&workload.server, connection, NAME, &schema::names())?;
        contents.refuse_foreign(&workload.server)?;
        if contents.has(values) && !contents.is(State::Loading, values) {
            return Ok(());
        }
        let warehouses = workload.warehouses;
        return Err(RunError::new(
            Code::ForeignData,
            format!("the database `{name}` is not a complete TPC-C database of {warehouses} warehouses and this seed"),
            "load it first (`database` of kind `loaded`)",
        )
        .at("checking the database"));
    }
    let counted = connection
        .query("SELECT COUNT(*) FROM warehouse")
        .map_err(|error| RunError::from(error).at("counting the warehouses"))?;
    let found = counted.into_iter().flatten().flatten().next().unwrap_or_default();
    if found == workload.warehouses.to_string() {
        return Ok(());
    }
    Err(RunError::invalid(
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
    run: &mut Run<'_>,
) -> Result<(), RunError> {
    if let Some(checked) = consistency::check(connection, moment, run)? {
        consistency::require(&checked)?;
        result.consistency.push(checked);
    }
    Ok(())
}

/// Ramp and measurement.
fn measured(
    tpcc: &Tpcc<'_>,
    measurement: &TpccMeasurement,
    constants: Constants,
    result: &mut OltpResult,
    run: &mut Run<'_>,
) -> Result<RunResult, RunError> {
    let (workload, seed) = (tpcc.0, run.inputs.seed);
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
                seed,
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
    let rules = Rules {
        retries: measurement.retries,
        acknowledged: measurement.acknowledged.as_ref(),
        server_loss: measurement.server_loss,
    };
    let measured = measure(tpcc, &rules, &connect, result, run)?;
    result.pipelining = measurement.pipelining;
    result.server.isolation = server::isolation_name(measurement.isolation).to_lowercase();
    Ok(measured)
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
