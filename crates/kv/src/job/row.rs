//! Reads of one record after the other by a job that does nothing else.
//!
//! A store leaves little of the job's own code in the CPU's instruction cache, so each line of it is loaded again in every
//! read. Therefore records are drawn with the values to expect, and latencies recorded, for a row of reads at once; the loop
//! around a read has only what measures and compares it.

use iosonde_harness::{Row, RunError};
use iosonde_protocol::Operation;

use super::{Completed, Job, read_bytes, touch};
use crate::records::LoadedValue;
use crate::store::Keys;

/// Reads in a row at most.
const LENGTH: usize = 32;

/// The reads of a job.
#[derive(Default)]
pub(super) struct Reads<'a> {
    /// Records that are drawn, and their keys; those before `next` have been read.
    records: Vec<Drawn<'a>>,
    keys: Keys,
    next: usize,
    latencies: Vec<u64>,
}

/// A record that is going to be read.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    number: u64,
    /// Its value as loaded; none for the records of a user. If another was written since, it is compared the slow way.
    loaded: Option<LoadedValue<'a>>,
}

impl<'a> Job<'a> {
    /// Reads some records, at most up to the end of an interval; returns the instant when the last read completed.
    #[inline(never)]
    pub(super) fn read_row(&mut self, reads: &mut Reads<'a>, now_ns: u64) -> Result<u64, RunError> {
        self.draw(reads);
        let left = self.phases.operations_left_of_any_size().max(1);
        let end = reads.records.len().min(reads.next.saturating_add(left as usize));
        reads.latencies.clear();
        let mut row = Row {
            operation: Operation::Read,
            latencies: &[],
            bytes: 0,
            turnaround_ns: 0,
            begin_ns: 0,
            end_ns: now_ns,
        };
        let (first, missing) = (reads.next, self.tallies[Operation::Read as usize].missing);
        let mut last = Ok(None);
        while reads.next < end {
            let read = match self.read_one(reads.records[reads.next], reads.keys.get(reads.next)) {
                Ok(read) => read,
                Err(error) => {
                    last = Err(error);
                    break;
                }
            };
            reads.next += 1;
            if !self.phases.is_uneventful(read.end_ns) {
                last = Ok(Some(read));
                break;
            }
            if reads.latencies.is_empty() {
                row.begin_ns = read.begin_ns;
            }
            row.turnaround_ns += read.begin_ns.saturating_sub(row.end_ns);
            row.bytes += read.bytes;
            row.end_ns = read.end_ns;
            reads.latencies.push(read.end_ns.saturating_sub(read.begin_ns));
        }
        let tally = &mut self.tallies[Operation::Read as usize];
        if self.common.sample.is_none() {
            tally.values += (reads.next - first) as u64 - (tally.missing - missing);
        }
        self.phases.record_row(&Row {
            latencies: &reads.latencies,
            ..row
        });
        let Some(last) = last? else {
            return Ok(row.end_ns);
        };
        let end_ns = last.end_ns;
        last.record(&mut self.pace, &mut self.phases, row.end_ns);
        Ok(end_ns)
    }

    /// Draws the records of the next row, if all drawn before were read.
    #[inline(never)]
    fn draw(&mut self, reads: &mut Reads<'a>) {
        if reads.next == reads.records.len() {
            reads.records.clear();
            reads.keys.clear();
            for _ in 0..LENGTH {
                let number = self.chooser.record(self.common.inserts);
                self.set_key(number);
                reads.keys.add(&self.key);
                let loaded = match self.common.sample {
                    Some(_) => None,
                    None => self.common.contents.loaded_value(number),
                };
                reads.records.push(Drawn { number, loaded });
            }
            reads.next = 0;
        }
    }

    #[inline(always)]
    fn read_one(&mut self, record: Drawn<'a>, key: &[u8]) -> Result<Completed, RunError> {
        if let Some(loaded) = record.loaded {
            loaded.prefetch();
        }
        let begin_ns = self.common.clock.now_early();
        let value = self.session.get(key)?;
        if let Some(value) = value
            && self.arrival.may_need_io(value)
        {
            touch(value);
        }
        let end_ns = self.common.clock.now();
        let bytes = read_bytes(key, value);
        match (value, record.loaded) {
            (Some(value), Some(loaded)) if loaded.is(value) => {}
            _ => {
                let tally = &mut self.tallies[Operation::Read as usize];
                tally.note_other(self.common, record.number, value, &mut self.first_corrupted);
            }
        }
        self.session.release();
        Ok(Completed {
            operation: Operation::Read,
            bytes,
            begin_ns,
            end_ns,
            intended_ns: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use iosonde_harness::Budget;
    use iosonde_protocol::{Direction, KvChoice, KvOperation};

    use super::*;
    use crate::records::Contents;
    use crate::store::{Lent, Session};
    use crate::testing::{Driven, RECORD_BYTES, RECORDS, driven, only_reads, stream};
    use iosonde_harness::Code;

    const INTERVAL: Duration = Duration::from_millis(20);
    const READ_SLOWLY: [u64; 4] = [0, 10, 11, 50];
    const SLOW: Duration = Duration::from_millis(25);

    /// Lends the records of a database and notes which.
    struct Records<'a> {
        contents: &'a Contents,
        read: Rc<RefCell<Vec<u64>>>,
        value: Vec<u8>,
        missing: Option<u64>,
        corrupted: Option<u64>,
        fails_at: Option<u64>,
    }

    impl Session for Records<'_> {
        fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
            let number = self.contents.number(key).unwrap();
            if self.fails_at == Some(number) {
                return Err(RunError::new(Code::Internal, "the store failed", ""));
            }
            if READ_SLOWLY.contains(&number) {
                std::thread::sleep(SLOW);
            }
            self.read.borrow_mut().push(number);
            self.value.clear();
            self.contents.add_value(number, 0, &mut self.value);
            if self.corrupted == Some(number) {
                self.value[50] ^= 1;
            }
            Ok((self.missing != Some(number)).then_some(&self.value))
        }

        only_reads!();
    }

    /// Reads records in order; returns what was done, and which records were read.
    fn read(measure: Budget, change: impl FnOnce(&mut Records<'_>)) -> (Driven, Vec<u64>) {
        let mut stream = stream("main", KvOperation::Read);
        stream.choice = KvChoice::Sequential;
        let numbers = Rc::new(RefCell::new(Vec::new()));
        let driven = driven(&stream, measure, INTERVAL.as_nanos() as u64, |contents| {
            let mut records = Records {
                contents,
                read: numbers.clone(),
                value: Vec::new(),
                missing: None,
                corrupted: None,
                fails_at: None,
            };
            change(&mut records);
            Box::new(records)
        });
        (driven, numbers.take())
    }

    fn operations(operations: u64) -> Budget {
        Budget {
            operations,
            ..Budget::UNLIMITED
        }
    }

    #[test]
    fn each_record_is_read_in_turn_although_intervals_end_within_rows_as_far_as_the_budget() {
        let (driven, numbers) = read(operations(RECORDS + 7), |_| {});
        assert_eq!(numbers, (0..RECORDS).chain(0..7).collect::<Vec<_>>());
        driven.result.unwrap();
        assert_eq!(driven.totals.operations, RECORDS + 7);
        assert_eq!(driven.totals.bytes, (RECORDS + 7) * RECORD_BYTES);
        assert_eq!(driven.reads.values, RECORDS + 7);
        let pacing = driven.totals.pacing;
        let busy_ns = driven.totals.last_completion_ns - pacing.first_start_ns.unwrap();
        let slow_ns = SLOW.as_nanos() as u64 * 5;
        assert!(busy_ns >= slow_ns, "the reads took {busy_ns} ns");
        assert!(pacing.turnaround_ns < busy_ns - slow_ns, "not a part of the reads");
        let mut bytes = Budget::UNLIMITED;
        bytes.bytes = 12 * RECORD_BYTES + 1;
        let (driven, numbers) = read(bytes, |_| {});
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
        assert_eq!(driven.totals.operations, 12);
    }

    #[test]
    fn missing_and_corrupted_values_and_reads_before_an_error_are_counted() {
        let (driven, _) = read(operations(RECORDS), |records| {
            (records.missing, records.corrupted) = (Some(5), Some(11));
        });
        let reads = driven.reads;
        assert_eq!((reads.values, reads.missing, reads.corrupted), (RECORDS - 1, 1, 1));
        assert_eq!(driven.first_corrupted, Some(11));
        // No bytes of the missing record.
        assert_eq!(driven.totals.bytes, (RECORDS - 1) * RECORD_BYTES);
        let (driven, numbers) = read(operations(RECORDS), |records| records.fails_at = Some(40));
        assert_eq!(driven.result.unwrap_err().code, Code::Internal);
        assert_eq!((driven.totals.operations, numbers.len()), (40, 40));
        assert_eq!(driven.reads.values, 40);
    }
}
