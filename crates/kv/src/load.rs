//! Phase `layout`: writes every record of an empty database, in one thread, unmeasured.

use std::time::{Duration, Instant};

use iosonde_harness::RunError;
use iosonde_harness::load::{Permutation, Rng};
use iosonde_protocol::LoadOrder;

use crate::records::Contents;
use crate::store::Store;
use crate::trace::{Request, Rows};

/// Settings of loading a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loading {
    pub order: LoadOrder,
    pub batch: u32,
    pub sync: bool,
    /// Maximum records per second.
    pub rate: Option<f64>,
}

/// The longest sleep of a limited load: it must notice its end.
const NAP: Duration = Duration::from_millis(50);

impl Loading {
    /// Time by which the load is ahead of its rate after this many records; `None` if it is not.
    fn early_by(&self, records: u64, elapsed: Duration) -> Option<Duration> {
        let due = Duration::from_secs_f64(records as f64 / self.rate?);
        due.checked_sub(elapsed).filter(|early| !early.is_zero())
    }

    /// Waits until its rate permits the next records; false if loading is to end.
    fn wait(&self, records: u64, started: Instant, bytes: u64, go_on: &mut dyn FnMut(u64) -> bool) -> bool {
        while let Some(early) = self.early_by(records, started.elapsed()) {
            std::thread::sleep(early.min(NAP));
            if !go_on(bytes) {
                return false;
            }
        }
        true
    }
}

/// Writes every record, in generation 0. `go_on` gets the bytes written so far after each batch; false ends loading.
///
/// Returns the bytes written, and whether these are all.
pub(crate) fn load(
    store: &dyn Store,
    contents: &Contents,
    loading: Loading,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(u64, bool), RunError> {
    store.set_sync(loading.sync)?;
    let mut session = store.session()?;
    if loading.order == LoadOrder::Sequential && contents.sorts_by_number() {
        session.expect_ascending_keys();
    }
    let order = match loading.order {
        LoadOrder::Sequential => None,
        LoadOrder::Random => Some(Permutation::new(contents.count(), &mut Rng::new(0, &[0x10ad]))),
    };
    let (mut key, mut value, mut bytes) = (Vec::new(), Vec::new(), 0);
    let (mut next, started) = (0, Instant::now());
    while next < contents.count() {
        let end = contents.count().min(next + u64::from(loading.batch));
        for place in next..end {
            let number = order.as_ref().map_or(place, |order| order.apply(place));
            contents.key(number, &mut key);
            value.clear();
            contents.add_value(number, 0, &mut value);
            session.put(&key, &value)?;
            bytes += (key.len() + value.len()) as u64;
        }
        session.commit(loading.sync)?;
        next = end;
        if !go_on(bytes) || !loading.wait(next, started, bytes, go_on) {
            return Ok((bytes, false));
        }
    }
    drop(session);
    store.flush()?;
    Ok((bytes, true))
}

/// Writes every key that a trace reads with a known size and that is not there yet, in generation 0; otherwise as [`load`].
pub(crate) fn load_trace(
    store: &dyn Store,
    contents: &Contents,
    mut rows: Rows,
    loading: Loading,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(u64, bool), RunError> {
    store.set_sync(loading.sync)?;
    let mut session = store.session()?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let (mut bytes, mut records, mut pending) = (0, 0_u64, 0);
    let started = Instant::now();
    while let Some(row) = rows.next()? {
        if row.request != Request::Get || row.value_bytes == 0 {
            continue;
        }
        contents.sized_key(row.number, row.key_bytes, &mut key);
        let is_there = session.get(&key)?.is_some();
        session.release();
        if is_there {
            continue;
        }
        value.clear();
        contents.add_sized_value(row.number, 0, row.value_bytes, &mut value);
        session.put_with_ttl(&key, &value, row.ttl_s)?;
        bytes += (key.len() + value.len()) as u64;
        (records, pending) = (records + 1, pending + 1);
        if pending == loading.batch {
            session.commit(loading.sync)?;
            pending = 0;
            if !go_on(bytes) || !loading.wait(records, started, bytes, go_on) {
                return Ok((bytes, false));
            }
        }
    }
    session.commit(loading.sync)?;
    drop(session);
    store.flush()?;
    Ok((bytes, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_load_waits_until_its_records_are_due() {
        let loading = |rate| Loading {
            order: LoadOrder::Sequential,
            batch: 10,
            sync: false,
            rate,
        };
        let early = |ms| loading(Some(1000.0)).early_by(500, Duration::from_millis(ms));
        assert_eq!(early(200), Some(Duration::from_millis(300)));
        assert_eq!([500, 9000].map(early), [None; 2]);
        assert_eq!(loading(None).early_by(500, Duration::ZERO), None);
    }
}
