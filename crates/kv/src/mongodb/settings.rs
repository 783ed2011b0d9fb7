//! Options of the client: what a write waits for, and what a read may return.

use std::collections::BTreeMap;

use crate::options::{self, Choice, Given};
use iosonde_harness::RunError;
use mongodb::bson::{RawDocumentBuf, rawdoc};

/// The store's name in messages.
pub(crate) const NAME: &str = "MongoDB";
const READ_CONCERNS: [&str; 4] = ["local", "available", "majority", "linearizable"];
/// Members of a replica set at most.
const MEMBERS_MAX: u64 = 50;
const WTIMEOUT_MS_DEFAULT: u64 = 30_000;
const WTIMEOUT_MS_MAX: u64 = 3_600_000;

/// Members that must have a write before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    Number(i32),
    Majority,
}

/// Options of the client, by MongoDB's own names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) w: Members,
    /// True if acknowledged writes are in the journal; absent: those of streams with `sync`.
    pub(crate) j: Option<bool>,
    pub(crate) wtimeout_ms: u64,
    pub(crate) read_concern: String,
    /// Database of the user account.
    pub(crate) auth_source: String,
}

impl Settings {
    const NAMES: [&str; 5] = ["auth_source", "j", "read_concern", "w", "wtimeout_ms"];

    pub(crate) fn read(given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings {
            w: Members::Number(1),
            j: None,
            wtimeout_ms: WTIMEOUT_MS_DEFAULT,
            read_concern: "local".into(),
            auth_source: "admin".into(),
        };
        for option in options::each(NAME, given) {
            match option.name {
                "w" => settings.w = members(option)?,
                "j" => settings.j = Some(option.flag()?),
                // Limited, because a write for members that are down would otherwise wait forever.
                "wtimeout_ms" => settings.wtimeout_ms = option.within(1..=WTIMEOUT_MS_MAX)?,
                "read_concern" => settings.read_concern = read_concern(option)?,
                "auth_source" => settings.auth_source = option.text()?,
                _ => return Err(option.unknown(Settings::NAMES)),
            }
        }
        Ok(settings)
    }

    /// Returns true if a write with or without `sync` waits for the journal.
    pub(crate) fn waits_for_journal(&self, sync: bool) -> bool {
        self.j.unwrap_or(sync)
    }

    /// The write concern of a command.
    pub(crate) fn write_concern(&self, sync: bool) -> RawDocumentBuf {
        let (j, wtimeout) = (self.waits_for_journal(sync), self.wtimeout_ms as i64);
        match self.w {
            Members::Number(number) => rawdoc! { "w": number, "j": j, "wtimeout": wtimeout },
            Members::Majority => rawdoc! { "w": "majority", "j": j, "wtimeout": wtimeout },
        }
    }

    /// As the record has them.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let w = match self.w {
            Members::Number(number) => number.to_string(),
            Members::Majority => "majority".into(),
        };
        let j = self.j.map_or("as `sync`".into(), |j| j.to_string());
        BTreeMap::from([
            ("auth_source".into(), self.auth_source.clone()),
            ("j".into(), j),
            ("read_concern".into(), self.read_concern.clone()),
            ("w".into(), w),
            ("wtimeout_ms".into(), self.wtimeout_ms.to_string()),
        ])
    }
}

/// Names of all options.
pub(crate) fn names() -> Vec<&'static str> {
    Settings::NAMES.to_vec()
}

fn members(option: Choice<'_>) -> Result<Members, RunError> {
    match (option.value.as_u64(), option.value.as_str()) {
        (_, Some("majority")) => Ok(Members::Majority),
        (Some(number @ 1..=MEMBERS_MAX), _) => Ok(Members::Number(number as i32)),
        _ => Err(option.wrong("1 to 50, or `majority`; with 0 a write that failed would count")),
    }
}

fn read_concern(option: Choice<'_>) -> Result<String, RunError> {
    match option.value.as_str() {
        Some(level) if READ_CONCERNS.contains(&level) => Ok(level.into()),
        _ => Err(option.wrong("`local`, `available`, `majority` or `linearizable`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(given: Value) -> Result<Settings, RunError> {
        Settings::read(&serde_json::from_value(given).unwrap())
    }

    #[test]
    fn the_write_concern_follows_options_and_wrong_values_state_what_they_take() {
        let settings = read(json!({ "w": "majority", "wtimeout_ms": 500 })).unwrap();
        let concern = settings.write_concern(true);
        assert_eq!(concern.get_str("w").unwrap(), "majority");
        assert!(concern.get_bool("j").unwrap());
        assert_eq!(concern.get_i64("wtimeout").unwrap(), 500);
        let two = read(json!({ "w": 2 })).unwrap().write_concern(false);
        assert_eq!(two.get_i32("w").unwrap(), 2);
        let waits = |given, sync| read(given).unwrap().waits_for_journal(sync);
        assert!(waits(json!({}), true) && !waits(json!({}), false));
        assert!(!waits(json!({ "j": false }), true));
        assert!(waits(json!({ "j": true }), false));
        for (given, hint) in [
            (json!({ "w": 0 }), "1 to 50"),
            (json!({ "w": "all" }), "1 to 50"),
            (json!({ "j": "yes" }), "true or false"),
            (json!({ "read_concern": "snapshot" }), "`local`"),
            (json!({ "wtimeout_ms": 0 }), "1 to 3600000"),
            (json!({ "journal": true }), "all names: `auth_source`, `j`"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.hint.contains(hint), "{}", error.hint);
        }
    }
}
