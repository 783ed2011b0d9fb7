//! Single-row durable commits: every client inserts a row, or updates its own, in a transaction of its own.
//!
//! Each transaction is one statement in one round trip (autocommit), so its latency is that of the server's commit: over
//! clients it is the group-commit curve of the log device.

use std::collections::HashMap;
use std::path::Path;

use crate::sql::{Connection, Param, SqlError, Statement, Traffic};
use iosonde_harness::load::Rng;
use iosonde_harness::{Run, RunError};
use iosonde_protocol::{
    CommitMeasurement, CommitOperation, CommitWorkload, DurabilityResult, Event, OltpResult, Operation, Phase,
    RunResult,
};

use crate::acknowledged::{self, Acknowledged};
use crate::marker::{self, Contents, State};
use crate::terminal::{Done, Work};
use crate::threads::{Rules, measure};
use crate::{Commit, server, warn_of_loss};

/// Name of the workload in the marker of its databases.
const NAME: &str = "commit";
const TABLES: [&str; 2] = ["commit_log", "commit_row"];

/// Carries out the steps of the workload.
pub(crate) fn run(commit: &Commit<'_>, run: &mut Run<'_>) -> Result<RunResult, RunError> {
    let workload = commit.0;
    let mut connection = server::open_first(&workload.server)?;
    let mut result = OltpResult {
        server: server::about(&workload.server, &mut *connection)?,
        ..OltpResult::default()
    };
    let contents = Contents::survey(&workload.server, &mut *connection, NAME, &TABLES)?;
    contents.refuse_foreign(&workload.server)?;
    if let Some(directory) = &workload.verify_acknowledged {
        result.durability = Some(verify(workload.operation, directory, &mut *connection, run)?);
    }
    let mut run_result = run.unmeasured();
    if let Some(measurement) = workload.measurement.as_ref().filter(|_| !run.is_stopped()) {
        create(workload, measurement.clients, &mut *connection)?;
        drop(connection);
        run_result = measured(commit, measurement, &mut result, run)?;
        warn_of_loss(&result, run);
    }
    run_result.oltp = Some(result);
    Ok(run_result)
}

/// Drops and creates the table.
fn create(workload: &CommitWorkload, clients: u32, connection: &mut dyn Connection) -> Result<(), RunError> {
    for table in TABLES {
        connection.query(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    marker::create(connection, NAME, &[])?;
    connection.query(match workload.operation {
        CommitOperation::Insert => {
            "CREATE TABLE commit_log (client INT NOT NULL, sequence BIGINT NOT NULL, payload VARCHAR(8000) NOT NULL, \
             PRIMARY KEY (client, sequence))"
        }
        CommitOperation::Update => {
            "CREATE TABLE commit_row (client INT NOT NULL PRIMARY KEY, sequence BIGINT NOT NULL, \
             payload VARCHAR(8000) NOT NULL)"
        }
    })?;
    if workload.operation == CommitOperation::Update {
        for client in 1..=clients {
            connection.query(&format!("INSERT INTO commit_row VALUES ({client}, 0, '')"))?;
        }
    }
    marker::set(connection, State::Used)
}

fn measured(
    commit: &Commit<'_>,
    measurement: &CommitMeasurement,
    result: &mut OltpResult,
    run: &mut Run<'_>,
) -> Result<RunResult, RunError> {
    let (workload, seed) = (commit.0, run.inputs.seed);
    let connect = |number: u32| {
        let mut connection = server::open(&workload.server)?;
        let statement = connection.prepare(match workload.operation {
            CommitOperation::Insert => "INSERT INTO commit_log (sequence, payload, client) VALUES (?, ?, ?)",
            CommitOperation::Update => "UPDATE commit_row SET sequence = ?, payload = ? WHERE client = ?",
        })?;
        let mut rng = Rng::new(seed, &[0xc0, u64::from(number)]);
        let letters = (0..workload.payload_bytes).map(|_| b'a' + rng.below(26) as u8);
        Ok(Client {
            connection,
            statement,
            payload: letters.collect(),
            client: number + 1,
            sequence: 0,
        })
    };
    let rules = Rules {
        retries: 0,
        acknowledged: measurement.acknowledged.as_ref(),
        server_loss: measurement.server_loss,
    };
    measure(commit, &rules, &connect, result, run)
}

/// A client on its connection.
struct Client {
    connection: Box<dyn Connection>,
    statement: Statement,
    payload: Vec<u8>,
    client: u32,
    sequence: u64,
}

impl Work for Client {
    fn choose(&mut self) -> (Operation, u64, u64) {
        self.sequence += 1;
        // Every row differs from the one before.
        let place = self.sequence as usize % self.payload.len();
        self.payload[place] = b'a' + (self.payload[place] - b'a' + 1) % 26;
        (Operation::Commit, 0, 0)
    }

    fn attempt(&mut self, _at_us: i64) -> Result<Done, SqlError> {
        self.connection.clear();
        let params = [
            Param::Int(self.sequence as i64),
            Param::Text(&self.payload),
            Param::Int(self.client.into()),
        ];
        self.connection.queue(self.statement, &params);
        self.connection.exchange()?;
        Ok(Done::Committed(Some(Acknowledged {
            group: self.client,
            part: 0,
            number: self.sequence,
        })))
    }

    fn abort(&mut self) -> Result<(), SqlError> {
        // A statement that failed outside of a transaction leaves none open.
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.connection.traffic()
    }
}

/// Counts acknowledged commits that the database does not have. Of updated rows the last one counts: a row is lost back to
/// the sequence number that it has.
fn verify(
    operation: CommitOperation,
    directory: &str,
    connection: &mut dyn Connection,
    run: &mut Run<'_>,
) -> Result<DurabilityResult, RunError> {
    let all = acknowledged::read(Path::new(directory))?;
    run.begin(Phase::Verify);
    let sql = match operation {
        CommitOperation::Insert => "SELECT client, sequence FROM commit_log ORDER BY client, sequence",
        CommitOperation::Update => "SELECT client, sequence FROM commit_row",
    };
    let rows = connection
        .query(sql)
        .map_err(|error| RunError::from(error).at("looking up acknowledged commits"))?;
    let present = rows.iter().filter_map(|row| match &row[..] {
        [Some(client), Some(sequence)] => Some((client.parse::<u32>().ok()?, sequence.parse::<u64>().ok()?)),
        _ => None,
    });
    let result = match operation {
        CommitOperation::Insert => {
            let present: std::collections::HashSet<(u32, u64)> = present.collect();
            lost(&all, |id| present.contains(&(id.group, id.number)))
        }
        CommitOperation::Update => {
            let newest: HashMap<u32, u64> = present.collect();
            lost(&all, |id| {
                newest.get(&id.group).is_some_and(|newest| *newest >= id.number)
            })
        }
    };
    run.end(Phase::Verify, 0);
    run.emit(Event::Durability(result.clone()));
    Ok(result)
}

fn lost(all: &[Acknowledged], is_present: impl Fn(&Acknowledged) -> bool) -> DurabilityResult {
    let mut result = DurabilityResult {
        acknowledged: all.len() as u64,
        ..DurabilityResult::default()
    };
    for id in all.iter().filter(|id| !is_present(id)) {
        acknowledged::note_lost(&mut result, || format!("{}/{}", id.group, id.number));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_commits_are_counted_and_the_first_ones_named() {
        let (group, part) = (3, 0);
        let all = (1..=40).map(|number| Acknowledged { group, part, number });
        let result = lost(&all.collect::<Vec<_>>(), |id| id.number <= 10);
        assert_eq!((result.acknowledged, result.lost), (40, 30));
        assert_eq!(result.first_lost.len(), acknowledged::NAMED_MAX);
        assert_eq!(result.first_lost[0], "3/11");
    }
}
