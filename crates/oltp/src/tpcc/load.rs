//! Phase `layout`: creates and fills the nine tables over several connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sql::Connection;
use iosonde_harness::{Run, RunError};
use iosonde_protocol::{OltpLoad, Phase, SqlServer, SqlServerKind};

use super::population::{Part, Population};
use super::rules::Constants;
use super::schema::{TABLES, Table};
use crate::{marker, server};

/// Period at which the progress of loading is polled.
const POLL: Duration = Duration::from_millis(20);

/// Inputs of loading.
pub(crate) struct Loading<'a> {
    pub server: &'a SqlServer,
    pub warehouses: u32,
    pub seed: u64,
    pub constants: Constants,
    pub jobs: u32,
}

/// Drops what the engine created, creates the tables and fills them. None if the run was stopped meanwhile.
pub(crate) fn load(
    loading: &Loading<'_>,
    connection: &mut dyn Connection,
    values: &[(&str, String)],
    run: &mut Run<'_>,
) -> Result<Option<OltpLoad>, RunError> {
    let begin_ns = run.begin(Phase::Layout);
    for table in &TABLES {
        connection.query(&format!("DROP TABLE IF EXISTS {}", table.name))?;
    }
    marker::create(connection, super::NAME, values)?;
    for table in &TABLES {
        connection.query(&table.create(loading.server.kind))?;
    }
    let totals = Totals::default();
    let parts = Part::all(loading.warehouses);
    let date = now(connection)?;
    let population = Population {
        seed: loading.seed,
        constants: loading.constants,
        date: &date,
    };
    let fill = |connection: &mut dyn Connection, number: usize| fill(&population, parts[number], connection, &totals);
    let Some(method) = in_parallel(loading, parts.len(), &fill, &totals, run)? else {
        return Ok(None);
    };
    let indexes: Vec<Vec<String>> = TABLES.iter().map(|table| table.index(loading.server.kind)).collect();
    let index = |connection: &mut dyn Connection, number: usize| {
        for statement in &indexes[number] {
            connection.query(statement)?;
        }
        Ok(())
    };
    if in_parallel(loading, indexes.len(), &index, &totals, run)?.is_none() {
        return Ok(None);
    }
    marker::set(connection, marker::State::Complete)?;
    let bytes = totals.bytes.load(Ordering::Relaxed);
    let end_ns = run.end(Phase::Layout, bytes);
    Ok(Some(OltpLoad {
        kept: false,
        method: method.into(),
        jobs: loading.jobs,
        rows: totals.rows.load(Ordering::Relaxed),
        bytes,
        duration_ns: end_ns - begin_ns,
    }))
}

#[derive(Default)]
struct Totals {
    rows: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// The wall clock as the server writes it.
fn now(connection: &mut dyn Connection) -> Result<String, RunError> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let sql = match connection.version().product {
        "PostgreSQL" => format!("SELECT to_char(to_timestamp({seconds}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')"),
        _ => format!("SELECT DATE_FORMAT(TIMESTAMPADD(SECOND, {seconds}, '1970-01-01'), '%Y-%m-%d %H:%i:%s')"),
    };
    let rows = connection.query(&sql)?;
    Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
}

fn fill(
    population: &Population<'_>,
    part: Part,
    connection: &mut dyn Connection,
    totals: &Totals,
) -> Result<(), RunError> {
    let table = Table::named(part.table());
    connection.load_begin(table.name, &table.column_names())?;
    let rows = population.write(part, &mut |lines| {
        totals.bytes.fetch_add(lines.len() as u64, Ordering::Relaxed);
        connection.load_rows(lines)
    });
    // The server's errors about the rows come at the end, also when sending them failed.
    let ended = connection.load_end();
    let rows = rows
        .map_err(RunError::from)
        .and_then(|rows| ended.map(|()| rows).map_err(RunError::from));
    totals.rows.fetch_add(
        rows.map_err(|error| error.at(format!("loading `{}`", table.name)))?,
        Ordering::Relaxed,
    );
    Ok(())
}

/// Carries out numbered tasks over the loading connections; returns how rows were sent, or none if the run was stopped.
fn in_parallel(
    loading: &Loading<'_>,
    tasks: usize,
    task: &(dyn Fn(&mut dyn Connection, usize) -> Result<(), RunError> + Sync),
    totals: &Totals,
    run: &mut Run<'_>,
) -> Result<Option<&'static str>, RunError> {
    let (next, failed, method) = (AtomicUsize::new(0), Mutex::new(None), Mutex::new(""));
    let work = || -> Result<(), RunError> {
        let mut connection = server::open(loading.server)?;
        prepare(loading.server, &mut *connection)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= tasks || totals.stop.load(Ordering::Relaxed) {
                *method.lock().expect("no task panics with it") = connection.load_method();
                return Ok(());
            }
            task(&mut *connection, number)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..loading.jobs)
            .map(|_| {
                scope.spawn(|| {
                    if let Err(error) = work() {
                        totals.stop.store(true, Ordering::Relaxed);
                        failed.lock().expect("no task panics with it").get_or_insert(error);
                    }
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            run.wait(POLL);
            run.progress(Phase::Layout, totals.bytes.load(Ordering::Relaxed));
            if run.is_stopped() {
                totals.stop.store(true, Ordering::Relaxed);
            }
        }
    });
    match failed.into_inner().expect("no task panics with it") {
        Some(error) => Err(error.at("phase `layout`")),
        None if run.is_stopped() => Ok(None),
        None => Ok(Some(method.into_inner().expect("no task panics with it"))),
    }
}

/// Session settings that make loading faster and do not outlive the connection.
fn prepare(server: &SqlServer, connection: &mut dyn Connection) -> Result<(), RunError> {
    let settings: &[&str] = match server.kind {
        SqlServerKind::Postgresql => &["SET synchronous_commit = off", "SET maintenance_work_mem = '128MB'"],
        SqlServerKind::Mariadb => &["SET SESSION unique_checks = 0", "SET SESSION foreign_key_checks = 0"],
    };
    for setting in settings {
        connection.query(setting)?;
    }
    Ok(())
}
