//! The edge between the driver and a device: registers, and memory that the device may access.

use std::io;

use crate::memory::{Memory, Registers};

/// Access of a driver to one controller.
pub trait Bus: Send + Sync {
    /// The controller's registers.
    fn registers(&self) -> &Registers;

    /// Lets the device access memory until the bus is dropped, and returns the address that the device has for it. The
    /// memory is contiguous for the device, and the bus keeps it as long.
    ///
    /// # Errors
    /// When the kernel refuses, for example because more memory would be locked than this process may.
    fn map(&self, memory: &Memory) -> io::Result<u64>;

    /// The NUMA node of the device, if the kernel reports one.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Called while the driver polls and finds nothing.
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Waits for an interrupt of this vector, for so long at most. Polls once where there are no interrupts.
    fn wait_for_interrupt(&self, _vector: u16, _timeout_ns: u64) {
        self.relax();
    }

    /// Returns true if the device is about to be removed, so that it must be given up.
    fn is_removal_requested(&self) -> bool {
        false
    }
}
