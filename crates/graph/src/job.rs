//! One job: a thread that reads the lists of its share of the vertices and processes them, pass after pass.
//!
//! Reads are planned ahead and processed in the order of vertices, so that sums do not depend on which read completes first.
//! A job has twice as many buffers as reads in flight: while one read is processed, the next ones are under way. The loop
//! allocates nothing and takes no lock; jobs meet after each pass (`team`).

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use iosonde_block::{Arena, Backend, Wait};
use iosonde_harness::load::Io;
use iosonde_harness::metrics::usage;
use iosonde_harness::{JobDone, JobPhases, Stage};
use iosonde_protocol::Operation;

use crate::cache::Cache;
use crate::csr::{Csr, EDGE_BYTES, PAGE_BYTES, PAGE_EDGES};
use crate::pagerank::Program;
use crate::team::Team;

/// Pages that are processed between two looks at completions and free buffers.
const STEP_PAGES: u64 = 16;
/// Timeout of reads in flight after the end, in nanoseconds; then they are abandoned.
const DRAIN_NS: u64 = 5_000_000_000;
/// Period at which a job checks the clock while it awaits its last reads, in nanoseconds.
const DRAIN_POLL_NS: u64 = 100_000_000;
/// Pieces from the cache that may be planned ahead, beyond those that are read.
const CACHED_AHEAD: usize = 8;

/// Counters of a job besides those of its phases.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub io_wait_ns: u64,
    pub job_wait_ns: u64,
    pub needed_pages: u64,
    pub cached_pages: u64,
    /// Reads by size in pages.
    pub reads: Vec<u64>,
}

/// A read that failed, which ends the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadFailure {
    pub offset_bytes: u64,
    pub bytes: u32,
    /// Bytes read, or a negative error number.
    pub result: i32,
}

/// Results of a job besides the counts of its phases.
pub(crate) struct Found {
    /// Edges that it processed.
    pub edges: u64,
    pub tally: Tally,
    pub failure: Option<ReadFailure>,
}

/// Inputs of a job.
pub(crate) struct JobPlan {
    /// Largest read, in pages.
    pub largest: u64,
    /// Reads in flight.
    pub depth: u32,
    /// True if the backend reads while it is polled for completions.
    pub is_blocking: bool,
    /// Vertices whose lists it processes.
    pub vertices: Range<u32>,
    /// Pages of these lists.
    pub pages: Range<u64>,
    /// Vertices that it makes ready for the next pass.
    pub applied: Range<u32>,
}

/// Pages on their way: planned, then there, then processed.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first_page: u64,
    pages: u64,
    /// Pages of these that are processed.
    done: u64,
    place: Place,
    is_there: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Cached(u32),
    Slot(u32),
}

/// Progress through the lists of a pass.
struct Cursor<'a, P: Program> {
    program: &'a P,
    csr: &'a Csr,
    /// Vertices that remain.
    vertices: Range<u32>,
    /// The vertex whose list is being processed, with what is kept of it.
    open: Option<(u32, P::Register)>,
    edges: u64,
}

impl<P: Program> Cursor<'_, P> {
    /// Processes the part of all needed lists that is on these pages.
    #[inline]
    fn process(&mut self, first_page: u64, bytes: &[u8]) {
        let begin = first_page * PAGE_EDGES;
        let end = begin + bytes.len() as u64 / EDGE_BYTES;
        while let Some((vertex, mut register)) = self.open.or_else(|| self.open_next(end)) {
            let list = self.csr.list(vertex);
            let (from, to) = (list.start.max(begin), list.end.min(end));
            let piece = &bytes[((from - begin) * EDGE_BYTES) as usize..((to - begin) * EDGE_BYTES) as usize];
            self.program.neighbours(vertex, &mut register, piece);
            self.edges += to - from;
            if list.end > end {
                self.open = Some((vertex, register));
                return;
            }
            self.program.close(vertex, register);
            self.open = None;
        }
    }

    /// The next vertex whose list is needed, if it starts before this edge.
    #[inline]
    fn open_next(&mut self, end: u64) -> Option<(u32, P::Register)> {
        let vertex = self.csr.next_connected(self.vertices.start, self.vertices.end);
        self.vertices.start = vertex;
        if vertex >= self.vertices.end || self.csr.list(vertex).start >= end {
            return None;
        }
        self.vertices.start += 1;
        Some((vertex, self.program.open(vertex)))
    }
}

/// Buffers of an arena for this many reads in flight.
pub(crate) fn slots(depth: u32) -> u32 {
    2 * depth
}

/// One job; see the module.
pub(crate) struct Job<'a, P: Program> {
    plan: JobPlan,
    program: &'a P,
    csr: &'a Csr,
    team: &'a Team,
    phases: JobPhases<'a>,
    arena: &'a Arena,
    cache: Cache,
    /// Pages of the next read that are not divided into pieces yet, and pages after them.
    planned: Range<u64>,
    unplanned: Range<u64>,
    pieces: VecDeque<Piece>,
    /// Number of the first piece of the pass that is still in `pieces`.
    processed: u64,
    /// Of each slot the number of its piece and its start.
    in_slots: Vec<(u64, u64)>,
    free: Vec<u32>,
    in_flight: u32,
    completed: Vec<(u32, i32)>,
    cursor: Cursor<'a, P>,
    failure: Option<ReadFailure>,
    tally: Tally,
}

impl<'a, P: Program> Job<'a, P> {
    pub(crate) fn new(
        plan: JobPlan,
        program: &'a P,
        csr: &'a Csr,
        team: &'a Team,
        phases: JobPhases<'a>,
        arena: &'a Arena,
        cache: Cache,
    ) -> Job<'a, P> {
        let slots = slots(plan.depth);
        Job {
            cache,
            planned: 0..0,
            unplanned: 0..0,
            pieces: VecDeque::with_capacity(slots as usize + CACHED_AHEAD),
            processed: 0,
            in_slots: vec![(0, 0); slots as usize],
            free: (0..slots).collect(),
            in_flight: 0,
            completed: Vec::with_capacity(slots as usize),
            cursor: Cursor {
                program,
                csr,
                vertices: 0..0,
                open: None,
                edges: 0,
            },
            failure: None,
            tally: Tally {
                reads: vec![0; plan.largest as usize + 1],
                ..Tally::default()
            },
            plan,
            program,
            csr,
            team,
            phases,
            arena,
        }
    }

    /// Computes until the end.
    pub(crate) fn drive<B: Backend>(mut self, backend: &mut B) -> io::Result<JobDone<Found>> {
        let begin_ns = self.phases.begin();
        self.team.sums().begin_ns.store(begin_ns, Ordering::Relaxed);
        let driven = self.iterate(backend);
        if driven.is_err() {
            self.team.cut();
            self.meet(backend, || false);
        }
        let now_ns = backend.now();
        self.phases.advance(now_ns, 0);
        self.phases.end_load(now_ns);
        let found = Found {
            edges: self.cursor.edges,
            tally: self.tally,
            failure: self.failure,
        };
        driven.map(|()| JobDone {
            abandoned: u64::from(self.in_flight),
            ..JobDone::new(self.phases.into_outcome(), found)
        })
    }

    fn iterate<B: Backend>(&mut self, backend: &mut B) -> io::Result<()> {
        loop {
            let cpu_ns = cpu_ns();
            let (edges, bytes) = (self.cursor.edges, self.read_bytes());
            self.pass(backend)?;
            let sums = self.team.sums();
            sums.edges.fetch_add(self.cursor.edges - edges, Ordering::Relaxed);
            sums.read_bytes.fetch_add(self.read_bytes() - bytes, Ordering::Relaxed);
            sums.cpu_ns.fetch_add(cpu_ns_since(cpu_ns), Ordering::Relaxed);
            if !self.meet(backend, || true) {
                return Ok(());
            }
            let before = self::cpu_ns();
            self.program.apply(self.plan.applied.clone());
            sums.cpu_ns.fetch_add(cpu_ns_since(before), Ordering::Relaxed);
            let (team, program) = (self.team, self.program);
            let clock_ns = backend.now();
            if !self.meet(backend, || team.end_iteration(clock_ns, program.conclude())) {
                return Ok(());
            }
        }
    }

    /// One pass over the vertices; returns early once the computation is cut.
    fn pass<B: Backend>(&mut self, backend: &mut B) -> io::Result<()> {
        self.start_pass();
        loop {
            let now_ns = backend.now();
            self.phases.advance(now_ns, u64::from(self.in_flight));
            if self.phases.stage() == Stage::Drain {
                self.team.cut();
            }
            if self.team.is_cut() {
                return self.drain(backend);
            }
            self.fill(backend);
            if self.process() {
                self.look(backend)?;
            } else if self.in_flight > 0 {
                self.wait(backend)?;
            } else {
                debug_assert!(
                    self.unplanned.is_empty() && self.pieces.is_empty(),
                    "all pieces are processed"
                );
                return Ok(());
            }
        }
    }

    fn start_pass(&mut self) {
        self.unplanned = self.plan.pages.clone();
        self.planned = 0..0;
        self.cursor.vertices = self.plan.vertices.clone();
        self.cursor.open = None;
    }

    /// Starts reads while there are buffers, and takes what the cache has.
    #[inline]
    fn fill<B: Backend>(&mut self, backend: &mut B) {
        let mut started = 0;
        while self.pieces.len() < self.in_slots.len() + CACHED_AHEAD
            && self.in_flight < self.plan.depth
            && !self.free.is_empty()
        {
            let Some((pages, cached)) = self.next_pages() else {
                break;
            };
            let place = match cached {
                Some(place) => Place::Cached(place),
                None => {
                    started += 1;
                    Place::Slot(self.start_read(backend, &pages))
                }
            };
            self.pieces.push_back(Piece {
                first_page: pages.start,
                pages: pages.end - pages.start,
                done: 0,
                place,
                is_there: cached.is_some(),
            });
            if started as usize >= backend.batch() {
                break;
            }
        }
        if started > 0 {
            let now_ns = backend.now();
            self.phases.started(started, now_ns, now_ns);
            backend.submit();
        }
    }

    /// The next pages that are all in the cache, next to one another, or all are not.
    #[inline]
    fn next_pages(&mut self) -> Option<(Range<u64>, Option<u32>)> {
        if self.planned.is_empty() {
            let Range { start, end } = self.unplanned;
            if start >= end {
                return None;
            }
            self.planned = start..end.min(start + self.plan.largest);
            self.unplanned.start = self.planned.end;
        }
        let Range { start, end } = self.planned;
        let first = self.cache.place(start);
        let fits = |page: u64| match first {
            Some(place) => self.cache.place(page) == Some(place + (page - start) as u32),
            None => self.cache.place(page).is_none(),
        };
        let cut = (start + 1..end).find(|page| !fits(*page)).unwrap_or(end);
        self.planned.start = cut;
        self.tally.needed_pages += cut - start;
        if first.is_some() {
            self.tally.cached_pages += cut - start;
        }
        Some((start..cut, first))
    }

    fn start_read<B: Backend>(&mut self, backend: &mut B, pages: &Range<u64>) -> u32 {
        let slot = self.free.pop().expect("the caller found a free buffer");
        let count = pages.end - pages.start;
        let io = Io {
            operation: Operation::Read,
            offset_bytes: self.csr.adjacency_at + pages.start * PAGE_BYTES,
            bytes: (count * PAGE_BYTES) as u32,
        };
        self.in_slots[slot as usize] = (self.processed + self.pieces.len() as u64, backend.now());
        self.in_flight += 1;
        self.tally.reads[count as usize] += 1;
        self.phases.take(u64::from(io.bytes));
        backend.push(slot, &io);
        slot
    }

    /// Processes some pages of the oldest piece, if it is there. Whether it was.
    #[inline]
    fn process(&mut self) -> bool {
        let Some(piece) = self.pieces.front().copied().filter(|piece| piece.is_there) else {
            return false;
        };
        let pages = (piece.pages - piece.done).min(STEP_PAGES);
        let first_page = piece.first_page + piece.done;
        match piece.place {
            Place::Cached(place) => {
                let bytes = self.cache.bytes(place + piece.done as u32, pages);
                self.cursor.process(first_page, bytes);
            }
            Place::Slot(slot) => {
                let bytes = buffer(self.arena, slot, piece.done * PAGE_BYTES, pages * PAGE_BYTES);
                self.cursor.process(first_page, bytes);
                self.cache.admit(first_page, bytes);
            }
        }
        if piece.done + pages < piece.pages {
            self.pieces[0].done += pages;
            return true;
        }
        self.pieces.pop_front();
        self.processed += 1;
        if let Place::Slot(slot) = piece.place {
            self.free.push(slot);
        }
        true
    }

    /// Submits what was started and takes what has completed, without waiting.
    fn look<B: Backend>(&mut self, backend: &mut B) -> io::Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        let begin_ns = backend.now();
        backend.submit_and_wait(Wait::Idle(begin_ns))?;
        if self.plan.is_blocking {
            self.tally.io_wait_ns += backend.now() - begin_ns;
        }
        self.reap(backend);
        Ok(())
    }

    /// Waits until a read completes: there is nothing to process.
    fn wait<B: Backend>(&mut self, backend: &mut B) -> io::Result<()> {
        let begin_ns = backend.now();
        backend.submit_and_wait(Wait::One)?;
        self.tally.io_wait_ns += backend.now() - begin_ns;
        self.reap(backend);
        Ok(())
    }

    fn reap<B: Backend>(&mut self, backend: &mut B) {
        let completed = &mut self.completed;
        completed.clear();
        backend.reap(|slot, result| completed.push((slot, result)));
        let now_ns = backend.now();
        for index in 0..self.completed.len() {
            let (slot, result) = self.completed[index];
            self.complete(slot, result, now_ns);
        }
    }

    fn complete(&mut self, slot: u32, result: i32, now_ns: u64) {
        let (number, start_ns) = self.in_slots[slot as usize];
        self.in_flight -= 1;
        let piece = &mut self.pieces[(number - self.processed) as usize];
        piece.is_there = true;
        let bytes = piece.pages * PAGE_BYTES;
        if i64::from(result) != bytes as i64 {
            self.failure.get_or_insert(ReadFailure {
                offset_bytes: self.csr.adjacency_at + piece.first_page * PAGE_BYTES,
                bytes: bytes as u32,
                result,
            });
            self.team.cut();
            return;
        }
        let completion_ns = now_ns.saturating_sub(start_ns);
        self.phases.record(Operation::Read, bytes, now_ns, completion_ns, None);
    }

    /// Awaits the reads in flight, and forgets the pass.
    fn drain<B: Backend>(&mut self, backend: &mut B) -> io::Result<()> {
        let begin_ns = backend.now();
        while self.in_flight > 0 && backend.now() < begin_ns + DRAIN_NS {
            backend.submit_and_wait(Wait::Idle(backend.now() + DRAIN_POLL_NS))?;
            self.reap(backend);
        }
        Ok(())
    }

    /// Meets the other jobs; whether all of them go on.
    fn meet<B: Backend>(&mut self, backend: &B, decide: impl FnOnce() -> bool) -> bool {
        let begin_ns = backend.now();
        let phases = &mut self.phases;
        let continues = self.team.meet(decide, || phases.advance(backend.now(), 0));
        self.tally.job_wait_ns += backend.now() - begin_ns;
        continues
    }

    fn read_bytes(&self) -> u64 {
        (0..)
            .zip(&self.tally.reads)
            .map(|(pages, count)| pages * count * PAGE_BYTES)
            .sum()
    }
}

fn cpu_ns() -> u64 {
    let used = usage::thread(0);
    used.user_ns + used.system_ns
}

fn cpu_ns_since(before_ns: u64) -> u64 {
    cpu_ns().saturating_sub(before_ns)
}

/// A part of the slot's buffer. It is only read while no read owns the slot.
fn buffer(arena: &Arena, slot: u32, offset: u64, bytes: u64) -> &[u8] {
    debug_assert!((offset + bytes) as usize <= arena.slot_bytes(), "within the slot");
    // SAFETY: the part is in the slot, and the slot in the arena, which outlives the job; the job owns a slot from the
    // completion of its read until the piece is processed, and starts no other read into it before.
    unsafe { std::slice::from_raw_parts(arena.slot(slot).add(offset as usize), bytes as usize) }
}
