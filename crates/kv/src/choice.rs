//! Choice of the next record and operation: small, seeded, without memory per record.

use std::sync::atomic::{AtomicU64, Ordering};

use iosonde_harness::load::{Permutation, Rng, Zipf};
use iosonde_protocol::{Coverage, KvChoice, KvDistribution, KvOperation, KvShare, KvStream};

/// The records that jobs insert. Each job has its own numbers, interleaved, so that jobs need not synchronize.
///
/// A record counts as present only when all before it are, so that no job reads a record that may not exist yet.
pub(crate) struct Inserts {
    first: u64,
    /// Inserts that each job has completed, each in a cache line of its own.
    done: Vec<CacheLine>,
}

#[derive(Default)]
#[repr(align(64))]
struct CacheLine(AtomicU64);

impl Inserts {
    /// Numbers from `first` on, for this many jobs.
    pub(crate) fn new(first: u64, jobs: usize) -> Inserts {
        Inserts {
            first,
            done: (0..jobs).map(|_| CacheLine::default()).collect(),
        }
    }

    /// The first number that is inserted: the number of records before the run.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The record number of a job's insert number `index`.
    #[inline]
    pub(crate) fn number(&self, job: usize, index: u64) -> u64 {
        self.first + index * self.done.len() as u64 + job as u64
    }

    /// Records that a job has completed this number of inserts.
    #[inline]
    pub(crate) fn completed(&self, job: usize, count: u64) {
        self.done[job].0.store(count, Ordering::Release);
    }

    /// Records present: those before the run, and those inserted without a gap.
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        let least = self.done.iter().map(|done| done.0.load(Ordering::Acquire)).min();
        self.first + least.unwrap_or(0) * self.done.len() as u64
    }
}

/// The endless sequence of a job's operations and records.
pub(crate) struct Chooser {
    operations: Vec<(f64, KvOperation)>,
    visit: Visit,
    rng: Rng,
    scan_records: (u64, u64),
}

enum Visit {
    Sequential {
        begin: u64,
        next: u64,
        end: u64,
    },
    EachOnce {
        order: Permutation,
        begin: u64,
        next: u64,
        end: u64,
    },
    Uniform,
    Zipfian {
        ranks: Zipf,
        places: Permutation,
        /// Ranks by which popularity moves in a nanosecond.
        churn: f64,
        /// Ranks by which it has moved.
        moved: u64,
    },
    Scrambled {
        ranks: Zipf,
        key_space: u64,
    },
    Latest {
        ranks: Zipf,
        theta: f64,
        /// Records that `ranks` covers.
        covered: u64,
    },
}

/// Ranks of YCSB's scrambled Zipf distribution: far more than records, so that popularity does not depend on their number.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// New records that make the ranks of `latest` cover them, as a part of all.
const LATEST_GROWTH: u64 = 256;

impl Chooser {
    /// For job number `job` of a valid stream, which is number `stream_index` of the run, on `records`.
    pub(crate) fn new(stream: &KvStream, stream_index: u64, job: u32, records: u64, seed: u64) -> Chooser {
        Chooser {
            operations: cumulative(&stream.operations),
            visit: visit(stream, stream_index, job, records, seed),
            rng: Rng::new(seed, &[stream_index, 0, u64::from(job)]),
            scan_records: (
                u64::from(stream.scan_records_min),
                u64::from(stream.scan_records_max - stream.scan_records_min) + 1,
            ),
        }
    }

    /// The next operation.
    #[inline]
    pub(crate) fn operation(&mut self) -> KvOperation {
        if let [(_, only)] = self.operations[..] {
            return only;
        }
        let draw = self.rng.unit();
        let place = self.operations.partition_point(|(limit, _)| *limit <= draw);
        self.operations[place.min(self.operations.len() - 1)].1
    }

    /// The next record.
    #[inline(always)]
    pub(crate) fn record(&mut self, inserts: &Inserts) -> u64 {
        match &mut self.visit {
            Visit::Sequential { begin, next, end } => step(*begin, next, *end),
            Visit::EachOnce {
                order,
                begin,
                next,
                end,
            } => order.apply(step(*begin, next, *end)),
            Visit::Uniform => self.rng.below(inserts.known()),
            Visit::Zipfian {
                ranks, places, moved, ..
            } => places.apply(after_churn(ranks.next(&mut self.rng) - 1, *moved, inserts.first())),
            Visit::Scrambled { ranks, key_space } => {
                let known = inserts.known();
                loop {
                    let number = scattered(ranks.next(&mut self.rng) - 1) % *key_space;
                    if number < known {
                        return number;
                    }
                }
            }
            Visit::Latest { ranks, theta, covered } => {
                let known = inserts.known();
                if known - *covered > *covered / LATEST_GROWTH {
                    (*ranks, *covered) = (Zipf::new(known, *theta), known);
                }
                known - ranks.next(&mut self.rng).min(known)
            }
        }
    }

    /// True if records can be drawn some reads before they are read: their popularity does not change meanwhile.
    pub(crate) fn can_draw_ahead(&self) -> bool {
        match &self.visit {
            Visit::Zipfian { churn, .. } => *churn == 0.0,
            Visit::Latest { .. } => false,
            Visit::Sequential { .. } | Visit::EachOnce { .. } | Visit::Uniform | Visit::Scrambled { .. } => true,
        }
    }

    /// Lets popularity change until an instant, which the clock of all jobs gives: they agree on it.
    #[inline]
    pub(crate) fn age(&mut self, now_ns: u64) {
        if let Visit::Zipfian { churn, moved, .. } = &mut self.visit
            && *churn > 0.0
        {
            *moved = (now_ns as f64 * *churn) as u64;
        }
    }

    /// Draws the field to update, one of this many.
    #[inline]
    pub(crate) fn field(&mut self, fields: usize) -> usize {
        self.rng.below(fields as u64) as usize
    }

    /// Number of records of the next scan.
    pub(crate) fn scan_records(&mut self) -> u64 {
        let (min, span) = self.scan_records;
        min + if span > 1 { self.rng.below(span) } else { 0 }
    }
}

/// FNV-1a of the eight bytes of a rank, least significant first, as YCSB scatters ranks over its keys.
#[inline]
fn scattered(rank: u64) -> u64 {
    let hash = rank.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash as i64).unsigned_abs()
}

/// The rank before any change of popularity that now has this one, both from 0: after one move the last rank is the first.
#[inline]
fn after_churn(rank: u64, moved: u64, records: u64) -> u64 {
    if moved == 0 {
        return rank;
    }
    let moved = moved % records;
    if rank >= moved {
        rank - moved
    } else {
        rank + records - moved
    }
}

#[inline]
fn step(begin: u64, next: &mut u64, end: u64) -> u64 {
    let number = *next;
    *next = if number + 1 < end { number + 1 } else { begin };
    number
}

fn cumulative(shares: &[KvShare]) -> Vec<(f64, KvOperation)> {
    let total: f64 = shares.iter().map(|share| share.weight).sum();
    let mut sum = 0.0;
    let limit = |share: &KvShare| {
        sum += share.weight;
        (sum / total, share.operation)
    };
    shares.iter().map(limit).collect()
}

fn visit(stream: &KvStream, stream_index: u64, job: u32, records: u64, seed: u64) -> Visit {
    // All jobs of a stream agree on this one.
    let mut scatter = Rng::new(seed, &[stream_index, 2]);
    let (begin, end) = part(records, stream.jobs, job);
    match stream.choice {
        KvChoice::Sequential => Visit::Sequential {
            begin,
            next: begin,
            end,
        },
        KvChoice::Random {
            coverage: Coverage::EachOnce,
            ..
        } => Visit::EachOnce {
            order: Permutation::new(records, &mut scatter),
            begin,
            next: begin,
            end,
        },
        KvChoice::Random { distribution, .. } => match distribution {
            KvDistribution::Uniform => Visit::Uniform,
            KvDistribution::Zipfian { theta, churn } => Visit::Zipfian {
                ranks: Zipf::new(records, theta),
                places: Permutation::new(records, &mut scatter),
                churn: churn.unwrap_or(0.0) / 1e9,
                moved: 0,
            },
            KvDistribution::ScrambledZipfian { theta, key_space } => Visit::Scrambled {
                ranks: Zipf::new(SCRAMBLED_RANKS, theta),
                key_space,
            },
            KvDistribution::Latest { theta } => Visit::Latest {
                ranks: Zipf::new(records, theta),
                theta,
                covered: records,
            },
        },
    }
}

/// A job's part of the records; the first jobs take the remainder, as with limits.
fn part(records: u64, jobs: u32, job: u32) -> (u64, u64) {
    let (jobs, job) = (u64::from(jobs), u64::from(job));
    let begin = |job: u64| records / jobs * job + job.min(records % jobs);
    (begin(job), begin(job + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    const RECORDS: u64 = 1000;

    fn chooser(choice: KvChoice, jobs: u32, job: u32) -> Chooser {
        let mut stream = stream("test", KvOperation::Read);
        stream.choice = choice;
        stream.jobs = jobs;
        Chooser::new(&stream, 0, job, RECORDS, 1)
    }

    fn with_replacement(distribution: KvDistribution) -> Chooser {
        chooser(random(Coverage::WithReplacement, distribution), 1, 0)
    }

    fn chosen(choice: KvChoice, jobs: u32, job: u32, count: usize) -> Vec<u64> {
        let inserts = Inserts::new(RECORDS, 0);
        let mut chooser = chooser(choice, jobs, job);
        (0..count).map(|_| chooser.record(&inserts)).collect()
    }

    /// How often each of so many records is chosen, and the records, the most popular first.
    fn ranked(chooser: &mut Chooser, inserts: &Inserts, records: u64, draws: u32) -> (Vec<u32>, Vec<usize>) {
        let mut counts = vec![0; records as usize];
        (0..draws).for_each(|_| counts[chooser.record(inserts) as usize] += 1);
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_unstable_by_key(|number| std::cmp::Reverse(counts[*number]));
        (counts, order)
    }

    fn random(coverage: Coverage, distribution: KvDistribution) -> KvChoice {
        KvChoice::Random { coverage, distribution }
    }

    #[test]
    fn the_jobs_of_an_ordered_visit_share_the_records_out_and_restart_at_their_end() {
        let each_once = random(Coverage::EachOnce, KvDistribution::Uniform);
        for choice in [KvChoice::Sequential, each_once] {
            let of_job = |job| {
                let (begin, end) = part(RECORDS, 3, job);
                chosen(choice, 3, job, (end - begin) as usize)
            };
            let mut all: Vec<u64> = (0..3).flat_map(of_job).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..RECORDS), "{choice:?}");
        }
        let visited = chosen(KvChoice::Sequential, 1, 0, 1001);
        assert_eq!([visited[0], visited[999], visited[1000]], [0, 999, 0]);
    }

    #[test]
    fn random_choices_stay_among_the_records_and_reach_both_ends() {
        let (theta, churn, key_space) = (0.99, None, RECORDS);
        for distribution in [
            KvDistribution::Uniform,
            KvDistribution::Zipfian { theta, churn },
            KvDistribution::Latest { theta },
            KvDistribution::ScrambledZipfian { theta, key_space },
        ] {
            let visited = chosen(random(Coverage::WithReplacement, distribution), 1, 0, 50_000);
            assert!(visited.iter().all(|number| *number < RECORDS));
            assert!(visited.contains(&0) && visited.contains(&999), "{distribution:?}");
        }
    }

    #[test]
    fn churn_makes_one_record_after_the_other_the_most_popular_and_moves_the_others_down() {
        let mut chooser = with_replacement(KvDistribution::Zipfian {
            theta: 2.0,
            churn: Some(10.0),
        });
        let inserts = Inserts::new(RECORDS, 0);
        let mut top_two = |now_ns| {
            chooser.age(now_ns);
            let (_, order) = ranked(&mut chooser, &inserts, RECORDS, 20_000);
            (order[0], order[1])
        };
        let (at_first, _) = top_two(0);
        assert_eq!(top_two(99_000_000).0, at_first, "less than a tenth of a second");
        let (newest, second) = top_two(100_000_000);
        assert_ne!(newest, at_first);
        assert_eq!(second, at_first, "it is the second now");
        assert_eq!(top_two(100_000_000_000).0, at_first, "every record had its turn");
    }

    /// YCSB's workload D reads what was written last most often.
    #[test]
    fn latest_prefers_the_newest_and_covers_a_key_space_that_has_grown_many_times() {
        let inserts = Inserts::new(RECORDS, 1);
        let mut chooser = with_replacement(KvDistribution::Latest { theta: 0.99 });
        let mut newest = |known: u64| (0..10_000).filter(|_| chooser.record(&inserts) == known - 1).count();
        let before = newest(1000);
        inserts.completed(0, 500);
        let after = newest(1500);
        for count in [before, after] {
            assert!((1100..1600).contains(&count), "13.4 % of 10000 expected, found {count}");
        }
        let inserts = Inserts::new(RECORDS, 1);
        let mut chooser = with_replacement(KvDistribution::Latest { theta: 0.5 });
        inserts.completed(0, 9 * RECORDS);
        let oldest = (0..10_000).filter(|_| chooser.record(&inserts) < RECORDS).count();
        // Ranks above 9,000 of 10,000 with weight r^-0.5: 1 - sqrt(0.9) = 5.1 %.
        assert!((400..640).contains(&oldest), "{oldest}");
    }

    /// In YCSB's own generator the popular records stay popular while others are inserted.
    #[test]
    fn scrambled_zipfian_keeps_its_popular_records_and_reaches_new_ones() {
        let inserts = Inserts::new(RECORDS, 1);
        let mut chooser = with_replacement(KvDistribution::ScrambledZipfian {
            theta: 0.99,
            key_space: 2 * RECORDS,
        });
        let (before, of_before) = ranked(&mut chooser, &inserts, 2 * RECORDS, 100_000);
        assert!(before[RECORDS as usize..].iter().all(|count| *count == 0));
        inserts.completed(0, RECORDS);
        let (after, of_after) = ranked(&mut chooser, &inserts, 2 * RECORDS, 100_000);
        let old = |order: &[usize]| -> Vec<usize> {
            let old = order.iter().copied().filter(|number| *number < RECORDS as usize);
            old.take(3).collect()
        };
        assert_eq!(old(&of_before), old(&of_after));
        let new: u32 = after[RECORDS as usize..].iter().sum();
        assert!(new > 20_000, "{new} of 100000 went to new records");
    }

    /// Values of YCSB's `Utils.fnvhash64`, computed by hand from its definition.
    #[test]
    fn ranks_are_scattered_as_in_ycsb_and_records_inserted_when_all_before_them_are() {
        let by_hand = |rank: u64| {
            let mut hash: i64 = 0xCBF2_9CE4_8422_2325_u64 as i64;
            for octet in 0..8 {
                hash ^= ((rank >> (8 * octet)) & 0xff) as i64;
                hash = hash.wrapping_mul(1_099_511_628_211);
            }
            hash.wrapping_abs() as u64
        };
        for rank in [0, 1, 2, 255, 256, 9_999_999_999] {
            assert_eq!(scattered(rank), by_hand(rank), "{rank}");
        }
        let inserts = Inserts::new(100, 2);
        let numbers = [(0, 0), (1, 0), (0, 1)].map(|(inserter, place)| inserts.number(inserter, place));
        assert_eq!(numbers, [100, 101, 102]);
        assert_eq!(inserts.known(), 100);
        inserts.completed(0, 5);
        assert_eq!(inserts.known(), 100, "number 101 is missing");
        inserts.completed(1, 2);
        assert_eq!(inserts.known(), 104);
    }

    #[test]
    fn operations_come_up_by_their_weights_and_scans_with_every_length() {
        let share = |operation, weight| KvShare { operation, weight };
        let mut stream = stream("test", KvOperation::Read);
        stream.operations = vec![share(KvOperation::Read, 95.0), share(KvOperation::Update, 5.0)];
        let mut chooser = Chooser::new(&stream, 0, 0, RECORDS, 1);
        let drawn = (0..20_000).map(|_| chooser.operation());
        let updates = drawn.filter(|operation| *operation == KvOperation::Update).count();
        assert!((850..1150).contains(&updates), "{updates} of 20000");
        let mut stream = crate::testing::stream("test", KvOperation::Scan);
        stream.scan_records_min = 1;
        stream.scan_records_max = 5;
        let mut chooser = Chooser::new(&stream, 0, 0, RECORDS, 1);
        let lengths: std::collections::BTreeSet<u64> = (0..1000).map(|_| chooser.scan_records()).collect();
        assert_eq!(lengths, [1, 2, 3, 4, 5].into());
    }
}
