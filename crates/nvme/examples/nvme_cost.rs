//! Driver cost of one I/O: nanoseconds from `push` to `reap`, on a controller in memory that completes at once.
//!
//! `cargo run --release -p iosonde-nvme --example nvme_cost [DEPTH [SECONDS]]` prints JSON. The responder writes
//! completions in the same thread, and its time is part of the result: an upper bound.

#[path = "../tests/mock/mod.rs"]
#[allow(dead_code, reason = "the example uses a part of it")]
mod mock;

use std::cell::Cell;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iosonde_nvme::bus::Bus;
use iosonde_nvme::completion::{Completion, Status};
use iosonde_nvme::memory::{Memory, Registers};
use iosonde_nvme::pair::{Device, IoPair, Kind, PairPlan, Transfer};
use mock::{Mock, MockSettings};

const SLOT_BYTES: usize = 4096;
const ROUNDS: u32 = 1000;

/// The mock controller for admin commands, with memory of what was mapped.
struct Recording {
    mock: Mock,
    mapped: Mutex<Vec<Memory>>,
}

impl Bus for Recording {
    fn registers(&self) -> &Registers {
        self.mock.registers()
    }

    fn map(&self, memory: &Memory) -> io::Result<u64> {
        self.mapped.lock().expect("one thread").push(memory.clone());
        self.mock.map(memory)
    }

    fn relax(&self) {
        self.mock.relax();
    }
}

/// Completes the commands of the pair in order, as a device would by DMA.
struct Responder {
    submissions: Memory,
    completions: Memory,
    entries: u16,
    place: Cell<u16>,
    phase: Cell<bool>,
}

impl Responder {
    fn complete(&self, count: u32) {
        for _ in 0..count {
            let place = self.place.get();
            let identifier = (self.submissions.words()[usize::from(place) * 16].load(Ordering::Relaxed) >> 16) as u16;
            let next = if place + 1 == self.entries { 0 } else { place + 1 };
            let entry = Completion {
                result: 0,
                submission_head: next,
                submission_queue: 1,
                identifier,
                phase: self.phase.get(),
                status: Status::SUCCESS,
            };
            let words = &self.completions.words()[usize::from(place) * 4..][..4];
            for (word, dword) in words.iter().zip(entry.to_dwords()) {
                word.store(dword, Ordering::Relaxed);
            }
            self.place.set(next);
            if next == 0 {
                self.phase.set(!self.phase.get());
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u32>().expect("a number"));
    let depth = arguments.next().unwrap_or(32);
    let seconds = arguments.next().unwrap_or(2);
    let bus = Recording {
        mock: Mock::new(MockSettings::default()),
        mapped: Mutex::new(Vec::new()),
    };
    let device = Device::start(bus).expect("a controller");
    let namespace = device.controller().namespace(1).expect("a namespace");
    let buffers = Memory::allocate(SLOT_BYTES * depth as usize).expect("memory");
    let plan = PairPlan {
        number: 1,
        namespace,
        queue_depth: depth,
        buffers: &buffers,
        slot_bytes: SLOT_BYTES,
        uses_sgl: false,
        force_unit_access: false,
        timeout_ns: 1 << 40,
        vector: None,
    };
    let mut pair = device.pair(&plan).expect("a queue pair");
    let entries = (depth + 1).next_power_of_two().max(64) as u16;
    let responder = {
        let mapped = device.bus().mapped.lock().expect("one thread");
        // The rings are the last that were mapped: submissions, then completions.
        let [.., submissions, completions] = mapped.as_slice() else {
            panic!("two rings")
        };
        Responder {
            submissions: submissions.clone(),
            completions: completions.clone(),
            entries,
            place: Cell::new(0),
            phase: Cell::new(true),
        }
    };
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let mut best_ns = f64::INFINITY;
    let mut all_ns = Vec::new();
    while Instant::now() < until {
        let begin = Instant::now();
        for round in 0..ROUNDS {
            turn(&mut pair, &responder, depth, round);
        }
        let each_ns = begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS * depth);
        best_ns = best_ns.min(each_ns);
        all_ns.push(each_ns);
    }
    all_ns.sort_by(f64::total_cmp);
    let median_ns = all_ns[all_ns.len() / 2];
    let ios = all_ns.len() as f64 * f64::from(ROUNDS * depth);
    let writes = pair.doorbell_writes() as f64 / ios;
    println!(
        r#"{{"queue_depth": {depth}, "ns_per_io_median": {median_ns:.1}, "ns_per_io_best": {best_ns:.1}, "doorbell_writes_per_io": {writes:.3}}}"#
    );
}

/// `depth` I/Os from submission to completion.
#[inline(never)]
fn turn(pair: &mut IoPair<Recording>, responder: &Responder, depth: u32, round: u32) {
    for slot in 0..depth {
        let transfer = Transfer::new(Kind::Read, u64::from((slot * 7 + round) % 512) * 4096, 4096);
        pair.push(slot, &transfer, u64::from(round));
    }
    pair.ring();
    responder.complete(depth);
    let mut count = 0;
    pair.wait(|| 0, u64::MAX);
    pair.reap(|_, result| count += u32::from(result == 4096));
    assert_eq!(count, depth);
}
