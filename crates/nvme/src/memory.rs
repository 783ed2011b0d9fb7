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

/// Page-aligned memory that a device may access; clones share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<MmapRaw>);

impl Memory {
    /// The same mapping; its start is page-aligned, as of all mappings.
    pub fn from_mapping(mapping: Arc<MmapRaw>) -> Memory {
        Memory(mapping)
    }

    pub fn into_mapping(self) -> Arc<MmapRaw> {
        self.0
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// All of it as 32-bit words.
    #[inline]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned, readable and writable, and lives as long as `self`. The device and other threads
        // may access atomics at any time. Other owners of the mapping have raw pointers only, no references to its bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 4) }
    }

    /// All of it as 64-bit words.
    #[inline]
    pub fn quads(&self) -> &[AtomicU64] {
        // SAFETY: as for `words`; this program does not access the same bytes concurrently with both widths.
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

/// Size of a set of NUMA nodes in bits; the kernel reads one bit less than the argument states.
const NODES: usize = 1024;
/// `linux/mempolicy.h`: the node of an address, not the policy.
const NODE_OF_ADDRESS: u64 = 1 | 2;

/// Sets the preferred NUMA node of a mapping (mbind(2)). Pages that are already present stay where they are, and pages are
/// allocated on other nodes if this one has no free memory.
pub(crate) fn prefer_node(mapping: &mut MmapMut, node: u32) -> io::Result<()> {
    let mut nodes = [0u64; NODES / 64];
    let word = nodes.get_mut(node as usize / 64);
    *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % 64);
    // SAFETY: a memory policy does not change contents, and the range is a mapping that we own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            mapping.as_mut_ptr(),
            mapping.len(),
            libc::c_long::from(libc::MPOL_PREFERRED),
            nodes.as_ptr(),
            NODES,
            0usize,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The NUMA node of the page at an offset (get_mempolicy(2)); `None` on a kernel without NUMA support.
pub(crate) fn node_of(memory: &Memory, offset: usize) -> Option<u32> {
    let mut node: libc::c_int = -1;
    let address = memory.address() + offset as u64;
    // SAFETY: the kernel writes one integer; the address is only looked up.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            std::ptr::null_mut::<u64>(),
            0usize,
            address,
            NODE_OF_ADDRESS,
        )
    };
    (result == 0).then(|| u32::try_from(node).ok())?
}

/// A controller's registers; clones share them.
#[derive(Debug, Clone)]
pub struct Registers(Arc<MmapRaw>);

impl Registers {
    /// Registers in a mapping.
    pub fn from_mapping(mapping: MmapRaw) -> Registers {
        Registers(Arc::new(mapping))
    }

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
        // SAFETY: as for `read32`. Whatever the device does in response, the IOMMU limits it to memory that the bus has mapped
        // for it.
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

/// The register of a doorbell. Its offset is checked once, so writes need no bounds check.
#[derive(Debug, Clone)]
pub struct DoorbellRegister {
    registers: Registers,
    register: *mut u32,
}

// SAFETY: the register lives as long as `registers`, and any thread may write it.
unsafe impl Send for DoorbellRegister {}

impl DoorbellRegister {
    /// The one at an offset.
    pub fn new(registers: &Registers, offset: usize) -> DoorbellRegister {
        DoorbellRegister {
            register: registers.register(offset),
            registers: registers.clone(),
        }
    }

    /// Writes it, after everything that was written to memory before.
    #[inline]
    pub fn write(&self, value: u16) {
        before_device_write();
        // SAFETY: `new` checked that the register is aligned and within the mapping, which `registers` keeps.
        unsafe { self.register.write_volatile(value.into()) };
    }

    /// The registers that contain it.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }
}

/// Orders writes to memory before a write to a register. On x86-64 stores are in order; aarch64 needs a barrier of the outer
/// shareable domain, which includes devices.
#[inline]
pub(crate) fn before_device_write() {
    fence(Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier only affects the order of accesses.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Orders a write to memory before a later read of memory that the device writes: a full barrier, on aarch64 of the outer
/// shareable domain as in [`before_device_write`].
#[inline]
pub(crate) fn between_write_and_read() {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier only affects the order of accesses.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
}
