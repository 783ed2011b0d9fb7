//! Keys sampled from a user's database, whose records are not ours.

use std::sync::Arc;

use iosonde_harness::load::Rng;
use iosonde_harness::{Code, RunError};
use iosonde_protocol::Direction;

use crate::store::Store;

/// Keys of a database in their order, at most as many as requested, each as likely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    keys: Arc<[Box<[u8]>]>,
    /// Records of the database.
    pub records: u64,
    /// Bytes of all keys and values.
    pub record_bytes: u64,
}

impl Sample {
    /// Reads every key once and keeps `at_most` of them, by reservoir sampling. `go_on` is called with the bytes read so
    /// far after each thousand records; false ends it with an error.
    pub(crate) fn draw(
        store: &dyn Store,
        at_most: u64,
        seed: u64,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Sample, RunError> {
        let mut rng = Rng::new(seed, &[0x5a3b]);
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        let (mut records, mut record_bytes) = (0, 0);
        let mut session = store.session()?;
        session.seek(None, Direction::Forward)?;
        while let Some((key, value)) = session.next()? {
            records += 1;
            record_bytes += (key.len() + value.len()) as u64;
            if records <= at_most {
                keys.push(key.into());
            } else {
                let place = rng.below(records);
                if place < at_most {
                    keys[place as usize] = key.into();
                }
            }
            if records % 1000 == 0 && !go_on(record_bytes) {
                break;
            }
        }
        session.release();
        if keys.is_empty() {
            return Err(RunError::new(
                Code::InvalidSpec,
                "the database has no records to read",
                "name a database with records in its default column family",
            )
            .at("`target`"));
        }
        keys.sort();
        Ok(Sample {
            keys: keys.into(),
            records,
            record_bytes,
        })
    }

    /// Number of sampled keys.
    pub(crate) fn count(&self) -> u64 {
        self.keys.len() as u64
    }

    /// A sampled key.
    #[inline]
    pub(crate) fn key(&self, number: u64) -> &[u8] {
        &self.keys[number as usize]
    }
}
