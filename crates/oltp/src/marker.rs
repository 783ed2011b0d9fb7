//! Ownership of a database: a table `iosonde_database` names the workload and the state of what the engine created.

use std::collections::BTreeMap;

use crate::sql::Connection;
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{SqlServer, SqlServerKind};

const TABLE: &str = "iosonde_database";

/// Progress of a database of the engine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Loading began and did not end.
    Loading,
    /// As it was loaded.
    Complete,
    /// Load was applied.
    Used,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Loading => "loading",
            State::Complete => "complete",
            State::Used => "used",
        }
    }
}

/// Contents of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    /// No table.
    Empty,
    /// Tables of the engine, with what is known of them: `workload`, `state`, and the workload's own values.
    Ours(BTreeMap<String, String>),
    /// Foreign tables, one of which has this name.
    Foreign(String),
}

impl Contents {
    /// Looks at the database; `tables` are those that the workload may have created.
    pub(crate) fn survey(
        server: &SqlServer,
        connection: &mut dyn Connection,
        workload: &str,
        tables: &[&str],
    ) -> Result<Contents, RunError> {
        let sql = match server.kind {
            SqlServerKind::Postgresql => "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
            SqlServerKind::Mariadb => "SHOW TABLES",
        };
        let rows = connection.query(sql)?;
        let names: Vec<String> = rows.into_iter().flatten().flatten().collect();
        let Some(first) = names.first() else {
            return Ok(Contents::Empty);
        };
        if !names.iter().any(|name| name == TABLE) {
            return Ok(Contents::Foreign(first.clone()));
        }
        if let Some(foreign) = names
            .iter()
            .find(|name| *name != TABLE && !tables.contains(&name.as_str()))
        {
            return Ok(Contents::Foreign(foreign.clone()));
        }
        let rows = connection.query(&format!("SELECT name, value FROM {TABLE}"))?;
        let facts: BTreeMap<String, String> = rows
            .into_iter()
            .filter_map(|row| match &row[..] {
                [Some(name), Some(value)] => Some((name.clone(), value.clone())),
                _ => None,
            })
            .collect();
        match facts.get("workload") {
            Some(found) if found == workload => Ok(Contents::Ours(facts)),
            _ => Ok(Contents::Foreign(TABLE.into())),
        }
    }

    /// Refuses a foreign database.
    pub(crate) fn refuse_foreign(&self, server: &SqlServer) -> Result<(), RunError> {
        let Contents::Foreign(table) = self else { return Ok(()) };
        Err(RunError::new(
            Code::ForeignData,
            format!(
                "the database `{}` has a table `{table}` that this workload did not create",
                server.database
            ),
            "name another database in `server.database`; the engine drops only what it created",
        )
        .at("checking the database"))
    }

    /// Returns true if this is the workload's, in the given state, with the given values.
    pub(crate) fn is(&self, state: State, values: &[(&str, String)]) -> bool {
        self.has(values)
            && matches!(self, Contents::Ours(facts) if facts.get("state").is_some_and(|found| found == state.name()))
    }

    /// Returns true if this is the workload's with the given values, in any state.
    pub(crate) fn has(&self, values: &[(&str, String)]) -> bool {
        match self {
            Contents::Ours(facts) => values.iter().all(|(name, value)| facts.get(*name) == Some(value)),
            _ => false,
        }
    }
}

/// Creates the marker of a database that is about to be loaded.
pub(crate) fn create(
    connection: &mut dyn Connection,
    workload: &str,
    values: &[(&str, String)],
) -> Result<(), RunError> {
    connection.query(&format!("DROP TABLE IF EXISTS {TABLE}"))?;
    connection.query(&format!(
        "CREATE TABLE {TABLE} (name VARCHAR(40) NOT NULL PRIMARY KEY, value VARCHAR(200) NOT NULL)"
    ))?;
    let fixed = [
        ("workload", workload.to_owned()),
        ("state", State::Loading.name().to_owned()),
    ];
    for (name, value) in fixed.iter().chain(values) {
        connection.query(&format!("INSERT INTO {TABLE} VALUES ('{name}', '{value}')"))?;
    }
    Ok(())
}

/// Notes how far the database has come.
pub(crate) fn set(connection: &mut dyn Connection, state: State) -> Result<(), RunError> {
    let state = state.name();
    connection.query(&format!("UPDATE {TABLE} SET value = '{state}' WHERE name = 'state'"))?;
    Ok(())
}
