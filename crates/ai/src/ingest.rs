//! Ingest of training data: how well storage feeds accelerators.
//!
//! Each accelerator is a job. Its first thread takes the next batch, computes (sleeps) for a fixed time, and meets the other
//! accelerators, which stands for the exchange of gradients. Its other threads read. Nothing decodes what was read.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use iosonde_harness::load::{Permutation, Rng};
use iosonde_harness::{LoadPlan, Place, Run, RunError, Stage, Workload, require};
use iosonde_protocol::{
    AcceleratorResult, AiIngestWorkload, AiTarget, IngestLoader, IoMode, Operation, PageCache, RunResult,
};

use crate::files::{Access, Content, FileNeed};
use crate::weights::pieces;
use crate::world::{Extent, Load, Memory, PAGE_BYTES, World};
use crate::{check_request, measure, plan};

/// Where accelerators meet after a step.
const BARRIER: usize = 0;

/// The ingest of a spec.
pub struct AiIngest<'a>(pub &'a AiIngestWorkload);

impl Workload for AiIngest<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let AiIngestWorkload { ramp, duration_ns, .. } = *self.0;
        let stream = ("accelerators", self.0.accelerators);
        plan(
            &[stream],
            Some(ramp),
            Some(duration_ns),
            self.0.interval_ns,
            &self.0.cpus,
        )
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        let sizes = &workload.sample_bytes;
        let are_sizes = !sizes.is_empty() && sizes.iter().all(|bytes| (1..=1 << 40).contains(bytes));
        let readers = match workload.loader {
            IngestLoader::Samples => 1,
            IngestLoader::Interleaved => u64::from(workload.read_threads),
        };
        let needed = u64::from(workload.accelerators) * readers;
        require(workload.samples_per_file > 0, "`samples_per_file`")?;
        require(are_sizes, "`sample_bytes`")?;
        check_request(workload.request_bytes, "`request_bytes`")?;
        require(workload.batch > 0, "`batch`")?;
        require((1..=256).contains(&workload.read_threads), "`read_threads`")?;
        require(workload.prefetch > 0, "`prefetch`")?;
        require(workload.compute_ns > 0, "`compute_ns`")?;
        require(items(workload) >= needed, "`files`")
    }

    placed!(|_| Vec::new());

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let shared = || Shared {
            finished: (0..workload.read_threads).map(|_| AtomicU64::default()).collect(),
            ..Shared::default()
        };
        let ingest = Ingest {
            workload,
            samples: Samples::new(workload),
            seed: run.inputs.seed,
            accelerators: (0..workload.accelerators).map(|_| shared()).collect(),
            arrived: AtomicU64::new(0),
        };
        let backend = workload.backend.as_ref();
        measure(self, &workload.target, backend, &ingest, run, |facts, found| {
            facts.accelerators = found.iter().filter_map(|found| *found).collect();
        })
    }
}

/// Returns true if whole pages are read, as of a simulated device too.
fn is_direct(workload: &AiIngestWorkload) -> bool {
    workload.io_mode == IoMode::Direct || matches!(workload.target, AiTarget::Virtual { .. })
}

/// Items that accelerators share in each epoch: samples, or files.
fn items(workload: &AiIngestWorkload) -> u64 {
    let files = u64::from(workload.files);
    match workload.loader {
        IngestLoader::Samples => files * u64::from(workload.samples_per_file),
        IngestLoader::Interleaved => files,
    }
}

/// Places of samples in the files of the data set.
struct Samples {
    per_file: u64,
    /// Sums of the sizes, from 0 to that of all.
    sums: Vec<u64>,
}

impl Samples {
    fn new(workload: &AiIngestWorkload) -> Samples {
        let mut sums = vec![0];
        for bytes in &workload.sample_bytes {
            sums.push(sums[sums.len() - 1] + bytes);
        }
        Samples {
            per_file: workload.samples_per_file.into(),
            sums,
        }
    }

    /// Bytes of all samples before this one.
    fn bytes_before(&self, sample: u64) -> u64 {
        let cycle = self.sums.len() as u64 - 1;
        sample / cycle * self.sums[cycle as usize] + self.sums[(sample % cycle) as usize]
    }

    fn file_bytes(&self, file: u64) -> u64 {
        self.end_in_file(file, self.per_file - 1)
    }

    /// The end in its file of the sample with this number there.
    fn end_in_file(&self, file: u64, number: u64) -> u64 {
        let first = file * self.per_file;
        self.bytes_before(first + number + 1) - self.bytes_before(first)
    }

    fn extent(&self, sample: u64) -> Extent {
        let file = sample / self.per_file;
        let start = self.bytes_before(sample);
        let offset = start - self.bytes_before(file * self.per_file);
        Extent::new(file as usize, offset, self.bytes_before(sample + 1) - start)
    }
}

/// The items of an accelerator: in each epoch its share of a new random order.
struct Order {
    seed: u64,
    items: u64,
    share: Range<u64>,
    /// The order of the epoch that was asked for last.
    last: Option<(u64, Permutation)>,
}

impl Order {
    fn new(seed: u64, items: u64, accelerators: u32, job: u32) -> Order {
        let bound = |job: u32| items * u64::from(job) / u64::from(accelerators);
        Order {
            seed,
            items,
            share: bound(job)..bound(job + 1),
            last: None,
        }
    }

    /// The item with this number in the accelerator's sequence.
    fn item(&mut self, number: u64) -> u64 {
        let length = self.share.end - self.share.start;
        let epoch = number / length;
        let (_, order) = match self.last.take() {
            Some(last) if last.0 == epoch => self.last.insert(last),
            _ => {
                let mut rng = Rng::new(self.seed, &[0xa1_0003, epoch]);
                self.last.insert((epoch, Permutation::new(self.items, &mut rng)))
            }
        };
        order.apply(self.share.start + number % length)
    }
}

/// State that the threads of an accelerator share.
#[derive(Default)]
struct Shared {
    /// Batches that the accelerator took.
    taken: AtomicU64,
    /// `Samples`: batches that each reader finished.
    finished: Vec<AtomicU64>,
    /// `Interleaved`: samples read.
    read: AtomicU64,
    /// `Interleaved`: files that readers took.
    files: AtomicU64,
}

struct Ingest<'w> {
    workload: &'w AiIngestWorkload,
    samples: Samples,
    seed: u64,
    accelerators: Vec<Shared>,
    /// Arrivals at the barrier, of all accelerators and steps.
    arrived: AtomicU64,
}

impl Load for Ingest<'_> {
    /// None for readers.
    type Found = Option<AcceleratorResult>;

    fn needs(&self) -> Vec<FileNeed> {
        let needs = (0..self.workload.files).map(|file| FileNeed {
            path: format!("ingest-{file:06}").into(),
            bytes: self.samples.file_bytes(file.into()),
            content: Content::PerThread,
            is_direct: is_direct(self.workload),
        });
        needs.collect()
    }

    fn page_cache(&self) -> PageCache {
        self.workload.page_cache
    }

    fn memory(&self, place: Place) -> Memory {
        match place.lane {
            0 => Memory::of_one(PAGE_BYTES),
            _ => Memory::of_one(self.workload.request_bytes),
        }
    }

    fn lanes(&self) -> u32 {
        1 + self.workload.read_threads
    }

    /// The barrier, and two of each accelerator.
    fn meetings(&self) -> usize {
        1 + 2 * self.accelerators.len()
    }

    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<Self::Found, RunError> {
        if place.lane == 0 {
            return Ok(Some(self.train(world, place.job)));
        }
        match self.workload.loader {
            IngestLoader::Samples => self.read_batches(world, place)?,
            IngestLoader::Interleaved => self.read_files(world, place.job)?,
        }
        Ok(None)
    }
}

/// Where an accelerator waits for batches.
fn batches_of(job: u32) -> usize {
    1 + 2 * job as usize
}

/// Where readers of an accelerator wait until they may read on.
fn readers_of(job: u32) -> usize {
    batches_of(job) + 1
}

impl Ingest<'_> {
    /// The steps of an accelerator.
    fn train<'a>(&self, world: &mut impl World<'a>, job: u32) -> AcceleratorResult {
        let shared = &self.accelerators[job as usize];
        let mut result = AcceleratorResult::default();
        let (mut step, mut end_ns, mut is_first) = (0, world.now(), true);
        while world.wait_at(batches_of(job), || self.is_ready(shared, step)) {
            let begin_ns = std::mem::replace(&mut end_ns, 0);
            let fed_ns = world.now();
            step += 1;
            shared.taken.store(step, SeqCst);
            world.notify_at(readers_of(job));
            world.sleep_until(fed_ns + self.workload.compute_ns);
            let computed_ns = world.now();
            if !world.continues() || (self.workload.barrier && !self.meet(world, step)) || !world.continues() {
                break;
            }
            end_ns = world.now();
            if world.phases().stage() == Stage::Measure && !std::mem::take(&mut is_first) {
                result.steps += 1;
                result.running_ns += end_ns - begin_ns;
                result.compute_ns += self.workload.compute_ns;
                result.data_wait_ns += fed_ns - begin_ns;
                result.barrier_wait_ns += end_ns - computed_ns;
            }
        }
        result
    }

    /// Returns true if the batch with this number is complete.
    fn is_ready(&self, shared: &Shared, batch: u64) -> bool {
        match self.workload.loader {
            IngestLoader::Samples => {
                let readers = u64::from(self.workload.read_threads);
                shared.finished[(batch % readers) as usize].load(SeqCst) > batch / readers
            }
            IngestLoader::Interleaved => shared.read.load(SeqCst) >= (batch + 1) * u64::from(self.workload.batch),
        }
    }

    /// Waits until all accelerators have completed this step; false if load is no longer to be applied.
    fn meet<'a>(&self, world: &mut impl World<'a>, step: u64) -> bool {
        let all = step * u64::from(self.workload.accelerators);
        if self.arrived.fetch_add(1, SeqCst) + 1 == all {
            world.notify_at(BARRIER);
        }
        world.wait_at(BARRIER, || self.arrived.load(SeqCst) >= all)
    }

    /// A reader of batches: every `read_threads`-th.
    fn read_batches<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<(), RunError> {
        let workload = self.workload;
        let (shared, reader) = (&self.accelerators[place.job as usize], place.lane - 1);
        let (readers, batch) = (u64::from(workload.read_threads), u64::from(workload.batch));
        let ahead = readers * u64::from(workload.prefetch.div_ceil(workload.read_threads));
        let mut order = Order::new(self.seed, items(workload), workload.accelerators, place.job);
        let mut number = u64::from(reader);
        while world.wait_at(readers_of(place.job), || number < shared.taken.load(SeqCst) + ahead) {
            for sample in number * batch..(number + 1) * batch {
                if !world.continues() {
                    return Ok(());
                }
                self.read_sample(world, order.item(sample))?;
            }
            shared.finished[reader as usize].fetch_add(1, SeqCst);
            world.notify_at(batches_of(place.job));
            number += readers;
        }
        Ok(())
    }

    fn read_sample<'a>(&self, world: &mut impl World<'a>, sample: u64) -> Result<(), RunError> {
        let Extent { file, offset, bytes } = self.samples.extent(sample);
        let is_direct = is_direct(self.workload);
        let (mut first, mut end) = (offset, offset + bytes);
        if is_direct {
            // It reads whole pages.
            first -= first % PAGE_BYTES;
            end = end
                .next_multiple_of(PAGE_BYTES)
                .min(self.samples.file_bytes(file as u64));
        }
        let start_ns = world.now();
        world.open(file, Access::Read, is_direct)?;
        for piece in pieces(Extent::new(file, first, end - first), self.workload.request_bytes) {
            world.read(&[piece])?;
        }
        world.close(file);
        world.record(Operation::Read, bytes, start_ns);
        Ok(())
    }

    /// A reader of files, from beginning to end.
    fn read_files<'a>(&self, world: &mut impl World<'a>, job: u32) -> Result<(), RunError> {
        let workload = self.workload;
        let shared = &self.accelerators[job as usize];
        let is_direct = is_direct(workload);
        let (batch, prefetch) = (u64::from(workload.batch), u64::from(workload.prefetch));
        let mut order = Order::new(self.seed, items(workload), workload.accelerators, job);
        let has_room = || shared.read.load(SeqCst) < (shared.taken.load(SeqCst) + prefetch) * batch;
        loop {
            let file = order.item(shared.files.fetch_add(1, SeqCst));
            let whole = Extent::new(file as usize, 0, self.samples.file_bytes(file));
            world.open(whole.file, Access::Read, is_direct)?;
            let mut complete = 0;
            for piece in pieces(whole, workload.request_bytes) {
                let may_read = has_room() || world.wait_at(readers_of(job), has_room);
                if !may_read || !world.continues() {
                    return Ok(());
                }
                let start_ns = world.now();
                world.read(&[piece])?;
                world.record(Operation::Read, piece.bytes, start_ns);
                let (before, end) = (complete, piece.offset + piece.bytes);
                while complete < self.samples.per_file && self.samples.end_in_file(file, complete) <= end {
                    complete += 1;
                }
                let read = shared.read.fetch_add(complete - before, SeqCst);
                if (read + complete - before) / batch > read / batch {
                    world.notify_at(batches_of(job));
                }
            }
            world.close(whole.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_each_item_once_and_the_next_one_another_order() {
        let epoch = |epoch: u64| -> Vec<u64> {
            let shares = (0..3).flat_map(|job| {
                let mut order = Order::new(5, 50, 3, job);
                let share = order.share.end - order.share.start;
                (epoch * share..(epoch + 1) * share)
                    .map(|number| order.item(number))
                    .collect::<Vec<_>>()
            });
            shares.collect()
        };
        let (first, second) = (epoch(0), epoch(1));
        assert_ne!(first, second);
        for mut items in [first, second] {
            items.sort_unstable();
            assert!(items.into_iter().eq(0..50));
        }
    }

    #[test]
    fn samples_follow_one_another_in_their_files() {
        let samples = Samples {
            per_file: 2,
            sums: vec![0, 10, 30, 60],
        };
        let extents: Vec<_> = (0..4).map(|sample| samples.extent(sample)).collect();
        let expected = [(0, 0, 10), (0, 10, 20), (1, 0, 30), (1, 30, 10)];
        let expected = expected.map(|(file, offset, bytes)| Extent { file, offset, bytes });
        assert_eq!(extents, expected);
        assert_eq!((samples.file_bytes(0), samples.file_bytes(1)), (30, 40));
    }
}
