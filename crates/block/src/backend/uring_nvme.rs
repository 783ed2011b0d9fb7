//! NVMe commands through `io_uring`: the queues of the kernel's driver without file system and block layer.
//!
//! A ring with large entries: a submission has room for the command, a completion for the result. Reads and writes are at most
//! as long as one command of the device; longer ones are refused before the run, because the kernel does not split commands.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{cqueue, opcode, squeue};
use iosonde_load::Io;
use iosonde_protocol::{Operation, UringNvmeOptions, UringOptions};

use super::nvme_command::{Addressing, URING_COMMAND, command, error_number, range};
use super::nvme_namespace::Namespace;
use super::queue::{self, Queue};
use super::uring::{Entries, Place, try_read};
use super::uring_features::{Asked, UringFeatures, grant};

/// A namespace that takes commands, and what the kernel grants of the options.
pub(crate) struct NvmeRing {
    namespace: Namespace,
    /// Of its rings.
    pub(crate) features: UringFeatures,
}

impl NvmeRing {
    /// Finds out whether the namespace that a block device is takes commands, by a read of the largest block.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) fn probe(
        block_device: &File,
        options: &UringNvmeOptions,
        largest_bytes: u32,
        durable_writes: bool,
    ) -> Result<NvmeRing, String> {
        let namespace = Namespace::of(block_device, durable_writes)?;
        check_size(block_device, largest_bytes)?;
        let asked = UringOptions {
            registered_files: true,
            registered_buffers: options.registered_buffers,
            submission_polling: false,
            completion_polling: options.completion_polling,
            required: true,
        };
        let asked = Asked {
            kind: "uring_nvme",
            options: &asked,
            no_polling: queue::no_polling(block_device),
        };
        let attempt = |features: &UringFeatures| {
            let entries = NvmeEntries::new(namespace.addressing, 1);
            try_read(features, entries, namespace.device.as_raw_fd(), largest_bytes)
        };
        let features = grant(asked, &attempt).map_err(|error| format!("a read command failed: {error}"))?;
        Ok(NvmeRing { namespace, features })
    }

    /// Descriptor of the character device.
    pub(crate) fn fd(&self) -> RawFd {
        self.namespace.device.as_raw_fd()
    }

    /// For a ring with this many I/Os in flight.
    pub(crate) fn entries(&self, queue_depth: u32) -> NvmeEntries {
        NvmeEntries::new(self.namespace.addressing, queue_depth)
    }
}

fn check_size(block_device: &File, bytes: u32) -> Result<(), String> {
    let limit = Queue::of(block_device).and_then(|queue| queue.setting("max_hw_sectors_kb"));
    match limit.and_then(|kibibytes| kibibytes.parse::<u64>().ok()) {
        Some(kibibytes) if u64::from(bytes) > kibibytes * 1024 => Err(format!(
            "a block of {bytes} bytes exceeds the {kibibytes} KiB of one command (`queue/max_hw_sectors_kb`)"
        )),
        _ => Ok(()),
    }
}

/// Commands of one ring.
pub(crate) struct NvmeEntries {
    addressing: Addressing,
    /// Of each slot, the bytes that its I/O moves: a completion reports only whether the command succeeded.
    bytes: Vec<u32>,
}

impl NvmeEntries {
    fn new(addressing: Addressing, queue_depth: u32) -> NvmeEntries {
        NvmeEntries {
            addressing,
            bytes: vec![0; queue_depth as usize],
        }
    }
}

impl Entries for NvmeEntries {
    type Submission = squeue::Entry128;
    type Completion = cqueue::Entry32;

    #[inline]
    fn describe(&mut self, place: &Place, slot: u32, io: &Io) -> squeue::Entry128 {
        self.bytes[slot as usize] = io.bytes;
        let buffer = place.buffer(slot);
        if io.operation == Operation::Trim {
            let range = range(&self.addressing, io);
            // SAFETY: a slot has at least a page, and its buffer belongs to this I/O until it is reaped.
            unsafe { std::ptr::copy_nonoverlapping(range.as_ptr(), buffer, range.len()) };
        }
        let has_data = io.operation != Operation::Flush;
        opcode::UringCmd80::new(place.file, URING_COMMAND)
            .cmd(command(&self.addressing, io, buffer as u64))
            .buf_index(place.registered(slot).filter(|_| has_data))
            .build()
            .flags(place.flags)
            .user_data(u64::from(slot))
    }

    #[inline]
    fn outcome(&self, completion: &cqueue::Entry32) -> (u32, i32) {
        let slot = completion.user_data() as u32;
        let result = match completion.result() {
            0 => self.bytes[slot as usize] as i32,
            status if status > 0 => -error_number(status),
            error => error,
        };
        (slot, result)
    }
}
