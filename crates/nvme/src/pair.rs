//! An I/O queue pair of one job: reads, writes, flushes and deallocations on one namespace, with polled completion.
//!
//! Each slot of the job has its buffer in one mapping; an I/O of a slot uses that buffer until [`IoPair::reap`] reports it.
//! A command that takes too long is aborted, and if that has no effect the controller is reset: all I/Os of all jobs then
//! end with an error. So do those of a controller that was removed, reports a fatal error, or breaks the protocol.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::NvmeError;
use crate::bus::Bus;
use crate::command::{Command, DataPointer, RANGE_BYTES, deallocated_range};
use crate::completion::Status;
use crate::controller::{Controller, check_alive};
use crate::identify::Namespace;
use crate::memory::{Memory, PAGE_BYTES};
use crate::pointers::Pointers;
use crate::queue::Step;
use crate::registers::STATUS;
use crate::ring::Rings;

/// Entries of a ring at least.
const FEWEST_ENTRIES: u16 = 64;
/// Largest number of logical blocks in one command.
const MOST_BLOCKS: u64 = 1 << 16;

/// Period at which a job that waits for completions checks its commands for timeouts, in nanoseconds.
const LOOK_NS: u64 = 10_000_000;
/// Looks at the completion ring for one at the clock.
const ROUNDS_PER_TIME: u32 = 8;
/// Waits after which a job looks after its commands although completions arrive without waiting.
const WAITS_PER_LOOK: u32 = 4096;

/// A controller that several jobs share.
pub struct Device<B: Bus> {
    bus: Arc<B>,
    controller: Mutex<Controller<B>>,
    /// Set once the controller was reset or is gone: no I/O completes any more.
    is_dead: AtomicBool,
}

/// Kind of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Write back what the namespace has cached.
    Flush,
    /// Deallocate blocks.
    Deallocate,
}

/// One I/O.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub kind: Kind,
    /// First byte of the namespace.
    pub offset_bytes: u64,
    /// Bytes; 0 for a flush.
    pub bytes: u32,
    /// Start of the data in the slot's buffer: within its first page, a multiple of 4.
    pub start: usize,
}

/// Settings for the creation of a pair.
pub struct PairPlan<'a> {
    /// Queue identifier, from 1.
    pub number: u16,
    /// Namespace of its I/Os.
    pub namespace: Namespace,
    /// I/Os in flight at most, and slots in `buffers`.
    pub queue_depth: u32,
    /// The buffers, one slot after the other from the start.
    pub buffers: &'a Memory,
    /// Bytes from one slot to the next, whole pages.
    pub slot_bytes: usize,
    /// True if data is described by SGLs, false for PRP entries.
    pub uses_sgl: bool,
    /// True if each write must be on non-volatile media when it completes.
    pub force_unit_access: bool,
    /// Timeout after which an I/O is aborted, and again after which the controller is reset, in nanoseconds.
    pub timeout_ns: u64,
    /// Interrupt vector of the completion queue; `None` if it is only polled.
    pub vector: Option<u16>,
}

/// An I/O queue pair; see the module.
pub struct IoPair<B: Bus> {
    device: Arc<Device<B>>,
    rings: Rings,
    pointers: Pointers,
    ranges: (Memory, u64),
    namespace: Namespace,
    block_shift: u32,
    largest_bytes: u64,
    /// Bytes that each slot moves, as its result.
    moves: Vec<i32>,
    /// I/Os that ended without the controller: slot and result.
    ended: Vec<(u32, i32)>,
    force_unit_access: bool,
    timeout_ns: u64,
    vector: Option<u16>,
    waits: u32,
    /// Instant of the next check of commands for timeouts.
    look_ns: u64,
    failure: Option<NvmeError>,
}

impl Transfer {
    /// With its data from the start of the slot's buffer.
    pub fn new(kind: Kind, offset_bytes: u64, bytes: u32) -> Transfer {
        Transfer {
            kind,
            offset_bytes,
            bytes,
            start: 0,
        }
    }
}

impl<B: Bus> Device<B> {
    /// Resets, enables and identifies the controller on a bus.
    ///
    /// # Errors
    /// As of [`Controller::start`].
    pub fn start(bus: B) -> Result<Arc<Device<B>>, NvmeError> {
        let bus = Arc::new(bus);
        Ok(Arc::new(Device {
            controller: Mutex::new(Controller::start(Arc::clone(&bus))?),
            bus,
            is_dead: AtomicBool::new(false),
        }))
    }

    pub fn bus(&self) -> &B {
        &self.bus
    }

    /// The controller, for admin commands.
    pub fn controller(&self) -> MutexGuard<'_, Controller<B>> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a queue pair. [`Controller::request_queues`] comes first.
    ///
    /// # Errors
    /// When the controller has no such queue, or memory is refused.
    pub fn pair(self: &Arc<Device<B>>, plan: &PairPlan<'_>) -> Result<IoPair<B>, NvmeError> {
        let depth = plan.queue_depth as usize;
        if depth == 0 || depth * plan.slot_bytes > plan.buffers.bytes() || !plan.slot_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(NvmeError::Unsupported("the buffers do not fit the queue depth".into()));
        }
        let allocate = |bytes: usize| -> Result<(Memory, u64), NvmeError> {
            let memory = Memory::near(bytes, self.bus.numa_node()).map_err(NvmeError::system("allocate memory"))?;
            let address = self.map(&memory)?;
            Ok((memory, address))
        };
        let buffers = self.map(plan.buffers)?;
        let pointers = match plan.uses_sgl {
            true => Pointers::sgl(buffers, plan.slot_bytes),
            false => Pointers::prp(buffers, plan.slot_bytes, depth, allocate)?,
        };
        let ranges = allocate(depth * RANGE_BYTES)?;
        let mut controller = self.controller();
        if plan.uses_sgl && !controller.identity().has_sgl {
            return Err(NvmeError::Unsupported("the controller does not support SGLs".into()));
        }
        let entries = ring_entries(plan.queue_depth, controller.capabilities().queue_entries())?;
        let rings = controller.create_rings(plan.number, entries, plan.vector)?;
        let block_bytes = u64::from(plan.namespace.block_bytes);
        Ok(IoPair {
            device: Arc::clone(self),
            rings,
            pointers,
            ranges,
            namespace: plan.namespace,
            block_shift: plan.namespace.block_bytes.trailing_zeros(),
            largest_bytes: controller.largest_transfer_bytes().min(MOST_BLOCKS * block_bytes),
            moves: vec![0; depth],
            ended: Vec::with_capacity(depth),
            force_unit_access: plan.force_unit_access,
            timeout_ns: plan.timeout_ns,
            vector: plan.vector,
            waits: 0,
            look_ns: 0,
            failure: None,
        })
    }

    fn map(&self, memory: &Memory) -> Result<u64, NvmeError> {
        self.bus
            .map(memory)
            .map_err(NvmeError::system("map memory for the device"))
    }

    /// Ends all accesses of the controller to memory, as far as it reacts. Returns only after the reset, also if another
    /// job does it.
    fn kill(&self) {
        let mut controller = self.controller();
        if !self.is_dead.swap(true, Ordering::AcqRel) {
            // One that does not react is removed, or reset by the kernel when the device is closed. The bus keeps all
            // memory until then.
            let _ = controller.reset();
        }
    }
}

/// Entries for this queue depth: one entry stays free.
fn ring_entries(queue_depth: u32, most: u32) -> Result<u16, NvmeError> {
    let needed = queue_depth + 1;
    if needed > most || queue_depth > u32::from(crate::queue::MOST_IN_FLIGHT) {
        let most = (most - 1).min(crate::queue::MOST_IN_FLIGHT.into());
        return Err(NvmeError::Unsupported(format!(
            "a queue of this controller takes {most} commands, and the queue depth is {queue_depth}"
        )));
    }
    Ok(needed.next_power_of_two().max(FEWEST_ENTRIES.into()).min(most) as u16)
}

impl<B: Bus> IoPair<B> {
    /// I/Os that were pushed and not reaped.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.rings.queue.in_flight() + self.ended.len()
    }

    /// The namespace of its I/Os.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Writes to doorbell registers so far.
    pub fn doorbell_writes(&self) -> u64 {
        self.rings.doorbell_writes()
    }

    /// Error that made the controller unusable; `None` while it is usable.
    pub fn failure(&self) -> Option<&NvmeError> {
        self.failure.as_ref()
    }

    /// Takes an I/O of a slot; the controller sees it after [`IoPair::ring`]. An I/O that the controller cannot do (by its
    /// size or alignment) ends with `EINVAL`, as through the kernel.
    #[inline]
    pub fn push(&mut self, slot: u32, transfer: &Transfer, now_ns: u64) {
        match self.command(slot, transfer) {
            Ok(command) => {
                self.moves[slot as usize] = match transfer.kind {
                    Kind::Read | Kind::Write => transfer.bytes as i32,
                    Kind::Flush | Kind::Deallocate => 0,
                };
                if self.failure.is_some() || self.rings.submit(command, slot, now_ns + self.timeout_ns).is_none() {
                    self.ended.push((slot, -libc::EIO));
                }
            }
            Err(error) => self.ended.push((slot, -error)),
        }
    }

    #[inline]
    fn command(&self, slot: u32, transfer: &Transfer) -> Result<Command, i32> {
        let Transfer {
            kind,
            offset_bytes,
            bytes,
            start,
        } = *transfer;
        let namespace = self.namespace.number;
        if kind == Kind::Flush {
            return Ok(Command::flush(namespace));
        }
        let (first, blocks) = (offset_bytes >> self.block_shift, bytes >> self.block_shift);
        let below = u64::from(self.namespace.block_bytes) - 1;
        if (offset_bytes | u64::from(bytes)) & below != 0 || blocks == 0 {
            return Err(libc::EINVAL);
        }
        if kind == Kind::Deallocate {
            return Ok(self.deallocate(slot, first, blocks));
        }
        if u64::from(bytes) > self.largest_bytes
            || !start.is_multiple_of(4)
            || !self.pointers.fits(start, bytes as usize)
        {
            return Err(libc::EINVAL);
        }
        let data = self.pointers.pointer(slot, start, bytes as usize);
        Ok(self.transfer(kind, first, blocks, data))
    }

    #[inline]
    fn transfer(&self, kind: Kind, first: u64, blocks: u32, data: DataPointer) -> Command {
        let namespace = self.namespace.number;
        match kind {
            Kind::Read => Command::read(namespace, first, blocks, data),
            _ if self.force_unit_access => Command::write(namespace, first, blocks, data).with_force_unit_access(),
            _ => Command::write(namespace, first, blocks, data),
        }
    }

    fn deallocate(&self, slot: u32, first: u64, blocks: u32) -> Command {
        let (memory, address) = &self.ranges;
        let offset = slot as usize * RANGE_BYTES;
        for (word, value) in memory.words()[offset / 4..]
            .iter()
            .zip(deallocated_range(first, blocks))
        {
            word.store(value, Ordering::Relaxed);
        }
        Command::deallocate(self.namespace.number, address + offset as u64)
    }

    /// Reports to the controller what was pushed and reaped.
    #[inline]
    pub fn ring(&mut self) {
        self.rings.ring();
    }

    /// Reports every I/O that has ended: its slot, and bytes moved or a negative error number.
    #[inline]
    pub fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        loop {
            match self.rings.step() {
                Ok(Step::Done { user, status, .. }) => complete(user, self.result(user, status)),
                Ok(_) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        for (slot, result) in self.ended.drain(..) {
            complete(slot, result);
        }
    }

    #[inline]
    fn result(&self, slot: u32, status: Status) -> i32 {
        match status.code() {
            0 => self.moves[slot as usize],
            // Only `look_after` aborts commands.
            code if code == Status::ABORT_REQUESTED.code() => -libc::ETIMEDOUT,
            _ => -status.error_number(),
        }
    }

    /// Returns true if [`IoPair::reap`] has something to report.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.ended.is_empty() || self.rings.has_completion()
    }

    /// To be called now and then while nothing completes: aborts what takes too long, and ends all I/Os if the controller
    /// can no longer be used.
    pub fn look_after(&mut self, now_ns: u64) {
        self.look(now_ns, true);
    }

    /// [`IoPair::look_after`], also while other commands complete. Only an idle pair reads the controller's status: a
    /// register read stalls the CPU, and a controller that completes commands works.
    #[cold]
    fn look(&mut self, now_ns: u64, is_idle: bool) {
        self.look_ns = now_ns + LOOK_NS;
        if self.failure.is_some() {
            return;
        }
        if self.device.is_dead.load(Ordering::Acquire) {
            return self.fail(NvmeError::Timeout("complete the I/Os of another job"));
        }
        if self.device.bus.is_removal_requested() {
            return self.fail(NvmeError::Removed);
        }
        if is_idle && let Err(error) = check_alive(self.device.bus.registers().read32(STATUS)) {
            return self.fail(error);
        }
        let expired: Vec<_> = self.rings.queue.expired(now_ns).collect();
        if expired.iter().any(|each| each.is_aborting) {
            return self.fail(NvmeError::Timeout("abort a command"));
        }
        for each in expired {
            self.rings.queue.abort(each.identifier, now_ns + self.timeout_ns);
            let aborted = self
                .device
                .controller()
                .abort(self.rings.queue.number(), each.identifier);
            if let Err(error) = aborted {
                return self.fail(error);
            }
        }
    }

    /// Waits until an I/O has ended or the clock reaches `until_ns`: polls, or sleeps if the pair has an interrupt.
    #[inline]
    pub fn wait(&mut self, mut now_ns: impl FnMut() -> u64, until_ns: u64) {
        self.ring();
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(WAITS_PER_LOOK) {
            self.look(now_ns(), false);
        }
        if !self.is_ready() {
            self.wait_for_completion(now_ns, until_ns);
        }
    }

    fn wait_for_completion(&mut self, mut now_ns: impl FnMut() -> u64, until_ns: u64) {
        let mut rounds = 0u32;
        let mut idle_ns = None;
        while !self.is_ready() {
            rounds += 1;
            if self.vector.is_some() || rounds.is_multiple_of(ROUNDS_PER_TIME) {
                let now_ns = now_ns();
                if now_ns >= until_ns {
                    return;
                }
                let idle_ns = *idle_ns.get_or_insert(now_ns + LOOK_NS);
                if now_ns >= self.look_ns {
                    self.look(now_ns, now_ns >= idle_ns);
                    if self.is_ready() {
                        return;
                    }
                }
                if let Some(vector) = self.vector {
                    let timeout_ns = until_ns.min(self.look_ns).saturating_sub(now_ns);
                    self.device.bus.wait_for_interrupt(vector, timeout_ns);
                    continue;
                }
            }
            self.device.bus.relax();
        }
    }

    /// Ends all I/Os, once the controller no longer accesses their buffers.
    #[cold]
    fn fail(&mut self, error: NvmeError) {
        self.device.kill();
        let number = match error {
            NvmeError::Removed => libc::ENODEV,
            NvmeError::Timeout(_) => libc::ETIMEDOUT,
            _ => libc::EIO,
        };
        self.ended
            .extend(self.rings.queue.abandon().into_iter().map(|slot| (slot, -number)));
        // A completion that was not reaped before names a command that is no longer in flight; the first error counts.
        self.failure.get_or_insert(error);
    }
}

impl<B: Bus> Drop for IoPair<B> {
    fn drop(&mut self) {
        if self.rings.queue.in_flight() > 0 {
            // The buffers may be reused once this returns.
            self.device.kill();
        } else if self.failure.is_none() && !self.device.is_dead.load(Ordering::Acquire) {
            // Otherwise the queue ends with the controller.
            let _ = self.device.controller().delete_queues(self.rings.queue.number());
        }
    }
}
