//! Options of the client and of the table.

use std::collections::BTreeMap;

use crate::options::{self, Choice, Given};
use iosonde_harness::RunError;
use scylla::statement::Consistency;

/// The store's name in messages.
pub(crate) const NAME: &str = "cassandra";
const IN_FLIGHT_MAX: u64 = 1024;

/// Levels of consistency by their CQL names.
const CONSISTENCIES: [(&str, Consistency); 6] = [
    ("one", Consistency::One),
    ("two", Consistency::Two),
    ("quorum", Consistency::Quorum),
    ("all", Consistency::All),
    ("local_one", Consistency::LocalOne),
    ("local_quorum", Consistency::LocalQuorum),
];

/// Product of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Cassandra,
    ScyllaDb,
}

impl Product {
    /// As the record has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Product::Cassandra => "Cassandra",
            Product::ScyllaDb => "ScyllaDB",
        }
    }
}

/// Options with their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Class of the compaction strategy; empty: the server's default.
    compaction: String,
    /// Class of the compressor of data files, or `none`; empty: the server's default.
    compression: String,
    /// Level of consistency.
    consistency: String,
    /// Writes of one commit in flight at the same time.
    pub(crate) in_flight: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            compaction: String::new(),
            compression: String::new(),
            consistency: "one".into(),
            in_flight: 64,
        }
    }
}

impl Settings {
    pub(crate) const NAMES: [&str; 4] = ["compaction", "compression", "consistency", "in_flight"];

    pub(crate) fn read(given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings::default();
        for option in options::each(NAME, given) {
            match option.name {
                "compaction" => settings.compaction = class(option)?,
                "compression" => settings.compression = class(option)?,
                "consistency" => settings.consistency = consistency(option)?,
                "in_flight" => settings.in_flight = option.within(1..=IN_FLIGHT_MAX)? as usize,
                _ => return Err(option.unknown(Settings::NAMES)),
            }
        }
        Ok(settings)
    }

    /// The level of consistency of every statement.
    pub(crate) fn consistency(&self) -> Consistency {
        CONSISTENCIES
            .iter()
            .find(|(name, _)| *name == self.consistency)
            .map_or(Consistency::One, |(_, level)| *level)
    }

    /// The end of `CREATE TABLE`. ScyllaDB has the option of compression that Cassandra had before 3.0.
    pub(crate) fn table_options(&self, product: Product) -> String {
        let mut found = Vec::new();
        if !self.compaction.is_empty() {
            found.push(format!("compaction = {{'class': '{}'}}", self.compaction));
        }
        match (self.compression.as_str(), product) {
            ("", _) => {}
            ("none", Product::Cassandra) => found.push("compression = {'enabled': 'false'}".into()),
            (class, Product::Cassandra) => found.push(format!("compression = {{'class': '{class}'}}")),
            ("none", Product::ScyllaDb) => found.push("compression = {'sstable_compression': ''}".into()),
            (class, Product::ScyllaDb) => found.push(format!("compression = {{'sstable_compression': '{class}'}}")),
        }
        match found[..] {
            [] => String::new(),
            _ => format!(" WITH {}", found.join(" AND ")),
        }
    }

    /// As the record has them.
    pub(crate) fn in_effect(&self) -> BTreeMap<String, String> {
        let or_default = |text: &str| match text {
            "" => "the server's default".to_owned(),
            text => text.to_owned(),
        };
        BTreeMap::from([
            ("compaction".into(), or_default(&self.compaction)),
            ("compression".into(), or_default(&self.compression)),
            ("consistency".into(), self.consistency.clone()),
            ("in_flight".into(), self.in_flight.to_string()),
        ])
    }
}

/// The name of a Java class, which becomes part of a statement.
fn class(option: Choice<'_>) -> Result<String, RunError> {
    let text = option.text()?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    match text.bytes().all(is_part) {
        true => Ok(text),
        false => Err(option.wrong("the name of a class")),
    }
}

fn consistency(option: Choice<'_>) -> Result<String, RunError> {
    let text = option.text()?.to_lowercase();
    match CONSISTENCIES.iter().any(|(known, _)| *known == text) {
        true => Ok(text),
        false => Err(option.wrong("`one`, `two`, `quorum`, `all`, `local_one` or `local_quorum`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(given: &[(&str, Value)]) -> Result<Settings, RunError> {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Settings::read(&given.collect())
    }

    #[test]
    fn options_become_clauses_of_the_table_in_either_server_and_literals_cannot_end() {
        assert_eq!(Settings::default().table_options(Product::Cassandra), "");
        let strategy = "LeveledCompactionStrategy".into();
        let settings = read(&[("compaction", strategy), ("compression", "none".into())]);
        assert_eq!(
            settings.unwrap().table_options(Product::Cassandra),
            " WITH compaction = {'class': 'LeveledCompactionStrategy'} AND compression = {'enabled': 'false'}"
        );
        let settings = read(&[("consistency", "QUORUM".into())]).unwrap();
        assert_eq!(settings.consistency(), Consistency::Quorum);
        let error = read(&[("compaction", "x'} AND y".into())]).unwrap_err();
        assert_eq!(error.context, "`store.options.compaction`");
        assert!(read(&[("consistency", "most".into())]).is_err());
        assert!(read(&[("in_flight", 0.into())]).is_err());
        assert!(read(&[("in_fligth", 8.into())]).unwrap_err().hint.contains("in_flight"));
        // ScyllaDB refuses `compression` without `sstable_compression`.
        for (given, expected) in [("none", ""), ("LZ4Compressor", "LZ4Compressor")] {
            let settings = read(&[("compression", given.into())]).unwrap();
            assert_eq!(
                settings.table_options(Product::ScyllaDb),
                format!(" WITH compression = {{'sstable_compression': '{expected}'}}")
            );
        }
    }
}
