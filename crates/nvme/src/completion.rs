//! Completion queue entries and the status that they report.

use std::fmt;

/// Bytes of an entry (CQES in the controller configuration is the logarithm of it).
pub const COMPLETION_BYTES: usize = 16;

/// A completion queue entry (NVM Express Base Specification 2.0, section 3.3.3.2, "Common Completion Queue Entry").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Command-specific result, dword 0.
    pub result: u32,
    /// Head of the submission queue when the entry was written: entries before it may be reused.
    pub submission_head: u16,
    /// Submission queue of the command.
    pub submission_queue: u16,
    /// Identifier of the command.
    pub identifier: u16,
    /// Phase tag: it changes each time that the controller passes the end of the ring.
    pub phase: bool,
    /// Status of the command.
    pub status: Status,
}

impl Completion {
    /// Decodes the four dwords of an entry.
    #[inline]
    pub fn from_dwords(dwords: [u32; 4]) -> Completion {
        Completion {
            result: dwords[0],
            submission_head: dwords[2] as u16,
            submission_queue: (dwords[2] >> 16) as u16,
            identifier: dwords[3] as u16,
            phase: dwords[3] & PHASE != 0,
            status: Status((dwords[3] >> 17) as u16),
        }
    }

    /// Encodes the entry, as a controller writes it.
    pub fn to_dwords(self) -> [u32; 4] {
        let position = u32::from(self.submission_head) | u32::from(self.submission_queue) << 16;
        let phase = if self.phase { PHASE } else { 0 };
        let end = u32::from(self.identifier) | phase | u32::from(self.status.0) << 17;
        [self.result, 0, position, end]
    }
}

/// The phase tag in dword 3.
pub(crate) const PHASE: u32 = 1 << 16;

/// Status field without the phase tag (section 3.3.3.2.1, "Status Field Definition"): status code in bits 0 to 7, status
/// code type in bits 8 to 10, command retry delay, more, do not retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Successful completion.
    pub const SUCCESS: Status = Status(0);
    /// Invalid command opcode.
    pub const INVALID_OPCODE: Status = Status(0x001);
    /// Invalid field in command.
    pub const INVALID_FIELD: Status = Status(0x002);
    /// Command abort requested: an Abort command ended it.
    pub const ABORT_REQUESTED: Status = Status(0x007);
    /// Invalid namespace or format.
    pub const INVALID_NAMESPACE: Status = Status(0x00b);
    /// Logical block address out of range (NVM Command Set).
    pub const OUT_OF_RANGE: Status = Status(0x080);
    /// Invalid queue identifier (command specific).
    pub const INVALID_QUEUE: Status = Status(0x101);
    /// Write fault (media error).
    pub const WRITE_FAULT: Status = Status(0x280);
    /// Unrecovered read error (media error).
    pub const READ_ERROR: Status = Status(0x281);

    /// Status code type and status code, without retry hints.
    #[inline]
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Returns true if the command succeeded.
    #[inline]
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// The error number that a read or write through the kernel ends with for this status: `nvme_error_status` (in
    /// `drivers/nvme/host/core.c`) and `blk_errors` of Linux. 0 for success.
    pub fn error_number(self) -> i32 {
        match self.code() {
            0x000 => 0,
            0x081 => libc::ENOSPC,
            // Block out of range, command interrupted, namespace not ready.
            0x080 | 0x021 | 0x082 => libc::EREMOTEIO,
            // Invalid opcode, field, namespace; conflicting attributes.
            0x001 | 0x002 | 0x00b | 0x180 => libc::EOPNOTSUPP,
            // Write fault, read error, comparison, access, deallocated block; read-only range.
            0x280 | 0x281 | 0x285 | 0x286 | 0x287 | 0x182 => libc::ENODATA,
            // Protection information.
            0x282..=0x284 | 0x181 => libc::EILSEQ,
            // Reservation conflict.
            0x083 => libc::EBADE,
            // Host path error.
            0x370 => libc::ENOLINK,
            // Too many active or open zones.
            0x1bd => libc::EOVERFLOW,
            0x1be => libc::ETOOMANYREFS,
            _ => libc::EIO,
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.code() {
            0x000 => "success",
            0x001 => "invalid opcode",
            0x002 => "invalid field in command",
            0x004 => "data transfer error",
            0x006 => "internal error",
            0x007 => "command abort requested",
            0x008 => "aborted: submission queue deleted",
            0x00b => "invalid namespace or format",
            0x013 => "invalid PRP offset",
            0x080 => "logical block address out of range",
            0x081 => "capacity exceeded",
            0x101 => "invalid queue identifier",
            0x102 => "invalid queue size",
            0x280 => "write fault",
            0x281 => "unrecovered read error",
            code => {
                return write!(
                    formatter,
                    "status code type {:#x}, status code {:#04x}",
                    code >> 8,
                    code & 0xff
                );
            }
        };
        write!(formatter, "{text} ({:#05x})", self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded_and_hints_about_retries_are_ignored() {
        let entry = Completion {
            result: 0x1234_5678,
            submission_head: 9,
            submission_queue: 3,
            identifier: 0xbeef,
            phase: true,
            status: Status(0x4281),
        };
        assert_eq!(Completion::from_dwords(entry.to_dwords()), entry);
        let last = 0x4281 << 17 | 1 << 16 | 0xbeef;
        assert_eq!(entry.to_dwords(), [0x1234_5678, 0, 0x0003_0009, last]);
        let do_not_retry = Status(0x4000 | Status::READ_ERROR.0);
        assert_eq!(do_not_retry.code(), Status::READ_ERROR.code());
        assert_eq!(do_not_retry.error_number(), libc::ENODATA);
        assert_eq!(do_not_retry.to_string(), "unrecovered read error (0x281)");
        assert!(Status(0x4000).is_success());
    }

    #[test]
    fn a_status_has_the_error_number_of_the_kernel() {
        for (status, number) in [
            (0x000, 0),
            (0x4002, libc::EOPNOTSUPP),
            (0x006, libc::EIO),
            (0x007, libc::EIO),
            (0x020, libc::EIO),
            (0x021, libc::EREMOTEIO),
            (0x080, libc::EREMOTEIO),
            (0x081, libc::ENOSPC),
            (0x083, libc::EBADE),
            (0x181, libc::EILSEQ),
            (0x182, libc::ENODATA),
            (0x282, libc::EILSEQ),
            (0x287, libc::ENODATA),
            (0x370, libc::ENOLINK),
            (0x371, libc::EIO),
        ] {
            assert_eq!(Status(status).error_number(), number, "{status:#x}");
        }
    }
}
