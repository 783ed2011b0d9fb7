//! `nvme_user`: I/O by the user-level driver, without system calls. All jobs of a run share one controller.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use iosonde_load::Io;
use iosonde_metrics::clock::Clock;
use iosonde_nvme::NvmeError;
use iosonde_nvme::identify::Namespace;
use iosonde_nvme::memory::Memory;
use iosonde_nvme::pair::{Device, IoPair, Kind, PairPlan, Transfer};
use iosonde_nvme::vfio::{Vfio, numa_node};
use iosonde_protocol::{BackendInEffect, BlockWorkload, Durability, NvmeDataPointers, NvmeUserOptions, Operation};

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
    next_queue: AtomicU16,
    numa_node: Option<u32>,
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
        let (namespace, has_sgl) = {
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
            (namespace, controller.identity().has_sgl)
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
            next_queue: AtomicU16::new(1),
            numa_node: numa_node(&place.address),
        };
        controller.probe()?;
        Ok(controller)
    }

    /// Reads the first block.
    fn probe(&self) -> Result<(), NvmeError> {
        let arena = Arena::new(1, self.namespace.block_bytes.into()).map_err(NvmeError::system("allocate a buffer"))?;
        let mut backend = self.backend(Clock::monotonic(), &arena, 1)?;
        let io = Io {
            operation: Operation::Read,
            offset_bytes: 0,
            bytes: self.namespace.block_bytes,
        };
        try_one(&mut backend, &io).map_err(NvmeError::system("read the first block of the namespace"))
    }

    /// A queue pair for a job.
    pub(crate) fn backend(&self, clock: Clock, arena: &Arena, depth: u32) -> Result<NvmeBackend, NvmeError> {
        let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let pair = self.device.pair(&PairPlan {
            number,
            namespace: self.namespace,
            queue_depth: depth,
            buffers: &Memory::of(arena.mapping()),
            slot_bytes: arena.slot_bytes(),
            uses_sgl: self.uses_sgl,
            force_unit_access: self.force_unit_access,
            timeout_ns: self.options.timeout_ns,
            vector: self.options.interrupts.then_some(number),
        })?;
        Ok(NvmeBackend {
            clock,
            pair,
            in_effect: self.in_effect(),
        })
    }

    /// How I/O is done.
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
        features.extend(self.numa_node.map(|node| format!("numa_node_{node}")));
        BackendInEffect {
            kind: "nvme_user".into(),
            features,
            ..BackendInEffect::default()
        }
    }
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
    pair: IoPair<Vfio>,
    in_effect: BackendInEffect,
}

impl Backend for NvmeBackend {
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) {
        let kind = match io.operation {
            Operation::Read => Kind::Read,
            Operation::Write => Kind::Write,
            Operation::Trim => Kind::Deallocate,
            _ => Kind::Flush,
        };
        let transfer = Transfer {
            kind,
            offset_bytes: io.offset_bytes,
            bytes: io.bytes,
            start: 0,
        };
        self.pair.push(slot, &transfer, self.clock.now());
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

    fn in_effect(&self) -> BackendInEffect {
        self.in_effect.clone()
    }
}
