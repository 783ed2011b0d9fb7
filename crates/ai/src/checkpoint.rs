//! Checkpoints of a training job, and restores.
//!
//! Ranks start each step, a checkpoint or a restore, together, and write or read their files one after another. In the background
//! mode a rank only copies its state, and a second thread writes it. A checkpoint takes the place of one that is no longer kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use iosonde_harness::{LoadPlan, Place, Run, RunError, Workload, require};
use iosonde_protocol::{
    AiCheckpointWorkload, AiResult, CheckpointFile, CheckpointMode, CheckpointTimes, Operation, PageCache, RunResult,
    Warning,
};

use crate::files::{Access, Content, FileNeed};
use crate::weights::pieces;
use crate::world::{Extent, Load, Memory, PAGE_BYTES, World};
use crate::{check_request, measure, plan};

/// The checkpoints of a spec.
pub struct AiCheckpoint<'a>(pub &'a AiCheckpointWorkload);

impl Workload for AiCheckpoint<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let threads_of_rank = 1 + u32::from(self.0.mode == CheckpointMode::Background);
        let stream = ("ranks", threads_of_rank * self.0.ranks.len() as u32);
        plan(&[stream], None, None, self.0.interval_ns, &self.0.cpus)
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        check_request(workload.request_bytes, "`request_bytes`")?;
        require(workload.checkpoints > 0, "`checkpoints`")?;
        require(workload.keep > 0, "`keep`")?;
        require(workload.grid_ns != Some(0), "`grid_ns`")?;
        let mut names = BTreeSet::new();
        workload.ranks.iter().flatten().try_for_each(|file| {
            let is_name = Path::new(&file.name).file_name() == Some(file.name.as_ref());
            require(is_name && names.insert(&file.name), "`ranks.name`")?;
            let has_tensors = !file.tensors.is_empty() && !file.tensors.contains(&0);
            require(has_tensors, "`ranks.tensors`")
        })
    }

    placed!(|_| Vec::new());

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let checkpoints = Checkpoints::new(workload);
        let backend = workload.backend.as_ref();
        let result = measure(self, &workload.target, backend, &checkpoints, run, |facts, _| {
            let (end, all) = (checkpoints.count(), checkpoints.count() + u64::from(workload.restores));
            facts.file_bytes = (0..workload.ranks.len()).map(|rank| checkpoints.bytes(rank)).sum();
            facts.checkpoints = (0..end).map_while(|step| checkpoints.times(step)).collect();
            facts.restores = (end..all).map_while(|step| checkpoints.times(step)).collect();
        })?;
        if let Some(facts) = &result.ai {
            warn_of_cached(facts, run);
        }
        Ok(result)
    }
}

/// Warns if more than 1 % of a restore was in the page cache.
fn warn_of_cached(facts: &AiResult, run: &mut Run<'_>) {
    let cached = facts.restores.iter().filter_map(|restore| restore.cached_bytes).max();
    if cached > Some(facts.file_bytes / 100) {
        let (cached, all) = (cached.unwrap_or(0), facts.file_bytes);
        run.warn(Warning {
            code: "cached_restore".into(),
            message: format!("{cached} of {all} bytes of a restore were in the page cache"),
            hint: "use a file system on a device; mount NFS and FUSE without caching, or use direct I/O".into(),
        });
    }
}

struct Checkpoints<'w> {
    workload: &'w AiCheckpointWorkload,
    /// Bytes that are written or read one after another, of each file of each rank.
    parts: Vec<Vec<Vec<u64>>>,
    /// Number of the first file of each rank among those of a checkpoint.
    first: Vec<usize>,
    reports: Mutex<BTreeMap<(Event, u64, usize), u64>>,
}

/// Event that each rank reports once in a step. Restores have the numbers after those of the checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready,
    Begin,
    /// Training continues. In the background mode the state is copied.
    Returned,
    /// Files are synced, or read.
    Complete,
    /// The value is bytes in the page cache, not an instant.
    Cached,
}

impl Load for Checkpoints<'_> {
    type Found = ();

    fn needs(&self) -> Vec<FileNeed> {
        let files = self.workload.ranks.iter().flatten();
        let files: Vec<_> = files.zip(self.parts.iter().flatten()).collect();
        let needs = (1..=self.places()).flat_map(|place| {
            files.iter().map(move |(file, parts)| FileNeed {
                path: format!("global_epoch1_step{place}/{}", file.name).into(),
                bytes: parts.iter().sum(),
                content: Content::OfLoad,
                is_direct: self.is(CheckpointMode::Direct),
            })
        });
        needs.collect()
    }

    fn page_cache(&self) -> PageCache {
        PageCache::Keep
    }

    fn memory(&self, place: Place) -> Memory {
        let is_copied = self.is(CheckpointMode::Background) && (place.job as usize) < self.first.len();
        Memory {
            is_written: true,
            ..Memory::of_one(self.workload.request_bytes * (1 + u64::from(is_copied)))
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<(), RunError> {
        let (ranks, job) = (self.first.len(), place.job as usize);
        if job >= ranks {
            return self.write_copies(world, job - ranks);
        }
        self.remove_all(world, job)?;
        let _is_complete = self.train(world, job)? && self.restore(world, job)?;
        self.remove_all(world, job)
    }
}

/// Where a function returns a bool, it is false if load is no longer to be applied.
impl<'w> Checkpoints<'w> {
    fn new(workload: &'w AiCheckpointWorkload) -> Checkpoints<'w> {
        // Direct I/O writes whole pages; a simulated device has no page cache that joins tensors.
        let joins = workload.mode == CheckpointMode::Direct || workload.backend.is_some();
        let parts = |file: &CheckpointFile| match joins {
            true => vec![file.tensors.iter().sum::<u64>().next_multiple_of(PAGE_BYTES)],
            false => file.tensors.clone(),
        };
        let ranks = workload.ranks.iter();
        let first = ranks.clone().scan(0, |files, rank| {
            *files += rank.len();
            Some(*files - rank.len())
        });
        Checkpoints {
            workload,
            first: first.collect(),
            parts: ranks.map(|files| files.iter().map(parts).collect()).collect(),
            reports: Mutex::default(),
        }
    }

    fn is(&self, mode: CheckpointMode) -> bool {
        self.workload.mode == mode
    }

    fn count(&self) -> u64 {
        self.workload.checkpoints.into()
    }

    fn bytes(&self, rank: usize) -> u64 {
        self.parts[rank].iter().flatten().sum()
    }

    /// Places of checkpoints on storage.
    fn places(&self) -> u64 {
        u64::from(self.workload.keep) + 1
    }

    /// Numbers and parts of a rank's files of a checkpoint.
    fn files(&self, rank: usize, checkpoint: u64) -> impl Iterator<Item = (usize, &Vec<u64>)> {
        let of_each: usize = self.parts.iter().map(Vec::len).sum();
        let first = (checkpoint % self.places()) as usize * of_each + self.first[rank];
        (first..).zip(&self.parts[rank])
    }

    fn report<'a>(&self, world: &mut impl World<'a>, event: Event, step: u64, rank: usize, value: u64) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert((event, step, rank), value);
        drop(reports);
        let ranks = self.first.len();
        let is_awaited = match event {
            Event::Ready => self.reported(event, step, 0..ranks).len() == ranks,
            _ => self.is(CheckpointMode::Background),
        };
        if is_awaited {
            world.notify();
        }
    }

    fn reported(&self, event: Event, step: u64, ranks: Range<usize>) -> Vec<u64> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let found = reports.range((event, step, ranks.start)..(event, step, ranks.end));
        found.map(|(_, value)| *value).collect()
    }

    fn wait<'a>(&self, world: &mut impl World<'a>, event: Event, step: u64, ranks: Range<usize>) -> bool {
        world.wait(|| self.reported(event, step, ranks.clone()).len() == ranks.len())
    }

    /// Waits until all ranks are ready for a step, and for the instant at which hosts begin it.
    fn meet<'a>(&self, world: &mut impl World<'a>, step: u64, rank: usize) -> bool {
        let ranks = 0..self.first.len();
        self.report(world, Event::Ready, step, rank, world.now());
        if !self.wait(world, Event::Ready, step, ranks.clone()) {
            return false;
        }
        let ready_ns = self.reported(Event::Ready, step, ranks).into_iter().max();
        let mut begin_ns = ready_ns.expect("each rank has reported");
        if let Some(grid_ns) = self.workload.grid_ns {
            let start_ns = world.phases().window().start;
            begin_ns = start_ns + (begin_ns - start_ns).next_multiple_of(grid_ns);
            world.sleep_until(begin_ns);
        }
        self.report(world, Event::Begin, step, rank, begin_ns);
        true
    }

    fn train<'a>(&self, world: &mut impl World<'a>, rank: usize) -> Result<bool, RunError> {
        for step in 0..self.count() {
            if step > 0 && self.workload.grid_ns.is_none() {
                world.sleep_until(world.now() + self.workload.pause_ns);
            }
            let is_done = self.meet(world, step, rank)
                && match self.workload.mode {
                    CheckpointMode::Background => self.copy(world, rank, step),
                    _ => self.write(world, rank, step)?,
                };
            if !is_done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies a rank's state to memory, which is in use until the checkpoint before is durable.
    fn copy<'a>(&self, world: &mut impl World<'a>, rank: usize, step: u64) -> bool {
        if step > 0 && !self.wait(world, Event::Complete, step - 1, rank..rank + 1) {
            return false;
        }
        let (bytes, request) = (self.bytes(rank), self.workload.request_bytes);
        for offset in (0..bytes).step_by(request as usize) {
            world.copy(request.min(bytes - offset));
        }
        self.report(world, Event::Returned, step, rank, world.now());
        true
    }

    fn write_copies<'a>(&self, world: &mut impl World<'a>, rank: usize) -> Result<(), RunError> {
        for step in 0..self.count() {
            if !self.wait(world, Event::Returned, step, rank..rank + 1) || !self.write(world, rank, step)? {
                break;
            }
        }
        Ok(())
    }

    /// Writes a rank's files, makes them durable, and removes those of the checkpoint that is no longer kept.
    fn write<'a>(&self, world: &mut impl World<'a>, rank: usize, step: u64) -> Result<bool, RunError> {
        if !self.transfer(world, rank, step, Access::Create)? {
            return Ok(false);
        }
        let mut end_ns = world.now();
        if !self.is(CheckpointMode::Background) {
            self.report(world, Event::Returned, step, rank, end_ns);
        }
        if !self.workload.sync {
            for (number, _) in self.files(rank, step) {
                world.open(number, Access::Read, false)?;
                sync(world, number)?;
                world.close(number);
            }
            end_ns = world.now();
        }
        self.report(world, Event::Complete, step, rank, end_ns);
        self.remove(world, rank, step + 1)?;
        Ok(true)
    }

    /// Waits until the last checkpoint is durable, and restores it.
    fn restore<'a>(&self, world: &mut impl World<'a>, rank: usize) -> Result<bool, RunError> {
        let last = self.count() - 1;
        if !self.wait(world, Event::Complete, last, rank..rank + 1) {
            return Ok(false);
        }
        for step in last + 1..=last + u64::from(self.workload.restores) {
            let mut cached_bytes = Some(0);
            for (number, _) in self.files(rank, last) {
                world.open(number, Access::Read, false)?;
                world.drop_pages(number)?;
                let cached = world.cached_bytes(number);
                cached_bytes = cached_bytes.zip(cached).map(|(sum, cached)| sum + cached);
                world.close(number);
            }
            if let Some(bytes) = cached_bytes {
                self.report(world, Event::Cached, step, rank, bytes);
            }
            if !self.meet(world, step, rank) || !self.transfer(world, rank, last, Access::Read)? {
                return Ok(false);
            }
            let end_ns = world.now();
            self.report(world, Event::Returned, step, rank, end_ns);
            self.report(world, Event::Complete, step, rank, end_ns);
        }
        Ok(true)
    }

    /// Writes or reads a rank's files, one after another.
    fn transfer<'a>(
        &self,
        world: &mut impl World<'a>,
        rank: usize,
        checkpoint: u64,
        access: Access,
    ) -> Result<bool, RunError> {
        let is_read = access == Access::Read;
        let operation = if is_read { Operation::Read } else { Operation::Write };
        for (file, parts) in self.files(rank, checkpoint) {
            world.open(file, access, self.is(CheckpointMode::Direct))?;
            let mut part = Extent::new(file, 0, 0);
            let requests = parts.iter().flat_map(|&bytes| {
                (part.offset, part.bytes) = (part.offset + part.bytes, bytes);
                pieces(part, self.workload.request_bytes)
            });
            for request in requests {
                if !world.continues() {
                    return Ok(false);
                }
                let start_ns = world.now();
                match is_read {
                    true => world.read(&[request])?,
                    false => world.write(request)?,
                }
                world.record(operation, request.bytes, start_ns);
            }
            if self.workload.sync && !is_read {
                sync(world, file)?;
            }
            world.close(file);
        }
        Ok(true)
    }

    fn remove<'a>(&self, world: &mut impl World<'a>, rank: usize, checkpoint: u64) -> Result<(), RunError> {
        let mut files = self.files(rank, checkpoint);
        files.try_for_each(|(number, _)| world.files().remove(number))
    }

    fn remove_all<'a>(&self, world: &mut impl World<'a>, rank: usize) -> Result<(), RunError> {
        (0..self.places()).try_for_each(|place| self.remove(world, rank, place))
    }

    /// Times of a step; None if a rank did not complete it.
    fn times(&self, step: u64) -> Option<CheckpointTimes> {
        let ranks = self.first.len();
        let of_all = |event| Some(self.reported(event, step, 0..ranks)).filter(|found| found.len() == ranks);
        let begin_ns = *of_all(Event::Begin)?.first()?;
        let mut complete_ns = of_all(Event::Complete)?;
        complete_ns.sort_unstable();
        let middle = complete_ns[(ranks - 1) / 2].midpoint(complete_ns[ranks / 2]);
        Some(CheckpointTimes {
            begin_ns,
            returned_ns: of_all(Event::Returned)?.into_iter().max()? - begin_ns,
            complete_ns: complete_ns[ranks - 1] - begin_ns,
            complete_median_ns: middle - begin_ns,
            rank_complete_ns: complete_ns.iter().map(|end_ns| end_ns - begin_ns).collect(),
            cached_bytes: of_all(Event::Cached).map(|bytes| bytes.iter().sum()),
        })
    }
}

/// Makes an open file durable, which is an operation of its own.
fn sync<'a>(world: &mut impl World<'a>, number: usize) -> Result<(), RunError> {
    let start_ns = world.now();
    world.sync(number)?;
    world.record(Operation::Flush, 0, start_ns);
    Ok(())
}

#[cfg(test)]
mod tests;
