//! Host view of the simulation: one drive, or an array of them, as a device that takes requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iosonde_protocol::{ArrayModel, DeviceUsage, DriveModel, LimitStyle, RaidLevel};

use crate::array::{Array, MemberIo};
use crate::check::{self, ModelError};
use crate::drive::{Command, Drive, time_ns};
use crate::limits::{Claim, FirstTouch, Gate};
use crate::{Action, PAGE_BYTES};

/// An I/O of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub operation: Action,
    /// First byte.
    pub offset_bytes: u64,
    /// Length; 0 for a flush.
    pub bytes: u64,
    /// A write that must survive a power cut before it is acknowledged.
    pub durable: bool,
}

/// Result of filling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that held nothing and were written.
    pub written_bytes: u64,
    /// Bytes that held data already.
    pub kept_bytes: u64,
}

/// A simulated drive or array; see the crate.
pub struct Storage {
    now_ns: u64,
    model: DriveModel,
    array: Array,
    array_model: ArrayModel,
    drives: Vec<Drive>,
    pub(crate) limits: Limits,
    requests: Vec<Pending>,
    vacant: Vec<u32>,
    /// Pending requests: (time, order, number).
    completions: BinaryHeap<Reverse<(u64, u64, u32)>>,
    completed: u64,
    common_free_ns: u64,
    parity_free_ns: u64,
    /// Host I/O of the array as a whole.
    usage: DeviceUsage,
    in_flight: u64,
    busy_since_ns: u64,
    done: Vec<u32>,
}

/// Throttling points of requests; each is None where the model has no such rule.
pub(crate) struct Limits {
    /// Requests of the host, before they are divided.
    pub first_touch: Option<FirstTouch<u32>>,
    /// I/Os before their drive.
    pub before: Option<Gate<(u32, MemberIo)>>,
    /// Requests that the drives are done with.
    pub after: Option<Gate<u32>>,
}

impl Limits {
    fn new(model: &DriveModel, drives: u32, capacity_bytes: u64) -> Limits {
        Limits {
            first_touch: model.first_touch.map(|model| FirstTouch::new(model, capacity_bytes)),
            before: Gate::new(model, LimitStyle::Queue, drives),
            after: Gate::new(model, LimitStyle::Paced, 1),
        }
    }

    pub(crate) fn exist(&self) -> bool {
        self.first_touch.is_some() || self.before.is_some() || self.after.is_some()
    }

    fn next_event(&self) -> Option<u64> {
        let of_each = [
            self.first_touch.as_ref().and_then(FirstTouch::next_event),
            self.before.as_ref().and_then(Gate::next_event),
            self.after.as_ref().and_then(Gate::next_event),
        ];
        of_each.into_iter().flatten().min()
    }
}

struct Pending {
    token: u64,
    request: Request,
    submitted_ns: u64,
    commands: u32,
    second: Vec<MemberIo>,
}

impl Storage {
    /// A new drive, or an array of new drives; `seed` decides everything that is left to chance.
    ///
    /// # Errors
    /// When the model contradicts itself.
    pub fn new(model: &DriveModel, array: &ArrayModel, seed: u64) -> Result<Storage, ModelError> {
        check::check(model, array)?;
        let divided = Array::new(*array, model.capacity_bytes);
        Ok(Storage {
            now_ns: 0,
            limits: Limits::new(model, array.drives, divided.capacity_bytes()),
            array: divided,
            drives: (0..array.drives)
                .map(|number| Drive::new(model, seed, number.into()))
                .collect(),
            model: model.clone(),
            array_model: *array,
            requests: Vec::new(),
            vacant: Vec::new(),
            completions: BinaryHeap::new(),
            completed: 0,
            common_free_ns: 0,
            parity_free_ns: 0,
            usage: DeviceUsage::default(),
            in_flight: 0,
            busy_since_ns: 0,
            done: Vec::new(),
        })
    }

    /// Bytes that the host may address.
    pub fn capacity_bytes(&self) -> u64 {
        self.array.capacity_bytes()
    }

    /// Now, in nanoseconds of its own time.
    pub fn now(&self) -> u64 {
        self.now_ns
    }

    /// Takes a request; `token` comes back when it is complete.
    pub fn submit(&mut self, token: u64, request: &Request) {
        if self.in_flight == 0 {
            self.busy_since_ns = self.now_ns;
        }
        self.in_flight += 1;
        let number = self.number(Pending {
            token,
            request: *request,
            submitted_ns: self.now_ns,
            commands: 0,
            second: Vec::new(),
        });
        match &mut self.limits.first_touch {
            None => self.divide(number),
            Some(first_touch) => {
                if let Some(number) = first_touch.arrive(self.now_ns, &claim_of(request), number) {
                    self.divide(number);
                }
            }
        }
    }

    /// Lets time pass until a request is complete, but not beyond `limit_ns`.
    pub fn advance(&mut self, limit_ns: u64) {
        loop {
            let completion_ns = self.completions.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let event_ns = self.next_event();
            match (completion_ns, event_ns) {
                (Some(at_ns), event_ns) if at_ns <= limit_ns && event_ns.is_none_or(|event_ns| at_ns < event_ns) => {
                    self.now_ns = self.now_ns.max(at_ns);
                    return;
                }
                (_, Some(event_ns)) if event_ns <= limit_ns => self.happen(event_ns),
                // With nothing left to happen, time has no reason to pass without a limit.
                _ if limit_ns == u64::MAX => return,
                _ => return self.pass(limit_ns),
            }
        }
    }

    /// A request that has completed by now: its token, and the bytes that it moved.
    pub fn completed(&mut self) -> Option<(u64, u64)> {
        let &Reverse((at_ns, _, number)) = self.completions.peek()?;
        if at_ns > self.now_ns {
            return None;
        }
        self.completions.pop();
        self.vacant.push(number);
        self.in_flight -= 1;
        let Pending {
            token,
            request,
            submitted_ns,
            ..
        } = self.requests[number as usize];
        self.count(&request, at_ns - submitted_ns);
        if self.in_flight == 0 {
            self.usage.busy_ns += at_ns - self.busy_since_ns;
        }
        Some((token, request.bytes))
    }

    /// Writes what holds nothing yet below `bytes`, or everything with `again`, in no time and without being counted:
    /// what a host finds that did not see the drive being written.
    pub fn fill(&mut self, bytes: u64, again: bool) -> Filled {
        let pages = self.member_bytes(bytes).div_ceil(PAGE_BYTES);
        let written: u64 = self
            .drives
            .iter_mut()
            .map(|drive| u64::from(drive.fill(pages as u32, again)))
            .sum();
        let share = bytes as f64 / (pages * self.drives.len() as u64 * PAGE_BYTES).max(1) as f64;
        let written_bytes = ((written * PAGE_BYTES) as f64 * share).round() as u64;
        Filled {
            written_bytes,
            kept_bytes: bytes - written_bytes.min(bytes),
        }
    }

    /// Counters so far: of an array first the array, then its drives.
    pub fn usage(&self) -> Vec<DeviceUsage> {
        let mut all = Vec::new();
        if self.drives.len() > 1 {
            let mut usage = self.host_usage();
            usage.device = "array".into();
            all.push(usage);
        }
        for (number, drive) in self.drives.iter().enumerate() {
            let mut usage = drive.usage();
            if self.drives.len() == 1 && self.limits.exist() {
                // A host counts what a volume throttles as in flight.
                usage = DeviceUsage {
                    media: usage.media,
                    ..self.host_usage()
                };
            }
            usage.device = format!("drive{number}");
            all.push(usage);
        }
        all
    }

    /// Completes all work in progress, as in a short idle time, and resets the clocks of the drives.
    pub fn settle(&mut self) {
        while self.in_flight > 0 {
            self.advance(u64::MAX);
            while self.completed().is_some() {}
        }
        self.drives.iter_mut().for_each(Drive::settle);
        if let Some(gate) = &mut self.limits.before {
            gate.restart(self.now_ns);
        }
        if let Some(gate) = &mut self.limits.after {
            gate.restart(self.now_ns);
        }
        (self.now_ns, self.common_free_ns, self.parity_free_ns) = (0, 0, 0);
    }

    pub(crate) fn model(&self) -> (&DriveModel, &ArrayModel) {
        (&self.model, &self.array_model)
    }

    pub(crate) fn drives(&self) -> &[Drive] {
        &self.drives
    }

    pub(crate) fn drives_mut(&mut self) -> &mut [Drive] {
        &mut self.drives
    }

    fn host_usage(&self) -> DeviceUsage {
        let mut usage = self.usage.clone();
        usage.in_flight = self.in_flight;
        if self.in_flight > 0 {
            usage.busy_ns += self.now_ns - self.busy_since_ns;
        }
        usage
    }

    fn next_event(&self) -> Option<u64> {
        let drives_ns = self.drives.iter().filter_map(Drive::next_event).min();
        match (drives_ns, self.limits.next_event()) {
            (Some(drives_ns), Some(limits_ns)) => Some(drives_ns.min(limits_ns)),
            (drives_ns, limits_ns) => drives_ns.or(limits_ns),
        }
    }

    /// Bytes from the start of each drive that the first bytes of the array occupy.
    fn member_bytes(&self, bytes: u64) -> u64 {
        let data = self.array.capacity_bytes() / self.model.capacity_bytes.max(1);
        let rows = bytes.div_ceil(self.array_model.chunk_bytes * data.max(1));
        if self.drives.len() == 1 || data <= 1 {
            return bytes.min(self.model.capacity_bytes);
        }
        (rows * self.array_model.chunk_bytes).min(self.model.capacity_bytes)
    }

    fn number(&mut self, pending: Pending) -> u32 {
        if let Some(number) = self.vacant.pop() {
            self.requests[number as usize] = pending;
            return number;
        }
        self.requests.push(pending);
        self.requests.len() as u32 - 1
    }

    /// Divides a request among the drives.
    fn divide(&mut self, number: u32) {
        let drives = &self.drives;
        let least_busy = |first: u32, count: u32| {
            let among = first..first + count;
            among
                .min_by_key(|&drive| drives[drive as usize].pending())
                .unwrap_or(first)
        };
        let Request {
            operation,
            offset_bytes,
            bytes,
            ..
        } = self.requests[number as usize].request;
        let steps = self.array.divide(operation, offset_bytes, bytes, least_busy);
        self.requests[number as usize].second = steps.second;
        self.send(number, &steps.first);
    }

    /// Sends I/Os to the drives, unless they must wait for credits.
    fn send(&mut self, number: u32, ios: &[MemberIo]) {
        if self.limits.before.is_none() {
            return ios.iter().for_each(|io| self.issue(number, io));
        }
        // All of them are open before the first is issued, or the request would seem to be complete.
        self.requests[number as usize].commands += ios.len() as u32;
        for &io in ios {
            let claim = Claim {
                operation: io.operation,
                offset_bytes: io.offset_bytes,
                bytes: io.bytes,
            };
            let gate = self.limits.before.as_mut();
            if let Some((number, io)) = gate.and_then(|gate| gate.arrive(io.drive as usize, claim, (number, io))) {
                self.issue_held(number, &io);
            }
        }
        self.release();
    }

    fn issue_held(&mut self, number: u32, io: &MemberIo) {
        self.issue(number, io);
        self.requests[number as usize].commands -= 1;
    }

    /// Divides an I/O into commands as long as the host makes them.
    fn issue(&mut self, number: u32, io: &MemberIo) {
        let Pending { request, .. } = self.requests[number as usize];
        let longest = self.model.interface.command_bytes;
        let drive = &mut self.drives[io.drive as usize];
        drive.advance(self.now_ns);
        let (mut at, end) = (io.offset_bytes, io.offset_bytes + io.bytes);
        loop {
            let whole = io.operation == Action::Trim || io.operation == Action::Flush;
            let bytes = if whole { end - at } else { (end - at).min(longest) };
            self.requests[number as usize].commands += 1;
            drive.submit(Command {
                token: number,
                operation: io.operation,
                offset_bytes: at,
                bytes,
                durable: request.durable && io.operation == Action::Write,
            });
            at += bytes;
            if at >= end {
                break;
            }
        }
    }

    fn happen(&mut self, at_ns: u64) {
        self.now_ns = at_ns;
        let mut done = std::mem::take(&mut self.done);
        for drive in &mut self.drives {
            drive.advance(at_ns);
            drive.take_done(&mut done);
        }
        for number in done.drain(..) {
            self.command_done(number);
        }
        self.done = done;
        while let Some(number) = self.limits.first_touch.as_mut().and_then(|touch| touch.pass(at_ns)) {
            self.divide(number);
        }
        self.release();
    }

    /// Lets pass what has its credits by now.
    fn release(&mut self) {
        let now_ns = self.now_ns;
        while let Some((number, io)) = self.limits.before.as_mut().and_then(|gate| gate.pass(now_ns)) {
            self.issue_held(number, &io);
        }
        while let Some(number) = self.limits.after.as_mut().and_then(|gate| gate.pass(now_ns)) {
            self.complete(number, now_ns);
        }
    }

    fn command_done(&mut self, number: u32) {
        let pending = &mut self.requests[number as usize];
        pending.commands -= 1;
        if pending.commands > 0 {
            return;
        }
        let second = std::mem::take(&mut pending.second);
        if !second.is_empty() {
            return self.send(number, &second);
        }
        let request = pending.request;
        let at_ns = self.through_common_link(request.bytes).max(self.with_parity(&request));
        let held = match &mut self.limits.after {
            Some(gate) => gate.arrive(0, claim_of(&request), number),
            None => Some(number),
        };
        if let Some(number) = held {
            self.complete(number, at_ns);
        }
    }

    fn complete(&mut self, number: u32, at_ns: u64) {
        self.completed += 1;
        self.completions.push(Reverse((at_ns, self.completed, number)));
    }

    /// Instant at which the bytes have passed the link that all drives share.
    fn through_common_link(&mut self, bytes: u64) -> u64 {
        let Some(bytes_per_second) = self.array_model.bytes_per_second else {
            return self.now_ns;
        };
        self.common_free_ns = self.common_free_ns.max(self.now_ns) + time_ns(bytes, bytes_per_second);
        self.common_free_ns
    }

    /// Instant at which the host has done its work for a write of RAID 5 or 6.
    fn with_parity(&mut self, request: &Request) -> u64 {
        let has_parity = matches!(self.array_model.level, RaidLevel::Raid5 | RaidLevel::Raid6);
        match self.array_model.parity_bytes_per_second {
            Some(bytes_per_second) if has_parity && request.operation == Action::Write => {
                let duration_ns = time_ns(request.bytes, bytes_per_second);
                self.parity_free_ns = self.parity_free_ns.max(self.now_ns) + duration_ns;
                self.parity_free_ns
            }
            _ => self.now_ns,
        }
    }

    fn pass(&mut self, to_ns: u64) {
        self.now_ns = to_ns;
        self.drives.iter_mut().for_each(|drive| drive.advance(to_ns));
    }

    fn count(&mut self, request: &Request, waited_ns: u64) {
        let usage = &mut self.usage;
        match request.operation {
            Action::Read => {
                usage.reads += 1;
                usage.read_bytes += request.bytes;
                usage.read_wait_ns += waited_ns;
            }
            Action::Write => {
                usage.writes += 1;
                usage.write_bytes += request.bytes;
                usage.write_wait_ns += waited_ns;
            }
            Action::Trim => {
                usage.discards += 1;
                usage.discard_bytes += request.bytes;
            }
            Action::Flush => usage.flushes += 1,
        }
    }
}

fn claim_of(request: &Request) -> Claim {
    Claim {
        operation: request.operation,
        offset_bytes: request.offset_bytes,
        bytes: request.bytes,
    }
}
