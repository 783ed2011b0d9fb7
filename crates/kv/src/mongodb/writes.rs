//! Writes of a session until its commit: commands with consecutive writes of one kind.

use mongodb::bson::raw::CStr;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Document, RawArrayBuf, RawBinaryRef, RawDocumentBuf, cstr, rawdoc};

use iosonde_harness::RunError;

use crate::mongodb::connection::refusal;
/// The collection of the records.
pub(crate) const COLLECTION: &str = "records";
/// The field with the value.
const VALUE: &CStr = cstr!("value");
pub(crate) const VALUE_NAME: &str = "value";

/// Bytes of the writes of one command at most: a command is a document, which has 16 MiB at most.
const COMMAND_BYTES: usize = 12 << 20;
/// Writes of one command at most (`maxWriteBatchSize`).
const COMMAND_WRITES: usize = 100_000;

/// Kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Adds records that do not exist.
    Insert,
    /// Replaces records, or adds them.
    Replace,
    Delete,
}

impl Kind {
    fn command(self, writes: RawArrayBuf, write_concern: RawDocumentBuf) -> RawDocumentBuf {
        match self {
            Kind::Insert => rawdoc! { "insert": COLLECTION, "documents": writes, "writeConcern": write_concern },
            Kind::Replace => rawdoc! { "update": COLLECTION, "updates": writes, "writeConcern": write_concern },
            Kind::Delete => rawdoc! { "delete": COLLECTION, "deletes": writes, "writeConcern": write_concern },
        }
    }
}

struct Group {
    kind: Kind,
    writes: RawArrayBuf,
    number: usize,
    bytes: usize,
}

/// Writes in their order.
#[derive(Default)]
pub(crate) struct Writes {
    groups: Vec<Group>,
}

impl Writes {
    pub(crate) fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.add(Kind::Insert, record(key, value));
    }

    pub(crate) fn replace(&mut self, key: &[u8], value: &[u8]) {
        let write = rawdoc! { "q": identified(key), "u": record(key, value), "upsert": true };
        self.add(Kind::Replace, write);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.add(Kind::Delete, rawdoc! { "q": identified(key), "limit": 1 });
    }

    fn add(&mut self, kind: Kind, write: RawDocumentBuf) {
        let bytes = write.as_bytes().len();
        let fits = |group: &&mut Group| {
            group.kind == kind && group.number < COMMAND_WRITES && group.bytes + bytes <= COMMAND_BYTES
        };
        if let Some(group) = self.groups.last_mut().filter(fits) {
            group.writes.push(write);
            group.number += 1;
            group.bytes += bytes;
            return;
        }
        let mut writes = RawArrayBuf::new();
        writes.push(write);
        self.groups.push(Group {
            kind,
            writes,
            number: 1,
            bytes,
        });
    }

    /// The commands that carry them out; none is left.
    pub(crate) fn commands(&mut self, write_concern: &RawDocumentBuf) -> impl Iterator<Item = RawDocumentBuf> {
        let groups = self.groups.drain(..);
        groups.map(|group| group.kind.command(group.writes, write_concern.clone()))
    }
}

/// The `_id` of a record.
pub(crate) fn identified(key: &[u8]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), binary(key));
    document
}

fn record(key: &[u8], value: &[u8]) -> RawDocumentBuf {
    let mut document = identified(key);
    document.append(VALUE, binary(value));
    document
}

/// Bytes as BSON has them.
pub(crate) fn binary(bytes: &[u8]) -> RawBinaryRef<'_> {
    RawBinaryRef {
        subtype: BinarySubtype::Generic,
        bytes,
    }
}

/// The error of a command whose answer is `ok`, although some of its writes failed or were not replicated.
pub(crate) fn check(answer: &Document) -> Result<(), RunError> {
    let failed = answer
        .get_array("writeErrors")
        .ok()
        .and_then(|errors| errors.first()?.as_document());
    let unconfirmed = answer.get_document("writeConcernError").ok();
    let Some(error) = failed.or(unconfirmed) else {
        return Ok(());
    };
    let code = error.get_i32("code").unwrap_or_default();
    Err(refusal("write", code, error.get_str("errmsg").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_harness::Code;
    use mongodb::bson::doc;

    fn names(writes: &mut Writes) -> Vec<String> {
        let write_concern = rawdoc! { "w": 1 };
        let commands = writes.commands(&write_concern);
        let name = |command: RawDocumentBuf| command.iter().next().unwrap().unwrap().0.to_string();
        commands.map(name).collect()
    }

    #[test]
    fn consecutive_writes_share_a_command_smaller_than_the_largest_document() {
        let mut writes = Writes::default();
        writes.replace(b"a", b"1");
        writes.replace(b"b", b"2");
        writes.delete(b"a");
        writes.insert(b"c", b"3");
        assert_eq!(names(&mut writes), ["update", "delete", "insert"]);
        assert!(names(&mut writes).is_empty(), "a commit leaves nothing");
        let mut writes = Writes::default();
        let value = vec![7; 5 << 20];
        (0..5_u8).for_each(|key| writes.insert(&[key], &value));
        let write_concern = rawdoc! { "w": 1 };
        let commands: Vec<RawDocumentBuf> = writes.commands(&write_concern).collect();
        assert_eq!(commands.len(), 3);
        assert!(commands.iter().all(|command| command.as_bytes().len() < 16 << 20));
    }

    #[test]
    fn errors_in_an_answer_that_is_ok_are_found() {
        assert_eq!(check(&doc! { "ok": 1.0, "n": 1 }), Ok(()));
        let failed =
            doc! { "ok": 1.0, "writeErrors": [{ "index": 0, "code": 11000, "errmsg": "E11000 duplicate key" }] };
        assert!(check(&failed).unwrap_err().message.contains("E11000 duplicate key"));
        let full = doc! { "ok": 1.0, "writeErrors": [{ "code": 14031, "errmsg": "disk" }] };
        assert_eq!(check(&full).unwrap_err().code, Code::NoSpace);
        let unconfirmed =
            doc! { "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
        assert!(check(&unconfirmed).unwrap_err().message.contains("code 64"));
    }
}
