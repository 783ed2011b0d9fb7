//! Verification against a device that lies: every fault is found and named, and an honest device is never accused.
//!
//! The device holds its data in memory, completes I/Os in any order, lets them take effect at any moment between submission
//! and completion, sector by sector, and then commits the fault that a test asks for.

#[path = "../../tests/block/common.rs"]
mod common;

use std::cell::RefCell;
use std::rc::Rc;

use iosonde_harness::load::{Io, Rng};
use iosonde_harness::target::Targets;
use iosonde_harness::{Exchange, JobPhases, Recorder, Shared};
use iosonde_protocol::*;

use super::crc::{SECTOR_BYTES, Sector};
use super::judge::{Judge, Tally};
use super::{Journal, Session, job, seal_write, sectors_mut};
use crate::backend::{Backend as BackendTrait, Wait};
use crate::buffer::Arena;
use crate::job::{Job, turn};
use crate::prepare;

const SIZE_BYTES: u64 = 256 << 10;

/// Fault of a device, once, at the write or read of that number (counted from 0).
#[derive(Debug, Clone, Copy)]
enum Lie {
    Drop(u64),
    Tear(u64),
    /// The write goes one block further.
    Misdirect(u64),
    /// One bit of the write flips on its way, at that byte.
    Flip(u64, usize),
    /// The read brings what the place held before the last write.
    ReadOld(u64),
    /// The read brings the block after the one asked for.
    ReadElsewhere(u64),
    ReadZeros(u64),
}

struct Device {
    data: Vec<u8>,
    /// Contents of each place before its last write.
    before: Vec<u8>,
    lie: Option<Lie>,
    writes: u64,
    reads: u64,
    now_ns: u64,
    rng: Rng,
}

impl Device {
    fn new(seed: u64, lie: Option<Lie>) -> Rc<RefCell<Device>> {
        Rc::new(RefCell::new(Device {
            data: vec![0; SIZE_BYTES as usize],
            before: vec![0; SIZE_BYTES as usize],
            lie,
            writes: 0,
            reads: 0,
            now_ns: 0,
            rng: Rng::new(seed, &[]),
        }))
    }

    fn write(&mut self, number: u64, offset: usize, sectors: &[Sector], part: std::ops::Range<usize>) {
        let mut offset = offset;
        let mut end = sectors.len();
        let bytes = sectors.len() * SECTOR_BYTES;
        match self.lie {
            Some(Lie::Drop(which)) if which == number => return,
            Some(Lie::Tear(which)) if which == number => end /= 2,
            Some(Lie::Misdirect(which)) if which == number => offset = (offset + bytes) % self.data.len(),
            _ => {}
        }
        for (index, sector) in sectors.iter().enumerate().take(part.end.min(end)).skip(part.start) {
            let at = offset + index * SECTOR_BYTES;
            let place = at..at + SECTOR_BYTES;
            self.before[place.clone()].copy_from_slice(&self.data[place.clone()]);
            self.data[place.clone()].copy_from_slice(sector);
            if let Some(Lie::Flip(which, byte)) = self.lie
                && which == number
                && byte / SECTOR_BYTES == index
            {
                self.data[at + byte % SECTOR_BYTES] ^= 4;
            }
        }
    }

    fn read(&mut self, number: u64, offset: usize, buffer: &mut [u8]) {
        let place = offset..offset + buffer.len();
        match self.lie {
            Some(Lie::ReadOld(which)) if which == number => buffer.copy_from_slice(&self.before[place]),
            Some(Lie::ReadZeros(which)) if which == number => buffer.fill(0),
            Some(Lie::ReadElsewhere(which)) if which == number => {
                let other = (offset + buffer.len()) % self.data.len();
                buffer.copy_from_slice(&self.data[other..other + place.len()]);
            }
            _ => buffer.copy_from_slice(&self.data[place]),
        }
    }
}

struct Pending {
    slot: u32,
    io: Io,
    number: u64,
    /// Sectors that have taken effect, and so for a read have been brought.
    done: usize,
}

struct Port<'a> {
    device: Rc<RefCell<Device>>,
    arena: &'a Arena,
    pending: Vec<Pending>,
}

impl Port<'_> {
    /// Lets some more sectors of an I/O take effect.
    fn proceed(&mut self, index: usize, to: usize) {
        let Port { device, arena, pending } = self;
        let Pending { slot, io, number, done } = &mut pending[index];
        // SAFETY: the slot belongs to this I/O until its completion is reported.
        let buffer = unsafe { std::slice::from_raw_parts_mut(arena.slot(*slot), io.bytes as usize) };
        let offset = io.offset_bytes as usize;
        match io.operation {
            Operation::Write => device
                .borrow_mut()
                .write(*number, offset, job::sectors(buffer), *done..to),
            _ => {
                let from = *done * SECTOR_BYTES;
                let part = &mut buffer[from..to * SECTOR_BYTES];
                device.borrow_mut().read(*number, offset + from, part);
            }
        }
        *done = to;
    }
}

impl BackendTrait for Port<'_> {
    fn now(&self) -> u64 {
        self.device.borrow().now_ns
    }

    fn push(&mut self, slot: u32, io: &Io) {
        let mut device = self.device.borrow_mut();
        let counter = match io.operation {
            Operation::Write => &mut device.writes,
            _ => &mut device.reads,
        };
        let number = *counter;
        *counter += 1;
        drop(device);
        self.pending.push(Pending {
            slot,
            io: *io,
            number,
            done: 0,
        });
    }

    fn submit_and_wait(&mut self, _: Wait) -> std::io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        let mut index = 0;
        while index < self.pending.len() {
            let sectors = self.pending[index].io.bytes as usize / SECTOR_BYTES;
            let left = (sectors - self.pending[index].done) as u64;
            let choice = self.device.borrow_mut().rng.below(3);
            let to = match choice {
                0 => sectors,
                1 => self.pending[index].done + self.device.borrow_mut().rng.below(left + 1) as usize,
                _ => self.pending[index].done,
            };
            self.proceed(index, to);
            if choice == 0 {
                let Pending { slot, io, .. } = self.pending.swap_remove(index);
                complete(slot, io.bytes as i32);
            } else {
                index += 1;
            }
        }
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    fn in_effect(&self) -> BackendInEffect {
        BackendInEffect::default()
    }
}

fn stream(jobs: u32, queue_depth: u32, block_sizes: &[u64], operations: u64) -> Stream {
    let sizes = block_sizes.iter().map(|&bytes| BlockSize { bytes, weight: 1.0 });
    Stream {
        jobs,
        queue_depth,
        mix: Mix {
            read_fraction: 0.5,
            trim_fraction: 0.0,
        },
        block_sizes: sizes.collect(),
        io_mode: IoMode::Direct,
        limit_operations: Some(operations),
        spin_ns: 0,
        ..common::stream("main", SIZE_BYTES)
    }
}

fn workload(directory: &tempfile::TempDir, stream: Stream) -> BlockWorkload {
    BlockWorkload {
        streams: vec![stream],
        duration_ns: None,
        interval_ns: 3_600_000_000_000,
        verify: Some(Verification {
            when: VerifyWhen::During,
            journal_directory: None,
        }),
        ..common::workload(common::file(directory, SIZE_BYTES), Backend::Sync, SIZE_BYTES)
    }
}

/// Lays the device out, applies the load, and reads everything once more. What was found during, and after.
fn carry_out(stream: Stream, seed: u64, lie: Option<Lie>) -> (Tally, Tally) {
    let directory = tempfile::tempdir().unwrap();
    let workload = workload(&directory, stream);
    let session = Session::open(&Targets::default(), &workload).unwrap().unwrap();
    let path = directory.path().join("data");
    let journal = session.journal(&path);
    let device = Device::new(seed, lie);
    lay_out(journal, &device);
    let shared = Shared::default();
    shared.set_begin(0, 0);
    let plan = prepare::load_plan(&workload);
    let (places, stream) = (plan.places(|_| 1), &workload.streams[0]);
    let arena = |_| Arena::new(stream.queue_depth, prepare::largest_bytes(stream)).unwrap();
    let arenas: Vec<Arena> = places.iter().map(arena).collect();
    let mut jobs = Vec::new();
    for (place, arena) in places.iter().zip(&arenas) {
        let recorder = Recorder::new(Exchange::new(), workload.interval_ns);
        let phases = JobPhases::new(plan.phases(*place), &shared, recorder);
        let verifier = session.of_job(&path, stream, stream.queue_depth);
        let job_plan = prepare::plan(&workload, seed, *place).unwrap();
        let mut job = Job::new(job_plan, phases, None, Some(arena)).verified(Some(verifier));
        job.begin();
        let port = Port {
            device: Rc::clone(&device),
            arena,
            pending: Vec::new(),
        };
        jobs.push((job, port));
    }
    while jobs.iter().any(|(job, _)| !job.is_done()) {
        device.borrow_mut().now_ns += 1_000;
        let now_ns = device.borrow().now_ns;
        for (job, port) in jobs.iter_mut().filter(|(job, _)| !job.is_done()) {
            turn(job, port, now_ns);
        }
    }
    let mut during = Tally::new();
    for (job, _) in jobs {
        during.add(job.into_done(0).found.tally.unwrap());
    }
    let after = read_all(journal, &device);
    (during, after)
}

fn lay_out(journal: &Journal, device: &RefCell<Device>) {
    let mut device = device.borrow_mut();
    let crc = super::crc::Crc::detect();
    let mut rng = Rng::new(1, &[]);
    rng.fill(&mut device.data);
    seal_write(journal, crc, 0, sectors_mut(&mut device.data));
    journal.end_writes(0, SIZE_BYTES);
}

fn read_all(journal: &Journal, device: &RefCell<Device>) -> Tally {
    let mut tally = Tally::new();
    let entries = journal.entries();
    let allowed = |unit: usize| Some(entries[unit].state().allowed());
    let device = device.borrow();
    Judge::new(journal, 0).check(&mut tally, entries, 0, job::sectors(&device.data), allowed);
    tally
}

fn one_after_the_other(operations: u64) -> Stream {
    stream(1, 1, &[4096], operations)
}

fn named(tally: &Tally) -> Vec<(&'static str, u64)> {
    let counts = tally.faults();
    [
        ("lost", counts.lost),
        ("torn", counts.torn),
        ("misdirected", counts.misdirected),
        ("stale", counts.stale),
        ("flipped", counts.flipped),
        ("foreign", counts.foreign),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}

fn findings(tally: &Tally) -> Vec<Finding> {
    tally.findings(&|_| "data".into())
}

fn only(tally: &Tally) -> Finding {
    let mut found = findings(tally);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn an_honest_device_is_never_accused() {
    for (jobs, queue_depth, sizes, operations) in [
        (1, 1, &[4096][..], 20_000),
        // Two million writes on few places, so that overlaps are the rule: 512 blocks, 64 I/Os in flight.
        (4, 16, &[512], 4_100_000),
        (1, 32, &[4096], 50_000),
        (3, 8, &[4096, 16_384, 65_536], 50_000),
        (2, 4, &[1536, 1024], 50_000),
    ] {
        let (during, after) = carry_out(stream(jobs, queue_depth, sizes, operations), operations, None);
        assert_eq!(named(&during), [], "{jobs} jobs, {sizes:?}: {:?}", findings(&during));
        assert_eq!(named(&after), [], "{jobs} jobs, {sizes:?}: {:?}", findings(&after));
        assert!(during.checked_bytes > 0 && after.checked_bytes == SIZE_BYTES);
        assert_eq!(during.unknown_bytes + after.unknown_bytes, 0);
    }
}

#[test]
fn writes_that_never_arrive_arrive_in_part_or_go_elsewhere_are_found_and_named() {
    let (_, after) = carry_out(one_after_the_other(40), 1, Some(Lie::Drop(3)));
    assert_eq!(named(&after), [("lost", 8)]);
    let finding = only(&after);
    assert_eq!((finding.fault, finding.bytes), (Fault::Lost, 4096));
    assert_eq!(finding.expected, "write 2 of this place");
    assert_eq!(finding.found, format!("write 1 of offset {}", finding.offset_bytes));
    let (_, after) = carry_out(one_after_the_other(40), 1, Some(Lie::Tear(3)));
    assert_eq!(named(&after), [("torn", 4)]);
    assert_eq!(findings(&after)[0].offset_bytes % 4096, 2048);
    let (_, after) = carry_out(one_after_the_other(20), 1, Some(Lie::Misdirect(3)));
    assert_eq!(named(&after), [("lost", 8), ("misdirected", 8)]);
    let [lost, misdirected] = &findings(&after)[..] else {
        panic!("two")
    };
    assert_eq!((lost.fault, misdirected.fault), (Fault::Lost, Fault::Misdirected));
    assert_eq!(misdirected.offset_bytes, lost.offset_bytes + 4096);
    assert_eq!(misdirected.found, format!("write 2 of offset {}", lost.offset_bytes));
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    for byte in [0, 5, 9, 17, 22, 30, 31, 32, 300, 511, 512, 4095] {
        let (_, after) = carry_out(one_after_the_other(40), 1, Some(Lie::Flip(3, byte)));
        assert_eq!(named(&after), [("flipped", 1)], "byte {byte}: {:?}", findings(&after));
        let sector_at = findings(&after)[0].offset_bytes as usize % 4096;
        assert_eq!(sector_at, byte / SECTOR_BYTES * SECTOR_BYTES);
    }
}

#[test]
fn reads_are_checked_as_they_complete_and_older_data_is_stale_or_lost() {
    // Number 900: by then nearly every block was written more than once and read before.
    for (lie, expected) in [
        (Lie::ReadElsewhere(900), Fault::Misdirected),
        (Lie::ReadZeros(900), Fault::Lost),
    ] {
        let (during, after) = carry_out(one_after_the_other(2_000), 5, Some(lie));
        assert_eq!(only(&during).fault, expected);
        assert_eq!(named(&after), [], "the medium itself is right");
    }
    let mut found = std::collections::HashSet::new();
    for number in 900..940 {
        let (during, after) = carry_out(one_after_the_other(2_000), 5, Some(Lie::ReadOld(number)));
        found.insert(only(&during).fault as usize);
        assert_eq!(named(&after), []);
    }
    assert_eq!(found, [Fault::Lost as usize, Fault::Stale as usize].into());
}

#[test]
fn faults_are_found_under_overlapping_writes_too() {
    let (drop, flip) = (Lie::Drop(15_000), Lie::Flip(15_000, 1000));
    for lie in [drop, flip, Lie::Misdirect(15_000), Lie::ReadElsewhere(15_000)] {
        // The last writes of each block are found in the end unless they overlapped.
        let (during, after) = carry_out(stream(2, 2, &[4096], 40_000), 11, Some(lie));
        let faults = named(&during).len() + named(&after).len();
        assert!(faults > 0, "{lie:?}");
    }
}

#[test]
fn faults_beyond_the_reported_ones_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let workload = workload(&directory, one_after_the_other(1));
    let session = Session::open(&Targets::default(), &workload).unwrap().unwrap();
    let journal = session.journal(&directory.path().join("data"));
    let device = Device::new(1, None);
    lay_out(journal, &device);
    for sector in sectors_mut(&mut device.borrow_mut().data).iter_mut().step_by(2) {
        sector[100] ^= 1;
    }
    let tally = read_all(journal, &device);
    let sectors = SIZE_BYTES / SECTOR_BYTES as u64;
    assert_eq!(named(&tally), [("flipped", sectors / 2)]);
    assert_eq!(findings(&tally).len(), super::judge::FINDINGS_MAX);
}
