//! Submission queue entries: the admin and I/O commands that the driver sends.

/// Bytes of an entry (SQES in the controller configuration is the logarithm of it).
pub const COMMAND_BYTES: usize = 64;

/// A submission queue entry (NVM Express Base Specification 2.0, section 3.3.3.1, "Submission Queue Entry").
///
/// The command identifier, bits 16 to 31 of dword 0, is 0 until a queue assigns one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command(pub [u32; 16]);

/// Location of a command's data (section 4.1, "Data Layout").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPointer {
    /// The command transfers no data.
    None,
    /// PRP entries 1 and 2 (section 4.1.1).
    Prp(u64, u64),
    /// One SGL data block descriptor (section 4.1.2): address and bytes.
    Sgl(u64, u32),
}

/// Opcodes of admin commands (section 5, "Admin Command Set").
pub mod admin {
    /// Delete I/O Submission Queue, section 5.7.
    pub const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
    /// Create I/O Submission Queue, section 5.5.
    pub const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    /// Delete I/O Completion Queue, section 5.6.
    pub const DELETE_COMPLETION_QUEUE: u8 = 0x04;
    /// Create I/O Completion Queue, section 5.4.
    pub const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    /// Identify, section 5.17.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort, section 5.1.
    pub const ABORT: u8 = 0x08;
    /// Set Features, section 5.27.
    pub const SET_FEATURES: u8 = 0x09;
    /// Doorbell Buffer Config, section 5.8.
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
}

/// Opcodes of I/O commands (NVM Command Set Specification 1.0, section 3; Flush is in section 7 of the base specification).
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Data structures that Identify returns (CNS, section 5.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Identify Namespace of this namespace (CNS 00h).
    Namespace(u32),
    /// Identify Controller (CNS 01h).
    Controller,
    /// Numbers of the active namespaces above this one (CNS 02h).
    ActiveNamespaces(u32),
}

/// Feature identifier of Number of Queues (section 5.27.1.5).
const NUMBER_OF_QUEUES: u32 = 0x07;
/// Attribute of Dataset Management: deallocate.
const DEALLOCATE: u32 = 1 << 2;
/// Force unit access: the data is on non-volatile media before the command completes.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// PSDT in dword 0: the data pointer is an SGL.
const SGL: u32 = 1 << 14;

impl Command {
    fn new(opcode: u8, namespace: u32) -> Command {
        let mut dwords = [0; 16];
        dwords[0] = u32::from(opcode);
        dwords[1] = namespace;
        Command(dwords)
    }

    #[inline]
    fn with_data(mut self, data: DataPointer) -> Command {
        match data {
            DataPointer::None => {}
            DataPointer::Prp(first, second) => {
                self.set_quad(6, first);
                self.set_quad(8, second);
            }
            DataPointer::Sgl(address, bytes) => {
                self.0[0] |= SGL;
                self.set_quad(6, address);
                self.0[8] = bytes; // Descriptor type 0 (data block), sub type 0 (address), in dword 9.
            }
        }
        self
    }

    #[inline]
    fn set_quad(&mut self, dword: usize, value: u64) {
        self.0[dword] = value as u32;
        self.0[dword + 1] = (value >> 32) as u32;
    }

    fn with_dword(mut self, dword: usize, value: u32) -> Command {
        self.0[dword] = value;
        self
    }

    /// The command with its identifier.
    #[inline]
    pub fn with_identifier(mut self, identifier: u16) -> Command {
        self.0[0] = self.0[0] & 0xffff | u32::from(identifier) << 16;
        self
    }

    pub fn opcode(&self) -> u8 {
        self.0[0] as u8
    }

    /// Command identifier.
    pub fn identifier(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    pub fn namespace(&self) -> u32 {
        self.0[1]
    }

    /// Location of the data, of a command that has data.
    pub fn data(&self) -> DataPointer {
        let quad = |dword: usize| u64::from(self.0[dword]) | u64::from(self.0[dword + 1]) << 32;
        match self.0[0] & SGL {
            0 => DataPointer::Prp(quad(6), quad(8)),
            _ => DataPointer::Sgl(quad(6), self.0[8]),
        }
    }

    /// Identify, into one page.
    pub fn identify(structure: Structure, page: u64) -> Command {
        let (namespace, what) = match structure {
            Structure::Namespace(number) => (number, 0x00),
            Structure::Controller => (0, 0x01),
            Structure::ActiveNamespaces(above) => (above, 0x02),
        };
        Command::new(admin::IDENTIFY, namespace)
            .with_data(DataPointer::Prp(page, 0))
            .with_dword(10, what)
    }

    /// Set Features, Number of Queues: so many submission and completion queues are wanted. The result has the numbers
    /// granted, each less one.
    pub fn set_number_of_queues(pairs: u16) -> Command {
        let less_one = u32::from(pairs) - 1;
        Command::new(admin::SET_FEATURES, 0)
            .with_dword(10, NUMBER_OF_QUEUES)
            .with_dword(11, less_one | less_one << 16)
    }

    /// Doorbell Buffer Config: pages of shadow doorbells and of event indexes.
    pub fn shadow_doorbells(doorbells: u64, event_indexes: u64) -> Command {
        Command::new(admin::DOORBELL_BUFFER_CONFIG, 0).with_data(DataPointer::Prp(doorbells, event_indexes))
    }

    /// Create I/O Completion Queue, physically contiguous; with an interrupt vector, or polled.
    pub fn create_completion_queue(queue: u16, entries: u16, ring: u64, vector: Option<u16>) -> Command {
        let interrupt = vector.map_or(0, |vector| u32::from(vector) << 16 | 1 << 1);
        Command::new(admin::CREATE_COMPLETION_QUEUE, 0)
            .with_data(DataPointer::Prp(ring, 0))
            .with_dword(10, u32::from(queue) | (u32::from(entries) - 1) << 16)
            .with_dword(11, interrupt | 1)
    }

    /// Create I/O Submission Queue, physically contiguous, that reports to the completion queue of the same number.
    pub fn create_submission_queue(queue: u16, entries: u16, ring: u64) -> Command {
        Command::new(admin::CREATE_SUBMISSION_QUEUE, 0)
            .with_data(DataPointer::Prp(ring, 0))
            .with_dword(10, u32::from(queue) | (u32::from(entries) - 1) << 16)
            .with_dword(11, u32::from(queue) << 16 | 1)
    }

    /// Delete I/O Submission Queue.
    pub fn delete_submission_queue(queue: u16) -> Command {
        Command::new(admin::DELETE_SUBMISSION_QUEUE, 0).with_dword(10, queue.into())
    }

    /// Delete I/O Completion Queue.
    pub fn delete_completion_queue(queue: u16) -> Command {
        Command::new(admin::DELETE_COMPLETION_QUEUE, 0).with_dword(10, queue.into())
    }

    /// Abort a command of a submission queue. Bit 0 of the result is set if it was not aborted.
    pub fn abort(queue: u16, identifier: u16) -> Command {
        Command::new(admin::ABORT, 0).with_dword(10, u32::from(queue) | u32::from(identifier) << 16)
    }

    /// Read `blocks` logical blocks (1 to 65536).
    #[inline]
    pub fn read(namespace: u32, first: u64, blocks: u32, data: DataPointer) -> Command {
        Command::transfer(io::READ, namespace, first, blocks, data)
    }

    /// Write `blocks` logical blocks (1 to 65536).
    #[inline]
    pub fn write(namespace: u32, first: u64, blocks: u32, data: DataPointer) -> Command {
        Command::transfer(io::WRITE, namespace, first, blocks, data)
    }

    #[inline]
    fn transfer(opcode: u8, namespace: u32, first: u64, blocks: u32, data: DataPointer) -> Command {
        debug_assert!((1..=1 << 16).contains(&blocks), "number of logical blocks");
        let mut command = Command::new(opcode, namespace).with_data(data);
        command.set_quad(10, first);
        command.0[12] = blocks.wrapping_sub(1) & 0xffff;
        command
    }

    /// The read or write with force unit access.
    #[inline]
    pub fn with_force_unit_access(mut self) -> Command {
        self.0[12] |= FORCE_UNIT_ACCESS;
        self
    }

    /// First logical block and number of logical blocks, of a read or write.
    pub fn blocks(&self) -> (u64, u32) {
        let first = u64::from(self.0[10]) | u64::from(self.0[11]) << 32;
        (first, (self.0[12] & 0xffff) + 1)
    }

    /// Flush: what the namespace has cached is on non-volatile media afterwards.
    pub fn flush(namespace: u32) -> Command {
        Command::new(io::FLUSH, namespace)
    }

    /// Dataset Management, deallocate, with one range ([`deallocated_range`]) at this address.
    pub fn deallocate(namespace: u32, range: u64) -> Command {
        Command::new(io::DATASET_MANAGEMENT, namespace)
            .with_data(DataPointer::Prp(range, 0))
            .with_dword(10, 0)
            .with_dword(11, DEALLOCATE)
    }
}

/// Bytes of a range of Dataset Management.
pub const RANGE_BYTES: usize = 16;

/// A range of Dataset Management (NVM Command Set Specification 1.0, section 3.2.3): context attributes, number of
/// logical blocks, first logical block.
pub fn deallocated_range(first: u64, blocks: u32) -> [u32; 4] {
    [0, blocks, first as u32, (first >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_fields_where_the_specification_has_them() {
        let data = DataPointer::Prp(0x1_0000_2000, 0x1_0000_3000);
        let Command(dwords) = Command::read(3, 0x5_0000_0007, 16, data).with_identifier(0xabcd);
        assert_eq!(dwords[..4], [0xabcd_0002, 3, 0, 0]);
        assert_eq!(dwords[6..10], [0x2000, 1, 0x3000, 1]);
        assert_eq!(dwords[10..], [7, 5, 15, 0, 0, 0]);
        let command = Command::write(1, 0, 65536, DataPointer::Sgl(0x4000, 1 << 20)).with_force_unit_access();
        assert_eq!(command.0[0], 0x4001);
        assert_eq!(command.0[6..10], [0x4000, 0, 1 << 20, 0]);
        assert_eq!(command.0[12], 1 << 30 | 0xffff);
        assert_eq!(command.blocks(), (0, 65536));
        assert_eq!(command.data(), DataPointer::Sgl(0x4000, 1 << 20));
        let polled = Command::create_completion_queue(2, 64, 0x1000, None);
        assert_eq!(polled.0[10..12], [63 << 16 | 2, 1]);
        let with_interrupt = Command::create_completion_queue(2, 64, 0x1000, Some(5));
        assert_eq!(with_interrupt.0[11], 5 << 16 | 0b11);
        let submissions = Command::create_submission_queue(2, 64, 0x1000);
        assert_eq!(submissions.0[10..12], [63 << 16 | 2, 2 << 16 | 1]);
        assert_eq!(Command::set_number_of_queues(4).0[10..12], [7, 3 << 16 | 3]);
        assert_eq!(Command::abort(2, 0x1234).0[10], 0x1234_0002);
    }
}
