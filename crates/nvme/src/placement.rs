//! Placement of memory for a device: the kind of pages, and the NUMA node.
//!
//! Memory of 2 MiB or more is allocated from reserved huge pages (`vm.nr_hugepages`), otherwise from transparent huge pages,
//! otherwise from pages of the usual size. The device's NUMA node is preferred. The kernel guarantees none of this, so
//! [`Placed`] is read back from it.

use std::fs;
use std::io;
use std::sync::Arc;

use memmap2::{Advice, MmapMut, MmapOptions};

use crate::memory::{Memory, PAGE_BYTES, node_of, prefer_node};

/// Bytes of a huge page, and its logarithm for the kernel.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const HUGE_PAGE_BITS: u8 = 21;

/// Placement of memory: pages and NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub pages: Pages,
    /// NUMA node of its first, middle and last page; `None` if they are on several, or on a kernel without NUMA support.
    pub node: Option<u32>,
}

/// Kinds of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved huge pages (hugetlbfs).
    Huge,
    /// Transparent huge pages, at least in part.
    Transparent,
    /// Pages of the usual size, although huge pages would fit.
    Small,
    /// Too little memory for a huge page.
    TooSmall,
}

impl Memory {
    /// Zeroed memory, faulted in, on any NUMA node.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn allocate(bytes: usize) -> io::Result<Memory> {
        Memory::near(bytes, None)
    }

    /// Zeroed memory, faulted in, preferred on a NUMA node, and in huge pages where the kernel has them for this size.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn near(bytes: usize, node: Option<u32>) -> io::Result<Memory> {
        Ok(Memory::from_mapping(Arc::new(map(bytes, node)?.into())))
    }
}

/// Zeroed memory, faulted in, preferred on a NUMA node.
fn map(bytes: usize, node: Option<u32>) -> io::Result<MmapMut> {
    choose(
        bytes.next_multiple_of(PAGE_BYTES),
        |bytes| map_huge(bytes, node),
        |bytes, wants_huge| {
            let mapping = MmapMut::map_anon(bytes)?;
            if wants_huge {
                // Kernels without transparent huge pages refuse.
                let _ = mapping.advise(Advice::HugePage);
            }
            faulted_in(mapping, node)
        },
    )
}

/// Zeroed memory in reserved huge pages, faulted in; `bytes` is a multiple of their size.
fn map_huge(bytes: usize, node: Option<u32>) -> io::Result<MmapMut> {
    faulted_in(
        MmapOptions::new().len(bytes).huge(Some(HUGE_PAGE_BITS)).map_anon()?,
        node,
    )
}

/// Zeroed memory in reserved huge pages only, faulted in: each 2 MiB of it, from its start, is physically contiguous.
///
/// # Errors
/// When not as many huge pages are free.
pub fn map_in_huge_pages(bytes: usize) -> io::Result<MmapMut> {
    let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
    map_huge(bytes, None).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!(
                "{} free huge pages of 2 MiB are needed (`HugePages_Free` in `/proc/meminfo`): {error}",
                bytes / HUGE_PAGE_BYTES
            ),
        )
    })
}

/// Maps by `huge`, in whole huge pages, if memory of this size fits and they are available; otherwise by `plain`, with
/// whether transparent huge pages are useful.
fn choose<M>(
    bytes: usize,
    huge: impl FnOnce(usize) -> io::Result<M>,
    plain: impl FnOnce(usize, bool) -> io::Result<M>,
) -> io::Result<M> {
    if bytes < HUGE_PAGE_BYTES {
        return plain(bytes, false);
    }
    huge(bytes.next_multiple_of(HUGE_PAGE_BYTES)).or_else(|_| plain(bytes, true))
}

fn faulted_in(mut mapping: MmapMut, node: Option<u32>) -> io::Result<MmapMut> {
    if let Some(node) = node {
        // This fails for a node without memory and on a kernel without NUMA support; the kernel then chooses the node.
        let _ = prefer_node(&mut mapping, node);
    }
    match mapping.advise(Advice::PopulateWrite) {
        // New in Linux 5.14. It reports a shortage of huge pages as an error, where touching the pages would raise SIGBUS.
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
        _ => {}
    }
    for page in mapping.chunks_mut(PAGE_BYTES) {
        page[0] = std::hint::black_box(0);
    }
    Ok(mapping)
}

/// Returns the kernel's placement of memory.
pub fn placed(memory: &Memory) -> Placed {
    let pages = if memory.bytes() < HUGE_PAGE_BYTES {
        Pages::TooSmall
    } else {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        pages_in(&smaps, memory.address())
    };
    let last = (memory.bytes() - 1) / PAGE_BYTES * PAGE_BYTES;
    let nodes = [0, last / 2 / PAGE_BYTES * PAGE_BYTES, last].map(|offset| node_of(memory, offset));
    Placed {
        pages,
        node: nodes[0].filter(|_| nodes.iter().all(|node| *node == nodes[0])),
    }
}

/// Pages of the mapping with this address, from proc(5) `smaps`.
fn pages_in(smaps: &str, address: u64) -> Pages {
    let mut lines = smaps.lines().skip_while(|line| !is_start_of(line, address));
    lines.next();
    for line in lines.take_while(|line| range_of(line).is_none()) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let kibibytes: u64 = value.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        match name {
            "KernelPageSize" if kibibytes * 1024 >= HUGE_PAGE_BYTES as u64 => return Pages::Huge,
            "AnonHugePages" if kibibytes > 0 => return Pages::Transparent,
            _ => {}
        }
    }
    Pages::Small
}

fn is_start_of(line: &str, address: u64) -> bool {
    range_of(line).is_some_and(|(start, end)| (start..end).contains(&address))
}

/// The addresses in the first line of a mapping.
fn range_of(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Mapping chosen with and without reserved huge pages.
    fn chosen(bytes: usize, has_huge: bool) -> (&'static str, usize) {
        let huge = |bytes| match has_huge {
            true => Ok(("huge", bytes)),
            false => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        };
        let plain = |bytes, wants_huge| Ok((if wants_huge { "transparent" } else { "small" }, bytes));
        choose(bytes, huge, plain).expect("one of them")
    }

    #[test]
    fn huge_pages_are_used_where_they_fit_and_found_in_the_kernels_list() {
        assert_eq!(chosen(2 * MIB - PAGE_BYTES, true), ("small", 2 * MIB - PAGE_BYTES));
        assert_eq!(chosen(2 * MIB, true), ("huge", 2 * MIB));
        assert_eq!(chosen(3 * MIB, true), ("huge", 4 * MIB));
        assert_eq!(chosen(3 * MIB, false), ("transparent", 3 * MIB));
        let refused = choose(4096, |_| Ok(()), |_, _| Err(io::Error::from_raw_os_error(libc::ENOMEM)));
        assert!(refused.is_err());
        assert_eq!(pages_in(SMAPS, 0x7f00_0000_0000), Pages::Huge);
        assert_eq!(pages_in(SMAPS, 0x7f00_0050_0000), Pages::Transparent);
        assert_eq!(pages_in(SMAPS, 0x7f00_0080_0000), Pages::Small);
        assert_eq!(pages_in(SMAPS, 0x1000), Pages::Small);
        assert_eq!(pages_in("", 0x1000), Pages::Small);
    }

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:0f 1234  /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
AnonHugePages:         0 kB
VmFlags: rd wr mr mw me de ht
7f0000400000-7f0000800000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
7f0000800000-7f0000c00000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
AnonHugePages:         0 kB
";

    #[test]
    fn memory_is_zeroed_and_on_the_only_node_of_a_machine_with_one() {
        for bytes in [100, 3 * MIB] {
            let memory = Memory::near(bytes, Some(0)).expect("memory");
            assert!(memory.bytes() >= bytes);
            let mut words = memory.words().iter();
            assert!(words.all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
            let found = placed(&memory);
            assert_eq!(found.pages == Pages::TooSmall, bytes < HUGE_PAGE_BYTES);
            let has_node = |node| std::path::Path::new("/sys/devices/system/node").join(node).exists();
            if has_node("node0") && !has_node("node1") {
                assert_eq!(found.node, Some(0));
            }
        }
        // A node that the machine does not have.
        assert!(Memory::near(4096, Some(4095)).is_ok());
    }
}
