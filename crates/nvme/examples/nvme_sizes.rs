//! Transfers of every size that a controller takes, in both formats of data pointers, from and to buffers with many alignments.
//!
//! `nvme_sizes fill PATH UNIT LARGEST` writes a pattern through the kernel, `nvme_sizes drive ADDRESS NAMESPACE` transfers with the
//! driver, and `nvme_sizes check PATH UNIT LARGEST` reads through the kernel what the driver wrote. Each size has bytes of its own on
//! the namespace. `drive` prints JSON; a difference ends the program.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use iosonde_nvme::identify::Namespace;
use iosonde_nvme::memory::{Memory, PAGE_BYTES};
use iosonde_nvme::pair::{Device, IoPair, Kind, PairPlan, Transfer};
use iosonde_nvme::vfio::Vfio;

/// Byte written by the kernel, then by the driver with PRP entries and lists, then by the driver with SGLs.
const BY_KERNEL: u32 = 0;
const BY_PRP: u32 = 0x5555_5555;
const BY_SGL: u32 = 0xaaaa_aaaa;
/// Words before and after a read that must not change.
const GUARDS: usize = 16;
const GUARD: u32 = 0xdead_beef;
const TIMEOUT_NS: u64 = 30_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse::<u64>().expect("a number");
    match arguments[0].as_str() {
        "fill" => fill(&arguments[1], number(2), number(3)),
        "check" => check(&arguments[1], number(2), number(3)),
        "drive" => drive(&arguments[1], number(2) as u32),
        other => panic!("no such step: {other}"),
    }
}

/// Every size from one block to the largest, with its first byte on the namespace.
fn sizes(unit: u64, largest: u64) -> impl Iterator<Item = (u64, usize)> {
    (1..=largest / unit).map(move |blocks| (blocks * (blocks - 1) / 2 * unit, (blocks * unit) as usize))
}

/// The pattern of these words of the namespace: each differs from all others of the same version.
fn pattern(first_byte: u64, version: u32) -> impl Iterator<Item = u32> {
    let first = (first_byte / 4) as u32;
    (0u32..).map(move |index| first.wrapping_add(index).wrapping_mul(0x9e37_79b1) ^ version)
}

fn fill(path: &str, unit: u64, largest: u64) {
    let device = OpenOptions::new().write(true).open(path).expect("a block device");
    for (offset, bytes) in sizes(unit, largest) {
        let words = pattern(offset, BY_KERNEL).take(bytes / 4);
        let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        device.write_all_at(&data, offset).expect("written");
    }
    device.sync_all().expect("synchronized");
}

fn check(path: &str, unit: u64, largest: u64) {
    let device = File::open(path).expect("a block device");
    let mut data = vec![0; largest as usize];
    for (offset, bytes) in sizes(unit, largest) {
        device.read_exact_at(&mut data[..bytes], offset).expect("read");
        let words = data[..bytes].chunks_exact(4);
        let is_equal = words
            .zip(pattern(offset, BY_SGL))
            .all(|(word, expected)| word == expected.to_le_bytes());
        assert!(is_equal, "{bytes} bytes at {offset} differ");
    }
}

fn drive(address: &str, namespace: u32) {
    let device = Device::start(Vfio::open(address, 0).expect("a device")).expect("a controller");
    let (namespace, largest) = {
        let mut controller = device.controller();
        controller.request_queues(2).expect("queues");
        (
            controller.namespace(namespace).expect("a namespace"),
            controller.largest_transfer_bytes(),
        )
    };
    let mut prp = Lane::new(&device, namespace, largest, 1, false);
    let mut sgl = Lane::new(&device, namespace, largest, 2, true);
    let mut starts = vec![false; PAGE_BYTES];
    let mut count = 0;
    for (offset, bytes) in sizes(namespace.block_bytes.into(), largest) {
        // Multiples of 4, in an order that covers each of them; some transfers start with their page.
        let start = if count % 8 == 7 {
            0
        } else {
            (count * 4 * 389) % PAGE_BYTES
        };
        let other = PAGE_BYTES - 4 - start;
        starts[start] = true;
        starts[other] = true;
        prp.reads(offset, bytes, start, BY_KERNEL);
        sgl.reads(offset, bytes, other, BY_KERNEL);
        prp.writes(offset, bytes, other, BY_PRP);
        sgl.reads(offset, bytes, start, BY_PRP);
        sgl.writes(offset, bytes, other, BY_SGL);
        prp.reads(offset, bytes, start, BY_SGL);
        count += 1;
    }
    let refused = refused(&mut prp, namespace, largest);
    assert_eq!(refused, self::refused(&mut sgl, namespace, largest));
    let starts = starts.iter().filter(|is_used| **is_used).count();
    println!(r#"{{"sizes": {count}, "largest_bytes": {largest}, "starts": {starts}, "refused": {refused:?}}}"#);
}

/// Results of transfers of one byte and one block more than the largest, and of parts of blocks.
fn refused(lane: &mut Lane, namespace: Namespace, largest: u64) -> Vec<i32> {
    let (largest, unit) = (largest as u32, namespace.block_bytes);
    let each = [largest + 1, largest + unit, unit - 1, unit + 1, 0];
    each.into_iter()
        .flat_map(|bytes| [(Kind::Read, bytes), (Kind::Write, bytes)])
        .map(|(kind, bytes)| lane.carry_out(kind, 0, bytes, 0))
        .collect()
}

/// A queue pair with one buffer.
struct Lane {
    pair: IoPair<Vfio>,
    buffer: Memory,
    began: Instant,
}

impl Lane {
    fn new(device: &Arc<Device<Vfio>>, namespace: Namespace, largest: u64, number: u16, uses_sgl: bool) -> Lane {
        // The largest from any offset in its first page, and a page more: refused only for what the controller takes.
        let slot_bytes = (largest as usize).next_multiple_of(PAGE_BYTES) + 2 * PAGE_BYTES;
        let buffer = Memory::allocate(slot_bytes).expect("memory");
        let plan = PairPlan {
            number,
            namespace,
            queue_depth: 1,
            buffers: &buffer,
            slot_bytes,
            uses_sgl,
            force_unit_access: false,
            timeout_ns: TIMEOUT_NS,
            vector: None,
        };
        Lane {
            pair: device.pair(&plan).expect("a queue pair"),
            buffer,
            began: Instant::now(),
        }
    }

    fn reads(&mut self, offset: u64, bytes: usize, start: usize, version: u32) {
        let data = start / 4..(start + bytes) / 4;
        for guards in Lane::guards(&data) {
            self.buffer.words()[guards]
                .iter()
                .for_each(|word| word.store(GUARD, Ordering::Relaxed));
        }
        self.succeeds(Kind::Read, offset, bytes, start);
        let is_kept = |guards: Range<usize>| {
            let mut words = self.buffer.words()[guards].iter();
            words.all(|word| word.load(Ordering::Relaxed) == GUARD)
        };
        assert!(
            Lane::guards(&data).into_iter().all(is_kept),
            "{bytes} bytes to {start} went beyond their buffer"
        );
        let words = self.buffer.words()[data]
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        assert!(
            words
                .zip(pattern(offset, version))
                .all(|(word, expected)| word == expected),
            "{bytes} bytes at {offset} to {start} differ"
        );
    }

    fn writes(&mut self, offset: u64, bytes: usize, start: usize, version: u32) {
        let words = self.buffer.words()[start / 4..(start + bytes) / 4].iter();
        for (word, value) in words.zip(pattern(offset, version)) {
            word.store(value, Ordering::Relaxed);
        }
        self.succeeds(Kind::Write, offset, bytes, start);
    }

    /// Words around these.
    fn guards(data: &Range<usize>) -> [Range<usize>; 2] {
        [
            data.start.saturating_sub(GUARDS)..data.start,
            data.end..data.end + GUARDS,
        ]
    }

    fn succeeds(&mut self, kind: Kind, offset: u64, bytes: usize, start: usize) {
        let result = self.carry_out(kind, offset, bytes as u32, start);
        assert_eq!(
            result, bytes as i32,
            "{kind:?} of {bytes} bytes at {offset}, buffer from {start}"
        );
    }

    /// The result of a transfer.
    fn carry_out(&mut self, kind: Kind, offset_bytes: u64, bytes: u32, start: usize) -> i32 {
        let began = self.began;
        let now_ns = || began.elapsed().as_nanos() as u64;
        let transfer = Transfer {
            start,
            ..Transfer::new(kind, offset_bytes, bytes)
        };
        self.pair.push(0, &transfer, now_ns());
        let mut ended = None;
        while ended.is_none() {
            self.pair.wait(now_ns, u64::MAX);
            self.pair.reap(|_, result| ended = Some(result));
        }
        ended.expect("ended")
    }
}
