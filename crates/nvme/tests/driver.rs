//! The driver on a controller in memory: what it moves, what it refuses, and how it survives a controller that fails.

mod mock;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use iosonde_nvme::NvmeError;
use iosonde_nvme::bus::Bus;
use iosonde_nvme::completion::Status;
use iosonde_nvme::identify::Namespace;
use iosonde_nvme::memory::{Memory, Registers};
use iosonde_nvme::pair::{Device, IoPair, Kind, PairPlan, Transfer};
use iosonde_nvme::registers::{CONFIGURATION, STATUS};
use mock::{Mock, MockFault, MockSettings};
use proptest::prelude::*;

const SLOT_BYTES: usize = 256 << 10;
const TIMEOUT_NS: u64 = 1_000_000_000;

/// A job with its buffers; its time passes when it waits.
struct Job {
    pair: IoPair<Mock>,
    buffers: Memory,
    device: Arc<Device<Mock>>,
    now_ns: Cell<u64>,
}

struct Wanted {
    settings: MockSettings,
    namespace: u32,
    depth: u32,
    uses_sgl: bool,
    force_unit_access: bool,
    vector: Option<u16>,
}

/// One namespace, four I/Os in flight, polled, with PRP entries.
fn wanted(change: impl FnOnce(&mut Wanted)) -> Wanted {
    let mut wanted = Wanted {
        settings: MockSettings::default(),
        namespace: 1,
        depth: 4,
        uses_sgl: false,
        force_unit_access: false,
        vector: None,
    };
    change(&mut wanted);
    wanted
}

/// A queue pair for one I/O at a time.
fn plan(number: u16, namespace: Namespace, buffers: &Memory) -> PairPlan<'_> {
    PairPlan {
        number,
        namespace,
        queue_depth: 1,
        buffers,
        slot_bytes: SLOT_BYTES,
        uses_sgl: false,
        force_unit_access: false,
        timeout_ns: TIMEOUT_NS,
        vector: None,
    }
}

impl Job {
    fn new(change: impl FnOnce(&mut Wanted)) -> Job {
        let wanted = wanted(change);
        let device = Device::start(Mock::new(wanted.settings)).expect("a controller");
        device.controller().request_queues(2).expect("two queue pairs");
        let namespace = device.controller().namespace(wanted.namespace).expect("a namespace");
        let buffers = Memory::allocate(SLOT_BYTES * wanted.depth as usize).expect("memory");
        let plan = PairPlan {
            queue_depth: wanted.depth,
            uses_sgl: wanted.uses_sgl,
            force_unit_access: wanted.force_unit_access,
            vector: wanted.vector,
            ..plan(1, namespace, &buffers)
        };
        let pair = device.pair(&plan).expect("a queue pair");
        Job {
            pair,
            buffers,
            device,
            now_ns: Cell::new(0),
        }
    }

    fn push(&mut self, slot: u32, kind: Kind, offset_bytes: u64, bytes: u32) {
        let transfer = Transfer::new(kind, offset_bytes, bytes);
        self.pair.push(slot, &transfer, self.now_ns.get());
        self.pair.ring();
    }

    /// Waits until everything has ended; results by slot. Each look at the clock takes a tenth of a second.
    fn finish(&mut self) -> Vec<(u32, i32)> {
        let mut results = Vec::new();
        while self.pair.in_flight() > 0 {
            let now_ns = &self.now_ns;
            let clock = || {
                now_ns.set(now_ns.get() + 100_000_000);
                now_ns.get()
            };
            self.pair.wait(clock, u64::MAX);
            self.pair.reap(|slot, result| results.push((slot, result)));
            self.pair.ring();
        }
        results.sort_unstable();
        results
    }

    fn one(&mut self, kind: Kind, offset_bytes: u64, bytes: u32) -> i32 {
        self.push(0, kind, offset_bytes, bytes);
        let results = self.finish();
        assert_eq!(results.len(), 1);
        results[0].1
    }

    /// Carries out one transfer in slot 0.
    fn move_all(&mut self, transfer: &Transfer) {
        self.pair.push(0, transfer, 0);
        self.pair.ring();
        assert_eq!(self.finish(), [(0, transfer.bytes as i32)]);
    }

    fn mock(&self) -> &Mock {
        self.device.bus()
    }
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|place| (place as u8).wrapping_mul(31).wrapping_add((place >> 8) as u8) ^ seed)
        .collect()
}

#[test]
fn every_size_and_alignment_up_to_the_largest_transfer_is_moved_in_both_directions() {
    for uses_sgl in [false, true] {
        for block_bytes in [512, 4096] {
            let mut job = Job::new(|wanted| {
                wanted.settings.namespaces = vec![(block_bytes, 2048)];
                wanted.uses_sgl = uses_sgl;
            });
            let largest = job.device.controller().largest_transfer_bytes() as u32;
            assert_eq!(largest, 128 << 10);
            // In steps of 13 blocks of 512 bytes, every place in a page is an end.
            let step = if block_bytes == 512 { 13 * 512 } else { 4096 };
            let sizes = (block_bytes..largest).step_by(step).chain([largest]);
            for (count, bytes) in sizes.enumerate() {
                for start in [0, 4, 512, 4092] {
                    let data = pattern(count as u8 ^ start as u8, bytes as usize);
                    let offset_bytes = u64::from(block_bytes) * (count as u64 % 7);
                    let mut transfer = Transfer {
                        kind: Kind::Write,
                        offset_bytes,
                        bytes,
                        start,
                    };
                    let mut back = vec![0; bytes as usize];
                    job.buffers.store(start, &data);
                    job.move_all(&transfer);
                    assert_eq!(job.mock().contents(1, offset_bytes as usize, bytes as usize), data);
                    job.buffers.store(start, &back);
                    transfer.kind = Kind::Read;
                    job.move_all(&transfer);
                    job.buffers.load(start, &mut back);
                    assert!(back == data, "{bytes} bytes from {start}");
                }
            }
            // One block too many, no whole blocks, not at a block.
            for (offset_bytes, bytes) in [(0, largest + block_bytes), (0, block_bytes + 1), (1, block_bytes)] {
                assert_eq!(job.one(Kind::Read, offset_bytes, bytes), -libc::EINVAL);
            }
        }
    }
}

/// Writes to doorbell registers for each I/O: `rounds` times as many reads as the queue is deep, submitted together.
fn doorbell_writes(depth: u32, rounds: u32, change: impl FnOnce(&mut Wanted)) -> f64 {
    let mut job = Job::new(|wanted| {
        wanted.depth = depth;
        change(wanted);
    });
    for round in 0..rounds {
        for slot in 0..depth {
            let transfer = Transfer::new(Kind::Read, u64::from((round * 7 + slot) % 4096) * 512, 512);
            job.pair.push(slot, &transfer, 0);
        }
        assert_eq!(job.finish().len(), depth as usize);
    }
    job.pair.doorbell_writes() as f64 / f64::from(rounds * depth)
}

#[test]
fn doorbells_are_written_once_for_each_batch_and_not_while_the_controller_reads_shadows() {
    // 32 of the 63 usable entries are taken before the head is reported.
    assert_eq!(doorbell_writes(1, 640, |_| ()), 1.0 + 1.0 / 32.0);
    assert_eq!(doorbell_writes(32, 20, |_| ()), 2.0 / 32.0);
    // An interrupt needs the head at once.
    assert_eq!(doorbell_writes(1, 20, |wanted| wanted.vector = Some(1)), 2.0);
    let polling = |polls| doorbell_writes(1, 640, |wanted| wanted.settings.shadow_polls = Some(polls));
    assert_eq!(polling(1), 1.0 + 1.0 / 32.0);
    // A tail at the event index, once around the ring, and each report of the head.
    assert_eq!(polling(1000), 1.0 / 64.0 + 1.0 / 32.0);
}

#[test]
fn namespaces_are_separate() {
    for (namespace, block_bytes) in [(1, 512u32), (2, 4096)] {
        let mut job = Job::new(|wanted| {
            wanted.settings.namespaces = vec![(512, 64), (4096, 64)];
            wanted.namespace = namespace;
        });
        assert_eq!(job.device.controller().namespaces().expect("a list"), [1, 2]);
        assert_eq!(job.pair.namespace().bytes(), 64 * u64::from(block_bytes));
        job.buffers.store(0, &pattern(9, 4096));
        assert_eq!(job.one(Kind::Write, 4096, 4096), 4096);
        assert_eq!(job.mock().contents(namespace, 4096, 4096), pattern(9, 4096));
        let other = 3 - namespace;
        assert!(job.mock().contents(other, 0, 64 * 512).iter().all(|byte| *byte == 0));
        let past_the_end = job.one(Kind::Read, 64 * u64::from(block_bytes), 4096);
        assert_eq!(past_the_end, -libc::EREMOTEIO);
    }
}

#[test]
fn flush_forced_writes_and_deallocation_reach_the_controller() {
    let mut job = Job::new(|wanted| wanted.force_unit_access = true);
    job.buffers.store(0, &pattern(1, 4096));
    assert_eq!(job.one(Kind::Write, 0, 4096), 4096);
    assert_eq!(job.one(Kind::Flush, 0, 0), 0);
    assert_eq!(job.mock().counts(), (2, 1, 1));
    assert_eq!(job.one(Kind::Deallocate, 512, 1024), 0);
    let after = job.mock().contents(1, 0, 2048);
    assert_eq!(after[..512], pattern(1, 4096)[..512]);
    assert!(after[512..1536].iter().all(|byte| *byte == 0));
    assert_eq!(after[1536..], pattern(1, 4096)[1536..2048]);
}

#[test]
fn an_error_ends_its_own_command_only_and_a_late_completion_belongs_to_its_own() {
    let mut job = Job::new(|_| ());
    job.mock().inject(1, MockFault::Fail(Status::READ_ERROR));
    for slot in 0..3 {
        job.push(slot, Kind::Read, 0, 512);
    }
    assert_eq!(job.finish(), [(0, 512), (1, -libc::ENODATA), (2, 512)]);
    assert!(job.pair.failure().is_none());
    assert_eq!(job.one(Kind::Read, 0, 512), 512);
    let mut job = Job::new(|_| ());
    job.mock().inject(0, MockFault::Delay(3));
    for slot in 0..4 {
        job.push(slot, Kind::Read, 0, 512 << slot);
    }
    assert_eq!(job.finish(), [(0, 512), (1, 1024), (2, 2048), (3, 4096)]);
}

/// Loses the command of slot 0 and completes those of the other slots until slot 0 has ended; returns its result. Each
/// batch of the others takes `batch_ns`.
fn lose_while_others_complete(job: &mut Job, batch_ns: u64) -> i32 {
    job.mock().inject(0, MockFault::Lose);
    job.push(0, Kind::Read, 0, 512);
    let mut lost = None;
    while lost.is_none() {
        (1..4).for_each(|slot| job.push(slot, Kind::Read, 0, 512));
        job.now_ns.set(job.now_ns.get() + batch_ns);
        let now_ns = job.now_ns.get();
        assert!(now_ns < 3 * TIMEOUT_NS, "the lost command stays in flight");
        let mut ended = 0;
        while ended < 3 {
            job.pair.wait(|| now_ns, u64::MAX);
            job.pair.reap(|slot, result| match slot {
                0 => lost = Some(result),
                _ => ended += 1,
            });
        }
    }
    lost.expect("it has ended")
}

#[test]
fn a_command_that_is_lost_is_aborted_although_others_complete_all_the_time() {
    // Without an interrupt, these completions arrive before the driver reads the clock.
    for (vector, batch_ns) in [(None, 100_000), (Some(1), 5_000_000)] {
        for honours_abort in [true, false] {
            let mut job = Job::new(|wanted| {
                wanted.settings.honours_abort = honours_abort;
                wanted.vector = vector;
            });
            assert_eq!(lose_while_others_complete(&mut job, batch_ns), -libc::ETIMEDOUT);
            let time_ns = job.now_ns.get();
            assert!(time_ns >= if honours_abort { TIMEOUT_NS } else { 2 * TIMEOUT_NS });
            assert_eq!(job.pair.failure().is_none(), honours_abort);
            assert_eq!(job.mock().is_enabled(), honours_abort);
            assert_eq!(job.one(Kind::Read, 0, 512) == 512, honours_abort);
        }
    }
}

#[test]
fn a_controller_that_does_not_abort_is_reset_before_the_buffers_are_given_back_and_all_its_jobs_end() {
    let mut job = Job::new(|wanted| wanted.settings.honours_abort = false);
    let buffers = Memory::allocate(SLOT_BYTES).expect("memory");
    let mut plan = plan(2, job.pair.namespace(), &buffers);
    plan.timeout_ns = u64::MAX / 2;
    let mut other = job.device.pair(&plan).expect("a second queue pair");
    job.mock().inject(0, MockFault::Lose);
    job.mock().inject(1, MockFault::Lose);
    job.push(0, Kind::Read, 0, 512);
    other.push(0, &Transfer::new(Kind::Read, 0, 512), 0);
    other.ring();
    assert_eq!(job.finish(), [(0, -libc::ETIMEDOUT)]);
    assert!(matches!(job.pair.failure(), Some(NvmeError::Timeout(_))));
    assert!(!job.mock().is_enabled());
    assert_eq!(job.one(Kind::Read, 0, 512), -libc::EIO, "it is not used again");
    other.look_after(0);
    let mut results = Vec::new();
    other.reap(|slot, result| results.push((slot, result)));
    assert_eq!(results, [(0, -libc::ETIMEDOUT)]);
}

/// A mock controller that takes a while to become disabled.
struct SlowReset {
    mock: Mock,
    waits: AtomicU32,
}

impl Bus for SlowReset {
    fn registers(&self) -> &Registers {
        self.mock.registers()
    }

    fn map(&self, memory: &Memory) -> io::Result<u64> {
        self.mock.map(memory)
    }

    fn relax(&self) {
        let is_resetting = self.registers().read32(CONFIGURATION) & 1 == 0;
        if is_resetting && self.waits.fetch_add(1, Ordering::Relaxed) < 50 {
            thread::sleep(Duration::from_millis(1));
        } else {
            self.mock.relax();
        }
    }
}

#[test]
fn a_job_does_not_give_back_its_buffers_before_another_job_has_reset_the_controller() {
    let mock = Mock::new(MockSettings::default());
    let waits = AtomicU32::new(0);
    let device = Device::start(SlowReset { mock, waits }).expect("a controller");
    device.controller().request_queues(2).expect("two queue pairs");
    let namespace = device.controller().namespace(1).expect("a namespace");
    let buffers = [1, 2].map(|_| Memory::allocate(SLOT_BYTES).expect("memory"));
    let pair = |number: u16| {
        let plan = plan(number, namespace, &buffers[usize::from(number) - 1]);
        device.pair(&plan).expect("a queue pair")
    };
    let (mut one, mut other) = (pair(1), pair(2));
    for pair in [&mut one, &mut other] {
        pair.push(0, &Transfer::new(Kind::Read, 0, 512), 0);
        pair.ring();
    }
    device.bus().registers().write32(STATUS, 0b11);
    let reports = |pair: &mut IoPair<SlowReset>| {
        while pair.in_flight() > 0 {
            pair.look_after(0);
            pair.reap(|_, result| {
                assert!(result < 0);
                assert!(!device.bus().mock.is_enabled(), "the controller may access memory");
            });
        }
    };
    thread::scope(|scope| {
        for pair in [&mut one, &mut other] {
            scope.spawn(|| reports(pair));
        }
    });
}

#[test]
fn a_fatal_error_a_removal_and_a_broken_protocol_end_all_ios_with_the_reason() {
    for (fault, number, reason) in [
        (MockFault::Fatal, libc::EIO, "Fatal"),
        (MockFault::Remove, libc::ENODEV, "Removed"),
        (MockFault::OtherIdentifier, libc::EIO, "Protocol"),
        (MockFault::OtherPhase, libc::ETIMEDOUT, "Timeout"),
    ] {
        let mut job = Job::new(|wanted| wanted.settings.honours_abort = false);
        job.mock().inject(0, fault);
        job.push(0, Kind::Read, 0, 512);
        assert_eq!(job.finish(), [(0, -number)], "{fault:?}");
        let failure = format!("{:?}", job.pair.failure().expect("a failure"));
        assert!(failure.starts_with(reason), "{fault:?}: {failure}");
    }
}

#[test]
fn a_controller_is_refused_with_the_reason_and_shut_down_when_it_is_no_longer_used() {
    let few = Device::start(Mock::new(MockSettings {
        queue_pairs: 1,
        has_sgl: false,
        ..MockSettings::default()
    }));
    let few = few.expect("a controller");
    let refused = few.controller().request_queues(2).expect_err("too many queues");
    assert!(refused.to_string().contains("1 I/O queue pairs, and 2 are needed"));
    let namespace = few.controller().namespace(1).expect("a namespace");
    let buffers = Memory::allocate(SLOT_BYTES).expect("memory");
    let plan = plan(1, namespace, &buffers);
    let (uses_sgl, queue_depth) = (true, 2);
    let refused = few.pair(&PairPlan { uses_sgl, ..plan }).err().expect("no SGLs");
    assert_eq!(refused.to_string(), "the controller does not support SGLs");
    let deep = PairPlan { queue_depth, ..plan };
    assert!(few.pair(&deep).is_err(), "more slots than buffers");
    assert!(few.controller().namespace(2).is_err());
    let Job { pair, device, .. } = Job::new(|_| ());
    drop(pair);
    assert!(device.bus().is_enabled());
    let bus = Arc::clone(device.controller().bus());
    drop(device);
    assert!(!bus.is_enabled());
}

#[derive(Debug, Clone)]
enum Step {
    Io(bool, u64, u32),
    Finish,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_goes_wrong_with_completions_every_io_ends_once(
        steps in prop::collection::vec(prop_oneof![
            6 => (any::<bool>(), 0u64..100, 1u32..64).prop_map(|(write, block, blocks)| Step::Io(write, block, blocks)),
            1 => Just(Step::Finish),
        ], 1..80),
        faults in prop::collection::vec((0u64..80, prop_oneof![
            Just(MockFault::Lose),
            (1u32..4).prop_map(MockFault::Delay),
            Just(MockFault::Repeat),
            Just(MockFault::OtherIdentifier),
            Just(MockFault::OtherPhase),
            Just(MockFault::Fail(Status::WRITE_FAULT)),
            Just(MockFault::Fatal),
            Just(MockFault::Remove),
        ]), 0..3),
        shadow_polls in prop::option::of(1u32..20),
    ) {
        let mut job = Job::new(|wanted| wanted.settings.shadow_polls = shadow_polls);
        for (number, fault) in faults {
            job.mock().inject(number, fault);
        }
        let (mut pushed, mut ended) = (0, 0);
        let mut slot = 0;
        for step in steps {
            if slot == 4 || matches!(step, Step::Finish) {
                let results = job.finish();
                let slots: Vec<u32> = results.iter().map(|(slot, _)| *slot).collect();
                prop_assert_eq!(slots, (0..slot).collect::<Vec<_>>());
                ended += results.len();
                slot = 0;
            }
            if let Step::Io(is_write, block, blocks) = step {
                job.push(slot, if is_write { Kind::Write } else { Kind::Read }, block * 512, blocks * 512);
                pushed += 1;
                slot += 1;
            }
        }
        ended += job.finish().len();
        prop_assert_eq!(pushed, ended);
    }
}
