//! Linux AIO: `io_submit` and `io_getevents`, as libaio calls them. One context a job.
//!
//! The system calls are made directly (`include/uapi/linux/aio_abi.h`), so no library is needed. The kernel carries out
//! direct reads and writes, and flushes in a worker; buffered I/O would block in `io_submit`, and trims are not part of the
//! interface.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use iosonde_harness::load::Io;
use iosonde_harness::metrics::clock::Clock;
use iosonde_protocol::{BackendInEffect, Operation};

use super::nap::Nap;
use super::{BATCH, BATCH_AT_ONCE, Backend, JobFiles, Wait};
use crate::buffer::Arena;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FDSYNC: u16 = 3;

/// `struct iocb`, in the byte order of x86-64 and AArch64.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Completion {
    data: u64,
    control_block: u64,
    result: i64,
    second_result: i64,
}

/// A context of the kernel (`aio_context_t`), destroyed when it is dropped, which waits for I/Os in flight.
pub(crate) struct AioContext {
    id: u64,
}

impl AioContext {
    /// A context for this many I/Os in flight.
    ///
    /// # Errors
    /// The kernel's reason; `EAGAIN` beyond `/proc/sys/fs/aio-max-nr`.
    pub(crate) fn new(queue_depth: u32) -> io::Result<AioContext> {
        let mut id = 0_u64;
        // SAFETY: the kernel writes the context's number to `id`, which lives until the call returns.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, libc::c_long::from(queue_depth), &raw mut id) };
        count(result).map(|_| AioContext { id })
    }
}

impl Drop for AioContext {
    fn drop(&mut self) {
        // SAFETY: the number is one that `io_setup` returned, and nothing uses it afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Reads the first page of a file through a context.
///
/// # Errors
/// The kernel's reason.
pub(crate) fn probe(file: &impl AsRawFd) -> io::Result<()> {
    let clock = Clock::monotonic();
    let arena = Arena::new(1, 4096)?;
    let context = AioContext::new(1)?;
    let files = JobFiles {
        fd: file.as_raw_fd(),
        arena: &arena,
        spin_ns: 0,
    };
    let mut backend = LibaioBackend::new(&context, clock, &files, 1);
    let read = Io {
        operation: Operation::Read,
        offset_bytes: 0,
        bytes: 4096,
    };
    let tried = super::try_one(&mut backend, &read);
    drop(backend);
    if super::is_abandoned(&tried) {
        std::mem::forget(context);
        arena.leak();
    }
    tried
}

/// The backend behind `{"kind": "libaio"}`.
pub(crate) struct LibaioBackend<'a> {
    clock: Clock,
    nap: Nap,
    context: &'a AioContext,
    fd: RawFd,
    base: *mut u8,
    slot_bytes: usize,
    /// One for each slot.
    blocks: Vec<ControlBlock>,
    /// Pushed and not yet taken by the kernel, in order; `submitted` of them were taken.
    pending: Vec<*mut ControlBlock>,
    submitted: usize,
    completions: Vec<Completion>,
    completed: usize,
    /// I/Os taken by the kernel and not yet reaped.
    in_flight: usize,
    batch: usize,
}

impl<'a> LibaioBackend<'a> {
    pub(crate) fn new(
        context: &'a AioContext,
        clock: Clock,
        files: &JobFiles<'_>,
        queue_depth: u32,
    ) -> LibaioBackend<'a> {
        let depth = queue_depth as usize;
        LibaioBackend {
            clock,
            nap: Nap::new(clock, files.spin_ns),
            context,
            fd: files.fd,
            base: files.arena.slot(0),
            slot_bytes: files.arena.slot_bytes(),
            blocks: vec![ControlBlock::default(); depth],
            pending: Vec::with_capacity(depth),
            submitted: 0,
            completions: vec![Completion::default(); depth],
            completed: 0,
            in_flight: 0,
            batch: BATCH,
        }
    }

    /// Hands what was pushed to the kernel, as far as it takes it.
    #[inline]
    fn submit_pending(&mut self) -> io::Result<()> {
        while self.submitted < self.pending.len() {
            let rest = &mut self.pending[self.submitted..];
            // SAFETY: the pointers lead to control blocks of this backend, which stay where they are; each describes a slot's
            // buffer that belongs to its I/O until it is reaped.
            let taken =
                count(unsafe { libc::syscall(libc::SYS_io_submit, self.context.id, rest.len(), rest.as_mut_ptr()) })?;
            self.submitted += taken;
            self.in_flight += taken;
        }
        self.pending.clear();
        self.submitted = 0;
        Ok(())
    }

    /// Takes completions, at least this many unless the time is over first (none: however long it takes).
    #[inline]
    fn take(&mut self, least: usize, timeout_ns: Option<u64>) -> io::Result<()> {
        let timeout = timeout_ns.map(|left_ns| libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let room = &mut self.completions[self.completed..];
        // SAFETY: the kernel writes at most `room.len()` completions to `room`; the timeout lives until the call returns.
        let taken = count(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context.id,
                least,
                room.len(),
                room.as_mut_ptr(),
                timeout,
            )
        })?;
        self.completed += taken;
        Ok(())
    }

    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        match wait {
            Wait::One if self.in_flight > self.completed => self.take(1, None),
            Wait::One => Ok(()),
            Wait::Idle(instant_ns) => self.take(1, Some(instant_ns.saturating_sub(self.clock.now()))),
            Wait::Due(instant_ns) => self.wait_until_due(instant_ns),
        }
    }

    /// Returns as soon as a completion is there or the clock reaches `instant_ns`.
    fn wait_until_due(&mut self, instant_ns: u64) -> io::Result<()> {
        let now_ns = self.clock.now();
        let left_ns = instant_ns.saturating_sub(now_ns);
        if left_ns > self.nap.spin_ns() {
            return self.take(1, Some(left_ns - self.nap.spin_ns()));
        }
        let mut nap = std::mem::replace(&mut self.nap, Nap::new(self.clock, 0));
        let mut failure = None;
        nap.spin(now_ns, instant_ns, || {
            failure = self.take(0, Some(0)).err();
            failure.is_some() || self.completed > 0
        });
        self.nap = nap;
        failure.map_or(Ok(()), Err)
    }

    /// The next batch depends on whether anything is still in flight.
    #[inline]
    fn look(&mut self) {
        let at_once = self.completed == self.in_flight;
        self.batch = if at_once { BATCH_AT_ONCE } else { BATCH };
    }
}

impl Backend for LibaioBackend<'_> {
    #[inline]
    fn batch(&self) -> usize {
        self.batch
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) {
        let buffer = self.base.wrapping_add(slot as usize * self.slot_bytes);
        let opcode = match io.operation {
            Operation::Read => READ,
            Operation::Write => WRITE,
            Operation::Flush => FDSYNC,
            _ => unreachable!("refused before the run: Linux AIO has no such operation"),
        };
        let is_flush = opcode == FDSYNC;
        let block: *mut ControlBlock = &raw mut self.blocks[slot as usize];
        let described = ControlBlock {
            data: u64::from(slot),
            opcode,
            file: self.fd as u32,
            buffer: if is_flush { 0 } else { buffer as u64 },
            bytes: u64::from(io.bytes),
            offset: io.offset_bytes as i64,
            ..ControlBlock::default()
        };
        // SAFETY: the block is this slot's; the kernel copied what it read of it when it took the slot's last I/O.
        unsafe { block.write(described) };
        self.pending.push(block);
    }

    #[inline]
    fn submit(&mut self) {
        let _ = self.submit_pending();
    }

    #[inline]
    fn submit_and_wait(&mut self, wait: Wait) -> io::Result<()> {
        let result = self.submit_pending().and_then(|()| self.wait(wait));
        self.look();
        match result {
            // The context is full until completions are taken.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && self.in_flight > 0 => self.take(1, None),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            other => other,
        }
    }

    #[inline]
    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        self.in_flight -= self.completed;
        for completion in &self.completions[..self.completed] {
            complete(completion.data as u32, completion.result as i32);
        }
        self.completed = 0;
    }

    fn spun_ns(&self) -> u64 {
        self.nap.spun_ns()
    }

    fn in_effect(&self) -> BackendInEffect {
        in_effect()
    }
}

/// It has no features that could be refused.
pub(crate) fn in_effect() -> BackendInEffect {
    BackendInEffect {
        kind: "libaio".into(),
        ..BackendInEffect::default()
    }
}

fn count(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}
