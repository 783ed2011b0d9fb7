//! Cost of data: generating it before a write, in GB/s of one core; and sealing and checking it under verification, in
//! nanoseconds for each block. At the end ten million sound blocks are checked, of which none may be found wrong.
//!
//! ```sh
//! cargo run --release -p iosonde-block --example data_cost
//! ```
//!
//! Each figure is the best of several rounds: what else runs on the machine can only make it worse.

use std::hint::black_box;
use std::time::Instant;

use iosonde_block::payload::Filler;
use iosonde_block::verify::Rehearsal;
use iosonde_harness::load::Rng;
use iosonde_protocol::{FaultCounts, Payload};

const ROUNDS: usize = 300;
const ROUND_BYTES: usize = 8 << 20;
/// As many buffers as a queue of that depth has.
const SLOTS: usize = 32;
/// Blocks of the file that verification is shown: with their journal of 16 bytes each more than a cache holds.
const BLOCKS: u64 = 1 << 20;
const SOUND_BLOCKS: u64 = 10_000_000;

fn main() {
    println!("{:<44} {:>9} {:>9}", "data of a write, GB/s", "4 KiB", "128 KiB");
    let reducible = |compression_ratio, duplicate_fraction| Payload::Reducible {
        compression_ratio,
        duplicate_fraction,
        duplicate_bytes: 4096,
    };
    for (name, payload) in [
        ("random", Payload::Random),
        ("zeros", Payload::Zeros),
        ("compressible to a half", reducible(2.0, 0.0)),
        ("compressible to a half, a third duplicates", reducible(2.0, 0.33)),
    ] {
        let [small, large] = [4 << 10, 128 << 10].map(|bytes| payload_rate(payload, bytes));
        println!("{name:<44} {small:>9.1} {large:>9.1}");
    }
    println!(
        "\n{:<44} {:>9} {:>9}",
        "verification of a block, ns", "4 KiB", "128 KiB"
    );
    let [small, large] = [4 << 10, 128 << 10].map(verification_ns);
    println!("{:<44} {:>9.0} {:>9.0}", "sealing a write", small.0, large.0);
    println!("{:<44} {:>9.0} {:>9.0}", "checking a read", small.1, large.1);
    check_sound_blocks();
}

/// Nanoseconds to seal a write, and to check a read, of blocks at random places of a large file.
fn verification_ns(block_bytes: u64) -> (f64, f64) {
    let directory = tempfile::tempdir().expect("there is room for a journal");
    let rehearsal = Rehearsal::new(directory.path(), BLOCKS, block_bytes).expect("a journal can be made");
    let mut job = rehearsal.job();
    let mut rng = Rng::new(1, &[]);
    let blocks: Vec<u64> = (0..SLOTS).map(|_| rng.below(BLOCKS)).collect();
    let mut buffers = vec![0; SLOTS * block_bytes as usize];
    let mut each = |work: &mut dyn FnMut(u64, &mut [u8])| {
        let round_ns = best_ns(|| {
            for (block, buffer) in blocks.iter().zip(buffers.chunks_exact_mut(block_bytes as usize)) {
                work(*block, black_box(buffer));
            }
        });
        round_ns / SLOTS as f64
    };
    let write_ns = each(&mut |block, buffer| job.write(block, buffer));
    let read_ns = each(&mut |block, buffer| job.read(block, buffer));
    assert_eq!(job.finish().1, FaultCounts::default(), "what was sealed is sound");
    (write_ns, read_ns)
}

/// No false alarm.
fn check_sound_blocks() {
    let directory = tempfile::tempdir().expect("there is room for a journal");
    let rehearsal = Rehearsal::new(directory.path(), BLOCKS, 4096).expect("a journal can be made");
    let (mut job, mut rng, mut buffer) = (rehearsal.job(), Rng::new(2, &[]), vec![0; 4096]);
    let mut filler = Filler::new(Payload::Random, true, 1, &[]);
    for _ in 0..SOUND_BLOCKS {
        let block = rng.below(BLOCKS);
        filler.fill(&mut buffer);
        job.write(block, &mut buffer);
        job.read(block, &buffer);
    }
    let (checked_bytes, faults) = job.finish();
    assert_eq!((checked_bytes, faults), (SOUND_BLOCKS * 4096, FaultCounts::default()));
    println!("\n{SOUND_BLOCKS} sound blocks, and no false alarm");
}

fn payload_rate(payload: Payload, block_bytes: usize) -> f64 {
    let mut filler = Filler::new(payload, false, 1, &[]);
    let mut buffers = vec![0; SLOTS * block_bytes];
    let round_ns = best_ns(|| {
        for _ in 0..ROUND_BYTES / buffers.len() {
            for buffer in buffers.chunks_exact_mut(block_bytes) {
                filler.fill(black_box(buffer));
            }
        }
    });
    ROUND_BYTES as f64 / round_ns
}

fn best_ns(mut round: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        round();
        began.elapsed().as_nanos() as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}
