//! Checkpoints of a training job, and restores.
//!
//! Ranks start each checkpoint together, and write their files one after another. In the background mode a rank only copies its
//! state, and a second thread writes it. A checkpoint takes the place of one that is no longer kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use iosonde_harness::{LoadPlan, Place, Run, RunError, StreamPlan, Workload, require};
use iosonde_protocol::{
    AiCheckpointWorkload, CheckpointFile, CheckpointMode, CheckpointTimes, Operation, PageCache, Ramp, RankTimes,
    RestoreTimes, RunResult, Warning,
};

use crate::files::{Content, FileNeed};
use crate::weights::pieces;
use crate::world::{Access, Extent, Load, Memory, World};
use crate::{Setting, measure, paths};

const PAGE_BYTES: u64 = 4096;
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The checkpoints of a spec.
pub struct AiCheckpoint<'a>(pub &'a AiCheckpointWorkload);

impl Workload for AiCheckpoint<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let ranks = self.0.ranks.len() as u32;
        let threads = match self.0.mode {
            CheckpointMode::Background => 2 * ranks,
            _ => ranks,
        };
        Some(LoadPlan {
            ramp: Ramp::default(),
            duration_ns: None,
            interval_ns: self.0.interval_ns,
            streams: vec![StreamPlan {
                ends_by_itself: true,
                ..StreamPlan::closed("ranks", threads, &self.0.cpus)
            }],
        })
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        let request = workload.request_bytes;
        let is_request = (PAGE_BYTES..=REQUEST_BYTES_MAX).contains(&request) && request.is_multiple_of(PAGE_BYTES);
        require(is_request, "`request_bytes`")?;
        require(workload.checkpoints > 0, "`checkpoints`")?;
        require(workload.keep > 0, "`keep`")?;
        let mut names = BTreeSet::new();
        workload.ranks.iter().try_for_each(|rank| {
            require(!rank.files.is_empty(), "`ranks.files`")?;
            rank.files.iter().try_for_each(|file| {
                let is_name = Path::new(&file.name)
                    .file_name()
                    .is_some_and(|name| name == &*file.name);
                require(is_name && names.insert(&file.name), "`ranks.files.name`")?;
                let is_size = !file.tensors.is_empty() && !file.tensors.contains(&0);
                require(is_size, "`ranks.files.tensors`")
            })
        })
    }

    fn paths(&self) -> Vec<PathBuf> {
        paths(&self.0.target, None)
    }

    fn is_virtual(&self) -> bool {
        self.0.backend.is_some()
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let checkpoints = Checkpoints::new(workload);
        let setting = Setting {
            target: &workload.target,
            backend: workload.backend.as_ref(),
            needs: checkpoints.needs(),
            page_cache: PageCache::Keep,
        };
        let plan = self.plan().expect("checkpoints are always measured");
        let result = measure(setting, &plan, &checkpoints, run, |facts, found| {
            facts.file_bytes = checkpoints.bytes();
            facts.checkpoints = checkpoints.checkpoint_times(found);
            facts.restores = checkpoints.restore_times(found);
        })?;
        warn_of_cached(result.ai.iter().flat_map(|facts| &facts.restores), run);
        Ok(result)
    }
}

/// Warns if more than 1 % of the bytes of the restores were in the page cache.
fn warn_of_cached<'r>(restores: impl Iterator<Item = &'r RestoreTimes>, run: &mut Run<'_>) {
    let (cached, all) = restores.fold((0, 0), |(cached, all), restore| {
        (cached + restore.cached_bytes.unwrap_or(0), all + restore.bytes)
    });
    if cached > all / 100 {
        run.warn(Warning {
            code: "cached_restore".into(),
            message: format!("{cached} of {all} bytes of the restores were in the page cache"),
            hint: "use a file system on a device; on NFS and FUSE mount it without caching, or write with direct I/O"
                .into(),
        });
    }
}

struct Checkpoints<'w> {
    workload: &'w AiCheckpointWorkload,
    /// Number of the first file of each rank in a checkpoint.
    first: Vec<usize>,
    /// Files of a checkpoint.
    files: usize,
    /// Arrivals of ranks at all barriers so far.
    arrived: AtomicU64,
    /// Checkpoints that each rank has copied, and that are durable.
    progress: Vec<[AtomicU64; 2]>,
}

/// Which of a rank's progress.
#[derive(Clone, Copy)]
enum Progress {
    Copied,
    Durable,
}

/// What a thread measured: instants, in nanoseconds since the run's 0.
#[derive(Default)]
struct Found {
    started: Vec<u64>,
    returned: Vec<u64>,
    durable: Vec<u64>,
    restored: Vec<Restored>,
}

struct Restored {
    begin_ns: u64,
    end_ns: u64,
    cached_bytes: Option<u64>,
}

impl Load for Checkpoints<'_> {
    type Found = Found;

    fn memory(&self, place: Place) -> Memory {
        let is_copied = self.workload.mode == CheckpointMode::Background;
        let halves = if is_copied && (place.job as usize) < self.workload.ranks.len() {
            2
        } else {
            1
        };
        Memory {
            bytes: halves * self.workload.request_bytes,
            slots: 1,
            is_new_each_time: false,
            is_locked: false,
            is_written: true,
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<Found, RunError> {
        let (ranks, job) = (self.workload.ranks.len(), place.job as usize);
        let mut found = Found::default();
        if job >= ranks {
            self.write_copies(world, job - ranks, &mut found)?;
            return Ok(found);
        }
        self.remove_all(world, job)?;
        if self.train(world, job, &mut found)?.is_some() {
            self.restore(world, job, &mut found)?;
        }
        self.remove_all(world, job)?;
        Ok(found)
    }

    fn interface(&self) -> &'static str {
        "sync"
    }
}

/// What a thread does; None means that load is no longer to be applied.
impl<'w> Checkpoints<'w> {
    fn new(workload: &'w AiCheckpointWorkload) -> Checkpoints<'w> {
        let mut files = 0;
        let first = workload.ranks.iter().map(|rank| {
            files += rank.files.len();
            files - rank.files.len()
        });
        Checkpoints {
            workload,
            first: first.collect(),
            files,
            arrived: AtomicU64::new(0),
            progress: workload.ranks.iter().map(|_| Default::default()).collect(),
        }
    }

    /// The files of each place, of which there is one more than checkpoints are kept.
    fn needs(&self) -> Vec<FileNeed> {
        let ranks = &self.workload.ranks;
        let places = 1..=u64::from(self.workload.keep) + 1;
        let needs = places.flat_map(|place| {
            let files = ranks.iter().flat_map(|rank| &rank.files);
            files.map(move |file| FileNeed {
                path: format!("global_epoch1_step{place}/{}", file.name).into(),
                bytes: self.file_bytes(file),
                content: Content::OfLoad,
                is_direct: self.is_direct(),
            })
        });
        needs.collect()
    }

    fn is_direct(&self) -> bool {
        self.workload.mode == CheckpointMode::Direct
    }

    /// True if tensors are joined; a simulated device has no page cache that does so.
    fn joins(&self) -> bool {
        self.is_direct() || self.workload.backend.is_some()
    }

    fn file_bytes(&self, file: &CheckpointFile) -> u64 {
        let bytes: u64 = file.tensors.iter().sum();
        if self.joins() {
            bytes.next_multiple_of(PAGE_BYTES)
        } else {
            bytes
        }
    }

    fn rank_bytes(&self, rank: usize) -> u64 {
        let files = self.workload.ranks[rank].files.iter();
        files.map(|file| self.file_bytes(file)).sum()
    }

    fn bytes(&self) -> u64 {
        (0..self.workload.ranks.len()).map(|rank| self.rank_bytes(rank)).sum()
    }

    /// A rank's files of a checkpoint, with their numbers.
    fn files(&self, rank: usize, checkpoint: u64) -> impl Iterator<Item = (usize, &'w CheckpointFile)> {
        let place = (checkpoint % (u64::from(self.workload.keep) + 1)) as usize;
        let first = place * self.files + self.first[rank];
        (first..).zip(&self.workload.ranks[rank].files)
    }

    /// The reads or writes of a file.
    fn requests(&self, number: usize, file: &'w CheckpointFile) -> impl Iterator<Item = Extent> + use<'_, 'w> {
        let parts = match self.joins() {
            true => vec![self.file_bytes(file)],
            false => file.tensors.clone(),
        };
        let mut end = 0;
        parts.into_iter().flat_map(move |bytes| {
            end += bytes;
            let part = Extent {
                file: number,
                offset: end - bytes,
                bytes,
            };
            pieces(part, self.workload.request_bytes)
        })
    }

    /// Waits until all ranks are here. A rank passes one barrier before each checkpoint and each restore.
    fn meet<'a>(&self, world: &mut impl World<'a>, found: &Found) -> Option<()> {
        let passed = (found.started.len() + found.restored.len()) as u64;
        let all = (passed + 1) * self.workload.ranks.len() as u64;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        world.notify();
        world.wait(|| (self.arrived.load(Ordering::Acquire) >= all).then_some(()))
    }

    fn advance<'a>(&self, world: &mut impl World<'a>, rank: usize, what: Progress) {
        self.progress[rank][what as usize].fetch_add(1, Ordering::AcqRel);
        world.notify();
    }

    fn await_progress<'a>(&self, world: &mut impl World<'a>, rank: usize, what: Progress, count: u64) -> Option<()> {
        let progress = &self.progress[rank][what as usize];
        world.wait(|| (progress.load(Ordering::Acquire) >= count).then_some(()))
    }

    fn train<'a>(&self, world: &mut impl World<'a>, rank: usize, found: &mut Found) -> Result<Option<()>, RunError> {
        for checkpoint in 0..u64::from(self.workload.checkpoints) {
            if checkpoint > 0 {
                world.sleep_until(world.now() + self.workload.pause_ns);
            }
            if self.meet(world, found).is_none() {
                return Ok(None);
            }
            let begin_ns = world.now();
            match self.workload.mode {
                CheckpointMode::Background => {
                    // The memory of the copy is in use until the checkpoint before is durable.
                    if self
                        .await_progress(world, rank, Progress::Durable, checkpoint)
                        .is_none()
                    {
                        return Ok(None);
                    }
                    self.copy(world, rank);
                    found.returned.push(world.now());
                    self.advance(world, rank, Progress::Copied);
                }
                _ if self.write(world, rank, checkpoint, found)?.is_none() => return Ok(None),
                _ => {}
            }
            found.started.push(begin_ns);
        }
        Ok(Some(()))
    }

    fn copy<'a>(&self, world: &mut impl World<'a>, rank: usize) {
        let (mut rest, request) = (self.rank_bytes(rank), self.workload.request_bytes);
        while rest > 0 && world.continues() {
            world.copy(rest.min(request));
            rest = rest.saturating_sub(request);
        }
    }

    /// Writes what a rank has copied.
    fn write_copies<'a>(&self, world: &mut impl World<'a>, rank: usize, found: &mut Found) -> Result<(), RunError> {
        for checkpoint in 0..u64::from(self.workload.checkpoints) {
            let copied = self.await_progress(world, rank, Progress::Copied, checkpoint + 1);
            if copied.is_none() || self.write(world, rank, checkpoint, found)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Writes a rank's files, makes them durable, and removes those of the checkpoint that is no longer kept.
    fn write<'a>(
        &self,
        world: &mut impl World<'a>,
        rank: usize,
        checkpoint: u64,
        found: &mut Found,
    ) -> Result<Option<()>, RunError> {
        let is_direct = self.is_direct();
        for (number, file) in self.files(rank, checkpoint) {
            world.open(number, Access::Create { is_direct })?;
            for request in self.requests(number, file) {
                if !world.continues() {
                    return Ok(None);
                }
                let start_ns = world.now();
                world.write(request)?;
                world.record(Operation::Write, request.bytes, start_ns);
            }
            if self.workload.sync {
                sync(world, number)?;
            }
            world.close(number);
        }
        let mut durable_ns = world.now();
        if self.workload.mode != CheckpointMode::Background {
            found.returned.push(durable_ns);
        }
        if !self.workload.sync {
            for (number, _) in self.files(rank, checkpoint) {
                world.open(number, Access::Read { is_direct: false })?;
                sync(world, number)?;
                world.close(number);
            }
            durable_ns = world.now();
        }
        found.durable.push(durable_ns);
        self.advance(world, rank, Progress::Durable);
        // Its place is that of the next checkpoint.
        self.remove(world, rank, checkpoint + 1)?;
        Ok(Some(()))
    }

    fn restore<'a>(&self, world: &mut impl World<'a>, rank: usize, found: &mut Found) -> Result<(), RunError> {
        let checkpoints = u64::from(self.workload.checkpoints);
        let is_direct = self.is_direct();
        for _ in 0..self.workload.restores {
            let is_durable = self.await_progress(world, rank, Progress::Durable, checkpoints);
            let cached_bytes = self.drop_pages(world, rank, checkpoints - 1)?;
            if is_durable.is_none() || self.meet(world, found).is_none() {
                break;
            }
            let begin_ns = world.now();
            for (number, file) in self.files(rank, checkpoints - 1) {
                world.open(number, Access::Read { is_direct })?;
                for request in self.requests(number, file) {
                    if !world.continues() {
                        return Ok(());
                    }
                    let start_ns = world.now();
                    world.read(&[request])?;
                    world.record(Operation::Read, request.bytes, start_ns);
                }
                world.close(number);
            }
            found.restored.push(Restored {
                begin_ns,
                end_ns: world.now(),
                cached_bytes,
            });
        }
        Ok(())
    }

    /// Removes a rank's files from the page cache, and returns the bytes that remain in it.
    fn drop_pages<'a>(
        &self,
        world: &mut impl World<'a>,
        rank: usize,
        checkpoint: u64,
    ) -> Result<Option<u64>, RunError> {
        let mut cached_bytes = Some(0);
        for (number, _) in self.files(rank, checkpoint) {
            world.open(number, Access::Read { is_direct: false })?;
            world.drop_pages(number)?;
            cached_bytes = cached_bytes
                .zip(world.cached_bytes(number))
                .map(|(sum, cached)| sum + cached);
            world.close(number);
        }
        Ok(cached_bytes)
    }

    fn remove<'a>(&self, world: &mut impl World<'a>, rank: usize, checkpoint: u64) -> Result<(), RunError> {
        let mut files = self.files(rank, checkpoint);
        files.try_for_each(|(number, _)| world.remove(number))
    }

    fn remove_all<'a>(&self, world: &mut impl World<'a>, rank: usize) -> Result<(), RunError> {
        let mut places = 0..=u64::from(self.workload.keep);
        places.try_for_each(|place| self.remove(world, rank, place))
    }

    fn checkpoint_times(&self, found: &[Found]) -> Vec<CheckpointTimes> {
        let (ranks, writers) = found.split_at(self.workload.ranks.len());
        let writers = if writers.is_empty() { ranks } else { writers };
        let complete = ranks.iter().map(|rank| rank.started.len());
        let durable = writers.iter().map(|writer| writer.durable.len());
        let checkpoints = 0..complete.chain(durable).min().unwrap_or(0);
        let times = checkpoints.map(|number| {
            let begin_ns = ranks.iter().map(|rank| rank.started[number]).min().unwrap_or(0);
            CheckpointTimes {
                begin_ns,
                bytes: self.bytes(),
                returned: rank_times(begin_ns, ranks.iter().map(|rank| rank.returned[number])),
                durable: rank_times(begin_ns, writers.iter().map(|writer| writer.durable[number])),
            }
        });
        times.collect()
    }

    fn restore_times(&self, found: &[Found]) -> Vec<RestoreTimes> {
        let ranks = &found[..self.workload.ranks.len()];
        let restores = 0..ranks.iter().map(|rank| rank.restored.len()).min().unwrap_or(0);
        let times = restores.map(|number| {
            let each = || ranks.iter().map(|rank| &rank.restored[number]);
            let begin_ns = each().map(|restored| restored.begin_ns).min().unwrap_or(0);
            RestoreTimes {
                begin_ns,
                bytes: self.bytes(),
                cached_bytes: each().map(|restored| restored.cached_bytes).sum(),
                loaded: rank_times(begin_ns, each().map(|restored| restored.end_ns)),
            }
        });
        times.collect()
    }
}

/// Makes an open file durable, which is an operation of its own.
fn sync<'a>(world: &mut impl World<'a>, number: usize) -> Result<(), RunError> {
    let start_ns = world.now();
    world.sync(number)?;
    world.record(Operation::Flush, 0, start_ns);
    Ok(())
}

/// Median and maximum of the times from an instant to others.
fn rank_times(begin_ns: u64, ends: impl Iterator<Item = u64>) -> RankTimes {
    let mut times: Vec<u64> = ends.map(|end_ns| end_ns - begin_ns).collect();
    times.sort_unstable();
    let middle = times.len() / 2;
    RankTimes {
        median_ns: times[middle].midpoint(times[times.len().saturating_sub(1) / 2]),
        slowest_ns: times.last().copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
