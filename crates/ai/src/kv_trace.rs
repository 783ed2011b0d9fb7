//! A trace of requests, and what an LRU cache makes of it: blocks to load, to store and to remove, in order.
//!
//! The cache decides in the order of the trace, so its decisions are known before the load.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{AiKvCacheWorkload, KvCacheResult, KvCacheTrace};

const MAGIC: u64 = u64::from_le_bytes(*b"ioskvrq1");
const HEAD: usize = 3;

/// Requests with their blocks, which are numbered by their first occurrence.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// Number of different blocks.
    pub blocks: u32,
    /// Nanoseconds since the first request.
    pub at_ns: Vec<u64>,
    ends: Vec<usize>,
    all: Vec<u32>,
}

impl Trace {
    pub(crate) fn open(trace: &KvCacheTrace, targets: &Targets) -> Result<Trace, RunError> {
        let path = Path::new(&trace.path);
        let mut bytes = Vec::new();
        targets
            .open(path, OFlags::RDONLY)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| RunError::io("read the trace", path, &error))?;
        let word = |eight: &[u8]| u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        let words: Vec<_> = bytes.chunks_exact(8).map(word).collect();
        let read = Trace::read(&words).filter(|read| read.at_ns.len() as u64 == trace.rows);
        let message = format!("`{}` is not the converted trace of this plan", path.display());
        let hint = "remove this file, and repeat the run: the trace is converted again";
        read.ok_or_else(|| RunError::new(Code::InvalidSpec, message, hint))
    }

    /// None if it is damaged.
    fn read(words: &[u64]) -> Option<Trace> {
        let (head, rest) = words.split_at_checked(HEAD)?;
        let requests = usize::try_from(head[2]).ok()?;
        let (at_ns, rest) = rest.split_at_checked(requests)?;
        let (counts, all) = rest.split_at_checked(requests)?;
        let ends = counts.iter().scan(0_usize, |end, count| {
            *end = end.checked_add(usize::try_from(*count).ok()?)?;
            Some(*end)
        });
        let blocks = all.iter().map(|block| u32::try_from(*block).ok());
        let trace = Trace {
            blocks: u32::try_from(head[1]).ok()?,
            at_ns: at_ns.to_vec(),
            ends: ends.collect(),
            all: blocks.collect::<Option<_>>()?,
        };
        let is_whole = head[0] == MAGIC && trace.ends.len() == requests && trace.ends.last() == Some(&all.len());
        let is_valid = is_whole && at_ns.is_sorted() && trace.all.iter().all(|block| *block < trace.blocks);
        is_valid.then_some(trace)
    }

    /// Blocks of a request, from the first on.
    pub(crate) fn blocks_of(&self, request: usize) -> &[u32] {
        let first = request.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[first..self.ends[request]]
    }

    /// The block that all requests have first.
    fn common(&self) -> Option<u32> {
        let first = *self.blocks_of(0).first()?;
        (0..self.at_ns.len())
            .all(|request| self.blocks_of(request).first() == Some(&first))
            .then_some(first)
    }
}

/// Blocks in the order of their last use.
struct Lru {
    capacity: usize,
    /// Of each block that is cached, when it was used last; otherwise 0.
    used: Vec<u64>,
    order: BTreeMap<u64, u32>,
    tick: u64,
}

impl Lru {
    fn new(capacity: u32, blocks: u32) -> Lru {
        Lru {
            capacity: capacity as usize,
            used: vec![0; blocks as usize],
            order: BTreeMap::new(),
            tick: 0,
        }
    }

    fn has(&self, block: u32) -> bool {
        self.used[block as usize] > 0
    }

    /// Marks a block as used; the one that leaves the cache for it.
    fn touch(&mut self, block: u32) -> Option<u32> {
        if self.capacity == 0 {
            return None;
        }
        self.tick += 1;
        let before = std::mem::replace(&mut self.used[block as usize], self.tick);
        self.order.remove(&before);
        self.order.insert(self.tick, block);
        if self.order.len() <= self.capacity {
            return None;
        }
        let (_, evicted) = self.order.pop_first()?;
        self.used[evicted as usize] = 0;
        Some(evicted)
    }
}

/// A block in storage, from its store to its eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stay {
    pub block: u32,
    /// Its place among those of `capacity_blocks`.
    pub slot: u32,
    /// Loads of it.
    pub loads: u32,
    /// The stay of the same block before this one.
    pub before: Option<u32>,
}

/// A block to be stored, and the one to be removed for it; numbers of stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Store {
    pub request: u32,
    pub stay: u32,
    pub evicted: Option<u32>,
}

/// Blocks that a request finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Nanoseconds since the first measured request, at the speed of the load.
    pub at_ns: u64,
    /// Stays to be loaded, in [`Schedule::loads`].
    pub loads: Range<usize>,
    /// The first block that is in neither tier.
    pub missing: Option<u32>,
    /// Look-ups, hits, stores and evictions.
    pub counts: KvCacheResult,
}

/// The decisions of the cache.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Those of the measurement.
    pub requests: Vec<Request>,
    pub loads: Vec<u32>,
    pub stores: Vec<Store>,
    pub stays: Vec<Stay>,
    /// Stays that the first requests, before the measurement, leave in the cache.
    pub warm: Vec<u32>,
}

impl Schedule {
    pub(crate) fn new(workload: &AiKvCacheWorkload, trace: &Trace) -> Schedule {
        let mut tiers = Tiers {
            storage: Lru::new(workload.capacity_blocks, trace.blocks),
            dram: Lru::new(workload.dram_blocks, trace.blocks),
            stay_of: vec![None; trace.blocks as usize],
            common: trace.common(),
        };
        let mut schedule = Schedule::default();
        let warm = workload.warm_requests as usize;
        for (number, at_ns) in trace.at_ns.iter().enumerate() {
            if number == warm {
                schedule.forget_past(&tiers);
            }
            let blocks = trace.blocks_of(number);
            let mut request = Request {
                at_ns: (at_ns.saturating_sub(trace.at_ns[warm]) as f64 / workload.speed) as u64,
                ..Request::default()
            };
            request.counts.lookups = blocks.len() as u64;
            let hits = tiers.load(blocks, &mut request, &mut schedule);
            request.missing = blocks.get(hits).copied();
            tiers.store(&blocks[hits..], &mut request, &mut schedule);
            schedule.requests.push(request);
        }
        schedule
    }

    /// Leaves of the past only what it has stored.
    fn forget_past(&mut self, tiers: &Tiers) {
        self.requests.clear();
        self.loads.clear();
        self.stores.clear();
        self.stays.iter_mut().for_each(|stay| stay.loads = 0);
        let cached = tiers.storage.order.values();
        self.warm = cached.filter_map(|block| tiers.stay_of[*block as usize]).collect();
    }
}

/// The caches, and the last stay of each block in storage.
struct Tiers {
    storage: Lru,
    dram: Lru,
    stay_of: Vec<Option<u32>>,
    common: Option<u32>,
}

impl Tiers {
    /// Uses the blocks of a request that are hits; their number.
    fn load(&mut self, blocks: &[u32], request: &mut Request, schedule: &mut Schedule) -> usize {
        let is_hit = |block: &&u32| self.dram.has(**block) || self.storage.has(**block);
        let hits = blocks.iter().take_while(is_hit).count();
        request.loads = schedule.loads.len()..0;
        for block in &blocks[..hits] {
            request.counts.common_hits += u64::from(self.common == Some(*block));
            if self.dram.has(*block) {
                request.counts.dram_hits += 1;
            } else {
                let stay = self.stay_of[*block as usize].expect("a block in storage has been stored");
                schedule.stays[stay as usize].loads += 1;
                schedule.loads.push(stay);
            }
            if self.storage.has(*block) {
                self.storage.touch(*block);
            }
            self.dram.touch(*block);
        }
        request.loads.end = schedule.loads.len();
        request.counts.storage_hits = request.loads.len() as u64;
        hits
    }

    /// Stores the other blocks of a request, unless they are in storage.
    fn store(&mut self, blocks: &[u32], request: &mut Request, schedule: &mut Schedule) {
        for block in blocks {
            self.dram.touch(*block);
            let is_stored = self.storage.has(*block);
            let evicted = self.storage.touch(*block);
            if is_stored {
                continue;
            }
            let evicted = evicted.and_then(|evicted| self.stay_of[evicted as usize]);
            let stay = schedule.stays.len() as u32;
            schedule.stays.push(Stay {
                block: *block,
                slot: match evicted {
                    Some(evicted) => schedule.stays[evicted as usize].slot,
                    None => self.storage.order.len() as u32 - 1,
                },
                loads: 0,
                before: self.stay_of[*block as usize].replace(stay),
            });
            schedule.stores.push(Store {
                request: schedule.requests.len() as u32,
                stay,
                evicted,
            });
            request.counts.stores += 1;
            request.counts.evictions += u64::from(evicted.is_some());
        }
    }
}

#[cfg(test)]
pub(crate) fn file_of(requests: &[(u64, &[u32])]) -> Vec<u8> {
    let all = || {
        requests
            .iter()
            .flat_map(|(_, blocks)| blocks.iter().map(|block| u64::from(*block)))
    };
    let head = [MAGIC, all().max().map_or(0, |most| most + 1), requests.len() as u64];
    let times = requests.iter().map(|(at_ns, _)| *at_ns);
    let counts = requests.iter().map(|(_, blocks)| blocks.len() as u64);
    let words = head.into_iter().chain(times).chain(counts).chain(all());
    words.flat_map(u64::to_le_bytes).collect()
}
