//! Fields of the controller properties (NVM Express Base Specification 2.0, section 3.1.3).

/// Offset of Controller Capabilities.
pub const CAPABILITIES: usize = 0x00;
/// Offset of Version.
pub const VERSION: usize = 0x08;
/// Offset of Controller Configuration.
pub const CONFIGURATION: usize = 0x14;
/// Offset of Controller Status.
pub const STATUS: usize = 0x1c;
/// Offset of Admin Queue Attributes.
pub const ADMIN_QUEUE_ATTRIBUTES: usize = 0x24;
/// Offset of Admin Submission Queue Base Address.
pub const ADMIN_SUBMISSION_QUEUE: usize = 0x28;
/// Offset of Admin Completion Queue Base Address.
pub const ADMIN_COMPLETION_QUEUE: usize = 0x30;
/// Offset of the first doorbell (NVMe over PCIe Transport Specification 1.0, section 3.1.2).
pub const DOORBELLS: usize = 0x1000;

/// Value of Controller Configuration for an enabled controller: NVM command set, pages of 4 KiB, round robin, no shutdown,
/// entries of 64 and 16 bytes.
pub const ENABLED: u32 = 1 | 6 << 16 | 4 << 20;
/// Notification of a normal shutdown (CC.SHN), to be added to the configuration.
pub const SHUTDOWN: u32 = 1 << 14;

/// Controller Capabilities (section 3.1.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Entries that an I/O queue can have (MQES, which is less one).
    pub fn queue_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// Timeout for the controller to become ready, in milliseconds (TO, in units of 500 ms).
    pub fn ready_timeout_ms(self) -> u64 {
        (self.0 >> 24 & 0xff).max(1) * 500
    }

    /// Bytes from one doorbell to the next (DSTRD).
    pub fn doorbell_stride(self) -> usize {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Returns true if it has the NVM command set (CSS bit 0).
    pub fn has_nvm_commands(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// The smallest page of the controller (MPSMIN).
    pub fn smallest_page_bytes(self) -> u64 {
        4096 << (self.0 >> 48 & 0xf)
    }

    /// Offset of a queue's submission tail doorbell, or of its completion head doorbell.
    pub fn doorbell(self, queue: u16, is_completion: bool) -> usize {
        DOORBELLS + (2 * usize::from(queue) + usize::from(is_completion)) * self.doorbell_stride()
    }
}

/// Controller Status (section 3.1.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// Returns true if it takes commands (RDY).
    pub fn is_ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns true if it had an error that it cannot report by a completion (CFS): only a reset helps.
    pub fn is_fatal(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns true if its shutdown is complete (SHST).
    pub fn is_shut_down(self) -> bool {
        self.0 >> 2 & 3 == 2
    }

    /// Returns true if the device does not answer: a read from a removed PCIe function returns all ones.
    pub fn is_removed(self) -> bool {
        self.0 == u32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_a_known_controller_are_decoded() {
        // QEMU's controller: 2048 entries, 7.5 s, stride 4, NVM commands, pages of 4 KiB to 64 KiB.
        let capabilities = Capabilities(0x0040_0020_0f01_07ff);
        assert_eq!(capabilities.queue_entries(), 2048);
        assert_eq!(capabilities.ready_timeout_ms(), 7500);
        assert_eq!(capabilities.doorbell_stride(), 4);
        assert!(capabilities.has_nvm_commands());
        assert_eq!(capabilities.smallest_page_bytes(), 4096);
        assert_eq!(capabilities.doorbell(0, true), 0x1004);
        assert_eq!(capabilities.doorbell(3, false), 0x1018);
        assert_eq!(Capabilities(0x0000_0022_0000_0000).doorbell(1, true), 0x1000 + 3 * 16);
        assert!(ControllerStatus(0b11).is_fatal() && !ControllerStatus(0b11).is_removed());
        assert!(ControllerStatus(u32::MAX).is_removed());
        assert!(ControllerStatus(0b1001).is_shut_down() && !ControllerStatus(0b0101).is_shut_down());
    }
}
