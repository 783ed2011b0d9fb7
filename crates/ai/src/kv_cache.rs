//! A cache of keys and values of attention on storage: loads of prefixes and stores of new blocks, in the layouts of LMCache, SGLang
//! and vLLM.
//!
//! `kv_trace` has what the cache decides. Here, requests start at their times (open loop): threads of the stream `loads` take
//! requests, or the blocks of one request together, in their order; those of `stores` take blocks to store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use iosonde_harness::target::Targets;
use iosonde_harness::{LoadPlan, Place, Run, RunError, Stage, StreamPlan, Workload, require};
use iosonde_protocol::{
    AiKvCacheWorkload, AiTarget, KvCacheLayout, KvCacheResult, Operation, PageCache, Ramp, RunResult,
};

use crate::files::{Content, FileNeed};
use crate::kv_trace::{Schedule, Store, Trace};
use crate::world::{Access, Extent, Load, Memory, World};
use crate::{Setting, measure};

const PAGE_BYTES: u64 = 4096;
const BLOCK_BYTES_MAX: u64 = 1 << 30;
const STORES: usize = 1;

/// The cache of a spec.
pub struct AiKvCache<'a>(pub &'a AiKvCacheWorkload);

impl Workload for AiKvCache<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let stream = |name, jobs| StreamPlan {
            ends_by_itself: true,
            ..StreamPlan::closed(name, jobs, &self.0.cpus)
        };
        Some(LoadPlan {
            ramp: Ramp::default(),
            duration_ns: self.0.duration_ns,
            interval_ns: self.0.interval_ns,
            streams: vec![stream("loads", self.0.threads), stream("stores", self.0.writers)],
        })
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        let bytes = workload.block_bytes;
        let is_size = (PAGE_BYTES..=BLOCK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(PAGE_BYTES);
        require(is_size, "`block_bytes`")?;
        require(workload.capacity_blocks > 0, "`capacity_blocks`")?;
        require(workload.speed > 0.0 && workload.speed.is_finite(), "`speed`")?;
        require(workload.warm_requests < workload.trace.rows, "`warm_requests`")
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.0.trace.path.clone().into()]
    }

    fn is_virtual(&self) -> bool {
        self.0.backend.is_some()
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let trace = Trace::open(&workload.trace, run.inputs.targets)?;
        let cache = Cache::new(workload, Schedule::new(workload, &trace));
        if let AiTarget::Directory { path } = &workload.target {
            clear(path.as_ref(), workload.layout, run.inputs.targets)?;
        }
        let setting = Setting {
            target: &workload.target,
            backend: workload.backend.as_ref(),
            needs: cache.needs(trace.blocks),
            page_cache: PageCache::Drop,
        };
        let plan = self.plan().expect("a load is always measured");
        measure(setting, &plan, &cache, run, |facts, found| {
            let blocks = u64::from(trace.blocks.min(workload.capacity_blocks));
            facts.file_bytes = blocks * workload.block_bytes;
            facts.kv_cache = Some(cache.result(found));
        })
    }
}

/// Removes the blocks of runs before.
fn clear(path: &Path, layout: KvCacheLayout, targets: &Targets) -> Result<(), RunError> {
    let held = targets
        .open_directory(path)
        .map_err(|error| RunError::io("open", path, &error))?;
    let slots = held.held_path().join("slots");
    let cleared = held.remove_directory("blocks").and_then(|()| match layout {
        KvCacheLayout::Slots => Ok(()),
        _ if slots.exists() => std::fs::remove_file(slots),
        _ => Ok(()),
    });
    cleared.map_err(|error| RunError::io("remove the blocks in", path, &error))
}

/// The name of a block, which follows from its hash.
fn name(layout: KvCacheLayout, block: u32) -> PathBuf {
    // The finalizer of SplitMix64: hashes differ for all blocks.
    let mut hash = u64::from(block).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let hex = format!("{:016x}", hash ^ (hash >> 31));
    match layout {
        KvCacheLayout::Hashed => format!("blocks/{}/{}/{hex}.bin", &hex[..2], &hex[2..4]),
        KvCacheLayout::Renamed => format!("blocks/{}/{}/{hex}.bin", &hex[..3], &hex[3..5]),
        KvCacheLayout::Flat | KvCacheLayout::Slots => format!("blocks/{hex}.bin"),
    }
    .into()
}

/// States of a stay.
const NEW: u8 = 0;
const STORED: u8 = 1;
const REMOVED: u8 = 2;

/// Blocks of a request to be loaded, plus 1; 0 until it is looked up.
type Usable = AtomicU32;

struct Cache<'w> {
    workload: &'w AiKvCacheWorkload,
    schedule: Schedule,
    /// Of the layout on files.
    has_files: bool,
    /// For each stay, its state and the loads that are still to come.
    states: Vec<AtomicU8>,
    loads_left: Vec<AtomicU32>,
    /// For each request.
    usable: Vec<Usable>,
    started_ns: Vec<AtomicU64>,
    blocks_left: Vec<AtomicU32>,
    /// What threads take: a request, and which of its blocks in a parallel load, of which 0 is the look-up.
    parts: Vec<(u32, u32)>,
    next_part: AtomicUsize,
    next_store: AtomicUsize,
}

impl<'w> Cache<'w> {
    fn new(workload: &'w AiKvCacheWorkload, schedule: Schedule) -> Cache<'w> {
        let states: Vec<_> = schedule.stays.iter().map(|_| AtomicU8::new(REMOVED)).collect();
        let of_warm = schedule.warm.iter().map(|stay| (*stay, STORED));
        for (stay, state) in of_warm.chain(schedule.stores.iter().map(|store| (store.stay, NEW))) {
            states[stay as usize].store(state, Ordering::Relaxed);
        }
        let requests = schedule.requests.iter().enumerate();
        let parts = requests.flat_map(|(number, request)| {
            let parts = if workload.is_parallel {
                request.loads.len() as u32
            } else {
                0
            };
            (0..=parts).map(move |part| (number as u32, part))
        });
        let requests = &schedule.requests;
        Cache {
            workload,
            has_files: workload.layout != KvCacheLayout::Slots && workload.backend.is_none(),
            states,
            loads_left: schedule.stays.iter().map(|stay| stay.loads.into()).collect(),
            usable: requests.iter().map(|_| Usable::default()).collect(),
            started_ns: requests.iter().map(|_| AtomicU64::default()).collect(),
            blocks_left: requests
                .iter()
                .map(|request| (request.loads.len() as u32).into())
                .collect(),
            parts: parts.collect(),
            next_part: AtomicUsize::new(0),
            next_store: AtomicUsize::new(0),
            schedule,
        }
    }

    fn needs(&self, blocks: u32) -> Vec<FileNeed> {
        let workload = self.workload;
        if !self.has_files {
            return vec![FileNeed {
                path: "slots".into(),
                bytes: u64::from(workload.capacity_blocks) * workload.block_bytes,
                content: Content::Generated(Vec::new()),
                is_direct: workload.is_direct,
            }];
        }
        let needs = (0..blocks).map(|block| FileNeed {
            path: name(workload.layout, block),
            bytes: workload.block_bytes,
            content: Content::OfLoad,
            is_direct: workload.is_direct,
        });
        let mut needs: Vec<_> = needs.collect();
        for stay in &self.schedule.warm {
            let block = self.schedule.stays[*stay as usize].block;
            needs[block as usize].content = Content::OfLoadWritten;
        }
        needs
    }

    fn result(&self, found: &[KvCacheResult]) -> KvCacheResult {
        let mut sum = KvCacheResult::default();
        found.iter().for_each(|each| sum.include(each));
        let requests = &self.schedule.requests;
        let until_ns = self.workload.duration_ns.unwrap_or(u64::MAX);
        sum.arrived = requests.partition_point(|request| request.at_ns < until_ns) as u64;
        sum.unfinished = sum.arrived.saturating_sub(sum.finished);
        let last_ns = sum
            .requests
            .checked_sub(1)
            .map_or(0, |last| requests[last as usize].at_ns);
        sum.trace_ns = (last_ns as f64 * self.workload.speed) as u64;
        sum
    }

    fn extent(&self, stay: u32) -> Extent {
        let stay = self.schedule.stays[stay as usize];
        let bytes = self.workload.block_bytes;
        match self.has_files {
            true => Extent {
                file: stay.block as usize,
                offset: 0,
                bytes,
            },
            false => Extent {
                file: 0,
                offset: u64::from(stay.slot) * bytes,
                bytes,
            },
        }
    }

    fn is(&self, stay: u32, state: u8) -> bool {
        self.states[stay as usize].load(Ordering::Acquire) == state
    }

    /// Looks up the blocks of a request in storage, up to the first that is missing.
    fn look_up<'a>(
        &self,
        world: &mut impl World<'a>,
        number: usize,
        found: &mut KvCacheResult,
    ) -> Result<(), RunError> {
        let request = &self.schedule.requests[number];
        let stays = &self.schedule.loads[request.loads.clone()];
        let start_ns = world.now();
        let mut usable = 0;
        for stay in stays {
            if self.has_files {
                world.exists(self.extent(*stay).file)?;
            }
            if !self.is(*stay, STORED) {
                break;
            }
            usable += 1;
        }
        if let Some(block) = request
            .missing
            .filter(|_| self.has_files && usable as usize == stays.len())
        {
            world.exists(block as usize)?;
        }
        world.record(Operation::Lookup, 0, start_ns);
        self.started_ns[number].store(start_ns, Ordering::Relaxed);
        self.usable[number].store(usable + 1, Ordering::Release);
        found.requests += 1;
        found.lookups += request.lookups;
        found.dram_hits += request.dram_hits;
        found.storage_hits += stays.len() as u64;
        found.common_hits += request.common_hits;
        found.late_hits += stays.len() as u64 - u64::from(usable);
        found.stores += request.stores;
        found.evictions += request.evictions;
        found.finished += u64::from(stays.is_empty());
        Ok(())
    }

    /// Loads a block of a request that has been looked up, unless it is not usable.
    fn load<'a>(
        &self,
        world: &mut impl World<'a>,
        number: usize,
        block: usize,
        intended_ns: u64,
        found: &mut KvCacheResult,
    ) -> Result<(), RunError> {
        let usable = self.usable[number].load(Ordering::Acquire) - 1;
        let stay = self.schedule.loads[self.schedule.requests[number].loads.start + block];
        if block < usable as usize {
            let (start_ns, extent) = (world.now(), self.extent(stay));
            if self.has_files {
                let is_direct = self.workload.is_direct;
                world.open(extent.file, Access::Read { is_direct })?;
            }
            world.read(&[extent])?;
            if self.has_files {
                world.close(extent.file);
            }
            world.record(Operation::Read, extent.bytes, start_ns);
            found.read_blocks += u64::from(is_measured(world));
        }
        if self.loads_left[stay as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            world.notify();
        }
        if self.blocks_left[number].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish(world, number, usable, intended_ns, found);
        }
        Ok(())
    }

    fn finish<'a>(
        &self,
        world: &mut impl World<'a>,
        number: usize,
        usable: u32,
        intended_ns: u64,
        found: &mut KvCacheResult,
    ) {
        if usable > 0 {
            let start_ns = self.started_ns[number].load(Ordering::Relaxed);
            world.record_response(Operation::Load, 0, start_ns, Some(intended_ns));
        }
        if is_measured(world) {
            found.finished += 1;
            found.loaded_requests += u64::from(usable > 0);
            found.loaded_blocks += u64::from(usable);
            found.load_ns += if usable > 0 { world.now() - intended_ns } else { 0 };
        }
    }

    fn load_requests<'a>(&self, world: &mut impl World<'a>, found: &mut KvCacheResult) -> Result<(), RunError> {
        let begin_ns = world.phases().window().start;
        while let Some((number, part)) = self.parts.get(self.next_part.fetch_add(1, Ordering::Relaxed)) {
            let number = *number as usize;
            let request = &self.schedule.requests[number];
            let intended_ns = begin_ns + request.at_ns;
            world.sleep_until(intended_ns);
            if !world.continues() {
                break;
            }
            if *part > 0 {
                let is_ready = || self.usable[number].load(Ordering::Acquire) > 0;
                if !is_ready() && world.wait(|| is_ready().then_some(())).is_none() {
                    break;
                }
                self.load(world, number, *part as usize - 1, intended_ns, found)?;
                continue;
            }
            self.look_up(world, number, found)?;
            if self.workload.is_parallel {
                world.notify();
                continue;
            }
            for block in 0..request.loads.len() {
                if !world.continues() {
                    break;
                }
                self.load(world, number, block, intended_ns, found)?;
            }
        }
        Ok(())
    }

    fn store_blocks<'a>(&self, world: &mut impl World<'a>, found: &mut KvCacheResult) -> Result<(), RunError> {
        let begin_ns = world.phases().window().start;
        while let Some(store) = self
            .schedule
            .stores
            .get(self.next_store.fetch_add(1, Ordering::Relaxed))
        {
            let intended_ns = begin_ns + self.schedule.requests[store.request as usize].at_ns;
            world.sleep_until(intended_ns);
            if !world.continues() || world.wait(|| self.may_store(store).then_some(())).is_none() {
                break;
            }
            if let Some(evicted) = store.evicted {
                self.evict(world, evicted, found)?;
            }
            let (start_ns, extent) = (world.now(), self.extent(store.stay));
            self.write(world, extent)?;
            self.states[store.stay as usize].store(STORED, Ordering::Release);
            world.notify();
            world.record_response(Operation::Write, extent.bytes, start_ns, Some(intended_ns));
            found.written_blocks += u64::from(is_measured(world));
        }
        Ok(())
    }

    /// Returns true if what is evicted for a block has been stored and is no longer to be loaded, and if the block itself has been
    /// removed since it was stored before.
    fn may_store(&self, store: &Store) -> bool {
        let is_free = |stay: u32| self.is(stay, STORED) && self.loads_left[stay as usize].load(Ordering::Acquire) == 0;
        let before = self.schedule.stays[store.stay as usize].before;
        store.evicted.is_none_or(is_free) && before.is_none_or(|before| self.is(before, REMOVED))
    }

    fn evict<'a>(&self, world: &mut impl World<'a>, stay: u32, found: &mut KvCacheResult) -> Result<(), RunError> {
        let start_ns = world.now();
        if self.has_files {
            world.remove(self.extent(stay).file)?;
            world.record(Operation::Delete, 0, start_ns);
        }
        self.states[stay as usize].store(REMOVED, Ordering::Release);
        found.removed_blocks += u64::from(is_measured(world));
        Ok(())
    }

    fn write<'a>(&self, world: &mut impl World<'a>, extent: Extent) -> Result<(), RunError> {
        let AiKvCacheWorkload { is_direct, layout, .. } = *self.workload;
        let is_renamed = layout == KvCacheLayout::Renamed;
        if self.has_files {
            let access = match is_renamed {
                true => Access::Temporary { is_direct },
                false => Access::Create { is_direct },
            };
            if is_renamed {
                world.exists(extent.file)?;
            }
            world.open(extent.file, access)?;
        }
        world.write(extent)?;
        if self.workload.sync {
            world.sync(extent.file)?;
        }
        if self.has_files {
            world.close(extent.file);
            if is_renamed {
                world.rename(extent.file)?;
            }
        }
        Ok(())
    }
}

fn is_measured<'a>(world: &mut impl World<'a>) -> bool {
    world.phases().stage() == Stage::Measure
}

impl Load for Cache<'_> {
    type Found = KvCacheResult;

    fn memory(&self, place: Place) -> Memory {
        Memory {
            bytes: self.workload.block_bytes,
            slots: 1,
            is_new_each_time: false,
            is_locked: false,
            is_written: place.stream == STORES,
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<KvCacheResult, RunError> {
        let mut found = KvCacheResult::default();
        if !self.has_files {
            let is_direct = self.workload.is_direct;
            world.open(0, Access::Update { is_direct })?;
        }
        match place.stream {
            STORES => self.store_blocks(world, &mut found)?,
            _ => self.load_requests(world, &mut found)?,
        }
        Ok(found)
    }

    fn interface(&self) -> &'static str {
        "sync"
    }
}

#[cfg(test)]
mod tests;
