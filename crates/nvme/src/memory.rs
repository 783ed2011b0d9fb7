//! Memory shared with a device, and its registers. The unsafe code of the driver is here and in `vfio`.
//!
//! A device may write to shared memory at any time, so it is only ever accessed as atomics. Registers are accessed with
//! volatile reads and writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapMut, MmapRaw};

/// Bytes of a page of the controller's (CC.MPS = 0): the unit of PRP entries.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a huge page, from which on they are requested.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Page-aligned memory that a device may access; clones share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<MmapRaw>);

impl Memory {
    /// Zeroed memory, faulted in: in huge pages where the kernel has them for this size.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn allocate(bytes: usize) -> io::Result<Memory> {
        let mut mapping = MmapMut::map_anon(bytes.next_multiple_of(PAGE_BYTES))?;
        if bytes >= HUGE_PAGE_BYTES {
            // Kernels without huge pages refuse.
            let _ = mapping.advise(memmap2::Advice::HugePage);
        }
        for page in mapping.chunks_mut(PAGE_BYTES) {
            page[0] = std::hint::black_box(0);
        }
        Ok(Memory(Arc::new(mapping.into())))
    }

    /// The same mapping; its start is page-aligned, as of all mappings.
    pub fn of(mapping: Arc<MmapRaw>) -> Memory {
        Memory(mapping)
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// All of it as 32-bit words.
    #[inline]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned, readable and writable, and lives as long as `self`; atomics may be accessed
        // from anywhere, also by the device. Who owns the mapping makes no plain references to bytes that others access.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 4) }
    }

    /// All of it as 64-bit words.
    #[inline]
    pub fn quads(&self) -> &[AtomicU64] {
        // SAFETY: as of `words`; accesses of both widths to the same bytes are not concurrent within this program.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 8) }
    }

    /// Copies bytes out; offset and length are multiples of 4.
    pub fn load(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.is_multiple_of(4) && bytes.len().is_multiple_of(4), "whole words");
        let words = &self.words()[offset / 4..][..bytes.len() / 4];
        for (word, part) in words.iter().zip(bytes.chunks_exact_mut(4)) {
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Copies bytes in; offset and length are multiples of 4.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(4) && bytes.len().is_multiple_of(4), "whole words");
        let words = &self.words()[offset / 4..][..bytes.len() / 4];
        for (word, part) in words.iter().zip(bytes.chunks_exact(4)) {
            let value = u32::from_le_bytes(part.try_into().expect("chunks of 4 bytes"));
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// A controller's registers; clones share them.
#[derive(Debug, Clone)]
pub struct Registers(Arc<MmapRaw>);

impl Registers {
    /// Registers in a mapping.
    pub fn of(mapping: MmapRaw) -> Registers {
        Registers(Arc::new(mapping))
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Reads a 32-bit register.
    #[inline]
    pub fn read32(&self, offset: usize) -> u32 {
        let register = self.register(offset);
        // SAFETY: aligned and within the mapping, which lives as long as `self`.
        let value = unsafe { register.read_volatile() };
        fence(Ordering::Acquire);
        value
    }

    /// Reads a 64-bit register as two of 32 bits, as every controller allows (section 3.1.3).
    pub fn read64(&self, offset: usize) -> u64 {
        u64::from(self.read32(offset)) | u64::from(self.read32(offset + 4)) << 32
    }

    /// Writes a 32-bit register, after everything that was written to memory before.
    #[inline]
    pub fn write32(&self, offset: usize, value: u32) {
        let register = self.register(offset);
        before_device_write();
        // SAFETY: as of `read32`. A write can make the device do nothing but what its registers offer: it reaches memory
        // only through addresses that the bus has mapped for it.
        unsafe { register.write_volatile(value) };
    }

    /// Writes a 64-bit register as two of 32 bits.
    pub fn write64(&self, offset: usize, value: u64) {
        self.write32(offset, value as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }

    #[inline]
    fn register(&self, offset: usize) -> *mut u32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.0.len(),
            "a register within the mapping"
        );
        self.0.as_mut_ptr().wrapping_add(offset).cast()
    }
}

/// A doorbell: a register that is written without further checks.
#[derive(Debug, Clone)]
pub struct Doorbell {
    registers: Registers,
    register: *mut u32,
}

// SAFETY: the register lives as long as `registers`, and any thread may write it.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// The doorbell at an offset.
    pub fn new(registers: &Registers, offset: usize) -> Doorbell {
        Doorbell {
            register: registers.register(offset),
            registers: registers.clone(),
        }
    }

    /// Writes it, after everything that was written to memory before.
    #[inline]
    pub fn ring(&self, value: u16) {
        before_device_write();
        // SAFETY: the register was checked when the doorbell was made, and `registers` keeps its mapping.
        unsafe { self.register.write_volatile(value.into()) };
    }

    /// The registers that it belongs to.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }
}

/// Orders writes to memory before a write to a register. On x86-64 stores are in order; elsewhere a barrier that devices
/// outside the processor's inner domain take part in is needed.
#[inline]
fn before_device_write() {
    fence(Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no effect but on order.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}
