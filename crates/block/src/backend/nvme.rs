//! `nvme_user`: I/O by the user-level driver, without system calls. All jobs of a run share one controller.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use iosonde_harness::load::Io;
use iosonde_harness::metrics::clock::Clock;
use iosonde_nvme::NvmeError;
use iosonde_nvme::bus::Bus;
use iosonde_nvme::identify::Namespace;
use iosonde_nvme::memory::Memory;
use iosonde_nvme::pair::{Device, IoPair, Kind, PairPlan, Transfer};
use iosonde_nvme::placement::{Pages, Placed, placed};
use iosonde_nvme::vfio::Vfio;
use iosonde_protocol::{
    BackendInEffect, BlockWorkload, Durability, Fallback, NvmeDataPointers, NvmeUserOptions, Operation,
};

use super::{Backend, Wait, try_one};
use crate::buffer::Arena;
use crate::target;

/// A controller that this run drives, probed by a read of its first block.
pub(crate) struct NvmeController {
    device: Arc<Device<Vfio>>,
    options: NvmeUserOptions,
    namespace: Namespace,
    force_unit_access: bool,
    uses_sgl: bool,
    has_shadow_doorbells: bool,
    next_queue: AtomicU16,
}

impl NvmeController {
    /// Takes the controller over, with a queue pair for each job of the workload.
    pub(crate) fn open(options: &NvmeUserOptions, workload: &BlockWorkload) -> Result<NvmeController, NvmeError> {
        let jobs: u32 = workload.streams.iter().map(|stream| stream.jobs).sum();
        let Some(place) = &options.device else {
            return Err(NvmeError::Unsupported("no controller was handed over".into()));
        };
        let pairs = u16::try_from(jobs + 1).map_err(|_| NvmeError::Unsupported(format!("{jobs} jobs")))?;
        let vectors = if options.interrupts { pairs + 1 } else { 0 };
        let device = Device::start(Vfio::open(&place.address, vectors)?)?;
        let (namespace, has_sgl, has_shadow_doorbells) = {
            let mut controller = device.controller();
            let serial = &controller.identity().serial;
            if *serial != place.serial {
                return Err(NvmeError::Unsupported(format!(
                    "the controller at {} has the serial number `{serial}` and not `{}`",
                    place.address, place.serial
                )));
            }
            controller.request_queues(pairs)?;
            let namespace = controller.namespace(place.namespace)?;
            check_transfers(workload, controller.largest_transfer_bytes(), namespace)?;
            (
                namespace,
                controller.identity().has_sgl,
                controller.has_shadow_doorbells(),
            )
        };
        let controller = NvmeController {
            device,
            options: options.clone(),
            namespace,
            force_unit_access: workload
                .streams
                .iter()
                .any(|stream| stream.durability == Durability::Dsync),
            uses_sgl: options.data_pointers == NvmeDataPointers::Sgl && has_sgl,
            has_shadow_doorbells,
            next_queue: AtomicU16::new(1),
        };
        controller.probe()?;
        Ok(controller)
    }

    /// Reads the first block.
    fn probe(&self) -> Result<(), NvmeError> {
        let arena = self
            .arena(1, self.namespace.block_bytes.into())
            .map_err(NvmeError::system("allocate a buffer"))?;
        let mut backend = self.backend(Clock::monotonic(), &arena, 1)?;
        let io = Io {
            operation: Operation::Read,
            offset_bytes: 0,
            bytes: self.namespace.block_bytes,
        };
        try_one(&mut backend, &io).map_err(NvmeError::system("read the first block of the namespace"))
    }

    /// Buffers of a job.
    pub(crate) fn arena(&self, slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        let node = self.device.bus().numa_node();
        Arena::mapped(slots, slot_bytes, |bytes| Ok(Memory::near(bytes, node)?.into_mapping()))
    }

    /// A queue pair for a job.
    pub(crate) fn backend(&self, clock: Clock, arena: &Arena, depth: u32) -> Result<NvmeBackend, NvmeError> {
        let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let buffers = Memory::from_mapping(arena.mapping());
        let pair = self.device.pair(&PairPlan {
            number,
            namespace: self.namespace,
            queue_depth: depth,
            buffers: &buffers,
            slot_bytes: arena.slot_bytes(),
            uses_sgl: self.uses_sgl,
            force_unit_access: self.force_unit_access,
            timeout_ns: self.options.timeout_ns,
            vector: self.options.interrupts.then_some(number),
        })?;
        Ok(NvmeBackend {
            clock,
            read_ns: Cell::new(clock.now()),
            pair,
            in_effect: with_placement(self.in_effect(), placed(&buffers), self.device.bus().numa_node()),
        })
    }

    /// Data pointers and completion mode in effect.
    pub(crate) fn in_effect(&self) -> BackendInEffect {
        let pointers = if self.uses_sgl { "sgl" } else { "prp" };
        let waiting = if self.options.interrupts {
            "interrupts"
        } else {
            "polling"
        };
        let mut features = vec![pointers.to_string(), waiting.to_string()];
        if self.force_unit_access {
            features.push("force_unit_access".into());
        }
        if self.has_shadow_doorbells {
            features.push("shadow_doorbells".into());
        }
        BackendInEffect {
            kind: "nvme_user".into(),
            features,
            ..BackendInEffect::default()
        }
    }
}

/// Adds the placement of a job's buffers, for a device on the NUMA node `wanted`.
fn with_placement(mut in_effect: BackendInEffect, placed: Placed, wanted: Option<u32>) -> BackendInEffect {
    match placed.pages {
        Pages::Huge => in_effect.features.push("huge_pages".into()),
        Pages::Transparent => in_effect.features.push("transparent_huge_pages".into()),
        Pages::Small => in_effect.fallbacks.push(Fallback {
            feature: "huge_pages".into(),
            reason: "none are reserved (`vm.nr_hugepages`), and the kernel has no transparent ones for the buffers"
                .into(),
        }),
        Pages::TooSmall => {}
    }
    match (wanted, placed.node) {
        (Some(wanted), Some(node)) if wanted == node => in_effect.features.push(format!("numa_node_{node}")),
        (Some(wanted), found) => in_effect.fallbacks.push(Fallback {
            feature: format!("numa_node_{wanted}"),
            reason: match found {
                Some(node) => format!("the buffers are on NUMA node {node}"),
                None => "the buffers are on several NUMA nodes, or the kernel does not report the node".into(),
            },
        }),
        (None, _) => {}
    }
    in_effect
}

/// Refuses a workload whose I/Os the controller cannot do, or that addresses more than the namespace has.
fn check_transfers(workload: &BlockWorkload, largest: u64, namespace: Namespace) -> Result<(), NvmeError> {
    let sizes = || workload.streams.iter().flat_map(|stream| &stream.block_sizes);
    let unit = u64::from(namespace.block_bytes);
    if let Some(size) = sizes().find(|size| size.bytes > largest) {
        return Err(NvmeError::Unsupported(format!(
            "one command transfers {largest} bytes at most, and the block size is {}",
            size.bytes
        )));
    }
    let offsets = workload.streams.iter().map(|stream| stream.span.offset_bytes);
    if sizes()
        .map(|size| size.bytes)
        .chain(offsets)
        .any(|bytes| !bytes.is_multiple_of(unit))
    {
        return Err(NvmeError::Unsupported(format!(
            "the namespace has blocks of {unit} bytes, of which block sizes and offsets must be multiples"
        )));
    }
    if target::size_bytes(&workload.target) > namespace.bytes() {
        return Err(NvmeError::Unsupported(format!(
            "the namespace has {} bytes",
            namespace.bytes()
        )));
    }
    Ok(())
}

/// One job's queue pair.
pub(crate) struct NvmeBackend {
    clock: Clock,
    /// The last reading of the clock, from which time limits of commands count: saves a reading for each I/O.
    read_ns: Cell<u64>,
    pair: IoPair<Vfio>,
    in_effect: BackendInEffect,
}

impl Backend for NvmeBackend {
    #[inline]
    fn now(&self) -> u64 {
        let now_ns = self.clock.now();
        self.read_ns.set(now_ns);
        now_ns
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) {
        let kind = match io.operation {
            Operation::Read => Kind::Read,
            Operation::Write => Kind::Write,
            Operation::Trim => Kind::Deallocate,
            _ => Kind::Flush,
        };
        let transfer = Transfer::new(kind, io.offset_bytes, io.bytes);
        self.pair.push(slot, &transfer, self.read_ns.get());
    }

    #[inline]
    fn submit(&mut self) {
        self.pair.ring();
    }

    #[inline]
    fn submit_and_wait(&mut self, wait: Wait) -> io::Result<()> {
        let until_ns = match wait {
            Wait::One => u64::MAX,
            Wait::Due(instant_ns) | Wait::Idle(instant_ns) => instant_ns,
        };
        let clock = self.clock;
        self.pair.wait(|| clock.now(), until_ns);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, complete: impl FnMut(u32, i32)) {
        self.pair.reap(complete);
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    fn failure_cause(&self) -> Option<String> {
        self.pair.failure().map(ToString::to_string)
    }

    fn in_effect(&self) -> BackendInEffect {
        self.in_effect.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(pages: Pages, node: Option<u32>, wanted: Option<u32>) -> (Vec<String>, Vec<String>) {
        let found = with_placement(BackendInEffect::default(), Placed { pages, node }, wanted);
        let fallbacks = found.fallbacks.into_iter();
        (found.features, fallbacks.map(|fallback| fallback.feature).collect())
    }

    #[test]
    fn buffers_near_the_device_are_features_and_others_are_fallbacks() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let both = recorded(Pages::Huge, Some(1), Some(1));
        assert_eq!(both, (texts(&["huge_pages", "numa_node_1"]), vec![]));
        let other = recorded(Pages::Small, Some(0), Some(1));
        assert_eq!(other, (vec![], texts(&["huge_pages", "numa_node_1"])));
        let several = recorded(Pages::Transparent, None, Some(0));
        assert_eq!(several, (texts(&["transparent_huge_pages"]), texts(&["numa_node_0"])));
        let one_node = recorded(Pages::TooSmall, Some(0), None);
        assert_eq!(one_node, (vec![], vec![]));
    }
}
