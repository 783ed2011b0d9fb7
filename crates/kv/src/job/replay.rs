//! Replay of a trace: the next row of this job as one operation.

use iosonde_harness::{RunError, wait_until};
use iosonde_protocol::Operation;

use super::{Job, read_bytes};
use crate::trace::{Request, Row};

impl Job<'_> {
    /// Returns true if every row of the trace was replayed; false without a trace.
    #[inline]
    pub(super) fn has_replayed_all(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.has_ended())
    }

    /// Carries out the next row; returns the instant of its completion.
    pub(super) fn replay_next(&mut self, now_ns: u64) -> Result<u64, RunError> {
        let row = match &mut self.replay {
            Some(replay) => replay.take()?,
            None => None,
        };
        match row {
            None => Ok(now_ns),
            Some(row) => match row.request {
                Request::Get => self.replay_get(row, now_ns),
                Request::Set => self.replay_write(row, Operation::Write, now_ns),
                Request::Delete => self.replay_write(row, Operation::Delete, now_ns),
            },
        }
    }

    fn replay_get(&mut self, row: Row, now_ns: u64) -> Result<u64, RunError> {
        self.common.contents.sized_key(row.number, row.key_bytes, &mut self.key);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let value = self.session.get(&self.key)?;
        self.arrival.complete(value.unwrap_or_default());
        let mut end_ns = self.common.clock.now();
        let tally = &mut self.tallies[Operation::Read as usize];
        let (is_missing, bytes) = (value.is_none(), read_bytes(&self.key, value));
        match value {
            Some(value) => {
                tally.values += 1;
                if !self.common.contents.is_sized_value_of(row.number, value) {
                    tally.corrupted += 1;
                    self.first_corrupted.get_or_insert(row.number);
                }
            }
            None => tally.missing += 1,
        }
        self.session.release();
        let backend = self.stream.read_through.filter(|_| is_missing);
        if let Some(backend) = backend {
            let answered_ns = end_ns + self.backend_latency(backend);
            while end_ns < answered_ns {
                end_ns = wait_until(self.common.clock, answered_ns);
            }
        }
        self.done(Operation::Read, bytes, begin_ns, end_ns, intended_ns);
        match backend.is_some() && row.value_bytes > 0 {
            true => self.replay_fill(row),
            false => Ok(end_ns),
        }
    }

    /// Puts the value that the backend returned into the cache.
    fn replay_fill(&mut self, row: Row) -> Result<u64, RunError> {
        self.set_sized_value(row);
        let begin_ns = self.common.clock.now_early();
        self.session.put_with_ttl(&self.key, &self.value, row.ttl_s)?;
        self.session.commit(false)?;
        let end_ns = self.common.clock.now();
        let bytes = (self.key.len() + self.value.len()) as u64;
        self.phases.advance_to_completion(end_ns);
        self.phases
            .record_batch(Operation::Write, 1, bytes, end_ns, end_ns.saturating_sub(begin_ns));
        Ok(end_ns)
    }

    fn replay_write(&mut self, row: Row, operation: Operation, now_ns: u64) -> Result<u64, RunError> {
        self.common.contents.sized_key(row.number, row.key_bytes, &mut self.key);
        self.value.clear();
        if operation == Operation::Write {
            self.set_sized_value(row);
        }
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        match operation {
            Operation::Delete => self.session.delete(&self.key)?,
            _ => self.session.put_with_ttl(&self.key, &self.value, row.ttl_s)?,
        }
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
        let bytes = (self.key.len() + self.value.len()) as u64;
        self.done(operation, bytes, begin_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn set_sized_value(&mut self, row: Row) {
        self.generation = self.generation.wrapping_add(1);
        self.value.clear();
        self.common
            .contents
            .add_sized_value(row.number, self.generation, row.value_bytes, &mut self.value);
    }
}
