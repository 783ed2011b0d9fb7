//! NVMe commands through `io_uring`: the queues of the kernel's driver without file system and block layer.
//!
//! A ring with large entries: a submission has room for the command, a completion for the result. Reads and writes are at most
//! as long as one command of the device; longer ones are refused before the run, because the kernel does not split commands.
//! It does not copy their data either: a buffer of more memory segments than a command takes is refused with `EINVAL`. How
//! many segments a buffer of small pages has depends on the fragmentation of memory, so blocks of more pages than that go
//! through reserved huge pages.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{cqueue, opcode, squeue};
use iosonde_harness::load::Io;
use iosonde_nvme::completion::Status;
use iosonde_protocol::{Operation, UringNvmeOptions, UringOptions};

use super::Unavailable;
use super::nvme_command::{Addressing, URING_COMMAND, command, range};
use super::nvme_namespace::Namespace;
use super::queue::{self, Queue};
use super::uring::{Entries, Place, try_read};
use super::uring_features::{Asked, UringFeatures, grant};
use crate::buffer::Arena;

const REQUIREMENTS: &str = "it needs a whole NVMe namespace as the target, Linux 5.19, root, and blocks of one command";
/// Pages of a buffer that need not be adjacent in memory.
const PAGE_BYTES: u64 = 4096;

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
    /// The reason why it does not, and what would help.
    pub(crate) fn probe(
        block_device: &File,
        options: &UringNvmeOptions,
        largest_bytes: u32,
        durable_writes: bool,
    ) -> Result<NvmeRing, Unavailable> {
        let refused = |reason: String| Unavailable::new(reason, REQUIREMENTS);
        let namespace = Namespace::read(block_device, durable_writes).map_err(refused)?;
        let limits = Limits::read(block_device);
        limits.check_size(largest_bytes).map_err(refused)?;
        let huge_pages = limits.needs_huge_pages(largest_bytes);
        if huge_pages {
            arena(1, largest_bytes.into(), true).map_err(|error| limits.too_many_segments(largest_bytes, &error))?;
        }
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
            let arena = arena(1, largest_bytes.into(), huge_pages)?;
            try_read(features, entries, namespace.device.as_raw_fd(), largest_bytes, arena)
        };
        let features = grant(asked, &attempt).map_err(|error| refused(format!("a read command failed: {error}")))?;
        let features = features.in_huge_pages(huge_pages);
        Ok(NvmeRing { namespace, features })
    }

    /// Buffers of a job.
    pub(crate) fn arena(&self, slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        arena(slots, slot_bytes, self.features.huge_pages)
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

fn arena(slots: u32, slot_bytes: u64, huge_pages: bool) -> io::Result<Arena> {
    match huge_pages {
        true => Arena::in_huge_pages(slots, slot_bytes),
        false => Arena::new(slots, slot_bytes),
    }
}

/// Limits of one command, as far as the kernel reports them.
#[derive(Debug, Clone, Copy)]
struct Limits {
    kibibytes: Option<u64>,
    segments: Option<u64>,
}

impl Limits {
    fn read(block_device: &File) -> Limits {
        let queue = Queue::read(block_device);
        let setting = |name| queue.as_ref()?.setting(name)?.parse().ok();
        Limits {
            kibibytes: setting("max_hw_sectors_kb"),
            segments: setting("max_segments"),
        }
    }

    fn check_size(&self, bytes: u32) -> Result<(), String> {
        match self.kibibytes {
            Some(kibibytes) if u64::from(bytes) > kibibytes * 1024 => Err(format!(
                "a block of {bytes} bytes exceeds the {kibibytes} KiB of one command (`queue/max_hw_sectors_kb`)"
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if a buffer of so many bytes has more pages than a command has segments.
    fn needs_huge_pages(&self, bytes: u32) -> bool {
        let pages = u64::from(bytes).div_ceil(PAGE_BYTES);
        self.segments.is_some_and(|segments| pages > segments)
    }

    fn too_many_segments(&self, bytes: u32, error: &io::Error) -> Unavailable {
        let (pages, segments) = (u64::from(bytes).div_ceil(PAGE_BYTES), self.segments.unwrap_or(0));
        let largest_kibibytes = segments * PAGE_BYTES / 1024;
        Unavailable::new(
            format!(
                "a block of {bytes} bytes has up to {pages} memory segments, one command takes {segments} \
                 (`queue/max_segments`), and there are no huge pages for contiguous buffers: {error}"
            ),
            format!(
                "reserve huge pages (`sysctl vm.nr_hugepages=N`), use blocks of up to {largest_kibibytes} KiB, or another backend"
            ),
        )
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
        (slot, result_of(completion.result(), self.bytes[slot as usize]))
    }
}

/// Bytes moved or a negative error number, from a negative error number or the status of a command.
#[inline]
fn result_of(result: i32, bytes: u32) -> i32 {
    match result {
        0 => bytes as i32,
        error if error < 0 => error,
        status => match Status(status as u16).error_number() {
            0 => bytes as i32,
            number => -number,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        kibibytes: Some(512),
        segments: Some(127),
    };

    #[test]
    fn a_status_becomes_the_error_number_of_the_kernel() {
        assert_eq!(result_of(0, 4096), 4096);
        assert_eq!(result_of(-libc::EINVAL, 4096), -libc::EINVAL);
        for (status, number) in [
            (0x4281, libc::ENODATA),
            (0x4002, libc::EOPNOTSUPP),
            (0x021, libc::EREMOTEIO),
            (0x182, libc::ENODATA),
            (0x370, libc::ENOLINK),
            (0x007, libc::EIO),
        ] {
            assert_eq!(result_of(status, 4096), -number, "{status:#x}");
        }
    }

    #[test]
    fn a_block_larger_than_a_command_or_of_more_pages_than_segments_is_refused_with_what_helps() {
        assert!(!LIMITS.needs_huge_pages(508 << 10));
        assert!(LIMITS.needs_huge_pages((508 << 10) + 512));
        let mut unknown = LIMITS;
        unknown.segments = None;
        assert!(!unknown.needs_huge_pages(512 << 10));
        let refused = LIMITS.too_many_segments(512 << 10, &io::Error::other("none are free"));
        assert!(refused.reason.contains("up to 128 memory segments"));
        assert!(refused.hint.contains("vm.nr_hugepages") && refused.hint.contains("508 KiB"));
        assert_eq!(LIMITS.check_size(512 << 10), Ok(()));
        let refused = LIMITS.check_size((512 << 10) + 512).unwrap_err();
        assert!(refused.contains("512 KiB of one command"), "{refused}");
    }
}
