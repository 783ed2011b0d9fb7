//! A cache of keys and values of attention on storage: loads of prefixes and stores of new blocks, in the layouts of LMCache and vLLM.
//!
//! `kv_trace` has what the cache decides. Here, requests start at their times (open loop): threads of the stream `loads` take
//! requests, or the blocks of one request together, in their order; those of `stores` take blocks to store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use iosonde_harness::load::Rng;
use iosonde_harness::target::Targets;
use iosonde_harness::{LoadPlan, Place, Run, RunError, Stage, Workload, require};
use iosonde_protocol::{AiKvCacheWorkload, AiTarget, KvCacheLayout, KvCacheResult, Operation, RunResult};

use crate::files::{Access, Content, FileNeed};
use crate::kv_trace::{Schedule, Store, Trace};
use crate::world::{Extent, Load, Memory, World};
use crate::{check_request, measure, plan};

const STORES: usize = 1;

/// The cache of a spec.
pub struct AiKvCache<'a>(pub &'a AiKvCacheWorkload);

impl Workload for AiKvCache<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let AiKvCacheWorkload { duration_ns, cpus, .. } = self.0;
        let streams = [("loads", self.0.threads), ("stores", self.0.writers)];
        plan(&streams, None, *duration_ns, self.0.interval_ns, cpus)
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        check_request(workload.block_bytes, "`block_bytes`")?;
        require(workload.capacity_blocks > 0, "`capacity_blocks`")?;
        require(workload.speed > 0.0 && workload.speed.is_finite(), "`speed`")?;
        require(workload.warm_requests < workload.trace.rows, "`warm_requests`")
    }

    placed!(|workload: &AiKvCacheWorkload| vec![workload.trace.path.clone().into()]);

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let trace = Trace::open(&workload.trace, run.inputs.targets)?;
        let cache = Cache::new(workload, trace.blocks, Schedule::new(workload, &trace));
        if let AiTarget::Directory { path } = &workload.target {
            clear(path.as_ref(), workload.layout, run.inputs.targets)?;
        }
        let backend = workload.backend.as_ref();
        measure(self, &workload.target, backend, &cache, run, |facts, found| {
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
    let hash = Rng::new(0, &[0xa1_0003, block.into()]).next_u64();
    let (hex, decimal) = (format!("{hash:016x}"), hash.to_string());
    match layout {
        KvCacheLayout::Hashed => format!("blocks/{}/{}/{hex}.bin", &decimal[..2], &decimal[2..4]),
        KvCacheLayout::Renamed => format!("blocks/{}/{}/{hex}.bin", &hex[..3], &hex[3..5]),
        KvCacheLayout::Flat | KvCacheLayout::Slots => format!("blocks/{hex}.bin"),
    }
    .into()
}

/// States of a stay.
const NEW: u8 = 0;
const STORED: u8 = 1;
const REMOVED: u8 = 2;

/// A stay: its state, and the loads that are still to come.
struct Block {
    state: AtomicU8,
    loads_left: AtomicU32,
}

/// How far the load of a request is.
#[derive(Default)]
struct Progress {
    /// Blocks to be loaded, plus 1; 0 until it is looked up.
    usable: AtomicU32,
    started_ns: AtomicU64,
    blocks_left: AtomicU32,
}

struct Cache<'w> {
    workload: &'w AiKvCacheWorkload,
    /// Different blocks of the trace.
    named: u32,
    schedule: Schedule,
    /// True if blocks are files, and not slots of one.
    has_files: bool,
    blocks: Vec<Block>,
    progress: Vec<Progress>,
    /// Work that threads take: a request, and a number of its blocks in a parallel load, of which 0 is the look-up.
    parts: Vec<(usize, usize)>,
    next_part: AtomicUsize,
    next_store: AtomicUsize,
}

impl<'w> Cache<'w> {
    fn new(workload: &'w AiKvCacheWorkload, named: u32, schedule: Schedule) -> Cache<'w> {
        let blocks = schedule.stays.iter().map(|stay| Block {
            state: REMOVED.into(),
            loads_left: stay.loads.into(),
        });
        let mut blocks: Vec<_> = blocks.collect();
        let warm = schedule.warm.iter().map(|stay| (*stay, STORED));
        for (stay, state) in warm.chain(schedule.stores.iter().map(|store| (store.stay, NEW))) {
            blocks[stay as usize].state = state.into();
        }
        let loads = || schedule.requests.iter().map(|request| request.loads.len());
        let parts = loads().enumerate().flat_map(|(number, loads)| {
            let parts = if workload.is_parallel { loads } else { 0 };
            (0..=parts).map(move |part| (number, part))
        });
        let progress = loads().map(|loads| Progress {
            blocks_left: (loads as u32).into(),
            ..Progress::default()
        });
        Cache {
            workload,
            named,
            has_files: workload.layout != KvCacheLayout::Slots && workload.backend.is_none(),
            blocks,
            progress: progress.collect(),
            parts: parts.collect(),
            next_part: AtomicUsize::new(0),
            next_store: AtomicUsize::new(0),
            schedule,
        }
    }

    fn result(&self, found: &[KvCacheResult]) -> KvCacheResult {
        let mut sum = KvCacheResult::default();
        found.iter().for_each(|each| sum.include(each));
        let requests = &self.schedule.requests;
        requests.iter().for_each(|request| sum.include(&request.counts));
        let until_ns = self.workload.duration_ns.unwrap_or(u64::MAX);
        sum.arrived = requests.partition_point(|request| request.at_ns < until_ns) as u64;
        sum.unfinished = sum.arrived.saturating_sub(sum.finished);
        let last_ns = requests.last().map_or(0, |last| last.at_ns);
        sum.trace_ns = (last_ns as f64 * self.workload.speed) as u64;
        sum
    }

    fn extent(&self, stay: u32) -> Extent {
        let (stay, bytes) = (self.schedule.stays[stay as usize], self.workload.block_bytes);
        let (file, offset) = match self.has_files {
            true => (stay.block as usize, 0),
            false => (0, u64::from(stay.slot) * bytes),
        };
        Extent::new(file, offset, bytes)
    }

    fn is(&self, stay: u32, state: u8) -> bool {
        self.blocks[stay as usize].state.load(Ordering::Acquire) == state
    }

    fn set(&self, stay: u32, state: u8) {
        self.blocks[stay as usize].state.store(state, Ordering::Release);
    }

    /// Returns true if what is evicted for a block has been stored and is no longer to be loaded, and if the block itself has been
    /// removed since it was stored before.
    fn may_store(&self, store: &Store) -> bool {
        let loads = |stay: u32| self.blocks[stay as usize].loads_left.load(Ordering::Acquire);
        let before = self.schedule.stays[store.stay as usize].before;
        let may_evict = |stay| self.is(stay, STORED) && loads(stay) == 0;
        store.evicted.is_none_or(may_evict) && before.is_none_or(|before| self.is(before, REMOVED))
    }

    /// Blocks of a request to be loaded, once it is looked up.
    fn usable(&self, number: usize) -> Option<usize> {
        let usable = self.progress[number].usable.load(Ordering::Acquire);
        (usable as usize).checked_sub(1)
    }
}

/// State of a thread.
struct Worker<'c, W> {
    cache: &'c Cache<'c>,
    world: &'c mut W,
    found: KvCacheResult,
    begin_ns: u64,
}

impl<'a, W: World<'a>> Worker<'_, W> {
    /// Waits for the time of a request, and returns it; None if load is no longer to be applied.
    fn await_request(&mut self, number: usize) -> Option<u64> {
        let intended_ns = self.begin_ns + self.cache.schedule.requests[number].at_ns;
        self.world.sleep_until(intended_ns);
        self.world.continues().then_some(intended_ns)
    }

    fn is_measured(&mut self) -> bool {
        self.world.phases().stage() == Stage::Measure
    }

    fn load_requests(&mut self) -> Result<(), RunError> {
        let cache = self.cache;
        while let Some((number, part)) = cache.parts.get(cache.next_part.fetch_add(1, Ordering::Relaxed)) {
            let Some(intended_ns) = self.await_request(*number) else {
                break;
            };
            if *part == 0 {
                self.look_up(*number)?;
            } else if self.world.wait(|| cache.usable(*number).is_some()) {
                self.load(*number, *part - 1, intended_ns)?;
            }
            if cache.workload.is_parallel {
                continue;
            }
            for block in 0..cache.schedule.requests[*number].loads.len() {
                if self.world.continues() {
                    self.load(*number, block, intended_ns)?;
                }
            }
        }
        Ok(())
    }

    /// Looks up the blocks of a request in storage, up to the first that is missing.
    fn look_up(&mut self, number: usize) -> Result<(), RunError> {
        let cache = self.cache;
        let request = &cache.schedule.requests[number];
        let stays = &cache.schedule.loads[request.loads.clone()];
        let start_ns = self.world.now();
        let mut usable = 0;
        for stay in stays {
            if cache.has_files {
                self.world.files().look_up(cache.extent(*stay).file)?;
            }
            if !cache.is(*stay, STORED) {
                break;
            }
            usable += 1;
        }
        if let Some(block) = request.missing.filter(|_| cache.has_files && usable == stays.len()) {
            self.world.files().look_up(block as usize)?;
        }
        self.world.record(Operation::Lookup, 0, start_ns);
        self.found.requests += 1;
        self.found.late_hits += (stays.len() - usable) as u64;
        self.found.finished += u64::from(stays.is_empty());
        let progress = &cache.progress[number];
        progress.started_ns.store(start_ns, Ordering::Relaxed);
        progress.usable.store(usable as u32 + 1, Ordering::Release);
        self.world.notify();
        Ok(())
    }

    /// Loads a block of a request that has been looked up, unless it is not usable.
    fn load(&mut self, number: usize, block: usize, intended_ns: u64) -> Result<(), RunError> {
        let cache = self.cache;
        let usable = cache.usable(number).unwrap_or(0);
        let stay = cache.schedule.loads[cache.schedule.requests[number].loads.start + block];
        if block < usable {
            let (start_ns, extent) = (self.world.now(), cache.extent(stay));
            if cache.has_files {
                let is_direct = cache.workload.is_direct;
                self.world.open(extent.file, Access::Read, is_direct)?;
                self.world.read(&[extent])?;
                self.world.close(extent.file);
            } else {
                self.world.read(&[extent])?;
            }
            self.world.record(Operation::Read, extent.bytes, start_ns);
            self.found.read_blocks += u64::from(self.is_measured());
        }
        if cache.blocks[stay as usize].loads_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.world.notify();
        }
        if cache.progress[number].blocks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish(number, usable as u64, intended_ns);
        }
        Ok(())
    }

    fn finish(&mut self, number: usize, usable: u64, intended_ns: u64) {
        if usable > 0 {
            let start_ns = self.cache.progress[number].started_ns.load(Ordering::Relaxed);
            self.world
                .record_response(Operation::Load, 0, start_ns, Some(intended_ns));
        }
        if !self.is_measured() {
            return;
        }
        self.found.finished += 1;
        if usable > 0 {
            self.found.loaded_requests += 1;
            self.found.loaded_blocks += usable;
            self.found.load_ns += self.world.now() - intended_ns;
        }
    }

    fn store_blocks(&mut self) -> Result<(), RunError> {
        let cache = self.cache;
        let next = || cache.next_store.fetch_add(1, Ordering::Relaxed);
        while let Some(store) = cache.schedule.stores.get(next()) {
            let Some(intended_ns) = self.await_request(store.request as usize) else {
                break;
            };
            if !self.world.wait(|| cache.may_store(store)) {
                break;
            }
            if let Some(evicted) = store.evicted {
                let start_ns = self.world.now();
                if cache.has_files {
                    self.world.files().remove(cache.extent(evicted).file)?;
                    self.world.record(Operation::Delete, 0, start_ns);
                }
                cache.set(evicted, REMOVED);
                self.found.removed_blocks += u64::from(self.is_measured());
            }
            let (start_ns, extent) = (self.world.now(), cache.extent(store.stay));
            self.write(extent)?;
            cache.set(store.stay, STORED);
            self.world.notify();
            self.world
                .record_response(Operation::Write, extent.bytes, start_ns, Some(intended_ns));
            self.found.written_blocks += u64::from(self.is_measured());
        }
        Ok(())
    }

    fn write(&mut self, extent: Extent) -> Result<(), RunError> {
        let (workload, has_files) = (self.cache.workload, self.cache.has_files);
        let (world, is_direct) = (&mut *self.world, workload.is_direct);
        let is_renamed = has_files && workload.layout != KvCacheLayout::Flat;
        if is_renamed {
            world.files().look_up(extent.file)?;
            world.open(extent.file, Access::Temporary, is_direct)?;
        } else if has_files {
            world.open(extent.file, Access::Create, is_direct)?;
        }
        world.write(extent)?;
        if workload.sync {
            world.sync(extent.file)?;
        }
        if has_files {
            world.close(extent.file);
        }
        match is_renamed {
            true => world.files().rename(extent.file),
            false => Ok(()),
        }
    }
}

impl Load for Cache<'_> {
    type Found = KvCacheResult;

    fn needs(&self) -> Vec<FileNeed> {
        let workload = self.workload;
        let need = |path, bytes, content| FileNeed {
            path,
            bytes,
            content,
            is_direct: workload.is_direct,
        };
        if !self.has_files {
            let bytes = u64::from(workload.capacity_blocks) * workload.block_bytes;
            return vec![need("slots".into(), bytes, Content::Generated(Vec::new()))];
        }
        let path = |block| name(workload.layout, block);
        let needs = (0..self.named).map(|block| need(path(block), workload.block_bytes, Content::OfLoad));
        let mut needs: Vec<_> = needs.collect();
        for stay in &self.schedule.warm {
            needs[self.extent(*stay).file].content = Content::PerThread;
        }
        needs
    }

    fn memory(&self, place: Place) -> Memory {
        Memory {
            is_written: place.stream == STORES,
            ..Memory::of_one(self.workload.block_bytes)
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<KvCacheResult, RunError> {
        if !self.has_files {
            world.open(0, Access::Update, self.workload.is_direct)?;
        }
        let begin_ns = world.phases().window().start;
        let found = KvCacheResult::default();
        let mut worker = Worker {
            cache: self,
            world,
            found,
            begin_ns,
        };
        match place.stream {
            STORES => worker.store_blocks()?,
            _ => worker.load_requests()?,
        }
        Ok(worker.found)
    }
}

#[cfg(test)]
mod tests;
