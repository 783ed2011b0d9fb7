//! A controller that the kernel has handed over to this process through vfio (`Documentation/driver-api/vfio.rst` of Linux).
//!
//! The device must be bound to `vfio-pci`, and its IOMMU group must be viable: the IOMMU limits it to the memory that
//! [`Bus::map`] has mapped, which the kernel pins. When the process ends, in whatever way, the kernel ends the device's
//! accesses to memory before it unpins that memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memmap2::MmapOptions;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::NvmeError;
use crate::bus::Bus;
use crate::memory::{Memory, PAGE_BYTES, Registers};

// `linux/vfio.h`: the ioctls are _IO(';', 100 + number).
const GET_API_VERSION: libc::Ioctl = 0x3b64;
const CHECK_EXTENSION: libc::Ioctl = 0x3b65;
const SET_IOMMU: libc::Ioctl = 0x3b66;
const GROUP_GET_STATUS: libc::Ioctl = 0x3b67;
const GROUP_SET_CONTAINER: libc::Ioctl = 0x3b68;
const GROUP_GET_DEVICE_FD: libc::Ioctl = 0x3b6a;
const DEVICE_GET_REGION_INFO: libc::Ioctl = 0x3b6c;
const DEVICE_SET_IRQS: libc::Ioctl = 0x3b6e;
const IOMMU_MAP_DMA: libc::Ioctl = 0x3b71;

const TYPE1V2_IOMMU: u64 = 3;
const GROUP_IS_VIABLE: u32 = 1;
const REGION_CAN_MMAP: u32 = 1 << 2;
const MAP_READ_WRITE: u32 = 3;
const IRQ_EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
const MSIX_IRQ: u32 = 2;
const REQUEST_IRQ: u32 = 4;
const BAR0: u32 = 0;
const CONFIGURATION_SPACE: u32 = 7;

/// Command register in the configuration space: memory space and bus master enable.
const COMMAND_REGISTER: u64 = 4;
const MEMORY_AND_BUS_MASTER: u16 = 1 << 1 | 1 << 2;

/// Addresses for the device start here: above the windows that are reserved for interrupts.
const FIRST_ADDRESS: u64 = 1 << 32;
/// Addresses are congruent to those of the program by this size, so that the IOMMU can use large pages.
const LARGE_PAGE: u64 = 2 << 20;

#[repr(C)]
#[derive(Default)]
struct GroupStatus {
    size: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    size: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    bytes: u64,
    offset: u64,
}

#[repr(C)]
struct DmaMap {
    size: u32,
    flags: u32,
    address: u64,
    device_address: u64,
    bytes: u64,
}

#[repr(C)]
struct IrqSet {
    size: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    descriptor: i32,
}

/// A device of this process. The descriptors are closed in this order, and then the memory may be reused.
pub struct Vfio {
    numa_node: Option<u32>,
    registers: Registers,
    interrupts: Vec<File>,
    removal: Option<File>,
    device: File,
    _group: File,
    container: File,
    mapped: Mutex<Mapped>,
}

struct Mapped {
    next_address: u64,
    memory: Vec<Memory>,
}

impl Vfio {
    /// Opens the device at a PCI address (`0000:01:00.0`), with so many interrupt vectors.
    ///
    /// # Errors
    /// When it is not bound to `vfio-pci`, has no IOMMU, or its group has devices with other drivers.
    pub fn open(address: &str, vectors: u16) -> Result<Vfio, NvmeError> {
        let container = open(Path::new("/dev/vfio/vfio"))?;
        let version = call(&container, GET_API_VERSION, 0).map_err(NvmeError::system("use vfio"))?;
        let has_type1 = call(&container, CHECK_EXTENSION, TYPE1V2_IOMMU).map_err(NvmeError::system("use vfio"))?;
        if version != 0 || has_type1 != 1 {
            return Err(NvmeError::Unsupported(
                "this kernel's vfio does not have type 1 IOMMUs".into(),
            ));
        }
        let group = open(&group_path(address)?)?;
        join(&group, &container)?;
        let device = device_of(&group, address)?;
        let bar = region(&device, BAR0)?;
        if bar.flags & REGION_CAN_MMAP == 0 {
            return Err(NvmeError::Unsupported(
                "the registers of the device cannot be mapped".into(),
            ));
        }
        let mapping = MmapOptions::new()
            .offset(bar.offset)
            .len(bar.bytes as usize)
            .map_raw(&device);
        let registers = Registers::from_mapping(mapping.map_err(NvmeError::system("map the registers of the device"))?);
        enable_bus_master(&device)?;
        Ok(Vfio {
            numa_node: numa_node(address),
            registers,
            interrupts: interrupts(&device, vectors)?,
            removal: removal_event(&device),
            device,
            _group: group,
            container,
            mapped: Mutex::new(Mapped {
                next_address: FIRST_ADDRESS,
                memory: Vec::new(),
            }),
        })
    }

    /// Bytes of configuration space.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn configuration(&self, offset: u64, bytes: &mut [u8]) -> Result<(), NvmeError> {
        let space = region(&self.device, CONFIGURATION_SPACE)?;
        self.device
            .read_exact_at(bytes, space.offset + offset)
            .map_err(NvmeError::system("read the configuration space of the device"))
    }
}

impl Bus for Vfio {
    fn registers(&self) -> &Registers {
        &self.registers
    }

    fn map(&self, memory: &Memory) -> io::Result<u64> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = memory.bytes().next_multiple_of(PAGE_BYTES) as u64;
        let device_address = mapped.next_address.next_multiple_of(LARGE_PAGE) + memory.address() % LARGE_PAGE;
        let mut request = DmaMap {
            size: size_of::<DmaMap>() as u32,
            flags: MAP_READ_WRITE,
            address: memory.address(),
            device_address,
            bytes,
        };
        call(&self.container, IOMMU_MAP_DMA, (&raw mut request) as u64)?;
        mapped.next_address = device_address + bytes;
        mapped.memory.push(memory.clone());
        Ok(device_address)
    }

    fn numa_node(&self) -> Option<u32> {
        self.numa_node
    }

    /// No `pause` instruction: it would delay the next poll, and it can cause an exit to the hypervisor in virtual machines.
    #[inline]
    fn relax(&self) {}

    fn wait_for_interrupt(&self, vector: u16, timeout_ns: u64) {
        let Some(event) = self.interrupts.get(usize::from(vector)) else {
            return std::hint::spin_loop();
        };
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        let ready = poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&timeout));
        if ready.is_ok_and(|count| count > 0) {
            is_signalled(event);
        }
    }

    fn is_removal_requested(&self) -> bool {
        self.removal.as_ref().is_some_and(is_signalled)
    }
}

/// The NUMA node of a PCI device, if the kernel reports one.
pub fn numa_node(address: &str) -> Option<u32> {
    let text = std::fs::read_to_string(device_path(address).join("numa_node")).ok()?;
    text.trim().parse().ok()
}

/// Returns true if an event has happened; resets it.
fn is_signalled(mut event: &File) -> bool {
    event.read_exact(&mut [0; 8]).is_ok()
}

fn device_path(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address)
}

fn open(path: &Path) -> Result<File, NvmeError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(NvmeError::system(format!("open `{}`", path.display())))
}

fn group_path(address: &str) -> Result<PathBuf, NvmeError> {
    let link = std::fs::read_link(device_path(address).join("iommu_group")).map_err(|_| {
        NvmeError::Unsupported(format!(
            "the device {address} does not exist, or no IOMMU limits its accesses to memory"
        ))
    })?;
    let number = link.file_name().expect("the link leads to a group");
    Ok(Path::new("/dev/vfio").join(number))
}

/// Adds the group to the container, whose IOMMU then translates for its devices.
fn join(group: &File, container: &File) -> Result<(), NvmeError> {
    let mut status = GroupStatus {
        size: size_of::<GroupStatus>() as u32,
        flags: 0,
    };
    call(group, GROUP_GET_STATUS, (&raw mut status) as u64)
        .map_err(NvmeError::system("read the status of the group"))?;
    if status.flags & GROUP_IS_VIABLE == 0 {
        return Err(NvmeError::Unsupported(
            "other devices of the IOMMU group are bound to drivers of the kernel".into(),
        ));
    }
    let mut descriptor = container.as_raw_fd();
    call(group, GROUP_SET_CONTAINER, (&raw mut descriptor) as u64)
        .map_err(NvmeError::system("add the group to a container"))?;
    call(container, SET_IOMMU, TYPE1V2_IOMMU).map_err(NvmeError::system("set up the IOMMU"))?;
    Ok(())
}

fn device_of(group: &File, address: &str) -> Result<File, NvmeError> {
    let name =
        std::ffi::CString::new(address).map_err(|_| NvmeError::Unsupported("a PCI address has no zero byte".into()))?;
    let descriptor = call(group, GROUP_GET_DEVICE_FD, name.as_ptr() as u64).map_err(NvmeError::system(format!(
        "open the device {address}, which must be bound to `vfio-pci`"
    )))?;
    // SAFETY: the kernel has just created this descriptor for us, and nothing else uses it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }))
}

fn region(device: &File, index: u32) -> Result<RegionInfo, NvmeError> {
    let mut info = RegionInfo {
        size: size_of::<RegionInfo>() as u32,
        index,
        ..RegionInfo::default()
    };
    call(device, DEVICE_GET_REGION_INFO, (&raw mut info) as u64)
        .map_err(NvmeError::system("examine the regions of the device"))?;
    Ok(info)
}

fn enable_bus_master(device: &File) -> Result<(), NvmeError> {
    let offset = region(device, CONFIGURATION_SPACE)?.offset + COMMAND_REGISTER;
    let mut command = [0; 2];
    device
        .read_exact_at(&mut command, offset)
        .and_then(|()| {
            let enabled = u16::from_le_bytes(command) | MEMORY_AND_BUS_MASTER;
            device.write_all_at(&enabled.to_le_bytes(), offset)
        })
        .map_err(NvmeError::system("enable the device as bus master"))
}

/// Event descriptors for the first vectors (MSI-X).
fn interrupts(device: &File, vectors: u16) -> Result<Vec<File>, NvmeError> {
    let events: Vec<File> = (0..vectors)
        .map(|_| event())
        .collect::<io::Result<_>>()
        .map_err(NvmeError::system("create an event descriptor"))?;
    if events.is_empty() {
        return Ok(events);
    }
    // `struct vfio_irq_set` with one descriptor for each vector behind it.
    let header = (size_of::<IrqSet>() - 4) / 4;
    let mut request = vec![0u32; header];
    request.extend(events.iter().map(|event| event.as_raw_fd() as u32));
    let bytes = request.len() as u32 * 4;
    request[..header].copy_from_slice(&[bytes, IRQ_EVENTFD_TRIGGER, MSIX_IRQ, 0, vectors.into()]);
    call(device, DEVICE_SET_IRQS, request.as_mut_ptr() as u64).map_err(NvmeError::system("set up interrupts"))?;
    Ok(events)
}

/// The event by which the kernel requests the release of the device, if it supports that.
fn removal_event(device: &File) -> Option<File> {
    let event = event().ok()?;
    let mut request = IrqSet {
        size: size_of::<IrqSet>() as u32,
        flags: IRQ_EVENTFD_TRIGGER,
        index: REQUEST_IRQ,
        start: 0,
        count: 1,
        descriptor: event.as_raw_fd(),
    };
    call(device, DEVICE_SET_IRQS, (&raw mut request) as u64).ok()?;
    Some(event)
}

fn event() -> io::Result<File> {
    Ok(File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

/// Calls the kernel. `argument` is a number, or the address of a structure of this module that lives until it returns.
fn call(file: &File, request: libc::Ioctl, argument: u64) -> io::Result<i32> {
    // SAFETY: the callers are in this module. Structures have the layout of `linux/vfio.h` and state their own size, which
    // bounds what the kernel writes; memory that is mapped for the device is kept until the descriptors are closed.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
