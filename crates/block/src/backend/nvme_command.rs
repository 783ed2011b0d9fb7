//! NVMe commands of block I/O as `io_uring` passes them through (`struct nvme_uring_cmd`, `include/uapi/linux/nvme_ioctl.h`).

use iosonde_harness::load::Io;
use iosonde_protocol::Operation;

/// `NVME_URING_CMD_IO`.
pub(super) const URING_COMMAND: u32 = 0xc048_4e80;
/// Bytes of a submission entry's command.
pub(super) const COMMAND_BYTES: usize = 80;
/// Bytes of the range list of a deallocate command with one range.
pub(super) const RANGE_BYTES: u32 = 16;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const DATASET_MANAGEMENT: u8 = 0x09;
/// Command dword 12 of a write: on the medium when it completes.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Command dword 11 of dataset management.
const DEALLOCATE: u32 = 1 << 2;

/// Common fields of all commands to a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addressing {
    /// Number of the namespace in its controller.
    pub namespace: u32,
    /// Base-2 logarithm of the bytes of a logical block.
    pub block_shift: u32,
    /// True if writes are on the medium when they complete.
    pub durable_writes: bool,
}

/// The command of an I/O whose data, or range list, is at `address`.
pub(super) fn command(addressing: &Addressing, io: &Io, address: u64) -> [u8; COMMAND_BYTES] {
    let first = io.offset_bytes >> addressing.block_shift;
    let blocks = io.bytes >> addressing.block_shift;
    let (opcode, data_bytes, words) = match io.operation {
        Operation::Read => (READ, io.bytes, transfer(first, blocks, false)),
        Operation::Write => (WRITE, io.bytes, transfer(first, blocks, addressing.durable_writes)),
        Operation::Trim => (DATASET_MANAGEMENT, RANGE_BYTES, [0, DEALLOCATE, 0]),
        _ => (FLUSH, 0, [0; 3]),
    };
    let mut command = [0; COMMAND_BYTES];
    command[0] = opcode;
    put(&mut command, 4, addressing.namespace);
    if data_bytes > 0 {
        command[24..32].copy_from_slice(&address.to_le_bytes());
        put(&mut command, 36, data_bytes);
    }
    for (number, word) in words.into_iter().enumerate() {
        put(&mut command, 40 + 4 * number, word);
    }
    command
}

/// Command dwords 10 to 12 of a read or write. The number of blocks is zero-based.
fn transfer(first: u64, blocks: u32, durable: bool) -> [u32; 3] {
    let flags = if durable { FORCE_UNIT_ACCESS } else { 0 };
    [
        first as u32,
        (first >> 32) as u32,
        blocks.wrapping_sub(1) & 0xffff | flags,
    ]
}

/// The range list that deallocates the blocks of an I/O.
pub(super) fn range(addressing: &Addressing, io: &Io) -> [u8; RANGE_BYTES as usize] {
    let mut range = [0; RANGE_BYTES as usize];
    range[4..8].copy_from_slice(&(io.bytes >> addressing.block_shift).to_le_bytes());
    range[8..].copy_from_slice(&(io.offset_bytes >> addressing.block_shift).to_le_bytes());
    range
}

fn put(command: &mut [u8; COMMAND_BYTES], at: usize, value: u32) {
    command[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_BLOCKS: Addressing = Addressing {
        namespace: 2,
        block_shift: 12,
        durable_writes: true,
    };

    fn word(command: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(command[at..at + 4].try_into().expect("four bytes"))
    }

    fn io(operation: Operation, offset_bytes: u64, bytes: u32) -> Io {
        Io {
            operation,
            offset_bytes,
            bytes,
        }
    }

    #[test]
    fn commands_address_blocks_of_the_namespaces_format() {
        let mut small = LARGE_BLOCKS;
        small.block_shift = 9;
        let offset = (1 << 42) + 1024;
        let command = command(&small, &io(Operation::Read, offset, 4096), 0xdead_0000_beef);
        assert_eq!(command[24..32], 0xdead_0000_beef_u64.to_le_bytes());
        // The count of blocks is zero-based, without force unit access.
        let words = [4, 36, 40, 44, 48].map(|at| word(&command, at));
        assert_eq!((command[0], words), (READ, [2, 4096, 2, 2, 7]));
        let trim = io(Operation::Trim, 16384, 8192);
        let command = super::command(&LARGE_BLOCKS, &trim, 0x1000);
        assert_eq!((command[0], word(&command, 36)), (DATASET_MANAGEMENT, 16));
        assert_eq!((word(&command, 40), word(&command, 44)), (0, 4));
        let range = range(&LARGE_BLOCKS, &trim);
        assert_eq!([0, 4, 8, 12].map(|at| word(&range, at)), [0, 2, 4, 0]);
    }

    #[test]
    fn a_durable_write_forces_unit_access_and_a_flush_moves_no_data() {
        let durable = command(&LARGE_BLOCKS, &io(Operation::Write, 8192, 4096), 0x1000);
        assert_eq!([word(&durable, 40), word(&durable, 48)], [2, 1 << 30]);
        let mut plain = LARGE_BLOCKS;
        plain.durable_writes = false;
        let plain = command(&plain, &io(Operation::Write, 8192, 4096), 0x1000);
        assert_eq!((plain[0], word(&plain, 48)), (WRITE, 0));
        let command = command(&LARGE_BLOCKS, &io(Operation::Flush, 0, 0), 0x1000);
        assert_eq!((command[0], word(&command, 4)), (FLUSH, 2));
        assert!(command[8..].iter().all(|byte| *byte == 0));
    }
}
