//! The world of files and the machine's clock.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use iosonde_block::{Arena, allow_uring};
use iosonde_harness::load::Rng;
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::residency;
use iosonde_harness::{JobDone, JobPhases, JobStart, LoadPlan, Measured, Run, RunError, wait_until};
use iosonde_protocol::BackendInEffect;
use memmap2::{Advice, Mmap};

use crate::files::{Access, FileSet};
use crate::world::{Extent, Load, Mapped, Memory, PAGE_BYTES, World};

/// Longest wait for another thread before intervals that are over are closed.
const TICK: Duration = Duration::from_millis(20);

/// Applies the load, each thread of it in a thread of the harness.
pub(crate) fn measure<L: Load>(
    files: &FileSet,
    plan: &LoadPlan<'_>,
    load: &L,
    run: &mut Run<'_>,
) -> Result<Measured<L::Found>, RunError> {
    let threads = Threads {
        files,
        load,
        clock: run.inputs.clock,
        seed: run.inputs.seed,
        meetings: (0..load.meetings()).map(|_| Meeting::default()).collect(),
    };
    let mut measured = run.measure(plan, &threads, &mut |_| {})?;
    let places = plan.places(|_| load.lanes());
    let memory = places.iter().map(|place| load.memory(*place));
    measured.result.buffer_bytes = memory.map(|memory| memory.bytes * u64::from(memory.slots)).sum();
    measured.result.backend = BackendInEffect {
        kind: load.interface().into(),
        ..BackendInEffect::default()
    };
    Ok(measured)
}

struct Threads<'f, L> {
    files: &'f FileSet,
    load: &'f L,
    clock: Clock,
    seed: u64,
    meetings: Vec<Meeting>,
}

/// Where threads wait for one another.
#[derive(Default)]
struct Meeting {
    lock: Mutex<()>,
    changed: Condvar,
}

impl<L: Load> iosonde_harness::Load for Threads<'_, L> {
    type Found = L::Found;

    fn lanes(&self, _stream: usize) -> u32 {
        self.load.lanes()
    }

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<L::Found>>, RunError> {
        let memory = self.load.memory(start.place);
        let mut world = KernelWorld {
            files: self.files,
            clock: self.clock,
            phases: start.phases,
            buffers: Buffers::new(memory)?,
            ring: (memory.slots > 1).then(|| ring(memory.slots)).transpose()?,
            mapping: None,
            opened: Vec::new(),
            meetings: &self.meetings,
            writes: Rng::new(self.seed, &[0xa1_0000, start.place.number as u64]),
        };
        if !start.gate.pass() {
            return Ok(None);
        }
        world.phases.begin();
        let found = self.load.work(&mut world, start.place)?;
        let mut phases = world.phases;
        phases.end_load(self.clock.now());
        Ok(Some(JobDone::new(phases.into_outcome(), found)))
    }
}

fn ring(entries: u32) -> Result<IoUring, RunError> {
    let made = IoUring::builder()
        .setup_single_issuer()
        .build(entries)
        .or_else(|_| IoUring::new(entries));
    made.map_err(|error| {
        RunError::unsupported(
            format!("the kernel refuses io_uring, which reads in parallel need: {error}"),
            allow_uring(&error),
        )
    })
}

struct KernelWorld<'a, 'f> {
    files: &'f FileSet,
    clock: Clock,
    phases: JobPhases<'a>,
    buffers: Buffers,
    ring: Option<IoUring>,
    mapping: Option<(usize, Mmap)>,
    /// Files that this thread opened.
    opened: Vec<(usize, File)>,
    meetings: &'f [Meeting],
    /// Makes each block that is written different.
    writes: Rng,
}

/// The memory that a thread reads into.
struct Buffers {
    arena: Arena,
    memory: Memory,
}

impl Buffers {
    fn new(memory: Memory) -> Result<Buffers, RunError> {
        let arena =
            Arena::new(memory.slots, memory.bytes).map_err(|error| RunError::refused("cannot map memory", &error))?;
        if memory.is_locked {
            // SAFETY: the arena's memory is mapped.
            if unsafe { libc::mlock(arena.slot(0).cast(), arena.bytes()) } != 0 {
                let (bytes, error) = (arena.bytes(), io::Error::last_os_error());
                let hint = "raise the limit on locked memory (`ulimit -l`), or set `memory = \"pageable\"`";
                return Err(RunError::unsupported(
                    format!("cannot lock {bytes} bytes of memory: {error}"),
                    hint,
                ));
            }
        }
        if memory.is_written {
            // SAFETY: the arena is mapped, and nothing else refers to it.
            let whole = unsafe { std::slice::from_raw_parts_mut(arena.slot(0), arena.bytes()) };
            Rng::new(1, &[0xa1_0002]).fill(whole);
        }
        Ok(Buffers { arena, memory })
    }

    /// The memory of a slot for the next read.
    fn slot(&mut self, slot: u32) -> *mut u8 {
        let start = self.arena.slot(slot);
        if self.memory.is_new_each_time {
            // SAFETY: the slot is private anonymous memory of the arena, to which nothing else refers; it is zero afterwards.
            let status = unsafe { libc::madvise(start.cast(), self.arena.slot_bytes(), libc::MADV_DONTNEED) };
            assert_eq!(status, 0, "memory that is not locked can be taken back");
        }
        start
    }
}

impl<'a> World<'a> for KernelWorld<'a, '_> {
    fn phases(&mut self) -> &mut JobPhases<'a> {
        &mut self.phases
    }

    fn files(&self) -> &FileSet {
        self.files
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn read(&mut self, extents: &[Extent]) -> Result<(), RunError> {
        match extents {
            [] => Ok(()),
            [one] => {
                let buffer = self.buffers.slot(0);
                let (file, path) = self.file(one.file);
                // SAFETY: the slot has room for the largest read, rounded up to pages.
                let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, in_pages(one.bytes) as usize) };
                read_one(file, buffer, *one).map_err(|error| RunError::io("read", path, &error))
            }
            several => self.read_together(several),
        }
    }

    fn open(&mut self, file: usize, access: Access, is_direct: bool) -> Result<(), RunError> {
        self.close(file);
        let opened = self.files.open_for(file, access, is_direct)?;
        self.opened.push((file, opened));
        Ok(())
    }

    fn close(&mut self, file: usize) {
        self.opened.retain(|(number, _)| *number != file);
    }

    fn write(&mut self, extent: Extent) -> Result<(), RunError> {
        let (buffer, length) = (self.buffers.arena.slot(0), in_pages(extent.bytes) as usize);
        // SAFETY: the slot has room for the largest write, rounded up to pages.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
        for page in buffer.chunks_mut(PAGE_BYTES as usize) {
            page[..8].copy_from_slice(&self.writes.next_u64().to_ne_bytes());
        }
        let (file, path) = self.file(extent.file);
        file.write_all_at(&buffer[..extent.bytes as usize], extent.offset)
            .map_err(|error| RunError::io("write", path, &error))
    }

    fn sync(&mut self, file: usize) -> Result<(), RunError> {
        let (file, path) = self.file(file);
        file.sync_all().map_err(|error| RunError::io("sync", path, &error))
    }

    fn drop_pages(&mut self, file: usize) -> Result<(), RunError> {
        let (file, path) = self.file(file);
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|error| RunError::io("drop the page cache of", path, &error.into()))
    }

    fn cached_bytes(&self, file: usize) -> Option<u64> {
        let whole = 0..self.files.bytes(file);
        let found = residency::query(self.file(file).0, &whole);
        found.ok().map(|found| found.cached_bytes)
    }

    fn copy(&mut self, bytes: u64) {
        let (arena, half) = (&self.buffers.arena, self.buffers.memory.bytes / 2);
        let source = arena.slot(0);
        // SAFETY: the slot has two halves, and no more than one of them is copied.
        unsafe { std::ptr::copy_nonoverlapping(source, source.add(half as usize), bytes.min(half) as usize) };
        std::hint::black_box(source);
    }

    fn sleep_until(&mut self, at_ns: u64) {
        while self.now() < at_ns && self.continues() {
            wait_until(self.clock, at_ns.min(self.phases.idle_until(self.now())));
        }
    }

    fn wait_at(&mut self, meeting: usize, mut ready: impl FnMut() -> bool) -> bool {
        let meeting = &self.meetings[meeting];
        let mut held = meeting.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready() {
            if !self.continues() {
                return false;
            }
            let waited = meeting.changed.wait_timeout(held, TICK);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn notify_at(&mut self, meeting: usize) {
        let meeting = &self.meetings[meeting];
        drop(meeting.lock.lock());
        meeting.changed.notify_all();
    }

    fn map(&mut self, file: usize, how: Mapped) -> Result<(), RunError> {
        self.mapping = None;
        let (opened, path) = self.file(file);
        // SAFETY: files of the load do not change while it runs; a user's file that shrinks ends the process.
        let mapping = unsafe { Mmap::map(opened) }.map_err(|error| RunError::io("map", path, &error))?;
        let advised = match how {
            Mapped::Normal => Ok(()),
            Mapped::Random => mapping.advise(Advice::Random),
            Mapped::WillNeed => mapping.advise(Advice::WillNeed),
            Mapped::Populate => mapping.advise(Advice::PopulateRead),
        };
        advised.map_err(|error| {
            let shown = path.display();
            RunError::unsupported(
                format!("the kernel refuses the advice for the mapping of `{shown}`: {error}"),
                "choose another strategy",
            )
        })?;
        self.mapping = Some((file, mapping));
        Ok(())
    }

    fn copy_mapped(&mut self, extent: Extent) -> Result<(), RunError> {
        let buffer = self.buffers.slot(0);
        let Some((file, mapping)) = &self.mapping else {
            return Err(RunError::internal("no file is mapped"));
        };
        debug_assert_eq!(*file, extent.file);
        let part = &mapping[extent.offset as usize..(extent.offset + extent.bytes) as usize];
        // SAFETY: the slot has room for the largest part, and is not in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), buffer, part.len()) };
        std::hint::black_box(buffer);
        Ok(())
    }
}

fn in_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Reads an extent. Direct I/O takes whole pages only; the last read of a file may be shorter.
fn read_one(file: &File, buffer: &mut [u8], extent: Extent) -> io::Result<()> {
    let mut done = 0;
    while done < extent.bytes {
        let rest = &mut buffer[done as usize..];
        let length = rest.len().min(in_pages(extent.bytes - done) as usize);
        match rustix::io::pread(file, &mut rest[..length], extent.offset + done) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(short(extent, done)),
            Ok(read) => done += read as u64,
        }
    }
    Ok(())
}

fn short(extent: Extent, done: u64) -> io::Error {
    let Extent { offset, bytes, .. } = extent;
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{done} of {bytes} bytes at offset {offset}"),
    )
}

impl KernelWorld<'_, '_> {
    /// A file that this thread or all threads have open, and its path.
    fn file(&self, number: usize) -> (&File, &Path) {
        let own = self.opened.iter().find(|(opened, _)| *opened == number);
        let path = self.files.path(number);
        match own {
            Some((_, file)) => (file, path),
            None => (self.files.file(number), path),
        }
    }

    fn read_together(&mut self, extents: &[Extent]) -> Result<(), RunError> {
        let ring = self.ring.as_mut().expect("a thread with several slots has a ring");
        for (slot, extent) in extents.iter().enumerate() {
            let file = self.files.file(extent.file);
            let entry = opcode::Read::new(
                types::Fd(file.as_raw_fd()),
                self.buffers.slot(slot as u32),
                extent.bytes as u32,
            )
            .offset(extent.offset)
            .build()
            .user_data(slot as u64);
            // SAFETY: file and buffer live until all reads are complete, which is awaited below.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.map_err(|_| RunError::internal("more reads in flight than the ring has entries"))?;
        }
        let mut failure = None;
        let mut complete = 0;
        while complete < extents.len() {
            if let Err(error) = ring.submit_and_wait(extents.len() - complete)
                && error.raw_os_error() != Some(libc::EINTR)
            {
                // Reads may be in flight, to memory that must not be unmapped.
                std::mem::forget(self.buffers.arena.mapping());
                return Err(RunError::refused("the ring of parallel reads failed", &error));
            }
            for entry in ring.completion() {
                complete += 1;
                let extent = extents[entry.user_data() as usize];
                let result = entry.result();
                let error = match result {
                    ..0 => io::Error::from_raw_os_error(-result),
                    _ if result as u64 == extent.bytes => continue,
                    _ => short(extent, result as u64),
                };
                failure.get_or_insert((extent.file, error));
            }
        }
        match failure {
            None => Ok(()),
            Some((file, error)) => Err(RunError::io("read", self.files.path(file), &error)),
        }
    }
}
