//! Helpers for options by a store's own names: values, and the nearest name of a misspelt option.

use iosonde_harness::RunError;
use serde_json::Value;

/// The text of a scalar.
///
/// # Errors
/// When it is a list, an object or null.
pub fn text(store: &str, name: &str, value: &Value) -> Result<String, RunError> {
    match value {
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(wrong(store, name, value, "a boolean, a number or a text")),
    }
}

/// A whole number of at least 0.
///
/// # Errors
/// When it is anything else.
pub fn integer(store: &str, name: &str, value: &Value) -> Result<u64, RunError> {
    value
        .as_u64()
        .ok_or_else(|| wrong(store, name, value, "a whole number"))
}

/// True or false.
///
/// # Errors
/// When it is anything else.
pub fn flag(store: &str, name: &str, value: &Value) -> Result<bool, RunError> {
    value
        .as_bool()
        .ok_or_else(|| wrong(store, name, value, "true or false"))
}

/// The error of an invalid value.
pub fn wrong(store: &str, name: &str, value: &Value, wanted: &str) -> RunError {
    RunError::invalid(
        format!("option `{name}` of {store} cannot be `{value}`"),
        format!("`store.options.{name}`"),
        format!("it takes {wanted}"),
    )
}

/// The error of an unknown option, with the nearest name and, if they are few, all names.
pub fn unknown<'a>(store: &str, name: &str, known: impl Iterator<Item = &'a str>) -> RunError {
    let known: Vec<&str> = known.collect();
    let nearest = known.iter().min_by_key(|candidate| distance(name, candidate));
    let mut hint = nearest.map_or(format!("{store} has no options"), |nearest| {
        format!("the nearest name is `{nearest}`")
    });
    if (2..=LISTED).contains(&known.len()) {
        let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        hint += &format!("; all names: {}", names.join(", "));
    }
    RunError::invalid(
        format!("{store} has no option `{name}`"),
        format!("`store.options.{name}`"),
        hint,
    )
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

    #[test]
    fn names_and_values_that_are_wrong_are_refused_with_what_was_meant() {
        let known = ["mapsize", "maxreaders", "MDB_NOSYNC", "MDB_NORDAHEAD"];
        for (written, meant) in [
            ("map_size", "mapsize"),
            ("nordahead", "MDB_NORDAHEAD"),
            ("MDB_NOSINC", "MDB_NOSYNC"),
            ("max_readers", "maxreaders"),
        ] {
            let error = unknown("LMDB", written, known.into_iter());
            let all = "all names: `mapsize`, `maxreaders`, `MDB_NOSYNC`, `MDB_NORDAHEAD`";
            assert_eq!(error.hint, format!("the nearest name is `{meant}`; {all}"));
            assert_eq!(error.to_failure().code, "invalid_spec");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("abc", "abc"), 1, "containing is next to equal");
        assert_eq!(distance("abc", "xyz"), 3);
        let error = integer("LMDB", "mapsize", &Value::Bool(true)).unwrap_err();
        assert_eq!(error.to_string(), "option `mapsize` of LMDB cannot be `true`");
        assert_eq!(error.hint, "it takes a whole number");
        assert_eq!(flag("LMDB", "x", &Value::Bool(true)), Ok(true));
        assert_eq!(text("LMDB", "x", &Value::from(7)).as_deref(), Ok("7"));
        assert!(text("LMDB", "x", &Value::Null).is_err());
    }
}
