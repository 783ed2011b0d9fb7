//! Options by a store's own names: values, and the nearest name of a misspelt option.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use iosonde_harness::RunError;
use serde_json::Value;

/// Options of a store, as a spec has them.
pub type Given = BTreeMap<String, Value>;

/// One option of a store.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    store: &'a str,
    pub name: &'a str,
    pub value: &'a Value,
}

/// Every option of a store.
pub fn each<'a>(store: &'a str, options: &'a Given) -> impl Iterator<Item = Choice<'a>> {
    options.iter().map(move |(name, value)| Choice { store, name, value })
}

impl Choice<'_> {
    /// The text of a scalar.
    ///
    /// # Errors
    /// When it is a list, an object or null.
    pub fn text(&self) -> Result<String, RunError> {
        match self.value {
            Value::Bool(flag) => Ok(flag.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::String(text) => Ok(text.clone()),
            _ => Err(self.wrong("a boolean, a number or a text")),
        }
    }

    /// A whole number of at least 0.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn integer(&self) -> Result<u64, RunError> {
        self.value.as_u64().ok_or_else(|| self.wrong("a whole number"))
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn within(&self, range: RangeInclusive<u64>) -> Result<u64, RunError> {
        let number = self.integer()?;
        match range.contains(&number) {
            true => Ok(number),
            false => Err(self.wrong(&format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn flag(&self) -> Result<bool, RunError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    fn place(&self) -> String {
        format!("`store.options.{}`", self.name)
    }

    /// The error of an invalid value.
    pub fn wrong(&self, wanted: &str) -> RunError {
        let problem = format!("option `{}` of {} cannot be `{}`", self.name, self.store, self.value);
        RunError::invalid(problem, self.place(), format!("it takes {wanted}"))
    }

    /// The error of an option that the engine sets itself.
    pub fn reserved(&self, hint: &str) -> RunError {
        let problem = format!("option `{}` of {} is set by the engine", self.name, self.store);
        RunError::invalid(problem, self.place(), hint)
    }

    /// The error of an unknown option, with the nearest name and, if they are few, all names.
    pub fn unknown<'k>(&self, known: impl IntoIterator<Item = &'k str>) -> RunError {
        let known: Vec<&str> = known.into_iter().collect();
        let nearest = known.iter().min_by_key(|candidate| distance(self.name, candidate));
        let mut hint = nearest.map_or(format!("{} has no options", self.store), |nearest| {
            format!("the nearest name is `{nearest}`")
        });
        if (2..=LISTED).contains(&known.len()) {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            hint += &format!("; all names: {}", names.join(", "));
        }
        RunError::invalid(
            format!("{} has no option `{}`", self.store, self.name),
            self.place(),
            hint,
        )
    }
}

/// Options that are listed in an error; RocksDB has more than 200.
const LISTED: usize = 20;

/// Levenshtein's distance, ignoring case; 1 if one name contains the other.
fn distance(name: &str, candidate: &str) -> usize {
    let (a, b) = (name.to_lowercase(), candidate.to_lowercase());
    if b.contains(&a) || a.contains(&b) {
        return 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice<'a>(name: &'a str, value: &'a Value) -> Choice<'a> {
        let store = "LMDB";
        Choice { store, name, value }
    }

    #[test]
    fn names_and_values_that_are_wrong_are_refused_with_what_was_meant() {
        let known = ["mapsize", "maxreaders", "MDB_NOSYNC", "MDB_NORDAHEAD"];
        for (written, meant) in [
            ("map_size", "mapsize"),
            ("nordahead", "MDB_NORDAHEAD"),
            ("MDB_NOSINC", "MDB_NOSYNC"),
            ("max_readers", "maxreaders"),
        ] {
            let error = choice(written, &Value::Null).unknown(known);
            let all = "all names: `mapsize`, `maxreaders`, `MDB_NOSYNC`, `MDB_NORDAHEAD`";
            assert_eq!(error.hint, format!("the nearest name is `{meant}`; {all}"));
            assert_eq!(error.to_failure().code, "invalid_spec");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("abc", "abc"), 1, "containing is next to equal");
        assert_eq!(distance("abc", "xyz"), 3);
        let yes = Value::Bool(true);
        let error = choice("mapsize", &yes).integer().unwrap_err();
        assert_eq!(error.to_string(), "option `mapsize` of LMDB cannot be `true`");
        assert_eq!(error.hint, "it takes a whole number");
        assert_eq!(choice("x", &yes).flag(), Ok(true));
        let seven = Value::from(7);
        assert_eq!(choice("x", &seven).text().as_deref(), Ok("7"));
        assert_eq!(choice("x", &seven).within(7..=8), Ok(7));
        let error = choice("x", &seven).within(8..=9).unwrap_err();
        assert_eq!(error.hint, "it takes a number from 8 to 9");
        assert!(choice("x", &Value::Null).text().is_err());
    }
}
